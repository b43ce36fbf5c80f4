"""The provider of a simulated run: buckets of its own, charged when a request arrives, and faults drawn by a seed.

It knows nothing of admission. What it counts is what the runtime is held to afterwards: who came when, how each ended,
how many were refused, how many were open at once.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from interlock.admission import Clock, Dimension, ReportedLimit
from interlock.catalog import Limits
from interlock.clients.response import StopReason
from interlock.errors import (
    InvalidRequestError,
    OverloadedError,
    QuotaExhaustedError,
    RateLimitedError,
    TransientUpstreamError,
)

#: Tokens by which a bucket may be short without refusing: rounding.
SLACK = 0.01
LATENCIES_S = (0.0, 0.2, 1.0, 5.0, 30.0)


class Bucket:
    """One limit, counted forwards: it starts full, refills by the second, and is never above its capacity."""

    def __init__(self, per_minute: float, burst_s: float, share: float, now: float) -> None:
        self.capacity = self.holds = max(per_minute / 60.0 * burst_s, 1.0)
        self.rate, self.at = per_minute / 60.0 * share, now
        self.per_minute = per_minute

    def read(self, now: float) -> float:
        self.holds = min(self.capacity, self.holds + (now - self.at) * self.rate)
        self.at = now
        return self.holds

    def take(self, now: float, amount: float) -> None:
        self.holds = min(self.capacity, self.read(now) - amount)


@dataclass(frozen=True, kw_only=True)
class Manners:
    """How a provider behaves. `faults` is the share of requests that go wrong, `serves` what it serves of its limits,
    `tokenizer` how many of its tokens one estimated token is, `headers` whether it reports limits.
    `odd`: now and then it refuses, cuts off, or answers in another shape."""

    faults: float = 0.0
    serves: float = 1.0
    tokenizer: float = 1.0
    headers: bool = False
    hints: bool = True
    odd: bool = True
    storm_s: tuple[float, float] = (0.0, 0.0)  # seconds after the start between which half of all are 529s


@dataclass
class Request:
    """One request as the provider saw it."""

    number: int
    at_s: float
    model: str
    input_tokens: int
    max_output_tokens: int
    streamed: bool
    ended: str = "open"
    pieces: int = 0  # of a stream, given out so far


@dataclass
class Fate:
    """What becomes of a request."""

    request: Request
    latency_s: float
    text: str = "ok"
    error: Callable[[], Exception] | None = None
    stop: StopReason = StopReason.END_TURN
    usage: tuple[int, int] | None = None
    pieces: list[str] = field(default_factory=list)
    break_after: int | None = None  # pieces after which `error` strikes
    reported: Mapping[Dimension, ReportedLimit] = field(default_factory=dict)


class Upstream:
    """All models of a run; a model's buckets are those of its pool."""

    def __init__(self, clock: Clock, rng: random.Random, manners: Manners, trace: list[Any]) -> None:
        self.clock, self.rng, self.manners, self.trace = clock, rng, manners, trace
        self.started_s = clock.now()
        self.buckets: dict[str, dict[Dimension, Bucket]] = {}
        self.slots: dict[str, int | None] = {}
        self.requests: list[Request] = []
        self.open: dict[str, int] = {}
        self.refused = self.too_many = 0

    def publish(self, pool: str, models: tuple[str, ...], limits: Limits) -> None:
        numbers = {
            Dimension.REQUESTS: limits.rpm,
            Dimension.TOKENS: limits.tpm,
            Dimension.INPUT_TOKENS: limits.input_tpm,
            Dimension.OUTPUT_TOKENS: limits.output_tpm,
        }
        now = self.clock.now()
        made = {
            dimension: Bucket(number, limits.burst_s, self.manners.serves, now)
            for dimension, number in numbers.items()
            if number is not None
        }
        for model in models:
            self.buckets[model], self.slots[model], self.open[model] = made, limits.max_concurrent, 0

    # One request.

    def arrive(self, model: str, estimated: int, max_output_tokens: int, *, streamed: bool) -> Fate:
        now, rng = self.clock.now(), self.rng
        tokens = max(int(estimated * self.manners.tokenizer), 1)
        request = Request(len(self.requests) + 1, now, model, tokens, max_output_tokens, streamed)
        self.requests.append(request)
        self.open[model] += 1
        slots = self.slots[model]
        self.too_many += slots is not None and self.open[model] > slots
        fate = Fate(request, rng.choice(LATENCIES_S))
        self.trace.append(("arrives", now, request.number, model, tokens, max_output_tokens, streamed))
        wait_s = self._short_s(request, now)
        if wait_s > 0:
            self.refused += 1
            fate.latency_s, fate.error = 0.05, self._rate_limited(wait_s)
        elif rng.random() < self._fault_share(now):
            self._spoil(fate, now)
        else:
            self._charge(request, now, max_output_tokens)
            self._answer(fate)
        if self.manners.headers and rng.random() < 0.5:
            fate.reported = self._reported(model, now)
        return fate

    def _short_s(self, request: Request, now: float) -> float:
        """Seconds until it would fit; 0: it fits."""
        wait_s = 0.0
        for dimension, bucket in self.buckets[request.model].items():
            short = self._amount(dimension, request, request.max_output_tokens) - bucket.read(now)
            if short > SLACK:
                wait_s = max(wait_s, short / bucket.rate)
        return wait_s

    @staticmethod
    def _amount(dimension: Dimension, request: Request, output_tokens: float) -> float:
        if dimension is Dimension.REQUESTS:
            return 1
        if dimension is Dimension.INPUT_TOKENS:
            return request.input_tokens
        if dimension is Dimension.OUTPUT_TOKENS:
            return output_tokens
        return request.input_tokens + output_tokens

    def _charge(self, request: Request, now: float, output_tokens: float) -> None:
        for dimension, bucket in self.buckets[request.model].items():
            bucket.take(now, self._amount(dimension, request, output_tokens))

    def ended(self, fate: Fate, how: str, output_tokens: int | None = None) -> None:
        """It is over; of what its output limit took, all but `output_tokens` comes back. The first call counts."""
        request = fate.request
        if request.ended != "open":
            return
        request.ended = how
        self.open[request.model] -= 1
        now = self.clock.now()
        self.trace.append(("ends", now, request.number, how))
        if output_tokens is not None:
            unused = request.max_output_tokens - output_tokens
            for dimension, bucket in self.buckets[request.model].items():
                if dimension in (Dimension.TOKENS, Dimension.OUTPUT_TOKENS):
                    bucket.take(now, -unused)

    def left(self, fate: Fate, how: str) -> None:
        """The caller has gone: what was produced until then is charged, if it was served at all."""
        served = fate.error is None or fate.break_after is not None
        self.ended(fate, how, fate.request.pieces if served else None)

    # What it says.

    def _fault_share(self, now: float) -> float:
        start, end = self.manners.storm_s
        return 0.5 if start <= now - self.started_s < end else self.manners.faults

    def _rate_limited(self, wait_s: float) -> Callable[[], Exception]:
        hint = wait_s if self.manners.hints else None
        return lambda: RateLimitedError("429", status=429, retry_after_s=hint)

    def _spoil(self, fate: Fate, now: float) -> None:
        rng, request = self.rng, fate.request
        if self.manners.storm_s[0] <= now - self.started_s < self.manners.storm_s[1]:
            fate.error = lambda: OverloadedError("529", status=529)
            return
        hint = rng.choice([None, 0, 1, 7, 90])
        fate.error = rng.choice(
            [
                lambda: RateLimitedError("429", status=429, retry_after_s=hint),
                lambda: OverloadedError("529", status=529),
                lambda: TransientUpstreamError("503", status=503),
                lambda: TransientUpstreamError("lost"),
                lambda: QuotaExhaustedError("402", status=402),
                lambda: InvalidRequestError("400", status=400),
            ]
        )
        if request.streamed and rng.random() < 0.7:
            fate.break_after, fate.pieces = rng.choice([0, 1]), ["a ", "b "]
            self._charge(request, now, request.max_output_tokens)

    def _answer(self, fate: Fate) -> None:
        rng, request = self.rng, fate.request
        used = min(rng.choice([1, 5, 40, 400]), request.max_output_tokens)
        kind = rng.random() if self.manners.odd else 1.0
        fate.text = '{"n": 1}'
        if kind < 0.05:
            fate.stop, fate.text, used = StopReason.MAX_TOKENS, '{"n', request.max_output_tokens
        elif kind < 0.08:
            fate.stop, fate.text = StopReason.REFUSAL, ""
        elif kind < 0.13:
            fate.text = "no json"
        fate.pieces = [fate.text[:2], fate.text[2:]] if fate.text else []
        used = max(used, len(fate.pieces))
        known = rng.random() < 0.9
        fate.usage = (request.input_tokens, used) if known else None
        request.max_output_tokens = max(request.max_output_tokens, used)

    def _reported(self, model: str, now: float) -> dict[Dimension, ReportedLimit]:
        return {
            dimension: ReportedLimit(limit=bucket.per_minute, remaining=max(float(int(bucket.read(now))), 0.0))
            for dimension, bucket in self.buckets[model].items()
        }


#: The provider of the run that is under way: clients are built by the runtime, which knows nothing of it.
CURRENT: deque[Upstream] = deque(maxlen=1)
