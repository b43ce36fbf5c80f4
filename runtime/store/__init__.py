"""The store: one row per attempt of a call, one per run of a pipeline, written in groups by one writer.

    text      text that any database takes: NUL and lone surrogates stored reversibly
    schema    the tables (SQLAlchemy Core), the columns' types
    rows      CallRow, RunRow: what is written and read
    book      Book: what the runtime writes into; MemoryBook keeps the latest rows without a store
    writer    the one thread that owns the database: it commits whatever is queued as one group
    levels    what pools must not forget: one row a pool
    reads     questions to it: the latest calls, the runs
    opening   from a URL to a book, and the errors on the way

Only `interlock.runtime` imports it. SQLAlchemy is imported when a store is opened.
"""
