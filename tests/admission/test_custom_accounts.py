"""Accounts of a user's own: a gate in ten lines, a window that opens and closes by its own rules, a rate."""

from __future__ import annotations

from math import inf

import pytest

from interlock.admission import DatabaseGate, HeldAccount, MeteredAccount


class Memory:
    """A gate: so many megabytes."""

    name, capacity, used = "memory", 1_000, 0

    def free(self, now: float) -> float:
        return self.capacity - self.used

    def take(self, now: float, amount: float) -> None:
        self.used += amount

    def give(self, now: float, amount: float) -> None:
        self.used -= amount


class Window:
    """A window that its breaker closes until an instant."""

    name, capacity = "search", 64

    def __init__(self, window: int = 2) -> None:
        self.window, self.out, self.opens_at, self.asked = window, 0.0, -inf, 0

    def free(self, now: float) -> float:
        return self.window - self.out if now >= self.opens_at else 0

    def take(self, now: float, amount: float) -> None:
        self.out += amount

    def give(self, now: float, amount: float) -> None:
        self.out -= amount

    def fit_at(self, now: float, need: float) -> float:
        self.asked += 1
        return self.opens_at if need <= self.window - self.out else inf


class Rate:
    """One a second, and nothing comes back."""

    name, capacity = "mails", 1

    def __init__(self) -> None:
        self.next_at = -inf

    def free(self, now: float) -> float:
        return 1 if now >= self.next_at else 0

    def take(self, now: float, amount: float) -> None:
        self.next_at = now + 1.0

    def give(self, now: float, amount: float) -> None: ...

    def fit_at(self, now: float, need: float) -> float:
        return self.next_at


async def test_a_gate_of_ten_lines_takes_part(house) -> None:
    memory = Memory()
    assert isinstance(memory, HeldAccount)
    assert not isinstance(memory, MeteredAccount)
    pool = house.pool(tpm=600)
    house.admission.account(memory)
    asked = [house.ask(house.call(pool, 1), held=((memory, 400),), label=label) for label in "abc"]
    await house.clock.settle()
    assert house.granted_labels() == ["a", "b"]
    said = house.admission.explain(asked[-1])
    assert (said.account, said.lacks, said.earliest_s) == ("memory", 200, None)
    house.granted[0].release()
    await house.clock.settle()
    assert house.granted_labels() == ["a", "b", "c"]
    assert memory.used == 800


async def test_a_window_whose_breaker_has_tripped_is_looked_at_at_the_instant_it_opens(house) -> None:
    search, pool = Window(), house.pool(tpm=600)
    assert isinstance(search, MeteredAccount)
    house.admission.account(search)
    search.opens_at = house.clock.now() + 30.0
    head = house.ask(house.call(pool, 1), held=((search, 1),), label="a")
    second = house.ask(house.call(pool, 1), held=((search, 1),), label="b")
    said = house.admission.explain(head)
    assert (said.account, said.lacks, said.earliest_s) == ("search", 1, pytest.approx(30.0))
    assert "says that it fits in 30 s" in said.reason
    assert house.admission.explain(second).account == "search"
    await house.clock.advance(29.999)
    assert house.granted_labels() == []
    await house.clock.advance(0.001)
    assert house.granted_labels() == ["a", "b"]
    assert [r.waited_s for r in house.granted] == [pytest.approx(30.0), pytest.approx(30.0)]
    assert house.admission.statistics().account("search").held_back_s == pytest.approx(30.0)


async def test_a_full_window_waits_for_a_release_and_a_trip_meanwhile_moves_the_instant(house) -> None:
    search = Window(window=1)
    house.admission.account(search)
    house.ask(held=((search, 1),), label="a")
    waiting = house.ask(held=((search, 1),), label="b")
    await house.clock.settle()
    assert house.admission.explain(waiting).earliest_s is None
    search.opens_at = house.clock.now() + 5.0  # its job found the service down
    house.granted[0].release()
    await house.clock.settle()
    assert house.granted_labels() == ["a"]
    assert house.admission.explain(waiting).earliest_s == pytest.approx(5.0)
    await house.clock.advance(5.0)
    assert house.granted_labels() == ["a", "b"]


async def test_room_that_comes_by_itself_is_told_with_changed(house) -> None:
    search = Window(window=1)
    house.admission.account(search)
    for label in "abc":
        house.ask(held=((search, 1),), label=label)
    await house.clock.settle()
    search.window = 3
    house.admission.changed(search)
    await house.clock.settle()
    assert house.granted_labels() == ["a", "b", "c"]


async def test_a_rate_of_ones_own_lets_one_go_at_each_instant(house) -> None:
    mails = Rate()
    house.admission.account(mails)
    for label in "abc":
        house.ask(held=((mails, 1),), label=label)
    await house.clock.advance(0.999)
    assert house.granted_labels() == ["a"]
    await house.clock.advance(1.002)
    assert house.granted_labels() == ["a", "b", "c"]
    start = house.granted[0].granted_at
    assert [r.granted_at - start for r in house.granted] == pytest.approx([0.0, 1.0, 2.0])


async def test_a_window_that_says_now_and_has_no_room_is_not_asked_all_the_time(house) -> None:
    search = Window()
    house.admission.account(search)
    search.fit_at = lambda now, need: now  # type: ignore[method-assign]
    search.window = 0
    waiting = house.ask(held=((search, 1),))
    await house.clock.advance(1.0)
    assert waiting.status == "waiting"
    assert len(house.clock._timers) < 5
    search.window = 1
    await house.clock.advance(0.1)
    assert waiting.status == "granted"


async def test_whoever_waits_for_a_closed_breaker_does_not_idle_the_database(house) -> None:
    search, db = Window(), house.admission.account(DatabaseGate("d", 1))
    house.admission.account(search)
    search.opens_at = house.clock.now() + 60.0
    house.ask(held=((search, 1), (db, 1)), label="both")
    house.ask(held=((db, 1),), label="database")
    await house.clock.settle()
    assert house.granted_labels() == ["database"]
    house.granted[0].release()
    await house.clock.advance(60.0)
    assert house.granted_labels() == ["database", "both"]
