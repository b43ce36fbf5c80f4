"""A limit per day that its provider gives back all at once: a window, not a bucket.

Used since the last reset, full again at the next one, and no refill in between. So `fit_at` is either now or a reset.
What a window keeps:

A debt dies at the reset, as the providers' own counters do: they begin again at 0 and ask nobody what was owed.
    A call that settles above its reservation after the reset is charged to the new day all the same: nobody says in
    which day a provider books what it counts late, and too careful by one call is cheap.
A refund of a call that was sent before the reset gives the new day nothing back: its charge went with the old one.
    What was granted before and is not sent yet arrives in the new day, so it stays charged.
The throttle does not slow a window down, and a 429 does not drain it: a refusal of the minute says nothing of the day.
    One that names the day spends it: nothing passes before the reset, and no probe either.

The reset is an instant of the wall clock. It is turned into one of the monotonic clock and looked at again each minute,
so a wall clock that is set right meanwhile moves it; set back over a reset that was, it refills nothing a second time.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from interlock.catalog.days import DayReset

from .levels import Level

DAY_S = 86_400.0
#: Seconds for which the wall clock is taken to run as the monotonic one does.
LOOK_EVERY_S = 60.0


class WindowLevel(Level):
    """`used` of `capacity` since `opened_at`; all of it again at `resets_at` (instants of the monotonic clock).

    `opened` is the reset that opened it, in seconds since 1970. The rate is the day's mean: what fair share counts in.
    `over`: its provider has said that it is used up, so nothing that comes back before the reset is to be had.
    """

    __slots__ = ("_look_at", "_wall", "opened", "opened_at", "over", "reset", "resets_at", "used")

    def __init__(
        self, name: str, capacity: float, reset: DayReset, wall: Callable[[], datetime], *, now: float, part: int
    ) -> None:
        super().__init__(name, capacity, capacity / DAY_S, now=now, part=part)
        self.reset, self._wall, self.used, self.over = reset, wall, 0.0, False
        self.opened = self.opened_at = self.resets_at = self._look_at = float("-inf")
        self._look(now)

    def _look(self, now: float) -> None:
        moment = self._wall()
        last = self.reset.last(moment)
        if last.timestamp() > self.opened:
            self.used, self.over = self.unsent, False
            self.opened, self.opened_at = last.timestamp(), now - (moment - last).total_seconds()
        self.resets_at = now + (self.reset.next(moment) - moment).total_seconds()
        self._look_at = min(self.resets_at, now + LOOK_EVERY_S)

    def free(self, now: float) -> float:
        if now >= self._look_at:
            self._look(now)
        return self.capacity - self.used if now >= self.held_until else float("-inf")

    def level(self, now: float) -> float:
        if now >= self._look_at:
            self._look(now)
        return self.capacity - (self.used if self.held_until < self.resets_at else self.unsent)

    def take(self, now: float, amount: float) -> None:
        if now >= self._look_at:
            self._look(now)
        self.used += amount

    def left(self, now: float, amount: float) -> None:
        if now >= self._look_at:
            self._look(now)  # it leaves into the day that has begun
        self.unsent = self.unsent - amount if self.unsent > amount else 0.0

    def give(self, now: float, amount: float) -> None:
        if now >= self._look_at:
            self._look(now)
        if amount < 0 or not self.over:
            self.used = max(self.used - amount, self.unsent)

    def fit_at(self, now: float, need: float, *, first: bool) -> float:
        if now >= self._look_at:
            self._look(now)
        at = now if need <= self.capacity - self.used else self.resets_at
        return max(at, self.held_until)

    def spent(self, now: float) -> None:
        """The provider says that the day is used up."""
        if now >= self._look_at:
            self._look(now)
        self.used, self.over = max(self.used, self.capacity), True

    def restore(self, now: float, used: float, opened: float) -> None:
        """What an earlier process had used of the window that `opened`; nothing if that one is over."""
        if now >= self._look_at:
            self._look(now)
        if opened == self.opened:
            self.used = max(self.used, used)

    def set_level(self, now: float, level: float) -> None:
        self.used = max(self.capacity - level, self.unsent)

    def set_rate(self, now: float, rate: float) -> None:
        self.rate = rate  # the throttle's: a window does not refill

    def set_limit(self, now: float, capacity: float, published_rate: float, rate: float) -> None:
        """What was used stays used: a limit that grows by 500 leaves 500 more today."""
        self.capacity, self.published_rate, self.unit_s, self.rate = capacity, published_rate, 1 / published_rate, rate

    def hold(self, now: float, until: float, *, drain: bool) -> None:
        self.held_until = until
