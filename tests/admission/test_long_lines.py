"""Very many waiting: what is swept, told and frozen in steps, and what explain says then."""

from __future__ import annotations

import gc
from types import SimpleNamespace
from typing import Any

import pytest

from interlock.admission import CountingGate, DatabaseGate, pauses
from interlock.admission.deadlines import Deadlines
from interlock.admission.line import AT_ONCE
from interlock.admission.pauses import Pauses
from interlock.admission.queues import CANCELLED, WAITING


@pytest.fixture
def frozen(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is asked of the collector, instead of asking it."""
    asked: list[str] = []
    fake = SimpleNamespace(
        collect=lambda generation=2: asked.append(f"collect {generation}"),
        freeze=lambda: asked.append("freeze"),
        unfreeze=lambda: asked.append("unfreeze"),
        get_freeze_count=lambda: 0,
        isenabled=lambda: True,
    )
    monkeypatch.setattr(pauses, "gc", fake)
    return asked


def test_who_waits_is_frozen_in_steps_and_handed_back_when_few_do(frozen: list[str]) -> None:
    step = Pauses()
    for waiting in range(1, pauses.FROM):
        step.came(waiting)
    assert frozen == []
    for waiting in range(pauses.FROM, pauses.FROM + 2 * pauses.EVERY):
        step.came(waiting)
    assert frozen == ["collect 1", "freeze", "collect 2", "freeze"]
    step.went(pauses.FROM // 2)
    assert step.frozen
    step.went(pauses.FROM // 2 - 1)
    assert frozen[4:] == ["unfreeze"]
    step.went(0)
    assert frozen[4:] == ["unfreeze"], "once"


def test_the_collector_is_left_alone_where_it_is_said_or_another_freezes(frozen: list[str], monkeypatch: Any) -> None:
    off, other = Pauses(freeze=False), Pauses()
    monkeypatch.setattr(pauses.gc, "get_freeze_count", lambda: 5)
    for _ in range(2 * pauses.FROM):
        off.came(10**6)
        other.came(10**6)
    off.went(0)
    other.went(0)
    assert frozen == []


async def test_a_long_line_is_frozen_and_handed_back(house, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pauses, "FROM", 100)
    monkeypatch.setattr(pauses, "EVERY", 50)
    house = type(house)(freeze=True)
    gate = house.admission.account(CountingGate("g", 1))
    waiting = [house.ask(held=((gate, 1),)) for _ in range(301)]
    try:
        assert gc.get_freeze_count() > 0
    finally:
        for each in waiting:
            each.cancel()
    assert gc.get_freeze_count() == 0


def test_deadlines_come_in_order_and_the_dead_are_swept() -> None:
    deadlines, waiters = Deadlines(), [SimpleNamespace(state=WAITING, number=i) for i in range(2_000)]
    for waiter in waiters:
        deadlines.add(float(waiter.number * 7 % 2_000), waiter, 10_000)  # type: ignore[arg-type]
    for waiter in waiters:
        waiter.state = CANCELLED if waiter.number % 100 else WAITING
    last = SimpleNamespace(state=WAITING, number=2_000)
    deadlines.add(2_000.0, last, 20)  # type: ignore[arg-type]
    assert len(deadlines) == 21
    assert deadlines.earliest() == 0.0
    seen: list[Any] = []
    while (due := deadlines.due(3_000.0)) is not None:
        seen.append(due)
    assert [waiter.number * 7 % 2_000 for waiter in seen[:-1]] == sorted(i * 7 % 2_000 for i in range(0, 2_000, 100))
    assert seen[-1] is last
    assert deadlines.due(3_000.0) is None


async def test_a_large_release_goes_in_steps_and_all_of_it_goes(house) -> None:
    gate = house.admission.account(CountingGate("g", 1))
    house.ask(held=((gate, 1),), label="first")
    waiting = []
    for i in range(5 * AT_ONCE):
        house.clock._now += 0.001
        waiting.append(house.ask(held=((gate, 1),), label=str(i)))
    gate.capacity = 10_000
    house.admission.changed(gate)
    assert gate.used == 1 + AT_ONCE
    behind = waiting[-1]
    said = house.admission.explain(behind)
    assert (said.account, said.ahead, said.estimate) == ("g", 4 * AT_ONCE - 1, True)
    assert "about to be looked at" in said.reason
    late = house.ask(held=((gate, 1),), label="late")
    await house.clock.advance(0.0)
    assert house.granted_labels() == ["first", *[w.demand.label for w in waiting], "late"]
    assert late.status == "granted"


async def test_a_thousand_deadlines_at_one_instant_are_all_met(house) -> None:
    gate = house.admission.account(CountingGate("g", 1))
    house.ask(held=((gate, 1),), label="first")
    for i in range(3 * AT_ONCE):
        house.ask(held=((gate, 1),), label=str(i), max_wait_s=10.0)
    await house.clock.advance(10.0)
    assert len(house.refused) == 3 * AT_ONCE


async def test_the_place_in_a_long_queue_is_found_without_a_walk_over_it(house) -> None:
    gate = house.admission.account(CountingGate("g", 1))
    house.ask(held=((gate, 1),))
    waiting = []
    for _ in range(3_000):
        waiting.append(house.ask(held=((gate, 1),)))
        house.clock._now += 0.001
    assert [house.admission.explain(waiting[i]).ahead for i in (0, 1, 2, 1_500, 2_999)] == [0, 1, 2, 1_500, 2_999]
    same = [house.ask(held=((gate, 1),)) for _ in range(1_000)]
    assert house.admission.explain(same[100]).ahead == 3_100
    assert house.admission.explain(same[999]).ahead <= 3_999


async def test_the_place_is_right_while_the_dead_are_swept(house) -> None:
    gate = house.admission.account(CountingGate("g", 1))
    house.ask(held=((gate, 1),))
    waiting = []
    for i in range(1_000):
        waiting.append(house.ask(held=((gate, 1),), label=str(i)))
        house.clock._now += 0.001
    kept = [each for i, each in enumerate(waiting) if i % 3 == 0]
    for i, each in enumerate(waiting):
        if i % 3:
            each.cancel()
    for i, each in enumerate(kept):
        assert i <= house.admission.explain(each).ahead <= min(3 * i, len(kept) - 1)
    house.granted[0].release() if house.granted else None
    await house.clock.settle()
    for _ in range(len(kept) - 1):
        house.granted[-1].release()
        await house.clock.settle(3)
    assert house.granted_labels()[1:] == [each.demand.label for each in kept][: len(house.granted) - 1]


async def test_held_back_is_how_long_a_head_stood_short_of_an_account(house) -> None:
    pool, db = house.pool(tpm=600), house.admission.account(DatabaseGate("d", 1))
    house.sends = True
    house.ask(house.call(pool, 600), held=((db, 1),), label="a")
    await house.clock.advance(1.0)
    house.ask(house.call(pool, 110), label="b")  # short of tokens for 10 s
    house.ask(held=((db, 1),), label="c")  # short of the database until it is given back
    await house.clock.advance(4.0)
    now = house.admission.statistics()
    assert now.account("p:tokens").held_back_s == pytest.approx(4.0)
    assert now.account("db:d").held_back_s == pytest.approx(4.0)
    house.finish(house.granted[0], used=(600, 0))
    await house.clock.advance(20.0)
    now = house.admission.statistics()
    assert now.account("p:tokens").held_back_s == pytest.approx(10.0)
    assert now.account("db:d").held_back_s == pytest.approx(4.0)


async def test_whoever_waits_is_explained_also_from_inside_a_step(house) -> None:
    """An account of one's own is asked in the middle of a step, and may look at whoever waits."""
    reasons: list[str] = []
    waiting: list[Any] = []

    class Curious:
        name, capacity, used = "curious", 2, 0.0

        def free(self, now: float) -> float:
            return self.capacity - self.used

        def take(self, now: float, amount: float) -> None:
            self.used += amount
            self.look()

        def give(self, now: float, amount: float) -> None:
            self.used -= amount
            self.look()

        def look(self) -> None:
            for each in waiting:
                said = house.admission.explain(each)
                assert said.reason
                assert (said.account is None) == (each.status != "waiting")
                reasons.append(said.reason)

    curious = Curious()
    house.admission.account(curious)
    pool = house.pool(tpm=6_000, max_concurrent=3)
    for i in range(8):
        calls = [house.call(pool, 10)] if i % 2 else []
        waiting.append(house.ask(*calls, held=((curious, 1),), label=str(i), priority=i % 3))
    house.pool(tpm=6_000, rpm=60, max_concurrent=3)  # an edit takes them out of the line and back
    waiting[4].cancel()
    while len(house.granted) < 7:
        await house.clock.settle()
        for reservation in house.granted:
            reservation.release()
    assert any("about to be looked at" in reason for reason in reasons)


async def test_sets_of_accounts_that_nobody_waits_for_are_forgotten_and_their_counts_kept(
    house: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("interlock.admission.registry.REMEMBERED", 8)
    pool = house.pool(tpm=60_000)
    gates = [CountingGate(f"gate {i}", 1) for i in range(100)]
    first = house.ask(house.call(pool), held=((gates[0], 1),))
    waiting = [house.ask(house.call(pool), held=((gates[0], 1),)) for _ in range(2)]
    for gate in gates[1:]:
        house.ask(house.call(pool), held=((gate, 1),))
    await house.clock.settle()
    line = house.admission._line
    assert len(list(line.groups)) <= 10
    assert list(pool.accounts[0].groups) == [waiting[0].group]
    counts = house.admission.statistics()
    assert (counts.account("p:tokens").granted, counts.account("gate 7").granted) == (100, 1)
    for _ in range(3):
        for reservation in list(house.granted):
            reservation.release()
        await house.clock.settle()
    assert [each.status for each in (first, *waiting)] == ["granted"] * 3
    assert not pool.accounts[0].groups
    assert house.admission.statistics().account("gate 0").granted == 3
