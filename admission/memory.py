"""What a pool must not forget when its process ends: what its levels lack, and what its throttle has learnt. Pure.

A provider goes on counting while a program restarts. So a new process begins where the old one was, refilled for the
time between. A process that was killed could not say its last word: what it may have taken since it last did (a `CRASH`
margin) is taken off. Two processes that keep one pool in one place do not add up here (that is what a shared ledger is
for); each remembers what is lowest of what both wrote, so neither undoes the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from math import inf, isfinite
from typing import Any

from .limiter import PARTS, PER_DAY
from .pool import Pool
from .windows import WindowLevel

#: A process writes at once when a level has dropped by this share of what it holds, and at the latest after so long.
CRASH_SHARE, CRASH_S = 0.1, 1.25


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolMemory:
    """One pool at one moment. Times are seconds from then; dimensions are those of the limiter.

    `lacks`: what a level lacks of its capacity, and its refill a second. `used`: of a window, what was used of it, and
    the reset that opened it (seconds since 1970).
    """

    lacks: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    used: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    slowdown: float = 1.0
    held_for_s: float = 0.0
    closed_for_s: float = 0.0

    @property
    def empty(self) -> bool:
        """Whether it says nothing that a fresh pool would not know."""
        return not self.lacks and not self.used and self.slowdown == 1.0 and self.held_for_s == self.closed_for_s == 0.0

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> PoolMemory:
        """Raises TypeError, KeyError or ValueError for what is no memory."""

        def pairs(name: str) -> dict[str, tuple[float, float]]:
            return {str(key): (float(a), float(b)) for key, (a, b) in data[name].items()}

        return cls(
            lacks=pairs("lacks"),
            used=pairs("used"),
            slowdown=float(data["slowdown"]),
            held_for_s=float(data["held_for_s"]),
            closed_for_s=float(data["closed_for_s"]),
        )

    def after(self, elapsed_s: float) -> PoolMemory:
        """The same, so many seconds later, if nobody drew on it."""
        lacks = {key: (lack - elapsed_s * rate, rate) for key, (lack, rate) in self.lacks.items()}
        return PoolMemory(
            lacks={key: (lack, rate) for key, (lack, rate) in lacks.items() if lack > 0},
            used=self.used,
            slowdown=self.slowdown,
            held_for_s=max(self.held_for_s - elapsed_s, 0.0),
            closed_for_s=max(self.closed_for_s - elapsed_s, 0.0),
        )


def lower(newer: PoolMemory, older: PoolMemory) -> PoolMemory:
    """Of two memories of one moment, the lower level of each; what was learnt is the `newer`'s."""
    lacks, used = dict(older.lacks), dict(older.used)
    for key, pair in newer.lacks.items():
        lacks[key] = max(pair, lacks.get(key, pair))
    for key, (amount, opened) in newer.used.items():
        other = used.get(key, (amount, opened))
        used[key] = max((amount, opened), other, key=lambda pair: (pair[1], pair[0]))
    return PoolMemory(
        lacks=lacks,
        used=used,
        slowdown=newer.slowdown,
        held_for_s=max(newer.held_for_s, older.held_for_s),
        closed_for_s=max(newer.closed_for_s, older.closed_for_s),
    )


def remember(pool: Pool, now: float) -> PoolMemory:
    """What `pool` must not forget, read at `now`."""
    lacks: dict[str, tuple[float, float]] = {}
    used: dict[str, tuple[float, float]] = {}
    throttle = pool.throttle
    for dimension, level in pool.limiter.levels.items():
        lack = level.capacity - level.level(now)
        if isinstance(level, WindowLevel):
            if level.used > 0:
                used[dimension] = (level.used, level.opened)
        elif lack > 0:
            lacks[dimension] = (lack, level.rate)
    return PoolMemory(
        lacks=lacks,
        used=used,
        slowdown=throttle.slowdown(now),
        held_for_s=max(throttle.held_until - now, 0.0),
        closed_for_s=max(throttle.closed_until - now, 0.0),
    )


def recall(pool: Pool, memory: PoolMemory, elapsed_s: float, now: float, *, crashed: bool = False) -> None:
    """Lower `pool` to what is remembered, `elapsed_s` seconds later (a clock that went back counts 0)."""
    elapsed = max(elapsed_s - CRASH_S if crashed else elapsed_s, 0.0)
    limiter, throttle = pool.limiter, pool.throttle
    held_s, closed_s = memory.held_for_s - elapsed, memory.closed_for_s - elapsed
    slowdown = throttle.slowdown(now)
    if memory.slowdown > slowdown or held_s > 0 or closed_s > 0:
        throttle.restore(
            now,
            slowdown=max(slowdown, memory.slowdown),
            held_until=now + held_s if held_s > 0 else -inf,
            closed_until=now + closed_s if closed_s > 0 else -inf,
        )
        limiter.recalled(now)
    refilled_s = max(elapsed - memory.held_for_s, 0.0)
    for dimension, level in limiter.levels.items():
        unsaid = _unsaid(pool, dimension) if crashed else 0.0
        if isinstance(level, WindowLevel):
            amount, opened = memory.used.get(dimension, (0.0, 0.0))
            if opened and isfinite(amount):
                level.restore(now, amount + unsaid, opened)
            continue
        lack, rate = memory.lacks.get(dimension, (0.0, 0.0))
        if rate * memory.slowdown > level.published_rate:  # the limit is smaller now: so is what is lacking of it
            lack *= level.published_rate / (rate * memory.slowdown)
        lack += unsaid - refilled_s * level.rate
        if 0 < lack < inf:
            level.set_level(now, min(level.level(now), level.capacity - lack))


def _unsaid(pool: Pool, dimension: str) -> float:
    """What may have been taken since a killed process last wrote. Of a day, what its minute allowed."""
    levels = pool.limiter.levels
    counted = [
        level.capacity * CRASH_SHARE
        for name, level in levels.items()
        if name not in PER_DAY and (name == dimension or PARTS[name] == PARTS[dimension])
    ]
    return min(counted, default=0.0)
