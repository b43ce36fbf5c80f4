"""What the line keeps: who waits, in which queue, in which group. `line.py` has the rules."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from math import inf
from typing import ClassVar

from .accounts import PLAIN, Account, Gate, Level

NO_TICKET = 1 << 62

WAITING, GRANTED, REFUSED, CANCELLED = range(4)


class Share:
    """What one workflow has had of a leading account, in seconds of it."""

    __slots__ = ("credit", "vtime", "waiting")

    def __init__(self, vtime: float) -> None:
        self.vtime, self.credit, self.waiting = vtime, 0.0, 0


class Waiter:
    """One demand in the line. `amounts` are aligned with its group's accounts; `rank` is minus its priority.

    `since` is when it came, `seen_at` until when its wait is booked: once decided, when that was.
    """

    __slots__ = ("amounts", "flow", "group", "rank", "seen_at", "share", "since", "state", "ticket", "waits")

    #: Whether what it takes leaves later, and `Level.left` is told.
    sends: ClassVar[bool] = False

    def __init__(self, group: Group, amounts: tuple[float, ...], *, priority: int = 0, ticket: int = NO_TICKET) -> None:
        self.group, self.amounts, self.rank, self.ticket = group, amounts, -priority, ticket
        self.state = WAITING
        self.flow: Flow | None = None
        self.share: Share | None = None
        self.since = self.seen_at = 0.0
        self.waits: dict[str, float] | None = None  # seconds as a head, by the account it was short of

    def look(self) -> None:
        """Its turn to be looked at has come: what it asks may be less or more than when it came."""

    def __lt__(self, other: Waiter) -> bool:
        """Of two with one ticket (a job that left and came back at once), who came first."""
        return self.since < other.since


class Flow:
    """The waiters of one priority and workflow in a group, in order of arrival; cancelled ones are dropped when met."""

    __slots__ = ("dead", "number", "queue", "rank", "share", "workflow")

    def __init__(self, rank: int, workflow: str, number: int, share: Share) -> None:
        self.rank, self.workflow, self.number, self.share = rank, workflow, number, share
        self.queue: deque[Waiter] = deque()
        self.dead = 0

    def drop_dead(self) -> None:
        """One more has been cancelled in the middle: sweep when the dead outnumber the living."""
        self.dead += 1
        if self.dead > 32 and self.dead * 2 > len(self.queue):
            self.queue = deque([w for w in self.queue if w.state == WAITING])
            self.dead = 0

    def front(self) -> Waiter | None:
        while self.queue and self.queue[0].state != WAITING:
            self.queue.popleft()
            self.dead -= 1
        return self.queue[0] if self.queue else None


class Group:
    """The demands that name the same accounts. `wake` is when its head fits, inf if it is not known to."""

    __slots__ = (
        "accounts",
        "flows",
        "granted",
        "head",
        "heap",
        "held",
        "lead",
        "levels",
        "metered",
        "meters",
        "more",
        "plain",
        "refused",
        "returned",
        "ticket",
        "waiting",
        "wake",
        "watch",
    )

    def __init__(self, accounts: tuple[Account, ...]) -> None:
        self.accounts, self.lead = accounts, accounts[0]
        pool = self.lead.pool
        #: How many of its first accounts are the levels of its leading pool.
        self.levels = sum(1 for account in accounts if account.pool is pool) if pool is not None else 1
        self.more = range(1, self.levels)
        #: The metered accounts come first; these are the others.
        self.metered = sum(1 for account in accounts if account.metered)
        self.meters: tuple[Level, ...] = tuple([account for account in accounts if isinstance(account, Level)])
        self.held: tuple[Gate, ...] = tuple([account for account in accounts if isinstance(account, Gate)])
        #: Whether each of them knows by itself what it can give at once, and takes it back without a trace.
        self.plain = all(type(account) in PLAIN for account in accounts)
        self.flows: dict[tuple[int, str], Flow] = {}
        self.heap: list[tuple[int, float, int, Flow]] = []  # virtual times as they were when pushed: mended when met
        self.returned: list[tuple[int, int, Waiter]] = []  # whoever has a ticket and is not the head
        self.head: Waiter | None = None
        self.ticket = NO_TICKET
        self.watch: Account | None = None
        self.wake = inf
        self.waiting = self.granted = self.refused = 0
        self.lead.groups.append(self)

    def cost(self, amounts: Sequence[float]) -> float:
        """Seconds of its leading pool: of the dimension of which it takes the most."""
        lead = self.lead
        if not lead.metered:
            return lead.cost(amounts[0])
        cost = amounts[0] * lead.unit_s
        for i in self.more:
            other = amounts[i] * self.accounts[i].unit_s
            if other > cost:
                cost = other
        return cost

    def never_fits(self, amounts: Sequence[float]) -> tuple[Account, float] | None:
        """The first account that can never hold its part, with that part."""
        for account, n in zip(self.accounts, amounts, strict=True):
            if n > account.capacity:
                return account, n
        return None
