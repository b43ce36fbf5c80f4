"""One house for each kind of ledger: owners come to it, and its time moves when told."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

from interlock.admission.charges import Charge
from interlock.admission.ledger import (
    Ask,
    Ledger,
    Message,
    Part,
    PoolState,
    PoolTerms,
    Reply,
    Settle,
    Signal,
)
from interlock.catalog.entry import Limits

TTL_S = 8.0


def charge(tokens: float, requests: int = 1) -> Charge:
    return Charge(requests, tokens, tokens, 0)


def part(tokens: float, pool: str = "p", slots: int = 1, requests: int = 1) -> Part:
    return Part(pool=pool, charge=charge(tokens, requests), slots=slots)


_keys = count(1)


def ask(*parts: Part, key: int | None = None, priority: int = 0) -> Ask:
    return Ask(key=next(_keys) if key is None else key, parts=parts, priority=priority)


def over(tokens: float, used: float | None = None, pool: str = "p", n: int = 1) -> Settle:
    """`n` calls have been sent and have ended, which had reserved so many tokens altogether and used others."""
    back = Charge(0, tokens - used, tokens - used, 0) if used is not None else charge(0, 0)
    return Settle(pool=pool, sent=charge(tokens, n), back=back, slots=n)


class Owner:
    """A ledger, and a courier's bookkeeping: the number of its last message."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger, self.seq = ledger, 0
        self.last: Message | None = None

    async def say(
        self,
        *asks: Ask,
        settles: Sequence[Settle] = (),
        signals: Sequence[Signal] = (),
        watch: Sequence[str] = ("p",),
    ) -> Reply:
        self.seq += 1
        self.last = Message(
            owner=self.ledger.owner,
            fence=self.ledger.fence,
            seq=self.seq,
            asks=asks,
            settles=tuple(settles),
            signals=tuple(signals),
            watch=tuple(watch),
        )
        return await self.ledger.exchange(self.last)

    async def state(self, pool: str = "p") -> PoolState:
        return (await self.say(watch=(pool,))).pools[pool]

    async def free(self, pool: str = "p", level: int = 0) -> float:
        return (await self.state(pool)).levels[level].free


class House:
    """`enter` makes an owner; `advance` moves the ledger's clock."""

    def __init__(self, kind: str, make: Callable[..., Ledger], tick: Callable[[float], Any]) -> None:
        self.kind, self._make, self._tick = kind, make, tick
        self._owners: list[Owner] = []

    async def enter(self, **settings: Any) -> Owner:
        owner = Owner(self._make(**{"ttl_s": TTL_S, "beats": False, **settings}))
        await owner.ledger.open()
        self._owners.append(owner)
        return owner

    async def with_pool(self, name: str = "p", **limits: Any) -> Owner:
        owner = await self.enter()
        await owner.ledger.register([PoolTerms(name=name, limits=Limits(**limits))])
        return owner

    async def advance(self, seconds: float) -> None:
        await self._tick(seconds)

    async def close(self) -> None:
        for owner in self._owners:
            await owner.ledger.close()


#: Where the houses' time begins, in the ledger's seconds: 2026-03-02T00:00Z.
START = 60 * 86_400.0


def by_hand(kind: str, make: Callable[..., Ledger]) -> House:
    now = [START]

    async def tick(seconds: float) -> None:
        now[0] += seconds

    return House(kind, lambda **settings: make(lambda: now[0], **settings), tick)


async def postgres_house(url: str) -> tuple[House, Any]:
    import asyncpg

    from interlock.admission.ledger.postgres import PostgresLedger

    connection = await asyncpg.connect(url.replace("+asyncpg", ""))
    await connection.execute("truncate ledger_pools, ledger_owners, ledger_totals, hand")
    await connection.execute(f"insert into hand values ({START})")

    async def tick(seconds: float) -> None:
        await connection.execute("update hand set now = now + $1", seconds)

    return House("postgres", lambda **settings: PostgresLedger(url, **settings), tick), connection
