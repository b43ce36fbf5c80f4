"""What a pool remembers over a restart: levels, windows, and what its throttle has learnt."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, strategies as st

from interlock.admission import Admission, CallOutcome, OutcomeKind, PoolMemory
from interlock.admission.memory import lower

PACIFIC = "00:00 America/Los_Angeles"


async def test_a_restarted_program_does_not_burst_twice(house, new_house) -> None:
    pool = house.pool(tpm=600, rpm=60)
    house.ask(house.call(pool, 500))
    await house.clock.settle()
    kept = house.admission.remember()
    assert kept["p"].lacks == {"tokens": (500.0, 10.0), "requests": (1.0, 1.0)}
    later = new_house()
    later.admission.recall(kept, elapsed_s=20.0)
    later.pool(tpm=600, rpm=60)
    assert later.level("p:tokens") == pytest.approx(300.0)
    assert later.level("p:requests") == 60.0
    for lack in (100.0, float("nan"), float("inf"), -50.0):
        later.admission.recall({"p": PoolMemory(lacks={"tokens": (lack, 10.0)})}, elapsed_s=0.0)
        assert later.level("p:tokens") == pytest.approx(300.0), "only lowered, and never for good"


async def test_b61_a_wall_clock_that_stepped_neither_locks_out_nor_gives_away(new_house) -> None:
    for elapsed_s, expected in ((-3_600.0, 100.0), (3_600.0, 600.0)):
        house = new_house()
        house.pool(tpm=600)
        house.admission.recall({"p": PoolMemory(lacks={"tokens": (500.0, 10.0)})}, elapsed_s=elapsed_s)
        assert house.level("p:tokens") == pytest.approx(expected)
        await house.clock.advance(50.0)
        assert house.level("p:tokens") == pytest.approx(600.0)


async def test_a_killed_process_is_taken_to_have_used_what_it_could_not_say(house) -> None:
    house.pool(tpm=600, tpd=100_000)
    house.admission.recall({"p": PoolMemory(lacks={"tokens": (300.0, 10.0)})}, elapsed_s=2.25, crashed=True)
    assert house.level("p:tokens") == pytest.approx(600 - 300 - 60 + 10)
    assert house.level("p:tokens_per_day") == pytest.approx(100_000 - 60 + 100_000 / 86_400, abs=0.1), (
        "no tenth of a day"
    )


async def test_a_window_is_remembered_for_its_day_only(house, new_house) -> None:
    start = datetime(2026, 11, 30, 10, tzinfo=UTC)

    def at(house, moment: datetime) -> None:
        house.admission = Admission(
            house.clock, wall=lambda: moment + timedelta(seconds=house.clock.now() - 1_000), jitter=lambda: 0.0
        )

    at(house, start)
    pool = house.pool(rpd=10, day_resets=PACIFIC)
    for _ in range(4):
        house.ask(house.call(pool))
    await house.clock.settle()
    kept = house.admission.remember()
    for hours, left in ((1, 6.0), (23, 10.0)):
        later = new_house()
        at(later, start + timedelta(hours=hours))
        later.admission.recall(kept, elapsed_s=hours * 3600)
        later.pool(rpd=10, day_resets=PACIFIC)
        assert later.level("p:requests_per_day") == left


async def test_a_slowdown_and_a_hold_are_remembered(house, new_house) -> None:
    house.sends = True
    pool = house.pool(tpm=600)
    house.ask(house.call(pool, 60), label="0")
    await house.clock.settle()
    house.sent[house.granted[0]][0].close(CallOutcome(kind=OutcomeKind.RATE_LIMITED, retry_after_s=600.0))
    slow = pool.throttle.slowdown(house.clock.now())
    assert slow >= 1.0
    kept = house.admission.remember()
    later = new_house()
    later.sends = True
    later.admission.recall(kept, elapsed_s=20.0)
    again = later.pool(tpm=600)
    assert again.throttle.slowdown(later.clock.now()) == slow
    assert again.throttle.closed(later.clock.now())
    later.ask(later.call(again, 1))
    await later.clock.advance(39)
    assert not later.granted, "the hold of a minute goes on"
    await later.clock.advance(60)
    assert later.granted


memories = st.builds(
    PoolMemory,
    lacks=st.dictionaries(st.sampled_from(["tokens", "requests"]), st.tuples(st.floats(0, 1e6), st.floats(1e-3, 1e3))),
    used=st.dictionaries(st.just("tokens_per_day"), st.tuples(st.floats(0, 1e6), st.floats(0, 2e9))),
    slowdown=st.floats(1, 10),
    held_for_s=st.floats(0, 600),
    closed_for_s=st.floats(0, 600),
)


@given(memories, memories, st.floats(0, 1e4))
def test_of_two_memories_neither_undoes_the_other(a: PoolMemory, b: PoolMemory, elapsed_s: float) -> None:
    both = lower(a, b)
    for one in (a, b):
        assert all(both.lacks[key][0] >= lack for key, (lack, _) in one.lacks.items())
        assert all(both.used[key][1] >= opened for key, (_, opened) in one.used.items())
        assert both.held_for_s >= one.held_for_s
    assert PoolMemory.from_json(json.loads(json.dumps(both.to_json()))) == both
    assert all(lack > 0 for lack, _ in both.after(elapsed_s).lacks.values())


async def test_a_pool_closed_for_a_day_stays_closed_after_its_hold(house, new_house) -> None:
    """Between two probes nothing holds it, and its rate was never slowed: only the closing says so."""
    house.sends = True
    pool = house.pool(rpm=60)
    house.ask(house.call(pool), label="0")
    await house.clock.settle()
    house.finish(house.answers["0"], OutcomeKind.REJECTED, day_spent=True, retry_after_s=18_000.0)
    later = new_house()
    later.admission.recall(house.admission.remember(), elapsed_s=120.0)
    again = later.pool(rpm=60)
    for _ in range(5):
        later.ask(later.call(again))
    await later.clock.settle()
    assert len(later.granted) == 1, "one probe"


async def test_what_was_learnt_is_not_undone_by_an_older_memory(house) -> None:
    pool = house.pool(rpm=60)
    house.admission.recall({"p": PoolMemory(slowdown=3.0)}, elapsed_s=0.0)
    house.admission.recall({"p": PoolMemory(held_for_s=5.0)}, elapsed_s=0.0)
    assert pool.throttle.slowdown(house.clock.now()) == 3.0


async def test_a_limit_that_is_smaller_after_the_restart_is_no_debt_of_hours(house, new_house) -> None:
    pool = house.pool(tpm=1_000_000)
    house.ask(house.call(pool, 900_000))
    await house.clock.settle()
    later = new_house()
    later.admission.recall(house.admission.remember(), elapsed_s=0.0)
    later.pool(tpm=10_000)
    assert later.level("p:tokens") == pytest.approx(1_000.0), "as full as it was"


async def test_a_pool_without_limits_starts_slowly_after_a_restart_too(house, new_house) -> None:
    house.sends = True
    pool = house.pool()
    house.ask(house.call(pool), label="0")
    await house.clock.settle()
    house.finish(house.answers["0"], OutcomeKind.RATE_LIMITED, retry_after_s=5.0)
    later = new_house()
    later.admission.recall(house.admission.remember(), elapsed_s=10.0)
    again = later.pool()
    for _ in range(20):
        later.ask(later.call(again))
    await later.clock.settle()
    assert len(later.granted) == 1
