"""What the line keeps: who waits, in which queue, in which group. `line.py` has the rules."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Iterator, Sequence
from heapq import heappop
from itertools import chain
from math import inf
from typing import Any, ClassVar

from .accounts import EPS, Account
from .gates import CountingGate, DatabaseGate, Gate
from .levels import Level, OpenLevel
from .shares import Share

NO_TICKET = 1 << 62
#: How many places of a queue one step sweeps, and how many that came at one instant are told apart.
SWEPT_AT_ONCE, LOOKED_AT = 64, 200

#: The kinds of account whose `offer` may be used: exactly these, for another kind overrides what `offer` combines.
PLAIN = frozenset({CountingGate, DatabaseGate, Level, OpenLevel})

#: CHECKING: not in the line yet, for the ledger is asked first whether it can ever fit (`Courier.check`).
WAITING, GRANTED, REFUSED, CANCELLED, CHECKING = range(5)


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

    def pull(self) -> None:
        """Out of its queue: it is at the front."""
        flow = self.flow
        if flow is not None:
            (flow.kept or flow.queue).popleft()
            self.flow = None
        else:
            heappop(self.group.returned)

    def waited(self, account: Account, now: float) -> None:
        """Book the time since it was last looked at as waited for this account."""
        if self.waits is not None and now > self.seen_at:
            self.waits[account.name] = self.waits.get(account.name, 0.0) + now - self.seen_at
        self.seen_at = now

    def __lt__(self, other: Waiter) -> bool:
        """Of two with one ticket (a job that left and came back at once), who came first."""
        return self.since < other.since


class Flow:
    """The waiters of one priority and workflow in a group, in order of arrival; cancelled ones are dropped when met.

    Where the dead outnumber the living they are swept out, a few at each step: the living go from `queue` to `kept`,
    which is the older part of the line while that lasts. To sweep a million at once would stop the loop.
    """

    __slots__ = ("dead", "kept", "number", "queue", "rank", "share", "workflow")

    def __init__(self, rank: int, workflow: str, number: int, share: Share) -> None:
        self.rank, self.workflow, self.number, self.share = rank, workflow, number, share
        self.queue: deque[Waiter] = deque()
        self.kept: deque[Waiter] | None = None
        self.dead = 0

    def __len__(self) -> int:
        return len(self.queue) + len(self.kept or ())

    def __iter__(self) -> Iterator[Waiter]:
        return chain(self.kept or (), self.queue)

    def append(self, waiter: Waiter) -> None:
        self.queue.append(waiter)
        if self.kept is not None:
            self._sweep()

    def drop_dead(self) -> None:
        """One more has been cancelled in the middle."""
        self.dead += 1
        if self.kept is None and self.dead > 32 and self.dead * 2 > len(self.queue):
            self.kept = deque()
        if self.kept is not None:
            self._sweep()

    def _sweep(self) -> None:
        kept, queue = self.kept, self.queue
        assert kept is not None
        for _ in range(min(SWEPT_AT_ONCE, len(queue))):
            waiter = queue.popleft()
            if waiter.state == WAITING:
                kept.append(waiter)
            else:
                self.dead -= 1
        if not queue:
            self.queue, self.kept = kept, None

    def front(self) -> Waiter | None:
        queue = self.queue
        if self.kept is not None:
            first = self._first(self.kept)
            if first is not None:
                return first
            self.kept = None
        elif queue and queue[0].state == WAITING:
            return queue[0]
        return self._first(queue)

    def _first(self, queue: deque[Waiter]) -> Waiter | None:
        while queue and queue[0].state != WAITING:
            queue.popleft()
            self.dead -= 1
        return queue[0] if queue else None

    def place(self, waiter: Waiter) -> int:
        """How many came before it, dead ones included; for one of many that came at one instant, about so many."""
        for before, part in ((0, self.kept or ()), (len(self.kept or ()), self.queue)):
            at = bisect_left(part, waiter.since, key=_since)
            for i in range(at, min(at + LOOKED_AT, len(part))):
                if part[i] is waiter:
                    return before + i
        return before + min(at + LOOKED_AT, len(part) - 1)


def _since(waiter: Waiter) -> float:
    return waiter.since


class Group:
    """The demands that name the same accounts. `wake` is when its head fits, inf if it is not known to."""

    __slots__ = (
        "accounts",
        "asked_last",
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
        #: Where some accounts are filled from elsewhere: the places of all, those last. None where there are none.
        order = sorted(range(len(accounts)), key=lambda place: accounts[place].asked)
        self.asked_last: tuple[int, ...] | None = tuple(order) if any(each.asked for each in accounts) else None
        self.flows: dict[tuple[int, str], Flow] = {}
        self.heap: list[tuple[int, float, int, Flow]] = []  # virtual times as they were when pushed: mended when met
        self.returned: list[tuple[int, int, Waiter]] = []  # whoever has a ticket and is not the head
        self.head: Waiter | None = None
        self.ticket = NO_TICKET
        self.watch: Account | None = None
        self.wake = inf
        self.waiting = self.granted = self.refused = 0

    def seat(self) -> None:
        """Its first has come, or its last has gone."""
        if self.waiting:
            self.lead.groups[self] = None
        else:
            del self.lead.groups[self]

    def ended(self) -> bool:
        """Nobody waits: then its accounts keep what it has counted, and it can be forgotten."""
        if self.waiting:
            return False
        for account in self.accounts:
            account.granted += self.granted
            account.refused += self.refused
        return True

    def everybody(self) -> list[Waiter]:
        """Whoever waits in it, in no order."""
        here = [waiter for _, _, waiter in self.returned]
        here += [waiter for flow in self.flows.values() for waiter in flow]
        here = [waiter for waiter in here if waiter.state == WAITING]
        return here if self.head is None else [*here, self.head]

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
        for account, n in zip(self.accounts, amounts):  # noqa: B905 - a hot loop
            if n > account.capacity + EPS:
                return account, n
        return None


def insert(entries: list[Any], entry: tuple[Any, ...]) -> None:
    """Into claims or watchers, in the line's order: (rank, ticket). Mostly at the end."""
    if not entries or _order(entries[-1]) < _order(entry):
        entries.append(entry)
    else:
        insort(entries, entry, key=_order)


def _order(entry: tuple[Any, ...]) -> tuple[int, int]:
    return entry[0], entry[1]
