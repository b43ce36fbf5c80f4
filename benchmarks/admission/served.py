"""A model provider on virtual time that serves what it likes of what it publishes, and callers that always have work.

The provider is a token bucket of its own: `capacity` tokens at most, refilled at a share of the published rate that may
change over time. A call that it cannot pay for is refused. What it tells (hints, headers) is up to its `Manner`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import ceil, floor, inf
from typing import Literal

from interlock.admission import (
    Admission,
    CallCharge,
    CallOutcome,
    Demand,
    Dimension,
    OutcomeKind,
    Pool,
    ReportedLimit,
    Reservation,
)
from interlock.admission.reservation import Permit
from interlock.catalog.entry import Accounting, Limits
from interlock.catalog.usage import Usage

from .virtual import VirtualTime

Hint = Literal["seconds", "exact", "none", "zero", "short"]
Shares = Sequence[tuple[float, float]]  # (from_s, the share of the published rate that is served)


@dataclass(frozen=True, slots=True, kw_only=True)
class Manner:
    """How a provider behaves. `tick_s`: it refills in steps of so many seconds, 0 continuously."""

    shares: Shares = ((0.0, 1.0),)
    overloaded: float = 0.0  # share of calls answered 529 during `storm_s`
    storm_s: tuple[float, float] = (inf, inf)
    tick_s: float = 0.0
    hint: Hint = "seconds"
    headers: bool = False  # it tells what really remains
    small_burst: bool = False  # its bucket, too, is only a share of the published one
    output_only: bool = False  # it meters the tokens it has produced, and wants something left to begin


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """Who calls, and with what. `rate` is published, in tokens a second; `large` of the calls are `large_tokens`."""

    callers: int = 50
    rate: float = 10_000.0
    burst_s: float = 60.0
    tokens: tuple[int, int] = (200, 1_800)
    large: float = 0.01
    large_tokens: int = 60_000
    latency_s: tuple[float, float] = (0.5, 3.5)
    workflows: int = 5


class Provider:
    def __init__(self, manner: Manner, work: Work, rng: random.Random) -> None:
        self.manner, self.rate, self._random = manner, work.rate, rng
        self._changes = list(manner.shares)
        self.share = self._changes.pop(0)[1]
        self.capacity = work.rate * work.burst_s * (self.share if manner.small_burst else 1.0)
        self.level, self.at_s = self.capacity, 0.0

    def refill(self, now: float) -> None:
        while self._changes and self._changes[0][0] <= now:
            at_s, share = self._changes.pop(0)
            self._to(at_s)
            self.share = share
        self._to(now)

    def _to(self, now: float) -> None:
        tick = self.manner.tick_s
        if tick:
            now = max(floor(now / tick) * tick, self.at_s)
        self.level = min(self.capacity, self.level + (now - self.at_s) * self.rate * self.share)
        self.at_s = now

    def ask(self, now: float, tokens: float) -> tuple[OutcomeKind, float | None]:
        """What becomes of a call that arrives now, and the hint it is refused with."""
        self.refill(now)
        manner = self.manner
        if manner.storm_s[0] <= now < manner.storm_s[1] and self._random.random() < manner.overloaded:
            return OutcomeKind.OVERLOADED, None
        need = 1.0 if manner.output_only else tokens
        if self.level < need:
            return OutcomeKind.RATE_LIMITED, self._hint((need - self.level) / (self.rate * self.share))
        if not manner.output_only:
            self.level -= tokens
        return OutcomeKind.COMPLETED, None

    def _hint(self, wait_s: float) -> float | None:
        kind = self.manner.hint
        if kind == "none":
            return None
        if kind == "zero":
            return 0.0
        if kind == "short":
            return wait_s / 3
        return wait_s if kind == "exact" else float(ceil(wait_s))

    def produced(self, now: float, tokens: float) -> None:
        """So many tokens have been put out: metered whether they are there or not."""
        self.refill(now)
        self.level -= tokens

    def headers(self, now: float) -> dict[Dimension, ReportedLimit]:
        """What really remains, and the rate really served: an honest provider's headers."""
        self.refill(now)
        limit, remaining = self.rate * self.share * 60, max(self.level, 0.0)
        dimension = Dimension.OUTPUT_TOKENS if self.manner.output_only else Dimension.TOKENS
        return {dimension: ReportedLimit(limit=limit, remaining=float(floor(remaining)))}


@dataclass(slots=True)
class Trace:
    """What happened: served (at_s, tokens), refusals' instants, waits, and every arrival with its grant's instant."""

    served: list[tuple[float, float]] = field(default_factory=list)
    refused: list[float] = field(default_factory=list)
    calls: int = 0
    arrivals: list[tuple[float, int, float]] = field(default_factory=list)
    granted: list[float] = field(default_factory=list)  # aligned with `arrivals`; inf until it is served
    rates: list[tuple[float, float, float]] = field(default_factory=list)  # (at_s, 1 / slowdown, level in seconds)


class Crowd:
    """Callers in a closed loop: each submits, waits, is answered, thinks a moment, and begins again."""

    def __init__(self, time: VirtualTime, provider: Provider, work: Work, rng: random.Random, limits: Limits) -> None:
        self.time, self.provider, self.work, self._random = time, provider, work, rng
        self.admission = Admission(time, jitter=rng.random)
        self.pool: Pool = self.admission.pool("p", limits)
        self.output_only = provider.manner.output_only
        self.accounting = Accounting(output="expected") if self.output_only else Accounting()
        self.trace = Trace()
        self._retry: Callable[[float], float] = lambda attempt: rng.uniform(0.5, 1.0) * 2.0**attempt

    def start(self) -> None:
        for caller in range(self.work.callers):
            self.time.call_at(self._random.uniform(0.0, 0.2), lambda caller=caller: self.begin(caller))  # type: ignore[misc]

    def begin(self, caller: int) -> None:
        work, trace = self.work, self.trace
        size = work.large_tokens if self._random.random() < work.large else self._random.randint(*work.tokens)
        number = len(trace.arrivals)
        workflow = caller % work.workflows
        trace.arrivals.append((self.time.now(), workflow, size))
        trace.granted.append(inf)
        into, out = (0, size) if self.output_only else (size, 0)
        call = CallCharge(key="k", pool=self.pool, accounting=self.accounting, input_tokens=into, output_tokens=out)
        self._submit(_Job(self, caller, number, size, Demand(calls=(call,), workflow=str(workflow))), None)

    def _submit(self, job: _Job, ticket: object) -> None:
        self.admission.submit(job.demand, job.granted, self._fail, ticket=ticket)  # type: ignore[arg-type]

    @staticmethod
    def _fail(error: Exception) -> None:
        raise error

    def again(self, job: _Job, ticket: object, after_s: float) -> None:
        if after_s:
            self.time.call_at(self.time.now() + after_s, lambda: self._submit(job, ticket))
        else:
            self._submit(job, ticket)

    def sample(self) -> None:
        """Note the rate and the level, once a second, for the pictures."""
        now, limiter = self.time.now(), self.pool.limiter
        level = next(iter(limiter.levels.values()))
        rate = level.rate / self.provider.rate
        self.trace.rates.append((now, rate, level.level(now) / self.provider.rate))
        self.time.call_at(now + 1.0, self.sample)


class _Job:
    __slots__ = ("attempt", "caller", "crowd", "demand", "number", "permit", "reservation", "size")

    def __init__(self, crowd: Crowd, caller: int, number: int, size: int, demand: Demand) -> None:
        self.crowd, self.caller, self.number, self.size, self.demand = crowd, caller, number, size, demand
        self.attempt = 0
        self.reservation: Reservation | None = None
        self.permit: Permit | None = None

    def granted(self, reservation: Reservation) -> None:
        crowd, call = self.crowd, self.demand.calls[0]
        permit = reservation.permit("k", input_tokens=call.input_tokens, output_tokens=call.output_tokens)
        permit.sent()
        self.reservation, self.permit = reservation, permit
        crowd.trace.granted[self.number] = crowd.time.now()
        crowd.time.call_at(crowd.time.now() + crowd._random.uniform(0.005, 0.06), self.arrived)

    def arrived(self) -> None:
        crowd = self.crowd
        now, trace, rng = crowd.time.now(), crowd.trace, crowd._random
        trace.calls += 1
        kind, hint = crowd.provider.ask(now, self.size)
        if kind is OutcomeKind.COMPLETED:
            produced = self.size / 10 * rng.uniform(0.5, 1.5) if crowd.output_only else float(self.size)
            lasts = rng.uniform(*crowd.work.latency_s)
            if not crowd.output_only:
                trace.served.append((now, produced))
            crowd.time.call_at(now + lasts, lambda: self.done(produced))
            return
        if kind is OutcomeKind.RATE_LIMITED:
            trace.refused.append(now)
        crowd.time.call_at(now + rng.uniform(0.03, 0.2), lambda: self.refused(kind, hint))

    def done(self, produced: float) -> None:
        crowd, now, usage = self.crowd, self.crowd.time.now(), None
        if crowd.output_only:
            crowd.provider.produced(now, produced)
            crowd.trace.served.append((now, produced))
            usage = Usage(input_tokens=0, output_tokens=round(produced))
        reported = crowd.provider.headers(now) if crowd.provider.manner.headers else {}
        assert self.permit is not None
        assert self.reservation is not None
        self.permit.close(CallOutcome(kind=OutcomeKind.COMPLETED, usage=usage, reported=reported))
        self.reservation.release()
        crowd.time.call_at(now + crowd._random.uniform(0.0, 0.1), lambda: crowd.begin(self.caller))

    def refused(self, kind: OutcomeKind, hint: float | None) -> None:
        assert self.permit is not None
        assert self.reservation is not None
        self.permit.close(CallOutcome(kind=kind, retry_after_s=hint))
        self.reservation.release()
        self.attempt += 1
        delay_s = 0.0 if kind is OutcomeKind.RATE_LIMITED else self.crowd._retry(min(self.attempt, 5))
        self.crowd.again(self, self.reservation.ticket, delay_s)


def limits_of(manner: Manner, work: Work) -> Limits:
    """What the catalog says: what the provider publishes."""
    a_minute = work.rate * 60
    if manner.output_only:
        return Limits(output_tpm=a_minute, burst_s=work.burst_s)
    return Limits(tpm=a_minute, burst_s=work.burst_s)


def run(manner: Manner, work: Work, *, seed: int, until_s: float, sampled: bool = False) -> Trace:
    """One simulation. The same seed gives the same trace."""
    time, rng = VirtualTime(), random.Random(seed)
    crowd = Crowd(time, Provider(manner, work, random.Random(seed + 1_000_003)), work, rng, limits_of(manner, work))
    crowd.start()
    if sampled:
        crowd.sample()
    time.run(until_s)
    return crowd.trace
