"""The ledger in memory: for several runtimes of one process, for tests, and as the plainest one to read."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from time import monotonic, time
from typing import Any

from . import cold, rules
from .base import BaseLedger, kept, reply_of
from .message import Message, PoolState, PoolTerms, Reply
from .owners import LEASE_PART, OwnerRow, beaten, check, may_judge
from .rows import EPOCH, PoolBook
from .wire import pool_states, reply


def _started_at() -> Callable[[], float]:
    offset = time() - EPOCH - monotonic()
    return lambda: monotonic() + offset


class MemoryHub:
    """What the ledgers of one process share. `now` gives seconds since `rows.EPOCH`, and never goes back."""

    def __init__(self, now: Callable[[], float] | None = None) -> None:
        self.now = now or _started_at()
        self.lock = threading.Lock()
        self.books: dict[str, PoolBook] = {}
        self.owners: dict[str, OwnerRow] = {}
        self.fences = 0


class MemoryLedger(BaseLedger):
    """One owner on a `MemoryHub`."""

    def __init__(self, hub: MemoryHub | None = None, **settings: Any) -> None:
        super().__init__(**settings)
        self.hub = hub or MemoryHub()

    async def _enter(self) -> None:
        hub = self.hub
        with hub.lock:
            now = hub.now()
            hub.fences += 1
            self.fence = hub.fences
            hub.owners[self.owner] = OwnerRow(self.owner, self.fence, now, now + LEASE_PART * self.ttl_s)

    async def _register(self, terms: Sequence[PoolTerms]) -> Sequence[PoolState]:
        hub, states = self.hub, list[float]()
        with hub.lock:
            for one in terms:
                now, book = hub.now(), hub.books.get(one.name)
                if book is None:
                    book = hub.books[one.name] = PoolBook(cold.created(one, now), {})
                else:
                    cold.updated(book.pool, one, max(now, book.pool.clock))
                out = sum(total.slots for total in book.totals.values())
                states += rules.state(book.pool, max(now, book.pool.clock), out, -1.0, 0)
        return pool_states([one.name for one in terms], states)

    async def _exchange(self, message: Message) -> Reply:
        hub = self.hub
        with hub.lock:
            now, row = hub.now(), hub.owners.get(self.owner)
            if not check(row, message, now):
                assert row is not None
                return reply_of(message.seq, row.reply)
            assert row is not None
            granted, states = rules.exchange(hub.books, message, now, transit_s=self.transit_s)
            names = message.pools()
            row.seq, row.reply = message.seq, kept(names, granted, states)
            return reply(message.seq, names, granted, states)

    async def _beat(self, revive: bool) -> None:
        self._beat_here(revive)

    def _beat_here(self, revive: bool) -> None:
        hub = self.hub
        with hub.lock:
            now, row = hub.now(), hub.owners.get(self.owner)
            beaten(row, self.owner, now, self.ttl_s, revive=revive)
            assert row is not None
            if may_judge(row, now, self.ttl_s):
                for other in [other for other in hub.owners.values() if other.alive_until < now]:
                    self._remove(other, now)

    def _remove(self, owner: OwnerRow, now: float) -> None:
        for book in self.hub.books.values():
            total = book.totals.pop(owner.fence, None)
            if total is not None:
                rules.given_up(book.pool, total.unsent, now)
        del self.hub.owners[owner.owner]

    async def _leave(self) -> None:
        with self.hub.lock:
            row = self.hub.owners.get(self.owner)
            if row is not None and row.fence == self.fence:
                self._remove(row, self.hub.now())

    async def _close(self) -> None: ...
