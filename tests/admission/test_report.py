"""What admission says about itself, user's own accounts, what outlives a restart, and the clock by hand."""

from __future__ import annotations

import asyncio
import pickle
from dataclasses import FrozenInstanceError

import pytest

from interlock.admission import (
    CountingGate,
    DatabaseGate,
    HeldAccount,
    ManualClock,
    OutcomeKind,
)
from interlock.errors import NeverFitsError


async def test_explain_is_exact_for_a_head(house) -> None:
    house.sends = True
    pool = house.pool(tpm=600, rpm=600)
    house.ask(house.call(pool, 600))
    head = house.ask(house.call(pool, 120), label="head")
    await house.clock.advance(2.0)
    said = house.admission.explain(head)
    assert (said.account, said.ahead, said.estimate) == ("p:tokens", 0, False)
    assert said.lacks == pytest.approx(100.0)
    assert said.earliest_s == pytest.approx(10.0)
    await house.clock.advance(said.earliest_s - 0.001)
    assert head.status == "waiting"
    await house.clock.advance(0.002)
    assert head.status == "granted"
    assert house.admission.explain(head).account is None


async def test_explain_counts_who_goes_first_and_says_it_estimates(house) -> None:
    pool = house.pool(tpm=600)
    house.ask(house.call(pool, 600))
    waiting = [house.ask(house.call(pool, 60), label=str(i)) for i in range(5)]
    said = [house.admission.explain(w) for w in waiting]
    assert [s.ahead for s in said] == [0, 1, 2, 3, 4]
    assert [s.estimate for s in said] == [False, True, True, True, True]
    assert [s.earliest_s for s in said] == pytest.approx([6.0, 12.0, 18.0, 24.0, 30.0])


async def test_explain_says_what_older_heads_have_set_aside(house) -> None:
    pool, db = house.pool(tpm=600), house.admission.account(DatabaseGate("d", 1))
    house.ask(house.call(pool, 600))
    house.ask(house.call(pool, 300), label="older")
    younger = house.ask(house.call(pool, 60), held=((db, 1),), label="younger")
    said = house.admission.explain(younger)
    assert said.ahead == 1
    assert said.lacks == pytest.approx(360.0)
    assert "set aside" in said.reason


async def test_explain_says_that_a_higher_priority_on_the_same_account_may_starve_it(house) -> None:
    pool, db = house.pool(tpm=600), house.admission.account(DatabaseGate("d", 1))
    house.ask(house.call(pool, 600))
    house.ask(house.call(pool, 500), priority=5)
    said = house.admission.explain(house.ask(house.call(pool, 100), held=((db, 1),)))
    assert "500 are set aside for 1 ahead; a higher priority goes first" in said.reason


async def test_explain_says_when_only_a_release_helps(house) -> None:
    db = house.admission.account(DatabaseGate("d", 1))
    house.ask(held=((db, 1),))
    said = house.admission.explain(house.ask(held=((db, 1),)))
    assert (said.account, said.lacks, said.earliest_s) == ("db:d", 1, None)


async def test_statistics_are_frozen_and_add_up(house) -> None:
    house.sends = True
    pool, db = house.pool(tpm=600, rpm=60), house.admission.account(DatabaseGate("d", 1))
    for i in range(4):
        house.ask(house.call(pool, 300), held=((db, 1),), label=str(i))
    await house.clock.advance(3.0)
    with pytest.raises(NeverFitsError):
        house.ask(house.call(pool, 601))
    house.finish(house.granted[0], used=(900, 0))
    await house.clock.settle()
    now = house.admission.statistics()
    tokens = now.account("p:tokens")
    assert (now.granted, now.refused, now.waiting, now.settled) == (1, 1, 3, 1)
    assert (tokens.granted, tokens.refused, tokens.waiting, tokens.settled) == (1, 1, 3, 1)
    assert tokens.level == pytest.approx(-270.0)
    assert tokens.debt == pytest.approx(270.0)
    assert (tokens.capacity, tokens.rate_per_s, tokens.slowdown) == (600.0, 10.0, 1.0)
    assert now.oldest_wait_s == tokens.oldest_wait_s == 3.0
    assert (now.account("db:d").level, now.account("db:d").rate_per_s, now.account("db:d").settled) == (1, None, 1)
    with pytest.raises(FrozenInstanceError):
        tokens.level = 5.0
    with pytest.raises(KeyError):
        now.account("none")


async def test_statistics_of_a_held_pool(house) -> None:
    pool = house.pool(tpm=600)
    house.ask(house.call(pool, 10))
    await house.clock.settle()
    house.finish(house.granted[0], OutcomeKind.RATE_LIMITED, retry_after_s=600.0)
    tokens = house.admission.statistics().account("p:tokens")
    assert (tokens.held_for_s, tokens.closed, tokens.rate_limited, tokens.overloaded) == (60.0, True, 1, 0)
    assert tokens.slowdown > 1.0


class Memory:
    """A user's own account: megabytes that are free change with the machine."""

    name = "memory"

    def __init__(self, megabytes: float) -> None:
        self.capacity, self.out = megabytes, 0.0

    def free(self, now: float) -> float:
        return self.capacity - self.out

    def take(self, now: float, amount: float) -> None:
        self.out += amount

    def give(self, now: float, amount: float) -> None:
        self.out -= amount


async def test_a_users_own_account_takes_part(house) -> None:
    memory, pool = Memory(100), house.pool(tpm=600)
    assert isinstance(memory, HeldAccount)
    house.admission.account(memory)
    house.ask(house.call(pool, 10), held=((memory, 80),), label="a")
    house.ask(house.call(pool, 10), held=((memory, 80),), label="b")
    with pytest.raises(NeverFitsError, match="memory"):
        house.ask(held=((memory, 101),))
    await house.clock.settle()
    assert (house.granted_labels(), memory.out) == (["a"], 80)
    memory.capacity = 200
    house.admission.changed(memory)
    await house.clock.settle()
    assert (house.granted_labels(), memory.out) == (["a", "b"], 160)
    for reservation in house.granted:
        reservation.release()
    assert memory.out == 0


async def test_a_name_is_one_account(house) -> None:
    house.admission.account(CountingGate("g", 1))
    with pytest.raises(ValueError, match="'g'"):
        house.admission.account(CountingGate("g", 1))
    with pytest.raises(ValueError, match="at least 1"):
        house.ask(held=((CountingGate("other", 1), 0),))


async def test_an_account_named_twice_is_asked_for_the_sum(house) -> None:
    pool, gate = house.pool(tpm=600), house.admission.account(CountingGate("g", 3))
    house.ask(house.call(pool, 100, key="a"), house.call(pool, 200, key="b"), held=((gate, 1), (gate, 2)))
    await house.clock.settle()
    assert house.level("p:tokens") == pytest.approx(300.0)
    assert gate.used == 3
    reservation = house.granted[0]
    b = reservation.permit("b", input_tokens=200, output_tokens=0)
    assert not b.undeclared
    reservation.release()
    assert house.level("p:tokens") == pytest.approx(600.0)
    assert gate.used == 0


async def test_refusals_survive_a_pickle(house) -> None:
    with pytest.raises(NeverFitsError) as refused:
        house.ask(house.call(house.pool(tpm=10), 11))
    again = pickle.loads(pickle.dumps(refused.value))
    assert (str(again), again.ask) == (str(refused.value), 11)


# The clock that tests are made with.


def test_a_manual_clock_fires_in_order_each_at_its_own_instant() -> None:
    clock, seen = ManualClock(0.0), []
    clock.call_at(2.0, lambda: seen.append(("b", clock.now())))
    clock.call_at(1.0, lambda: seen.append(("a", clock.now())))
    clock.call_at(1.5, lambda: seen.append(("never", 0.0))).cancel()
    clock.call_at(1.0, lambda: clock.call_at(1.2, lambda: seen.append(("c", clock.now()))))
    assert clock.next_instant == 1.0
    clock.run_due(5.0)
    assert seen == [("a", 1.0), ("c", 1.2), ("b", 2.0)]
    assert clock.now() == 5.0
    assert clock.next_instant is None


async def test_a_manual_clock_wakes_sleepers_and_drops_cancelled_ones() -> None:
    clock = ManualClock()
    sleeper, cancelled = asyncio.ensure_future(clock.sleep(10)), asyncio.ensure_future(clock.sleep(5))
    await clock.settle()
    cancelled.cancel()
    await clock.advance(9.9)
    assert not sleeper.done()
    assert clock.next_instant is not None
    await clock.advance(0.1)
    assert sleeper.done()
    assert cancelled.cancelled()


async def test_a_head_short_of_two_levels_is_told_when_both_fit(house) -> None:
    house.sends = True
    pool = house.pool(tpm=6000, rpm=2, burst_s=30)
    house.ask(house.call(pool, 3000), label="all")
    head = house.ask(house.call(pool, 10), label="head")
    said = house.admission.explain(head)
    assert not said.estimate
    await house.clock.advance(said.earliest_s - 0.01)
    assert "head" not in house.answers
    await house.clock.advance(0.02)
    assert "head" in house.answers, said
