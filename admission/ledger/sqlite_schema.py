"""The ledger's tables on SQLite, as statements that may run again. A pool is one row, its values as JSON."""

from __future__ import annotations

#: What the file says its form is (`user_version`): it changes with the tables or the rows.
FORM = 1

STATEMENTS = (
    """
    create table if not exists ledger_pools (
        name text primary key,
        row text not null
    ) without rowid
    """,
    """
    create table if not exists ledger_owners (
        fence integer primary key autoincrement,
        owner text not null unique,
        since real not null,
        alive_until real not null,
        seq integer not null,
        reply text not null
    )
    """,
    """
    create table if not exists ledger_totals (
        pool text not null,
        fence integer not null,
        slots integer not null,
        unsent text not null,
        granted integer not null,
        claim text,
        primary key (pool, fence)
    ) without rowid
    """,
    "create index if not exists ledger_totals_by_fence on ledger_totals (fence)",
    """
    create table if not exists ledger_clock (
        id integer primary key check (id = 1),
        boot text not null,
        offset_s real not null,
        latest real not null
    )
    """,
)
