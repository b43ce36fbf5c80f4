"""What comes back and what does not, where our level and the provider's bucket have gone ways of their own."""

from __future__ import annotations

from math import inf

import pytest

from interlock.admission import CallOutcome, OutcomeKind
from interlock.admission.levels import Level
from interlock.admission.line import Line
from interlock.admission.queues import Waiter
from interlock.catalog.entry import Accounting
from interlock.catalog.usage import Usage

EXPECTED = Accounting(output="expected", cache_reads="free")


def done(input_tokens: int) -> CallOutcome:
    return CallOutcome(kind=OutcomeKind.COMPLETED, usage=Usage(input_tokens=input_tokens, output_tokens=0))


async def passes_by(house, pool) -> None:
    """Somebody else takes a little of a level that is full, and two minutes go by."""
    house.sends = True
    house.ask(house.call(pool, 10), label="b")
    await house.clock.settle()
    house.finish(house.answers["b"], used=(10, 0))
    house.sends = False
    await house.clock.advance(120)


@pytest.mark.parametrize("beside", [False, True])
async def test_an_answer_under_way_is_charged_as_it_grows_so_its_rest_comes_back(house, beside: bool) -> None:
    house.sends = True
    pool = house.pool(output_tpm=6_000)
    house.ask(house.call(pool, 10, 4_000, accounting=EXPECTED), label="first")
    await house.clock.advance(600)
    if beside:
        house.ask(house.call(pool, 10, 10, key="b", accounting=EXPECTED), label="b")
        await house.clock.settle()
        house.finish(house.answers["b"], used=(10, 10))
        await house.clock.advance(60)
    house.finish(house.answers["first"], used=(10, 500))
    assert house.level("p:output_tokens") == pytest.approx(5_500, abs=30)


async def test_a_declared_call_that_is_sent_long_after_its_grant_gets_its_rest_back(house) -> None:
    pool = house.pool(tpm=600)
    house.ask(house.call(pool, 200, count=2), label="two")
    await house.clock.settle()
    house.finish(house.answers["two"], used=(200, 0), release=False)
    await house.clock.advance(120)
    await passes_by(house, pool)
    permit = house._send(house.answers["two"], house.answers["two"].demand.calls[0])
    permit.close(done(50))
    assert house.level("p:tokens") == pytest.approx(550, abs=2)


async def test_an_undeclared_call_long_after_the_grant_gets_its_rest_back(house) -> None:
    pool = house.pool(tpm=600)
    house.ask(house.call(pool, 100), label="one")
    await house.clock.settle()
    house.finish(house.answers["one"], used=(100, 0), release=False)
    await house.clock.advance(120)
    await passes_by(house, pool)
    permit = house.answers["one"].permit("k", input_tokens=500, output_tokens=0)
    permit.sent()
    permit.close(done(50))
    assert house.level("p:tokens") == pytest.approx(550, abs=2)


@pytest.mark.parametrize("resets", ["rolling", "00:00 UTC"])
async def test_a_minutes_429_gives_the_days_tokens_back(house, resets: str) -> None:
    house.sends = True
    pool = house.pool(tpm=60_000, tpd=1_000_000, day_resets=resets)
    house.ask(house.call(pool, 50_000), label="a")
    await house.clock.settle()
    house.finish(house.answers["a"], OutcomeKind.RATE_LIMITED, retry_after_s=1.0)
    assert house.level("p:tokens_per_day") == pytest.approx(1_000_000, abs=100)


def test_a_residue_of_rounding_does_not_put_a_head_to_sleep() -> None:
    line, level = Line(), Level("p:tokens", 100.0, 10.0)
    level.take(0.0, 100.0)
    level.unsent = 1e-10  # of fractions that came and went
    waiter = Waiter(line.group((level,)), (100.0,))
    assert not line.take_now(waiter, "a", 0.0)
    line.enter(waiter, "a", 0.0)
    assert line.next_instant() < inf


async def test_a_call_as_large_as_the_limit_fits_whatever_rounding_makes_of_it(house) -> None:
    house.sends = True
    pool = house.pool(tpm=123)
    house.ask(house.call(pool, 1))
    house.ask(house.call(pool, 123), label="x")
    await house.clock.advance(1)
    assert "x" in house.answers


async def test_a_grant_that_nobody_took_is_counted_nowhere(house) -> None:
    pool = house.pool(tpm=60)
    house.ask(house.call(pool, 60), label="a")
    overflowing = house.ask(house.call(pool, 60), label="b", max_wait_s=0.0, overflow="proceed")
    assert overflowing.cancel()
    statistics = house.admission.statistics()
    assert (statistics.granted, statistics.unmetered) == (1, 0)
    assert statistics.account("p:tokens").granted == 1
