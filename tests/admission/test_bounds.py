"""What a waiting demand weighs, and what stays bounded however many come and go."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc

import pytest

from interlock.admission import Rate, TokenBucketRateLimiter
from interlock.catalog.entry import Accounting


async def test_a_waiting_demand_is_small_and_has_no_task_and_no_future(house) -> None:
    pool = house.pool(tpm=600)
    house.ask(house.call(pool, 600))
    await house.clock.settle()
    demand = house.granted[0].demand
    tasks, callback = len(asyncio.all_tasks()), house.granted.append
    gc.collect()  # what an earlier test left behind
    futures = sum(isinstance(thing, asyncio.Future) for thing in gc.get_objects())
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    waiting = [house.admission.submit(demand, callback, callback) for _ in range(1_500)]
    each = (tracemalloc.get_traced_memory()[0] - before) / len(waiting)
    tracemalloc.stop()
    assert each < 600
    assert len(asyncio.all_tasks()) == tasks
    assert sum(isinstance(thing, asyncio.Future) for thing in gc.get_objects()) == futures
    for one in waiting:
        one.cancel()
    assert house.admission.statistics().waiting == 0


async def test_limits_per_day_hold_a_day_and_refill_over_it(house) -> None:
    house.sends = True
    pool = house.pool(rpd=2, tpd=86_400)
    for i in range(3):
        waiting = house.ask(house.call(pool, 1_000), label=str(i))
    await house.clock.settle()
    assert house.granted_labels() == ["0", "1"]
    said = house.admission.explain(waiting)
    assert (said.account, said.earliest_s) == ("p:requests_per_day", pytest.approx(43_200.0))
    assert house.level("p:tokens_per_day") == pytest.approx(84_400.0)
    await house.clock.advance(43_201.0)
    assert house.granted_labels() == ["0", "1", "2"]


async def test_those_that_left_the_queue_are_swept_and_the_rest_keep_their_order(house) -> None:
    house.sends = True
    pool = house.pool(tpm=600)
    house.ask(house.call(pool, 600))
    head = house.ask(house.call(pool, 1), label="head")
    queue = [house.ask(house.call(pool, 1), label=str(i), max_wait_s=500.0) for i in range(2_000)]
    kept = queue[::100]
    for waiting in queue:
        if waiting not in kept:
            waiting.cancel()
    (flow,) = head.group.flows.values()
    assert len(flow.queue) < 100
    house.ask(house.call(pool, 1), label="last", max_wait_s=500.0)
    assert len(house.admission._deadlines) < 200
    await house.clock.advance(60)
    assert house.granted_labels()[1:] == ["head", *[waiting.demand.label for waiting in kept], "last"]


async def test_workflows_that_come_and_go_are_forgotten(house) -> None:
    pool = house.pool(rpm=6_000_000)
    for i in range(5_000):
        house.ask(house.call(pool), workflow=f"run {i}")
        if i % 500 == 0:
            await house.clock.advance(0.001)
    assert len(pool.accounts[0].shares) <= 2_048


async def test_a_pool_learns_what_to_expect_of_its_latest_kinds_only(house) -> None:
    house.sends = True
    pool, accounting = house.pool(tpm=1_000), Accounting(output="expected")
    for i in range(300):
        for _ in range(5):
            pool.observe_output(f"k{i}", None, 40, 1.0)
    assert len(pool.expected) == 256
    house.ask(house.call(pool, 100, 5_000, key="k299", accounting=accounting))
    await house.clock.settle()
    assert house.level("p:tokens") == pytest.approx(860.0), "the latest is known"
    house.finish(house.granted[0], used=(100, 40))
    await house.clock.advance(60)
    house.ask(house.call(pool, 100, 5_000, key="k0", accounting=accounting))
    assert house.level("p:tokens") == pytest.approx(0.0), "the first is forgotten: all that the pool can hold"


@pytest.mark.parametrize(
    ("limits", "why"),
    [
        ({"words": Rate(1.0, 1.0)}, "no such dimension: 'words'"),
        ({"tokens": Rate(0.0, 1.0)}, "capacity must be above 0"),
        ({"tokens": Rate(float("nan"), 1.0)}, "capacity must be above 0"),
        ({"tokens": Rate(1.0, 0.0)}, "rate must be above 0"),
        ({"tokens": Rate(1.0, float("nan"))}, "rate must be above 0"),
    ],
)
def test_a_limiter_of_nothing_cannot_be_made(limits, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        TokenBucketRateLimiter("p", limits)
