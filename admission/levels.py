"""Metered accounts: levels that the clock refills. They are read from the clock, never ticked.

What a level holds is told by one instant, `full_at`, at which it would be full if nobody drew on it (the generic cell
rate algorithm). It may be negative: a settlement above its reservation is a debt, and refills like anything else.
"""

from __future__ import annotations

from math import inf
from typing import ClassVar

from .accounts import EPS, Account

#: How long a request may be on its way, from its first byte here until the provider counts it; and at most this part of
#: what a level holds: it is not refilled meanwhile.
TRANSIT_S, TRANSIT_PART = 1.0, 0.1


class Level(Account):
    """One published limit of a pool: at most `capacity` at once, refilled at `rate` a second.

    `published_rate` is what the limit says; `rate` what the throttle leaves of it. While `now < held_until` the level
    is closed and does not refill: `full_at` already counts from the end of the hold. `owed` lets the first demand
    after a hold pass on credit, so that a pool restarts with one call and then follows its refill.

    A provider charges a call when it arrives, not when it is granted here. What is granted and not yet sent (`unsent`:
    a loop that was busy, an SDK that was loading) is about to be taken from the provider's bucket, which can hold no
    more than `capacity` until then. So the level never refills above `capacity - unsent`: otherwise everything that
    left late would arrive together with what the level had gained meanwhile, and be refused.

    A refund is what we took and the provider did not. Where the level has been full since that was taken
    (`was_full_at`), the provider's bucket has been full as well, the two are alike again, and there is nothing to
    refund: giving it back would lift ours above theirs.
    """

    __slots__ = (
        "full_at", "held_until", "owed", "part", "per_day", "pool", "published_rate", "rate", "unit_s", "unsent",
        "was_full_at",
    )  # fmt: skip

    metered: ClassVar[bool] = True
    timed: ClassVar[bool] = True

    def __init__(self, name: str, capacity: float, rate: float, *, now: float = 0.0, part: int = 0) -> None:
        super().__init__(name, capacity)
        if not rate > 0:
            raise ValueError(f"account {name!r}: the rate must be above 0 a second, not {rate}")
        self.rate = self.published_rate = rate
        self.unit_s = 1.0 / rate
        self.full_at, self.held_until, self.owed, self.unsent = now, -inf, False, 0.0
        self.was_full_at = -inf  # the last instant at which something was taken of a full level
        self.per_day = False
        self.part = part  # which count of a charge it meters
        self.pool = None

    def free(self, now: float) -> float:
        if now < self.held_until:
            return -inf
        lack, unsent = (self.full_at - now) * self.rate, self.unsent
        return self.capacity - (lack if lack > unsent else unsent)

    def level(self, now: float) -> float:
        """The level at `now`; during a hold, the level it will have when the hold ends."""
        lack = (self.full_at - max(now, self.held_until)) * self.rate
        return self.capacity - max(lack, self.unsent)

    def take(self, now: float, amount: float) -> None:
        full_at = self.full_at
        if full_at <= now:
            full_at = self.was_full_at = now
        self.full_at = full_at + amount / self.rate

    def offer(self, now: float, amount: float, sends: bool) -> bool:
        if now < self.held_until or self.owed:
            return False
        full_at, rate, room = self.full_at, self.rate, self.capacity - amount + EPS
        if full_at < now:
            full_at = self.was_full_at = now
        if (full_at - now) * rate > room or self.unsent > room:
            return False
        self.full_at = full_at + amount / rate
        if sends:
            self.unsent += amount
        return True

    def left(self, now: float, amount: float) -> None:
        """Of what was granted, `amount` has been sent, or will not be (it is given back next): no longer unsent."""
        unsent = self.unsent
        empty_at = now + unsent / self.rate
        if self.full_at < empty_at:
            self.full_at = empty_at  # what it has not refilled for as long as that was on its way
        self.unsent = unsent - amount if unsent > amount else 0.0

    def give(self, now: float, amount: float) -> None:
        """A refund, or (negative) a debt."""
        if amount < 0:
            owed_from = max(now, self.held_until) + self.unsent / self.rate  # what is unsent will be taken as well
            self.full_at = max(self.full_at, owed_from) - amount / self.rate
        else:
            self.full_at -= amount / self.rate

    def fit_at(self, now: float, need: float, *, first: bool) -> float:
        if first and self.owed:
            return self.held_until
        full_at = max(self.full_at, now + self.unsent / self.rate) if self.unsent else self.full_at
        return max(full_at - (self.capacity - need) / self.rate, self.held_until)

    def cost(self, amount: float) -> float:
        return amount * self.unit_s

    def passed(self, now: float) -> None:
        """The first demand after a hold has gone on credit."""
        self.owed = False
        if self.pool is not None:
            self.pool.passed(now)

    # What the limiter does to it. Each keeps the level and changes how it moves.

    def set_level(self, now: float, level: float) -> None:
        self.full_at = max(now, self.held_until) + (self.capacity - min(level, self.capacity)) / self.rate

    def set_rate(self, now: float, rate: float) -> None:
        level = self.level(now)
        self.rate = rate
        self.set_level(now, level)

    def set_limit(self, now: float, capacity: float, published_rate: float, rate: float) -> None:
        level = self.level(now)
        self.capacity, self.published_rate, self.unit_s, self.rate = capacity, published_rate, 1 / published_rate, rate
        self.unsent = min(self.unsent, capacity)
        self.set_level(now, level)

    def hold(self, now: float, until: float, *, drain: bool) -> None:
        """Close until `until`, without refill meanwhile; `drain` drops the level to at most 0."""
        level = self.level(now)
        self.held_until = until
        self.set_level(now, min(level, 0.0) if drain else level)


class OpenLevel(Level):
    """A pool without a published limit: anything fits, until a 429 says that there is a limit after all.

    Then it starts slowly: one call after the hold, two more for each that succeeds, and where nothing succeeds one
    every few seconds, until the throttle is calm again. There is no rate to follow, but there is no herd either.
    """

    __slots__ = ("credits", "next_at")

    EVERY_S: ClassVar[float] = 5.0
    PER_SUCCESS: ClassVar[int] = 2

    def __init__(self, name: str, *, now: float = 0.0) -> None:
        super().__init__(name, inf, inf, now=now)
        self.credits, self.next_at = inf, -inf

    def free(self, now: float) -> float:
        if now < self.held_until or (self.credits < 1 and now < self.next_at):
            return -inf
        return inf

    def offer(self, now: float, amount: float, sends: bool) -> bool:
        return self.credits == inf and now >= self.held_until and not self.owed

    def level(self, now: float) -> float:
        return inf

    def take(self, now: float, amount: float) -> None:
        if self.credits >= 1:
            self.credits -= 1
        self.next_at = now + self.EVERY_S

    def give(self, now: float, amount: float) -> None: ...

    def left(self, now: float, amount: float) -> None: ...

    def fit_at(self, now: float, need: float, *, first: bool) -> float:
        if self.credits < 1 and not (first and self.owed):
            return max(self.next_at, self.held_until)
        return max(now, self.held_until)

    def cost(self, amount: float) -> float:
        return 0.0

    def hold(self, now: float, until: float, *, drain: bool) -> None:
        self.held_until = until
        if drain:
            self.credits = 0

    def succeeded(self, *, calm: bool) -> None:
        self.credits = inf if calm else self.credits + self.PER_SUCCESS

    def set_level(self, now: float, level: float) -> None: ...

    def set_rate(self, now: float, rate: float) -> None: ...
