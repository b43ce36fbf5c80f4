"""The demo: the main job on real text that is on every machine, beside the usual way of doing the same.

    corpus     the input: documentation strings of the standard library
    work       what is asked about each entry
    pipeline   the work as Interlock runs it: a pipeline of jobs
    baseline   the work as it is usually written: send, catch the 429, sleep, hold the connection
    library    where the results are kept, the search, and the meter on database connections
    provider   the simulated provider with its limits, and the catalog that names it
    figures    what is measured, and how
    progress   what is on the screen meanwhile
    report     the last page
    foretold   the same, planned instead of run
    main       one run of it all

Only `interlock.runtime.cli` and the benchmarks import it.
"""
