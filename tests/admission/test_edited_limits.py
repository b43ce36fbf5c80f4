"""An edit of the catalog reaches a running process: levels carry over, and whoever waits goes by the new limits."""

from __future__ import annotations

import pytest

from interlock.admission import DatabaseGate, Dimension, ReportedLimit
from interlock.errors import NeverFitsError


async def test_editing_the_catalog_keeps_the_level(house) -> None:
    pool = house.pool(tpm=600)
    house.ask(house.call(pool, 400))
    await house.clock.settle()
    house.pool(tpm=1200, rpm=60, max_concurrent=1)
    assert house.level("p:tokens") == pytest.approx(200.0)
    await house.clock.advance(10.0)
    assert house.level("p:tokens") == pytest.approx(400.0)
    house.ask(house.call(pool, 1), label="one")
    house.ask(house.call(pool, 1), label="two")
    await house.clock.settle()
    assert house.granted_labels() == ["", "one"], "the new gate holds"
    assert house.level("p:requests") == pytest.approx(59.0)


async def test_editing_the_catalog_moves_the_waiting_to_the_new_limits_in_their_old_order(house) -> None:
    house.sends = True
    pool, db = house.pool(tpm=60), house.admission.account(DatabaseGate("d", 1))
    house.ask(house.call(pool, 60), label="running")
    await house.clock.settle()
    for i in range(3):
        house.ask(house.call(pool, 60), label=str(i))
    house.ask(house.call(pool, 30), held=((db, 1),), label="other head")
    await house.clock.advance(10.0)
    house.pool(rpm=60, burst_s=1)  # a minute of tokens each is now one request a second
    await house.clock.advance(3.5)
    assert house.granted_labels() == ["running", "0", "other head", "1", "2"]
    assert house.answers["2"].waited_s == pytest.approx(13.0)
    assert sum(house.answers["2"].waited_by_account.values()) == pytest.approx(13.0)
    house.ask(house.call(pool, 60), label="late")
    house.pool(tpm=10)
    await house.clock.settle()
    assert isinstance(house.answers["late"], NeverFitsError)


async def test_calls_take_no_more_slots_than_a_pool_has(house) -> None:
    pool = house.pool(max_concurrent=4)
    house.ask(house.call(pool, key="a", count=3), house.call(pool, key="b", count=3), label="all four slots")
    house.ask(house.call(pool, count=4), label="later two")
    await house.clock.settle()
    assert house.granted_labels() == ["all four slots"]
    assert house.level("p:concurrent") == 0
    house.pool(max_concurrent=2)
    house.answers["all four slots"].release()
    await house.clock.settle()
    assert house.granted_labels() == ["all four slots", "later two"]
    assert house.level("p:concurrent") == 0
    house.answers["later two"].release()
    assert house.level("p:concurrent") == 2


async def test_a_limit_that_came_after_the_grant_gets_nothing_back(house) -> None:
    pool = house.pool(rpm=60)
    house.ask(house.call(pool, 1_000), label="before")
    await house.clock.settle()
    house.pool(rpm=60, tpm=10_000)
    house.ask(house.call(pool, 5_000), label="after")
    await house.clock.settle()
    assert house.level("p:tokens") == pytest.approx(5_000.0)
    house.finish(house.answers["before"], used=(100, 0))
    assert house.level("p:tokens") == pytest.approx(4_900.0), "what it used, and no refund of what it never took"
    house.finish(house.answers["after"], used=(100, 0))
    assert house.level("p:tokens") == pytest.approx(9_800.0)
    assert house.level("p:requests") == pytest.approx(58.0)


async def test_a_limit_that_shrinks_refuses_those_in_the_queue_too(house) -> None:
    house.sends = True
    pool = house.pool(tpm=600)
    house.ask(house.call(pool, 600))
    for label, size in (("head", 60), ("large", 500), ("small", 60)):
        house.ask(house.call(pool, size), label=label)
    house.pool(tpm=120)
    await house.clock.advance(120)
    assert house.granted_labels() == ["", "head", "small"]
    assert isinstance(house.answers["large"], NeverFitsError)


async def test_an_edit_of_something_else_leaves_what_the_provider_has_reported(house) -> None:
    house.sends = True
    pool = house.pool(tpm=1_000)
    house.ask(house.call(pool), label="0")
    await house.clock.settle()
    house.finish(house.answers["0"], reported={Dimension.TOKENS: ReportedLimit(limit=100.0)})
    house.pool(tpm=1_000, max_concurrent=5)
    assert pool.limiter.levels["tokens"].capacity == 100.0
    house.pool(tpm=500, max_concurrent=5)
    assert pool.limiter.levels["tokens"].capacity == 500.0, "whoever edits it means it"
    assert not pool.limiter.adopted, "and is told again if the provider says otherwise"


async def test_a_call_as_large_as_the_limit_fits_whatever_a_sixtieth_of_it_is(house) -> None:
    house.sends = True
    pool = house.pool(tpm=123)
    assert 123 / 60 * 60 < 123
    house.ask(house.call(pool, 1))
    house.ask(house.call(pool, 123), label="large")
    await house.clock.advance(1.0)
    assert "large" in house.answers
