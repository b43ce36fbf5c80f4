"""Held accounts: what is out is counted, and comes back when the job ends."""

from __future__ import annotations

from math import exp, inf
from typing import ClassVar

from .accounts import Account, HeldAccount, MeteredAccount

#: What a hold is taken to last at least, in seconds.
SHORTEST_HOLD_S = 1e-3


class Gate(Account):
    """A held account: `used` of `capacity` are out. `hold_s` is a running 90th percentile of how long, in seconds."""

    __slots__ = ("hold_s", "settled", "used")

    #: Steps of the running percentile in its logarithm: they balance where one hold in ten is longer.
    UP: ClassVar[float] = exp(0.18)
    DOWN: ClassVar[float] = exp(-0.02)

    def __init__(self, name: str, capacity: float, *, hold_s: float = 1.0) -> None:
        super().__init__(name, capacity)
        self.used: float = 0
        self.hold_s = hold_s
        self.settled = 0  # jobs that have given theirs back

    def free(self, now: float) -> float:
        return self.capacity - self.used

    def take(self, now: float, amount: float) -> None:
        self.used += amount

    def offer(self, now: float, amount: float, sends: bool) -> bool:
        used = self.used + amount
        if used > self.capacity:
            return False
        self.used = used
        return True

    def give(self, now: float, amount: float) -> None:
        self.used -= amount

    def fit_at(self, now: float, need: float, *, first: bool) -> float:
        return inf

    def cost(self, amount: float) -> float:
        return amount * self.hold_s / self.capacity

    def held_for(self, seconds: float) -> None:
        """One hold has ended: count it, and learn from how long it was."""
        self.settled += 1
        hold_s = self.hold_s
        if seconds > hold_s:
            hold_s *= self.UP
            self.hold_s = hold_s if hold_s < seconds else seconds
        else:
            hold_s *= self.DOWN
            if hold_s < seconds:
                hold_s = seconds
            self.hold_s = hold_s if hold_s > SHORTEST_HOLD_S else SHORTEST_HOLD_S


class CountingGate(Gate):
    """So many at a time: a concurrency limit, an HTTP pool, the slots of a local model."""

    __slots__ = ()

    def __init__(self, name: str, capacity: int, *, hold_s: float = 1.0) -> None:
        super().__init__(name, capacity, hold_s=hold_s)


class DatabaseGate(CountingGate):
    """The connections of one database; the account's name is `db:<name>`."""

    __slots__ = ("database",)

    def __init__(self, name: str, capacity: int, *, hold_s: float = 1.0) -> None:
        super().__init__(f"db:{name}", capacity, hold_s=hold_s)
        self.database = name


class CustomGate(Gate):
    """A user's own `HeldAccount`, as the line sees it."""

    __slots__ = ("inner",)

    def __init__(self, inner: HeldAccount) -> None:
        super().__init__(inner.name, inner.capacity)
        self.inner = inner

    def free(self, now: float) -> float:
        return self.inner.free(now)

    def take(self, now: float, amount: float) -> None:
        self.used += amount
        self.inner.take(now, amount)

    def give(self, now: float, amount: float) -> None:
        self.used -= amount
        self.inner.give(now, amount)


class CustomMeter(CustomGate):
    """A user's own `MeteredAccount`, as the line sees it: held, and looked at again when it says that it fits."""

    __slots__ = ()

    timed: ClassVar[bool] = True
    #: An account that says a fit has come, and has no room then, is not asked all the time.
    tick_s: ClassVar[float] = 0.02
    inner: MeteredAccount

    def fit_at(self, now: float, need: float, *, first: bool) -> float:
        return self.inner.fit_at(now, need)
