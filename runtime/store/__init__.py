"""The store: the records of calls and runs, the journal of steps, who is alive; in SQLite or Postgres.

    text         text that any database takes: NUL and lone surrogates stored reversibly
    schema       the tables (SQLAlchemy Core), the columns' types
    migrations   their history (Alembic); `migrating` brings a store up, and refuses a newer one
    rows         CallRow, RunRow: what is written and read; `sql` makes columns of them and back
    book         Book: what the runtime writes into; MemoryBook keeps the latest rows without a store
    sql_book     SqlBook: the same in a database
    writer       the one thread that owns the database: it commits whatever is queued as one `group`; `prepared`: its
                 statements, compiled once
    sure         its connection: transactions that count once, whatever becomes of it
    place, link  a store's URL taken apart, and how a thread reaches the database
    journal      SqlJournal: runs and their steps, written by claim; `journal_sql` has its statements
    owners       who is alive; `lease` keeps this process so, from a thread
    levels       what pools must not forget: one row a pool
    queue        SqlQueue: the runs that workers claim
    reads        questions to it: the latest calls, the runs; `run_reads`: runs as people see them
    run_changes  what others ask of a run: to be cancelled, paused, forgotten
    sharing      who else is in the store's database
    opening      from a URL to a book, and the errors on the way

Only `interlock.runtime` imports it. SQLAlchemy is imported when a store is opened, asyncpg and Alembic where needed.
"""
