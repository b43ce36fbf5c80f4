"""Token buckets, and what each wire charges them. Pure: time is an argument.

A bucket refills continuously and may go below zero. Anthropic charges input at the start and output as it is produced;
OpenAI reserves input and the whole output limit and settles to what was used, and a refused request counts as one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

_SLACK = 1e-6  # a level that is short by rounding alone is not short


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedLimits:
    """Limits of one model, per minute. None is no limit. `burst_s` seconds of a rate may be taken at once."""

    rpm: float | None = None
    tpm: float | None = None
    input_tpm: float | None = None
    output_tpm: float | None = None
    burst_s: float = 60.0

    def __post_init__(self) -> None:
        for name in ("rpm", "tpm", "input_tpm", "output_tpm", "burst_s"):
            value = getattr(self, name)
            if value is not None and not (math.isfinite(value) and value > 0):
                raise ValueError(f"{name} must be a finite number above 0, not {value!r}")

    def rates(self) -> Iterator[tuple[str, float]]:
        """(dimension, amount a minute) for each limit there is, named as the headers name them."""
        for dimension, per_minute in (
            ("requests", self.rpm),
            ("tokens", self.tpm),
            ("input-tokens", self.input_tpm),
            ("output-tokens", self.output_tpm),
        ):
            if per_minute is not None:
                yield dimension, per_minute


class Charge(NamedTuple):
    """Amounts per dimension. Negative gives back."""

    requests: float = 0.0
    tokens: float = 0.0
    input_tokens: float = 0.0
    output_tokens: float = 0.0


@dataclass(slots=True)
class TokenBucket:
    capacity: float
    rate_per_s: float
    level: float
    at_s: float

    def level_at(self, now: float) -> float:
        return min(self.capacity, self.level + max(0.0, now - self.at_s) * self.rate_per_s)

    def take(self, amount: float, now: float) -> None:
        self.level = min(self.capacity, self.level_at(now) - amount)
        self.at_s = max(now, self.at_s)

    def wait_s(self, amount: float, now: float) -> float:
        """Seconds until `amount` can be taken; 0 for now. What never fits waits for a full bucket."""
        short = amount - self.level_at(now)
        if short <= _SLACK:
            return 0.0
        if amount > self.capacity:
            short = max(self.capacity - self.level_at(now), self.rate_per_s)
        return short / self.rate_per_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """A charge that did not fit: the dimension that holds it longest, its limit a minute, and the wait in seconds."""

    dimension: str
    limit: float
    used: float
    asked: float
    retry_after_s: float
    too_large: bool


class Level(NamedTuple):
    """A limit as the headers state it: per minute, what remains, seconds until the bucket is full."""

    limit: float
    remaining: float
    full_in_s: float


class Meter:
    """The buckets of one model: those that are really served, and those that are published.

    They differ where the provider serves less than it says: the headers tell the published story.
    """

    def __init__(self, limits: PublishedLimits, serves: float, now: float) -> None:
        self.limits = limits
        self._per_minute = dict(limits.rates())
        self._served = self._full(serves, now)
        self._published = self._served if serves == 1.0 else self._full(1.0, now)

    def _full(self, share: float, now: float) -> dict[str, TokenBucket]:
        burst_s = self.limits.burst_s
        return {
            name: TokenBucket(rate / 60 * burst_s, rate / 60 * share, rate / 60 * burst_s, now)
            for name, rate in self._per_minute.items()
        }

    def serve(self, share: float, now: float) -> None:
        """From now on refill at that share of what is published."""
        if self._published is self._served:
            self._published = {name: replace(bucket) for name, bucket in self._served.items()}
        for name, bucket in self._served.items():
            bucket.take(0, now)
            bucket.rate_per_s = self._per_minute[name] / 60 * share

    def admit(self, charge: Charge, now: float) -> Refused | None:
        """Take the whole charge, or nothing and say why. Output must have something left, though nothing is taken."""
        worst: Refused | None = None
        for name, bucket in self._served.items():
            amount = _amount(charge, name)
            needed = max(amount, 1.0) if name == "output-tokens" else amount
            wait_s = bucket.wait_s(needed, now)
            if wait_s > 0 and (worst is None or wait_s > worst.retry_after_s):
                used = max(0.0, bucket.capacity - bucket.level_at(now))
                too_large = needed > bucket.capacity
                worst = Refused(
                    dimension=name,
                    limit=self._per_minute[name],
                    used=used,
                    asked=needed,
                    retry_after_s=wait_s,
                    too_large=too_large,
                )
        if worst is None:
            self.take(charge, now)
        return worst

    def take(self, charge: Charge, now: float) -> None:
        """Take (or give back) without asking: a level may go below zero."""
        for name, bucket in self._served.items():
            bucket.take(_amount(charge, name), now)
        if self._published is not self._served:
            for name, bucket in self._published.items():
                bucket.take(_amount(charge, name), now)

    def published(self, now: float) -> dict[str, Level]:
        levels = {}
        for name, bucket in self._published.items():
            level = bucket.level_at(now)
            full_in_s = (bucket.capacity - level) / bucket.rate_per_s
            levels[name] = Level(self._per_minute[name], max(0.0, level), full_in_s)
        return levels

    def served_rates(self) -> dict[str, tuple[float, float]]:
        """(capacity, rate a second) really served, by dimension."""
        return {name: (bucket.capacity, bucket.rate_per_s) for name, bucket in self._served.items()}


def _amount(charge: Charge, dimension: str) -> float:
    if dimension == "requests":
        return charge.requests
    if dimension == "tokens":
        return charge.tokens
    return charge.input_tokens if dimension == "input-tokens" else charge.output_tokens
