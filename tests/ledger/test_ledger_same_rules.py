"""The rules in Python and the function in the database say the same to the same messages, whatever they are."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from math import isinf
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

limits = st.sampled_from(
    [
        Limits(tpm=600),
        Limits(tpm=600, rpm=60, max_concurrent=6),
        Limits(input_tpm=600, output_tpm=300, rpm=120),
        Limits(max_concurrent=4),
        Limits(tpm=1200, rpd=40, day_resets="00:00 UTC"),
        Limits(tpd=3000),
    ]
)
amounts = st.integers(0, 220)
charges = st.builds(lambda i, o: Charge(1, i + o, i, o), amounts, amounts)
#: Now and then more than any limit, or nothing.
asked = st.one_of(charges, charges, charges, st.just(Charge(1, 700, 700, 0)), st.just(Charge(1, 0, 0, 0)))
parts = st.lists(st.sampled_from(POOLS), min_size=1, max_size=2, unique=True).flatmap(
    lambda names: st.tuples(
        *[st.builds(Part, pool=st.just(name), charge=asked, slots=st.integers(0, 2)) for name in names]
    )
)
asks = st.builds(Ask, key=st.integers(1, 6), parts=parts, priority=st.sampled_from([0, 0, 0, 0, 1, -1]))
backs = st.builds(lambda i, o: Charge(0, i + o, i, o), st.integers(-200, 200), st.integers(-100, 200))
settle = st.fixed_dictionaries(
    {"back": backs, "eased": st.one_of(st.just(Charge(0, 0, 0, 0)), charges), "sent": charges, "left": charges,
     "slots": st.integers(0, 3)}
)  # fmt: skip
signal = st.builds(
    Signal,
    pool=st.sampled_from(POOLS),
    kind=st.sampled_from([SignalKind.RATE_LIMITED, SignalKind.SUCCEEDED, SignalKind.OVERLOADED, SignalKind.DAY_SPENT]),
    retry_after_s=st.sampled_from([None, 0.5, 3.0, 90.0]),
    asked=charges,
)
steps = st.lists(
    st.fixed_dictionaries(
        {
            "after_s": st.sampled_from([0.0, 0.0, 0.1, 0.5, 2.0, 9.0, 61.0]),
            "owner": st.integers(0, OWNERS - 1),
            "asks": st.lists(asks, max_size=5),
            "settles": st.dictionaries(st.sampled_from(POOLS), settle, max_size=2),
            "signals": st.one_of(st.just([]), st.just([]), st.just([]), st.lists(signal, max_size=2)),
            "watch": st.sampled_from([(), POOLS]),
        }
    ),
    min_size=1,
    max_size=14,
)


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
        unique = {ask.key: ask for ask in step["asks"]}
        replies = []
        for ledger in self.pairs[at]:
            message = Message(
                owner=ledger.owner,
                fence=ledger.fence,
                seq=self.seqs[at],
                asks=tuple(unique.values()),
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


@settings(max_examples=60)
@given(limits, limits, steps)
def test_the_database_decides_as_the_rules_do(play: Any, a: Limits, b: Limits, steps: list[dict[str, Any]]) -> None:
    play(a, b, steps)
