"""The journal: what a pipeline's steps came to, so that a run that was cut off goes on and pays for nothing twice.

    protocol   Journal: what is written and read back, whoever keeps it
    memory     MemoryJournal: in this process; for tests, and the plainest reading of the protocol

Only `interlock.runtime` imports it. Nothing here knows of SQL: the store keeps the rows.
"""
