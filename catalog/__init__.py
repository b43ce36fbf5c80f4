"""Which models exist, what they cost, and which one serves a request.

    words      closed vocabularies: Grade, Kind, Input, Depth, OutputSize, Status
    usage      Usage: what a call consumed, in one normal form
    entry      ModelEntry and its parts, as the file states them
    spec       ModelSpec (what is asked), ModelBinding (what was chosen)
    loader     the strict YAML reader: every error with file, line and key
    catalog    Catalog: entries, pools, providers, pins
    picker     from a spec to an entry, and why the others were skipped
    limits     output_limit: the one formula for the reservation and the wire
    pricing    what a usage costs
    tokens     the offline estimate of input tokens, corrected by what providers report

Everyone may import it; it imports nothing of Interlock but `interlock.errors`.
"""
