"""Accounts of a user's own whose room the clock changes too: an elastic window for a web service, with its breaker."""

from __future__ import annotations

from math import inf

import pytest

from interlock.admission import HeldAccount, MeteredAccount


class Service:
    """So many at a time, fewer after a failure; after three in a row nothing for ten seconds, and then one."""

    name, capacity = "service", 8

    def __init__(self) -> None:
        self.window, self.out, self.failures, self.opens_at = 8.0, 0.0, 0, -inf

    def free(self, now: float) -> float:
        return self.window - self.out if now >= self.opens_at else 0.0

    def fit_at(self, now: float, need: float) -> float:
        return max(now, self.opens_at) if need <= self.window - self.out else inf

    def take(self, now: float, amount: float) -> None:
        self.out += amount

    def give(self, now: float, amount: float) -> None:
        self.out -= amount

    def failed(self, now: float) -> None:
        self.failures, self.window = self.failures + 1, max(self.window // 2, 1.0)
        if self.failures >= 3:
            self.opens_at = now + 10.0

    def served(self) -> None:
        self.failures, self.window = 0, min(self.window + 1, 8.0)


@pytest.fixture
def service(house) -> Service:
    service = Service()
    house.admission.account(service)
    return service


def test_it_is_what_the_protocols_ask(service) -> None:
    assert isinstance(service, HeldAccount)
    assert isinstance(service, MeteredAccount)


async def test_a_window_that_shrinks_and_grows_takes_part_in_the_line(house, service) -> None:
    pool = house.pool(tpm=600)
    for i in range(12):
        house.ask(house.call(pool, 1), held=((service, 1),), label=str(i))
    await house.clock.settle()
    assert len(house.granted) == 8
    service.failed(house.clock.now())
    for reservation in house.granted[:4]:
        reservation.release()
    await house.clock.settle()
    assert len(house.granted) == 8, "half as many at a time"
    service.served()
    house.admission.changed(service)
    await house.clock.settle()
    assert len(house.granted) == 9
    for reservation in house.granted[4:]:
        reservation.release()
    await house.clock.settle()
    assert len(house.granted) == 12


async def test_who_waits_for_a_breaker_goes_at_the_instant_it_opens(house, service) -> None:
    for _ in range(3):
        service.failed(house.clock.now())
    waiting = house.ask(held=((service, 1),), label="first")
    house.ask(held=((service, 1),), label="second")
    await house.clock.settle()
    said = house.admission.explain(waiting)
    assert (said.account, said.earliest_s) == ("service", pytest.approx(10.0))
    await house.clock.advance(9.99)
    assert not house.granted
    await house.clock.advance(0.02)
    assert house.granted_labels() == ["first"]
    service.failed(house.clock.now())
    house.answers["first"].release()
    await house.clock.advance(9.9)
    assert house.granted_labels() == ["first"]
    await house.clock.advance(0.2)
    assert house.granted_labels() == ["first", "second"]


async def test_a_breaker_that_opens_sooner_than_it_said_is_told_of(house, service) -> None:
    service.opens_at = house.clock.now() + 1_000.0
    house.ask(held=((service, 1),), label="x")
    await house.clock.advance(1.0)
    service.opens_at = house.clock.now() + 1.0
    house.admission.changed(service)
    await house.clock.advance(1.01)
    assert "x" in house.answers
