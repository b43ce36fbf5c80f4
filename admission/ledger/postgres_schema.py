"""The ledger's tables on PostgreSQL, as statements that may run again. `postgres_rules.py` has the function.

Names are compared byte by byte, so that every process, and the server, locks pools in one order.
"""

from __future__ import annotations

from .postgres_rules import FUNCTION
from .rows import EPOCH

CLOCK = f"""
create or replace function interlock_ledger_now() returns float8 language sql volatile
as 'select extract(epoch from clock_timestamp())::float8 - {EPOCH:.0f}'
"""

TABLES = (
    """
    create table if not exists ledger_pools (
        name text collate "C" primary key,
        limits text not null,
        version bigint not null,
        clock float8 not null,
        epoch bigint not null,
        slowdown float8 not null,
        calm boolean not null,
        held_until float8 not null,
        closed_until float8 not null,
        slots integer,
        look_at float8 not null,
        learnt text not null,
        dimension integer[] not null,
        part integer[] not null,
        kind integer[] not null,
        capacity float8[] not null,
        published float8[] not null,
        rate float8[] not null,
        at float8[] not null,
        mark float8[] not null,
        unsent float8[] not null,
        held float8[] not null,
        owed boolean[] not null,
        over boolean[] not null,
        opened_at float8[] not null
    ) with (fillfactor = 20, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000)
    """,
    """
    create table if not exists ledger_owners (
        fence bigint generated always as identity primary key,
        owner text not null unique,
        since float8 not null,
        alive_until float8 not null,
        seq bigint not null,
        names text[] not null,
        granted integer[] not null,
        states float8[] not null
    ) with (fillfactor = 20, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000)
    """,
    """
    create table if not exists ledger_totals (
        pool text collate "C" not null,
        fence bigint not null,
        slots integer not null,
        unsent float8[] not null,
        granted bigint not null,
        claim_priority integer,
        claim_since float8,
        claim_key bigint,
        claim_charge float8[],
        claim_slots integer,
        claim_lapses_at float8,
        primary key (pool, fence)
    ) with (fillfactor = 20, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000)
    """,
    "create index if not exists ledger_totals_by_fence on ledger_totals (fence)",
)

#: All that a database needs, in order.
STATEMENTS = (*TABLES, CLOCK, FUNCTION)
