"""The journal: what a pipeline's steps came to, so that a run that was cut off goes on and pays for nothing twice.

    protocol      Journal: what is written and read back, and the promises of whoever keeps it
    memory        MemoryJournal: in this process; for tests, and the plainest reading of the protocol
    replay        what becomes of a step that is asked for, and why one runs again: pure rules
    opening       whether a recorded run is taken up, and how: one table
    run           RunJournal: one run's side of it; steps: a step between its asking and its outcome
    written       what follows once a row is committed
    fingerprint   whether a step is the recorded one; calling: a pipeline's call as names and JSON
    codec         values as JSON and back; failures: errors; names: classes by name
    outcomes      the table interlock_outcome in a user's own database
    unknown       attempts nobody heard of again, put on record
    starting      from a Runtime's settings to what its runs are journaled with

Only `interlock.runtime` imports it. Nothing here knows of the store's SQL: it keeps the rows (`store/journal`).
"""
