"""The accounts of a pool that several processes share: not refilled by the clock, but credited by the ledger.

The line decides on them as on any other. What differs is where they get what they hold: nothing is there until it was
asked for, and what comes back goes to the ledger, never to the next one here. A call's charge comes and goes by its
pool's `PoolLink`, as one; so `give` and `left` have nothing to do here.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, ClassVar

from ..gates import CountingGate
from ..levels import Level

if TYPE_CHECKING:
    from .link import PoolLink

#: Where it should fit by what is known here: when to look again whether the ledger has answered, in seconds.
ANSWER_S = 0.05


class SharedLevel(Level):
    """A level of a shared pool.

    Its capacity and rates are the ledger's; its `level` is what the ledger said last, moved on by the rate: for people
    to look at and to estimate by. What can be taken is the link's credit. Where two levels count one thing (a minute's
    tokens and a day's), the credit is one, and the first of them `takes` it.
    """

    __slots__ = ("link", "opened_at", "takes")

    asked: ClassVar[bool] = True
    tick_s: ClassVar[float] = ANSWER_S

    def __init__(self, name: str, capacity: float, rate: float, link: PoolLink, *, now: float, part: int) -> None:
        super().__init__(name, capacity, rate, now=now, part=part)
        self.link, self.takes, self.opened_at = link, True, -inf

    # Whether what was granted here has left is the ledger's to know.
    @property
    def unsent(self) -> float:
        return 0.0

    @unsent.setter
    def unsent(self, amount: float) -> None: ...

    def free(self, now: float) -> float:
        return -inf if now < self.held_until else self.link.credit[self.part]

    def level(self, now: float) -> float:
        return inf if self.capacity == inf else super().level(now)

    def take(self, now: float, amount: float) -> None:
        if self.takes:
            self.link.credit[self.part] -= amount

    def give(self, now: float, amount: float) -> None: ...

    def left(self, now: float, amount: float) -> None: ...

    def fit_at(self, now: float, need: float, *, first: bool) -> float:
        """As far as it can be told from here: others draw on it too."""
        refilled_at = now if self.capacity == inf else super().fit_at(now, need, first=first)
        return max(refilled_at, self.held_until)

    def watched(self) -> None:
        self.link.kick()

    def passed(self, now: float) -> None: ...

    def heard(self, now: float, *, capacity: float, published_rate: float, rate: float, free: float) -> None:
        """What the ledger says of it."""
        self.capacity, self.published_rate, self.rate, self.unit_s = capacity, published_rate, rate, 1 / published_rate
        if capacity != inf:
            self.set_level(now, free)


class SharedGate(CountingGate):
    """The slots (`max_concurrent`) of a shared pool."""

    __slots__ = ("link",)

    asked: ClassVar[bool] = True

    def __init__(self, name: str, capacity: int, link: PoolLink) -> None:
        super().__init__(name, capacity)
        self.link = link
        link.gate = self

    def free(self, now: float) -> float:
        return self.link.slots

    def take(self, now: float, amount: float) -> None:
        self.used += amount
        self.link.slots -= int(amount)

    def give(self, now: float, amount: float) -> None:
        self.used -= amount
        self.link.slots_ended(int(amount))

    def watched(self) -> None:
        self.link.kick()
