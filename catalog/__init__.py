"""Which models exist, what they cost, and which one serves a request.

    words      closed vocabularies: Grade, Kind, Input, Depth, OutputSize, Status
    usage      Usage: what a call consumed, in one normal form
    entry      ModelEntry and its parts, as the file states them
    spec       ModelSpec (what is asked), ModelBinding (what was chosen)
    loader     the file as a whole; below it scalars (what a bare word is), document (nodes with lines, bounded), reader
               (from nodes to models), rules (what entries owe each other): every error with file, line and key
    catalog    Catalog: entries, pools, providers, pins
    picker     from a spec to an entry, and why the others were skipped
    limits     output_limit: the one formula for the reservation and the wire
    pricing    what a usage costs
    pricebook  which entry's prices hold for a wire id
    tokens     the offline estimate of input tokens, corrected by what providers report

Everyone may import it; it imports nothing of Interlock but `interlock.errors`.
"""

from .catalog import Catalog
from .entry import Accounting, Limits, ModelEntry, Prices, PriceTier, ProviderSettings, Thinking
from .limits import DEFAULT_OUTPUT_TOKENS, default_output_tokens, output_limit, thinking_budget
from .picker import DefaultPicker, Picker, Seat, Situation, bind
from .pricebook import PriceRow
from .pricing import cost, parse_cap, worst_cost
from .spec import ModelBinding, ModelSpec
from .tokens import TokenEstimator, estimate_document, estimate_text
from .usage import Usage
from .words import Depth, Grade, Input, Kind, OutputSize, Status

__all__ = [
    "DEFAULT_OUTPUT_TOKENS",
    "Accounting",
    "Catalog",
    "DefaultPicker",
    "Depth",
    "Grade",
    "Input",
    "Kind",
    "Limits",
    "ModelBinding",
    "ModelEntry",
    "ModelSpec",
    "OutputSize",
    "Picker",
    "PriceRow",
    "PriceTier",
    "Prices",
    "ProviderSettings",
    "Seat",
    "Situation",
    "Status",
    "Thinking",
    "TokenEstimator",
    "Usage",
    "bind",
    "cost",
    "default_output_tokens",
    "estimate_document",
    "estimate_text",
    "output_limit",
    "parse_cap",
    "thinking_budget",
    "worst_cost",
]
