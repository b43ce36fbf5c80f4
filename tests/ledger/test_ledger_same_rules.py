"""The rules in Python and the function in the database say the same to the same messages, whatever they are."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from math import isinf
from random import Random
from typing import Any

import asyncpg
import pytest
from hypothesis import given, settings, strategies as st
from ledger.houses import START

from interlock.admission.charges import Charge
from interlock.admission.ledger import (
    Ask,
    MemoryHub,
    MemoryLedger,
    Message,
    Part,
    PoolState,
    PoolTerms,
    Settle,
    Signal,
    SignalKind,
)
from interlock.admission.ledger.postgres import PostgresLedger
from interlock.catalog.entry import Limits

POOLS = ("a", "b")
OWNERS = 3

LIMITS = (
    Limits(tpm=600),
    Limits(tpm=600, rpm=60, max_concurrent=6),
    Limits(input_tpm=600, output_tpm=300, rpm=120),
    Limits(max_concurrent=4),
    Limits(tpm=1200, rpd=40, day_resets="00:00 UTC"),
    Limits(tpd=3000),
    Limits(tpm=600, rpm=90, tpd=2000),
)
NONE = Charge(0, 0, 0, 0)


class Script:
    """Random messages that keep the pools short: many asks, some of them again, now and then something that ends."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.limits = self.random.choices(LIMITS, k=2)

    def steps(self, count: int) -> Iterator[dict[str, Any]]:
        for _ in range(count):
            r = self.random
            yield {
                "after_s": r.choice([0.0, 0.0, 0.1, 0.5, 1.0, 1.0, 2.0, 3.0, 9.0 if r.random() < 0.3 else 0.0]),
                "owner": r.randrange(OWNERS),
                "asks": [self.ask(key) for key in r.sample(range(1, 6), r.choice([0, 1, 2, 3, 3, 4, 5]))],
                "settles": {name: self.settle() for name in POOLS if r.random() < 0.35},
                "signals": [self.signal()] if r.random() < 0.04 else [],
                "watch": POOLS if r.random() < 0.1 else (),
            }

    def charge(self, most: int) -> Charge:
        into, out = self.random.randrange(most), self.random.randrange(most // 2)
        return Charge(1, into + out, into, out)

    def ask(self, key: int) -> Ask:
        r = self.random
        names = r.sample(POOLS, r.choice([1, 1, 1, 2]))
        charge = Charge(1, 5_000, 5_000, 0) if r.random() < 0.02 else self.charge(r.choice([4, 40, 80, 300]))
        parts = tuple([Part(pool=name, charge=charge, slots=r.choice([0, 1, 1, 1, 2])) for name in names])
        return Ask(key=key, parts=parts, priority=r.choice([0] * 12 + [1, -1]))

    def settle(self) -> dict[str, Any]:
        r = self.random
        into, out = r.randrange(-60, 240), r.randrange(-30, 120)
        return {
            "back": Charge(0, into + out, into, out) if r.random() < 0.7 else NONE,
            "day": Charge(r.randrange(-1, 2), into - out, into, out) if r.random() < 0.5 else NONE,
            "eased": self.charge(200) if r.random() < 0.2 else NONE,
            "sent": self.charge(500) if r.random() < 0.6 else NONE,
            "left": self.charge(300) if r.random() < 0.3 else NONE,
            "slots": r.randrange(4),
        }

    def signal(self) -> Signal:
        kind = self.random.choice([SignalKind.RATE_LIMITED, SignalKind.SUCCEEDED, SignalKind.OVERLOADED])
        hint = self.random.choice([None, 0.5, 3.0, 90.0])
        return Signal(pool=self.random.choice(POOLS), kind=kind, retry_after_s=hint, asked=self.charge(100))


def alike(one: PoolState, other: PoolState) -> None:
    """Equal, but for the rounding of sums in another order."""
    for name in PoolState.__slots__:
        a, b = getattr(one, name), getattr(other, name)
        if name == "levels":
            for x, y in zip(a, b, strict=True):
                for field in x.__slots__:
                    close(getattr(x, field), getattr(y, field), f"{one.pool} {x.dimension} {field}")
        else:
            close(a, b, f"{one.pool} {name}")


def close(a: Any, b: Any, what: str) -> None:
    if isinstance(a, float) and isinstance(b, float) and not isinf(a):
        assert a == pytest.approx(b, abs=2e-4), what
    else:
        assert a == b, what


class Both:
    """One ledger in memory and one in the database, on one clock, hearing the same."""

    def __init__(self, url: str, connection: Any) -> None:
        self.url, self.connection, self.now = url, connection, START
        self.hub = MemoryHub(lambda: self.now)
        self.pairs = [(MemoryLedger(self.hub, beats=False), PostgresLedger(url, beats=False)) for _ in range(OWNERS)]
        self.seqs = [0] * OWNERS

    async def open(self) -> None:
        for pair in self.pairs:
            for ledger in pair:
                await ledger.open()
        # Nobody is given up here.
        await self.connection.execute("update ledger_owners set alive_until = 'Infinity'")
        for row in self.hub.owners.values():
            row.alive_until = float("inf")

    async def again(self, terms: Sequence[PoolTerms]) -> None:
        """These pools, as if nobody had used them yet."""
        self.hub.books.clear()
        await self.connection.execute("truncate ledger_pools, ledger_totals")
        await self.tick(0.0)
        for ledger in self.pairs[0]:
            await ledger.register(terms)

    async def tick(self, seconds: float) -> None:
        self.now += seconds
        await self.connection.execute("update hand set now = $1", self.now)

    async def play(self, step: dict[str, Any]) -> None:
        await self.tick(step["after_s"])
        at = step["owner"]
        self.seqs[at] += 1
        replies = []
        for ledger in self.pairs[at]:
            message = Message(
                owner=ledger.owner,
                fence=ledger.fence,
                seq=self.seqs[at],
                asks=tuple(step["asks"]),
                settles=tuple(Settle(pool=name, **more) for name, more in step["settles"].items()),
                signals=tuple(step["signals"]),
                watch=step["watch"],
            )
            replies.append(await ledger.exchange(message))
        ours, theirs = replies
        assert ours.granted == theirs.granted
        assert ours.pools.keys() == theirs.pools.keys()
        for name in ours.pools:
            alike(ours.pools[name], theirs.pools[name])

    async def close(self) -> None:
        for pair in self.pairs:
            for ledger in pair:
                await ledger.close()


@pytest.fixture(scope="module")
def play(ledger_database: str) -> Iterator[Any]:
    """Plays steps on both, on a loop of its own."""
    with ThreadPoolExecutor(1) as thread:
        runner = asyncio.Runner()
        dsn = ledger_database.replace("+asyncpg", "")
        connection = thread.submit(runner.run, asyncpg.connect(dsn)).result()

        async def begin() -> Both:
            await connection.execute("truncate ledger_pools, ledger_owners, ledger_totals, hand")
            await connection.execute("insert into hand values ($1)", START)
            both = Both(ledger_database, connection)
            await both.open()
            return both

        both = thread.submit(runner.run, begin()).result()

        async def whole(a: Limits, b: Limits, steps: Sequence[dict[str, Any]]) -> None:
            await both.again([PoolTerms(name="a", limits=a), PoolTerms(name="b", limits=b)])
            for step in steps:
                await both.play(step)

        yield lambda *arguments: thread.submit(runner.run, whole(*arguments)).result()
        thread.submit(runner.run, both.close()).result()
        thread.submit(runner.run, connection.close()).result()
        thread.submit(runner.close).result()


@settings(max_examples=40)
@given(st.integers(0, 2**32))
def test_the_database_decides_as_the_rules_do(play: Any, seed: int) -> None:
    script = Script(seed)
    play(*script.limits, list(script.steps(25)))
