"""What the ledger keeps: one row per pool, one per owner in a pool. Plain values; `rules.py` says how they change.

Instants are the ledger's: seconds since `EPOCH`, so that a float holds a hundredth of a token at any rate. A level is
kept as in `levels.py`, by the instant at which it would be full; a level without a limit and a day with a reset keep
other things in the same places:

| kind     | `at`                                | `mark`                                  |
|----------|-------------------------------------|-----------------------------------------|
| `RATE`   | when it would be full               | when it was last taken from while full  |
| `OPEN`   | calls that may go (inf: any number) | when one more may go all the same       |
| `WINDOW` | used since it opened                | when it opens again                     |
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from math import inf

from ..limiter import PARTS, PER_DAY

#: 2026-01-01T00:00Z.
EPOCH = 1_767_225_600.0

#: What a database's integer holds: `max_concurrent` beyond that is as good as that.
MOST_SLOTS = 2**31 - 1

RATE, OPEN, WINDOW = range(3)
#: By number, as they travel.
DIMENSIONS = (*PARTS, "open")
#: Those of a day.
DAYS = tuple(sorted([DIMENSIONS.index(name) for name in PER_DAY]))


def moment(now: float) -> datetime:
    """An instant of the ledger as a time of day."""
    return datetime.fromtimestamp(now + EPOCH, UTC)


@dataclass(slots=True)
class LevelRow:
    """One limit. `dimension` is a place in `DIMENSIONS`, `part` the place of its count in a `Charge`."""

    dimension: int
    part: int
    kind: int
    capacity: float
    published: float
    rate: float
    at: float
    mark: float
    unsent: float
    held_until: float
    owed: bool
    over: bool
    opened_at: float

    @property
    def per_day(self) -> bool:
        return self.dimension in DAYS

    def need(self, charge: Sequence[float], count: int = 1) -> float:
        """What `count` calls of that charge together take of it."""
        return count if self.kind == OPEN else charge[self.part]

    def room(self, now: float) -> float:
        """What can be taken."""
        if now < self.held_until:
            return -inf
        if self.kind == RATE:
            return self.capacity - max((self.at - now) * self.rate, self.unsent)
        if self.kind == WINDOW:
            return self.capacity - self.at
        if self.at >= 1:
            return self.at
        return 1.0 if now >= self.mark else 0.0

    def free(self, now: float) -> float:
        """The level, whatever holds it."""
        if self.kind == RATE:
            return self.capacity - max((self.at - max(now, self.held_until)) * self.rate, self.unsent)
        return self.capacity - self.at if self.kind == WINDOW else inf


@dataclass(slots=True)
class PoolRow:
    """One pool. `limits` and `learnt` are JSON: of the catalog's `Limits`, and of `TokenBucketRateLimiter.to_state`.

    `look_at`: when a limit per day has to be looked at anew. `clock`: the latest instant at which it was touched; time
    never goes back for a pool, whatever a clock does.
    """

    name: str
    limits: str
    version: int = 0
    clock: float = -inf
    epoch: int = 0
    slowdown: float = 1.0
    calm: bool = True
    held_until: float = -inf
    closed_until: float = -inf
    slots: int | None = None
    look_at: float = inf
    levels: list[LevelRow] = field(default_factory=list)
    learnt: str = ""


@dataclass(slots=True)
class Claim:
    """The first ask of an owner that was refused in a pool, and what everybody younger leaves to it."""

    priority: int
    since: float
    key: int
    charge: tuple[float, ...]
    slots: int
    lapses_at: float


@dataclass(slots=True)
class TotalRow:
    """What one owner has out in one pool: slots, and charges granted and not sent. `granted` counts its grants."""

    slots: int = 0
    unsent: list[float] = field(default_factory=lambda: [0.0, 0.0, 0.0, 0.0])
    granted: int = 0
    claim: Claim | None = None


@dataclass(slots=True)
class PoolBook:
    """A pool with what every owner has out there, by fence."""

    pool: PoolRow
    totals: dict[int, TotalRow]
