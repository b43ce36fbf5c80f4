"""The shared ledger: the metered accounts of pools that several processes draw on. docs/ledger.md tells how it works.

message.py says what travels, protocol.py what every ledger can do; rules.py decides, purely. Each ledger is one file.
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
