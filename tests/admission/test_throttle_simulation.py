"""The throttle against providers that serve less than they publish, on virtual time, by seed, through the whole shell.

The provider here is a token bucket of its own: it publishes 1,000 tokens a second and really refills a part of it; a
call that it cannot pay for is refused with the seconds until it could. The client always has work. Goodput is what was
served against what the provider could serve, once the first two minutes are over.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from math import ceil

import pytest

from interlock.admission import CallOutcome, Demand, OutcomeKind, Permit, Reservation

RATE = 1_000.0
WARM_S, END_S = 120.0, 900.0


class Provider:
    """Serves `serves(t)` of what it publishes; `burst_s` seconds of it at once."""

    def __init__(self, serves: Callable[[float], float], burst_s: float = 60.0) -> None:
        self.serves, self.capacity, self.at = serves, RATE * burst_s, 0.0
        self.level = self.capacity * serves(0.0)

    def ask(self, now: float, tokens: float) -> float | None:
        """None, it is served; or the seconds until it would be."""
        refill = RATE * self.serves(now)
        self.level = min(self.capacity, self.level + (now - self.at) * refill)
        self.at = now
        if self.level >= tokens:
            self.level -= tokens
            return None
        return (tokens - self.level) / refill


class Client:
    """Keeps twenty jobs waiting, and sends what is granted."""

    def __init__(self, house, provider: Provider, *, seed: int, hints: bool) -> None:
        self.house, self.provider, self.random, self.hints = house, provider, random.Random(seed), hints
        self.pool = house.pool("p", tpm=RATE * 60)
        self.start = house.clock.now()
        self.served = self.refused = self.errors = 0.0
        self.sent: list[float] = []

    def submit(self, size: int, ticket: object = None) -> None:
        self.house.admission.submit(self.house_demand(size), lambda r: self.run(r, size), self.fail, ticket=ticket)

    def house_demand(self, size: int):
        return Demand(calls=(self.house.call(self.pool, size),), workflow="w")

    def fail(self, error: Exception) -> None:
        self.errors += 1

    def run(self, reservation: Reservation, size: int) -> None:
        now = self.house.clock.now() - self.start
        permit = reservation.permit("k", input_tokens=size, output_tokens=0)
        permit.sent()
        self.sent.append(now)
        wait_s = self.provider.ask(now, size)
        if wait_s is None:
            if now > WARM_S:
                self.served += size
            lasts = 3.0 * self.random.uniform(0.5, 1.5)
            self.house.clock.call_at(self.house.clock.now() + lasts, lambda: self.done(reservation, permit))
            self.submit(self.random.randint(300, 900))
        else:
            hint = float(ceil(wait_s)) if self.hints else None
            self.house.clock.call_at(
                self.house.clock.now() + 0.1, lambda: self.limited(reservation, permit, size, hint)
            )

    def done(self, reservation: Reservation, permit: Permit) -> None:
        permit.close(CallOutcome(kind=OutcomeKind.COMPLETED))
        reservation.release()

    def limited(self, reservation: Reservation, permit: Permit, size: int, hint: float | None) -> None:
        if self.house.clock.now() - self.start > WARM_S:
            self.refused += 1
        permit.close(CallOutcome(kind=OutcomeKind.RATE_LIMITED, retry_after_s=hint))
        reservation.release()
        self.submit(size, ticket=reservation.ticket)


async def simulate(house, serves: Callable[[float], float], *, seed: int = 0, hints: bool = True):
    """(goodput in [0, 1] of what could be served, 429s a minute, the client) after the warm-up."""
    client = Client(house, Provider(serves), seed=seed, hints=hints)
    for _ in range(20):
        client.submit(client.random.randint(300, 900))
    end = client.start + END_S
    while True:
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        due = house.clock.next_instant
        assert due is not None, "everything stands still"
        if due > end:
            break
        house.clock.run_due(due - house.clock.now())
    assert client.errors == 0
    parts = 1_000
    could = sum(serves(WARM_S + (END_S - WARM_S) * (i + 0.5) / parts) for i in range(parts)) / parts
    return client.served / (could * RATE * (END_S - WARM_S)), client.refused / (END_S - WARM_S) * 60, client


@pytest.mark.parametrize(("part", "at_most_a_minute"), [(1.0, 0.0), (0.6, 2.0), (0.3, 3.0)])
async def test_it_settles_at_what_is_really_served(house, part: float, at_most_a_minute: float) -> None:
    goodput, refused, _ = await simulate(house, lambda t: part)
    assert goodput >= 0.98
    assert refused <= at_most_a_minute


async def test_it_settles_without_hints_too(house) -> None:
    goodput, refused, _ = await simulate(house, lambda t: 0.6, seed=3, hints=False)
    assert goodput >= 0.98
    assert refused <= 3.0


async def test_it_follows_a_provider_that_gets_worse_and_better(house) -> None:
    goodput, _refused, client = await simulate(house, lambda t: 0.3 if t < 400 else 1.0, seed=1)
    assert goodput >= 0.8
    assert client.pool.throttle.slowdown(0) < 1.1


async def test_the_same_seed_sends_at_the_same_instants(new_house) -> None:
    traces = [(await simulate(new_house(), lambda t: 0.5, seed=9))[2].sent for _ in range(2)]
    assert traces[0] == traces[1]
    assert len(traces[0]) > 500
