"""The shared ledger: the metered accounts of pools that several processes draw on. docs/ledger.md tells how it works.

    message    what travels; wire: the same as flat numbers
    protocol   Ledger: what every ledger can do; base: what all of them have in common
    rules      what a message changes (pure); cold: what is rare, by the pool's real limiter (pure)
    rows       what a ledger keeps: plain values
    owners     who is alive (pure), and the thread that says so; pulse: whether this process has been running
    hostclock  one clock for a host's processes
    memory     MemoryLedger: for several runtimes of one process, and for tests
    sqlite     SQLiteLedger: for a host's processes; sqlite_schema: its tables; thread: the one it works in;
               holder: who keeps its file locked; forking: no fork in the midst of a transaction
    postgres   PostgresLedger: for every host's; postgres_schema, postgres_rows: its tables and what is in them;
               postgres_rules: the rules once more, as one function in the database

Whoever opens one imports it from its own file: asyncpg is not needed elsewhere.
"""

from .memory import MemoryHub, MemoryLedger
from .message import (
    MOST_ASKS,
    Ask,
    LevelState,
    Message,
    Part,
    PoolState,
    PoolTerms,
    Reply,
    Settle,
    Signal,
    SignalKind,
)
from .protocol import TTL_S, Ledger, OnLost

__all__ = [
    "MOST_ASKS",
    "TTL_S",
    "Ask",
    "Ledger",
    "LevelState",
    "MemoryHub",
    "MemoryLedger",
    "Message",
    "OnLost",
    "Part",
    "PoolState",
    "PoolTerms",
    "Reply",
    "Settle",
    "Signal",
    "SignalKind",
]
