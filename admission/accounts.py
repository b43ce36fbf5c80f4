"""Accounts: what a demand draws on. Each answers at once; none waits, none knows who waits for it.

Two kinds. A *held* account (`CountingGate`, `DatabaseGate`) counts what is out and gets it back when the job ends. A
*metered* account (`Level`) is a level that the clock refills: it is read from the clock, never ticked. What it holds is
told by one instant, `full_at`, at which it would be full if nobody drew on it (the generic cell rate algorithm). A
level may be negative: a settlement above its reservation is a debt, and refills like anything else.

The bookkeeping of the line (claims, watchers, shares) stands on the account it concerns, so that a decision looks only
at the accounts it touches. It belongs to the line (`line.py`, `queues.py`, `shares.py`) and its controller.
"""

from __future__ import annotations

from math import exp, inf
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, runtime_checkable

if TYPE_CHECKING:
    from .limiter import TokenBucketRateLimiter
    from .queues import Group
    from .shares import Share


#: Amounts closer than this are equal: levels are floats.
EPS = 1e-3
#: What a hold is taken to last at least, in seconds.
SHORTEST_HOLD_S = 1e-3
#: How long a request may be on its way, from its first byte here until the provider counts it; and at most this part of
#: what a level holds: it is not refilled meanwhile.
TRANSIT_S, TRANSIT_PART = 1.0, 0.1


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


#: The kinds of account whose `offer` may be used: exactly these, for another kind overrides what `offer` combines.
PLAIN = frozenset({CountingGate, DatabaseGate, Level, OpenLevel})
