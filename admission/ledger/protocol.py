"""What every ledger can do. A new one (a Valkey, say) is one more class that passes the behaviour suite."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from interlock.errors import LeaseLostError

from .message import Message, PoolState, PoolTerms, Reply

#: How long an owner that says nothing is believed to live: whatever it held is back by then.
TTL_S = 15.0

#: Called once, from any thread, when the owner has been given up: whatever it still does counts for nothing.
OnLost = Callable[[LeaseLostError], None]


class Ledger(Protocol):
    """One owner's connection to the ledger: one process incarnation, one object. Used from one event loop.

    Whatever reaches for the ledger raises `LedgerUnavailableError` while it cannot be reached (the same message may be
    sent again until there is an answer) and `LeaseLostError` once this owner has been given up: then nothing it says
    counts any more, and its work has to stop. A thread of its own keeps the owner alive, whatever the loop does.
    """

    #: Unique per incarnation.
    owner: str
    #: The fencing token, set by `open`: larger than that of every owner before.
    fence: int

    async def open(self) -> None:
        """Connect, make the tables that are missing, enter as an owner, start the thread that keeps it alive."""
        ...

    async def register(self, terms: Sequence[PoolTerms]) -> Sequence[PoolState]:
        """Make these pools, or bring them to these limits with their levels kept. Again whenever the limits change.

        A pool must be registered (by anyone) before a message names it: else UnknownPoolError, and nothing changes.
        """
        ...

    async def exchange(self, message: Message) -> Reply:
        """Say one message and hear its reply."""
        ...

    async def heartbeat(self) -> None:
        """Stay alive, and give back what dead owners held. The thread does so every quarter of the TTL."""
        ...

    async def leave(self) -> None:
        """Give back everything at once: slots, claims, the owner itself. What was spent only refills."""
        ...

    async def close(self) -> None:
        """Stop the thread and disconnect. Without `leave` before, it is as if the process had died."""
        ...
