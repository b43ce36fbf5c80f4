"""Accounts: what a demand draws on. Each answers at once; none waits, none knows who waits for it.

Two kinds. A *held* account (`gates.py`) counts what is out and gets it back when the job ends. A *metered* account
(`levels.py`) is a level that the clock refills. Here is what both have in common, and what a user's own must answer.

The bookkeeping of the line (claims, watchers, shares) stands on the account it concerns, so that a decision looks only
at the accounts it touches. It belongs to the line (`line.py`, `queues.py`, `shares.py`) and its controller.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, runtime_checkable

if TYPE_CHECKING:
    from .limiter import TokenBucketRateLimiter
    from .queues import Group
    from .shares import Share


#: Amounts closer than this are equal: levels are floats.
EPS = 1e-3


@runtime_checkable
class HeldAccount(Protocol):
    """What a user's own held account must answer, each at once. Amounts are whole units of its own; it is hashable.

    `free` may change by itself; `Admission.changed(account)` tells the line that it grew.
    """

    @property
    def name(self) -> str: ...

    @property
    def capacity(self) -> float: ...

    def free(self, now: float) -> float: ...

    def take(self, now: float, amount: float) -> None: ...

    def give(self, now: float, amount: float) -> None: ...


@runtime_checkable
class MeteredAccount(HeldAccount, Protocol):
    """A user's own account whose room the clock changes too: a breaker that opens again, a rate of one's own.

    `fit_at(now, need)` is the instant at which `need` will fit if nothing else happens; inf where only a release helps.
    `give` comes at the job's end as for every held account; a rate, which gets nothing back, does nothing there.
    """

    def fit_at(self, now: float, need: float) -> float: ...


class Account:
    """The base of all accounts in the line: a name, a capacity, and the line's own bookkeeping."""

    __slots__ = (
        "active", "capacity", "claims", "furthest", "granted", "groups", "name", "refused", "remembered", "shares",
        "short_s", "short_since", "vtime", "watchers",
    )  # fmt: skip

    metered: ClassVar[bool] = False
    #: Whether the clock alone may let somebody go: then `fit_at` is asked.
    timed: ClassVar[bool] = False
    #: Whether what it has must first be asked for elsewhere: see `sharing`. It is asked for last.
    asked: ClassVar[bool] = False
    #: An instant that has come but shows a shortfall (rounding) is looked at again so many seconds later.
    tick_s: ClassVar[float] = 1e-4
    #: Only a level may owe: the first demand after a hold passes whatever the level says.
    owed: bool = False
    #: Of a level: what was granted and has not been sent yet.
    unsent: float = 0.0
    #: Of a level: seconds of its published refill that one unit takes.
    unit_s: float = 0.0
    #: Whether it is a limit per day: a refusal of the minute leaves it as it is.
    per_day: bool = False
    #: Of a window (a limit per day with a reset): when it opened. Calls sent before give nothing back to it.
    opened_at: float = -inf
    #: Only a level has one: the limiter of its pool.
    pool: TokenBucketRateLimiter | None = None

    def __init__(self, name: str, capacity: float) -> None:
        if not capacity > 0:
            raise ValueError(f"account {name!r}: capacity must be above 0, not {capacity}")
        self.name, self.capacity = name, capacity
        self.claims: list[tuple[int, int, float, Group]] = []  # every head naming it, in the line's order
        self.watchers: list[tuple[int, int, Group]] = []  # the heads short of it, in the line's order
        self.short_s, self.short_since = 0.0, 0.0  # how long it had watchers, since when it has
        self.remembered = 1_024  # shares, before those of no account are forgotten
        self.shares: dict[str, Share] = {}  # as the leading account of groups: one per workflow
        self.groups: dict[Group, None] = {}  # as the leading account: those of its groups in which somebody waits
        self.granted = self.refused = 0  # of groups that have been forgotten
        #: As the leading account: its virtual time, the furthest of a share, how many workflows wait.
        self.vtime, self.furthest, self.active = 0.0, 0.0, 0

    def held_back_s(self, now: float) -> float:
        """Seconds for which at least one head stood short of it, until now."""
        return self.short_s + (now - self.short_since if self.watchers else 0.0)

    def free(self, now: float) -> float:
        """What can be taken at `now`."""
        raise NotImplementedError

    def take(self, now: float, amount: float) -> None:
        raise NotImplementedError

    def offer(self, now: float, amount: float, sends: bool) -> bool:
        """`free` and `take` in one, for `PLAIN` accounts on which nobody has a claim: take it if it is there.

        `sends`: it leaves later, and `left` is told.
        """
        return False

    def give(self, now: float, amount: float) -> None:
        raise NotImplementedError

    def left(self, now: float, amount: float) -> None:
        """Of a level: `amount` of what is unsent has been sent, or never will be."""

    def fit_at(self, now: float, need: float, *, first: bool) -> float:
        """When `need` fits if nobody else draws and all that was granted is sent now; inf where only a release helps.

        `first`: nobody older claims it.
        """
        raise NotImplementedError

    def cost(self, amount: float) -> float:
        """What `amount` takes of this account, in seconds of the whole of it."""
        raise NotImplementedError

    def watched(self) -> None:
        """A head has begun to wait for it, and for nothing before it."""

    def __lt__(self, other: Any) -> bool:
        return self.name < str(other.name)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}>"
