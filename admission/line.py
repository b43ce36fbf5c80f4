"""The line: who goes next. Pure: the time is an argument, nothing here sleeps, awaits or calls back.

Order
    A waiter belongs to a *group*, the demands that name the same accounts, and to a *flow*, its priority and workflow.
    The group's first account leads it: per leading account (a pool), fair queueing over the workflows picks who is
    looked at next; within a flow, arrival does. A waiter that is looked at and does not fit is *parked* as its group's
    head, with a ticket. (priority, ticket) is ONE total order, used on every account: two heads can never wait for
    each other's claims. So fair share decides who becomes a head, never who stays one, and behind a head nobody of its
    group is looked at. Only a higher priority, or a job that comes back with an older ticket, unseats a head; the
    unseated keeps its ticket and is the next of its group.

Claims
    A head claims its need of every account it names. On an account, somebody younger gets nothing while an older head
    is short of that very account, and otherwise what the older claims leave over. This is EASY backfilling: what the
    head cannot use passes by it, what it waits for does not. A claim on a held account binds only if the head is short
    of a held account too, or if its metered shortfall closes within the time that account is typically held (its
    running 90th percentile): a job that waits three minutes for tokens does not idle the database.

Watching
    A head watches the one account it is short of, and only the oldest watcher of an account can go next on it. So a
    release looks at one head per account released; a head short of a level has one timer, at the exact instant of its
    fit; the cost of a decision depends on how many accounts it touches, not on how many wait. Whatever could let a
    head go puts it under review: something given back; an older head leaving, or moving to another account (its claim
    may loosen); its timer; what was unsent having left; a report that moves a level.

Time
    Virtual time of a leading account: a grant costs its workflow `ask / rate` seconds, and advances the account by
    that divided by the number of workflows waiting there. A workflow that begins to wait starts at max(its own, the
    account's). While nobody waits in the line and nobody has had more than its share, a grant costs nothing and its
    settlement credits nothing: it would move everybody alike. What settlement finds to be too much is credited to the
    workflow's next grant, so virtual times never go back and the heaps stay in order.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from heapq import heapify, heappop, heappush, heapreplace
from math import inf
from typing import Any

from .accounts import EPS, Account
from .levels import Level
from .queues import CANCELLED, GRANTED, NO_TICKET, REFUSED, WAITING, Flow, Group, Waiter, insert
from .shares import charge, join

#: How many are granted in one step; the rest of a large release follow in the next turns of the loop.
AT_ONCE = 200
Entry = tuple[int, int, Group]  # (rank, ticket, group): a head under review
Timed = tuple[float, int, int, Group]  # (instant, number, ticket, group)


class Line:
    """All groups. Methods that may let somebody go return those waiters, each with its new state, in order."""

    __slots__ = ("_groups", "_numbers", "_timers", "_unfinished", "moved", "tickets", "waiting")

    def __init__(self) -> None:
        self._groups: dict[tuple[Account, ...], Group] = {}
        self._timers: list[Timed] = []  # dead ones are skipped
        self._unfinished: dict[Account, None] = {}  # leading accounts with more to grant than one step may
        self.moved = False  # whether `next_instant` may have come nearer since this was last set back
        self._numbers = 0
        self.tickets = self.waiting = 0

    @property
    def groups(self) -> Iterable[Group]:
        return self._groups.values()

    def group(self, accounts: tuple[Account, ...]) -> Group:
        """The group of these accounts (each once, at least one; the levels of the leading pool first)."""
        group = self._groups.get(accounts)
        if group is None:
            group = self._groups[accounts] = Group(accounts)
        return group

    def forget(self) -> None:
        """The groups in which nobody waits. Whoever is priced already and not in the line yet must be priced anew."""
        self._groups = {accounts: group for accounts, group in self._groups.items() if not group.ended()}

    def everybody(self) -> list[Waiter]:
        """Whoever waits, in no order."""
        return [waiter for group in self._groups.values() for waiter in group.everybody()]

    # Coming and going.

    def take_now(self, waiter: Waiter, workflow: str, now: float) -> bool:
        """Grant it at once if nobody of its group waits and everything fits behind the older heads' claims."""
        group, lead = waiter.group, waiter.group.lead
        # Nobody has a claim, and its share would cost nothing: the common case, kept short.
        if not self.waiting and lead.vtime >= lead.furthest and group.plain and self._take_offered(waiter, now):
            return True
        waiter.share = join(lead, workflow)
        if group.waiting or self._short(group, waiter.amounts, waiter.rank, waiter.ticket, now) is not None:
            return False
        self._take(waiter, now)
        return True

    def _take_offered(self, waiter: Waiter, now: float) -> bool:
        """Take all of it if it is there, or nothing, without asking who claims what."""
        accounts, amounts, sends = waiter.group.accounts, waiter.amounts, waiter.sends
        for i, account in enumerate(accounts):
            if not account.offer(now, amounts[i], sends):
                for taken, n in zip(accounts[:i], amounts):  # noqa: B905 - those before it
                    if sends:
                        taken.left(now, n)
                    taken.give(now, n)
                return False
        self._granted(waiter)
        return True

    def enter(self, waiter: Waiter, workflow: str, now: float) -> list[Waiter]:
        """Let it wait (after `take_now` said no). It, or others, may be among those returned."""
        group = waiter.group
        decided: list[Waiter] = []
        self._count(waiter, 1)
        if waiter.ticket != NO_TICKET:
            heappush(group.returned, (waiter.rank, waiter.ticket, waiter))
        else:
            self._queue(waiter, workflow)
        head = group.head
        if head is not None and (waiter.rank, waiter.ticket) >= (head.rank, head.ticket):
            return decided
        look: list[Entry] = []
        if head is not None:
            look = self._unpark(group, now)
            heappush(group.returned, (head.rank, head.ticket, head))
        self._pump(group.lead, now, decided)
        return self._review(look, now, decided)

    def withdraw(self, accounts: Collection[Account], now: float) -> tuple[list[Waiter], set[Account]]:
        """Take out whoever waits for one of these accounts, to `enter` again with `reenter` in the order returned.

        Nobody is granted anything meanwhile; the accounts returned are then to be rechecked.
        """
        left: list[Waiter] = []
        touched: set[Account] = set()
        for group in self._groups.values():
            if not group.waiting or not any(account in accounts for account in group.accounts):
                continue
            touched.update(group.accounts)
            here = group.everybody()
            if group.head is not None:
                self._unpark(group, now)
            group.returned.clear()
            group.heap.clear()
            group.flows.clear()
            for waiter in here:
                self._count(waiter, -1)
                waiter.flow = None
                left.append(waiter)
        left.sort(key=lambda waiter: (waiter.rank, waiter.ticket, waiter.since))
        return left, touched

    def reenter(self, waiter: Waiter, workflow: str, now: float) -> list[Waiter]:
        """`enter` for one that was withdrawn, whose group and amounts may be others by now."""
        waiter.share = join(waiter.group.lead, workflow)
        return self.enter(waiter, workflow, now)

    def give(self, accounts: Sequence[Account], backs: Sequence[float], now: float) -> list[Waiter]:
        """Give back, per account; a negative amount is a debt. Who could go because of it, goes."""
        look: list[Entry] | None = None
        for account, back in zip(accounts, backs):  # noqa: B905 - the hot loop
            if back:
                account.give(now, back)
                if back > 0 and account.watchers:
                    look = [account.watchers[0]] if look is None else [*look, account.watchers[0]]
        return self._review(look, now, []) if look else []

    def cancel(self, waiter: Waiter, now: float, state: int = CANCELLED) -> list[Waiter]:
        """Take it out of the line (nothing if it does not wait); `state` is CANCELLED or REFUSED."""
        decided: list[Waiter] = []
        if waiter.state != WAITING:
            return decided
        group = waiter.group
        was_head = group.head is waiter
        look = self._unpark(group, now) if was_head else []
        waiter.waited(group.lead, now)
        self._leave(waiter, state)
        if waiter.flow is not None:
            waiter.flow.drop_dead()
            waiter.flow = None
        if was_head:
            self._pump(group.lead, now, decided)
            self._review(look, now, decided)
        return decided

    def tick(self, now: float) -> list[Waiter]:
        """Look at the heads whose instant has come, and go on with a large release. To be called at `next_instant`."""
        due, decided = list[Entry](), list[Waiter]()
        for lead in list(self._unfinished):
            del self._unfinished[lead]
            self._pump(lead, now, decided)
        timers = self._timers
        while timers and timers[0][0] <= now:
            timer = heappop(timers)
            if self._live(timer):
                group = timer[3]
                due.append((group.head.rank, group.ticket, group))  # type: ignore[union-attr]
        return self._review(due, now, decided) if due else decided

    def next_instant(self) -> float:
        """When to call `tick`; inf when only an event can change anything, -inf for at once."""
        if self._unfinished:
            return -inf
        timers = self._timers
        while timers and not self._live(timers[0]):
            heappop(timers)
        return timers[0][0] if timers else inf

    def recheck(self, accounts: Iterable[Account], now: float) -> list[Waiter]:
        """These accounts have changed by themselves (a limit, a hold, a refill rate): look at who is concerned."""
        look: list[Entry] = []
        decided: list[Waiter] = []
        for account in accounts:
            for rank, ticket, need, group in list(account.claims):
                if need > account.capacity and group.head is not None and group.ticket == ticket:
                    head = group.head
                    look += self._unpark(group, now)
                    self._leave(head, REFUSED)
                    decided.append(head)
                    self._pump(group.lead, now, decided)
                elif group.watch is account and account.watchers[0][2] is group:
                    look.append((rank, ticket, group))
        return self._review(look, now, decided)

    # The rule.

    def _short(self, group: Group, amounts: Sequence[float], rank: int, ticket: int, now: float) -> Account | None:
        """The first account that cannot give its part to (rank, ticket), or None if all can."""
        accounts, order = group.accounts, group.asked_last
        if order is not None:  # nothing is asked for elsewhere by whoever cannot go here
            accounts, amounts = tuple([accounts[i] for i in order]), [amounts[i] for i in order]
        for account, n in zip(accounts, amounts):  # noqa: B905 - the hot loop; lengths were checked on entry
            room = account.free(now) - n + EPS
            if account.claims:
                older = False
                for r, t, need, g in account.claims:
                    if r > rank or (r == rank and t >= ticket):
                        break
                    if g.watch is account:
                        return account
                    older = True
                    if account.metered or g.wake - now <= account.hold_s or (g.wake == inf and not g.watch.metered):  # type: ignore[union-attr,attr-defined]
                        room -= need
                if room < 0 and (older or not self._owed(account, n, now)):
                    return account
            elif room < 0 and not (account.owed and self._owed(account, n, now)):
                return account
        return None

    @staticmethod
    def _owed(account: Account, n: float, now: float) -> bool:
        return account.owed and n <= account.capacity and now >= account.held_until  # type: ignore[attr-defined]

    def _take(self, waiter: Waiter, now: float) -> None:
        group, amounts, passed = waiter.group, waiter.amounts, False
        for account, n in zip(group.accounts, amounts):  # noqa: B905 - the hot loop
            account.take(now, n)
            if account.owed:
                passed = True
        if waiter.sends:  # before anybody else is looked at
            for level, n in zip(group.meters, amounts):  # noqa: B905 - held amounts follow
                level.unsent += n
        if passed:
            self._passed(group, now)
        if waiter.share is not None:
            charge(group.lead, waiter.share, group.cost(amounts))
        self._granted(waiter)

    def _granted(self, waiter: Waiter) -> None:
        waiter.group.granted += 1
        waiter.state = GRANTED
        if waiter.ticket == NO_TICKET:
            self.tickets = waiter.ticket = self.tickets + 1

    @staticmethod
    def _passed(group: Group, now: float) -> None:
        """The first demand after a hold has gone: its pools are told, before anybody else is looked at."""
        for account in group.accounts:
            if account.owed and isinstance(account, Level):
                account.passed(now)

    # Queues.

    def _queue(self, waiter: Waiter, workflow: str) -> None:
        group, share = waiter.group, waiter.share
        assert share is not None
        flow = group.flows.get((waiter.rank, workflow))
        if flow is None:
            self._numbers += 1
            flow = group.flows[waiter.rank, workflow] = Flow(waiter.rank, workflow, self._numbers, share)
            heappush(group.heap, (flow.rank, share.vtime, flow.number, flow))
        flow.share = share
        waiter.flow = flow
        flow.append(waiter)

    def _count(self, waiter: Waiter, n: int) -> None:
        share, group = waiter.share, waiter.group
        assert share is not None
        self.waiting += n
        group.waiting += n
        if group.waiting == (n > 0):
            group.seat()
        share.waiting += n
        if share.waiting == (n > 0):
            group.lead.active += n  # its first came, or its last went

    def _leave(self, waiter: Waiter, state: int) -> None:
        self._count(waiter, -1)
        waiter.state = state
        if state == REFUSED:
            waiter.group.refused += 1

    def _first(self, group: Group) -> tuple[tuple[int, float, int], Waiter] | None:
        """Who of this group is looked at next, with its place among the groups of the same leading account."""
        returned, heap = group.returned, group.heap
        while returned and returned[0][2].state != WAITING:
            heappop(returned)
        while heap:
            rank, vtime, number, flow = heap[0]
            front = flow.front()
            if front is None:
                heappop(heap)
                del group.flows[rank, flow.workflow]
            elif flow.share.vtime > vtime:
                heapreplace(heap, (rank, flow.share.vtime, number, flow))
            elif returned and returned[0][0] <= rank:
                break
            else:
                return (rank, vtime, number), front
        if returned:
            return (returned[0][0], -inf, returned[0][1]), returned[0][2]
        return None

    def _pump(self, lead: Account, now: float, decided: list[Waiter]) -> None:
        """Look at what waits on this leading account, in order, until each of its groups has a head or is empty."""
        while True:
            best: tuple[tuple[int, float, int], Waiter] | None = None
            for group in lead.groups:
                if group.head is None and group.waiting:
                    first = self._first(group)
                    if first is not None and (best is None or first[0] < best[0]):
                        best = first
            if best is None:
                return
            if len(decided) >= AT_ONCE:
                self._unfinished[lead], self.moved = None, True
                return
            waiter = best[1]
            waiter.pull()
            waiter.look()
            account = self._short(waiter.group, waiter.amounts, waiter.rank, waiter.ticket, now)
            if account is None:
                self._grant(waiter, now, decided)
            elif waiter.group.never_fits(waiter.amounts) is not None:
                self._leave(waiter, REFUSED)
                decided.append(waiter)
            else:
                self._park(waiter, account, now)

    def _grant(self, waiter: Waiter, now: float, decided: list[Waiter]) -> None:
        if waiter.waits is not None:
            waiter.waited(waiter.group.lead, now)
        self._take(waiter, now)
        self._count(waiter, -1)
        decided.append(waiter)

    # Heads.

    def _park(self, waiter: Waiter, account: Account, now: float) -> None:
        group = waiter.group
        if waiter.ticket == NO_TICKET:
            self.tickets += 1
            waiter.ticket = self.tickets
        if waiter.waits is None:
            waiter.waits, waiter.seen_at = {}, waiter.since
        waiter.waited(group.lead, now)  # behind others until now
        group.head, group.ticket = waiter, waiter.ticket
        for a, n in zip(group.accounts, waiter.amounts, strict=True):
            insert(a.claims, (waiter.rank, waiter.ticket, n, group))
        self._watch(group, account, now)

    def _watch(self, group: Group, account: Account, now: float) -> None:
        head = group.head
        assert head is not None
        group.watch, group.wake = account, inf
        if not account.watchers:
            account.short_since = now
        insert(account.watchers, (head.rank, group.ticket, group))
        account.watched()
        self._arm(group, now)

    def _arm(self, group: Group, now: float) -> bool:
        """When to look again without being told: the refill's instant, if nobody older waits for it too.

        Returns whether the head now goes later than was known: its claims on held accounts may have loosened.
        """
        account, before, at = group.watch, group.wake, inf
        assert account is not None
        if account.timed and account.watchers[0][2] is group:
            need, first = 0.0, True
            for _, _, n, other in account.claims:
                need += n
                if other is group:
                    break
                first = False
            if need <= account.capacity - account.unsent + EPS:  # else an older claim or what is unsent must go first
                at = account.fit_at(now, need, first=first)
                if at <= now:
                    at = now + account.tick_s
        if at == before:
            return False
        group.wake = at
        if at != inf:
            self.moved = True
            self._numbers += 1
            heappush(self._timers, (at, self._numbers, group.ticket, group))
            if len(self._timers) > 64 + 4 * len(self._groups):
                self._timers = [timer for timer in self._timers if self._live(timer)]
                heapify(self._timers)
        return at > before

    @staticmethod
    def _live(timer: Timed) -> bool:
        group = timer[3]
        return group.head is not None and group.ticket == timer[2] and group.wake == timer[0]

    def _unwatch(self, group: Group, now: float) -> None:
        account, head = group.watch, group.head
        assert account is not None
        assert head is not None
        watchers = account.watchers
        for i, entry in enumerate(watchers):
            if entry[2] is group:
                del watchers[i]
                break
        if not watchers:
            account.short_s += now - account.short_since
        head.waited(account, now)
        group.watch, group.wake = None, inf

    def _unpark(self, group: Group, now: float) -> list[Entry]:
        """The head leaves its seat. Returns the heads that its claims may have kept back."""
        self._unwatch(group, now)
        for account in group.accounts:
            claims = account.claims
            for i, claim in enumerate(claims):
                if claim[3] is group:
                    del claims[i]
                    break
        group.head, group.ticket = None, NO_TICKET
        return self._beside(group)

    @staticmethod
    def _beside(group: Group) -> list[Entry]:
        """The oldest watcher of each of its accounts: only that one can go next there."""
        return [account.watchers[0] for account in group.accounts if account.watchers]

    def _review(self, look: list[Entry], now: float, decided: list[Waiter]) -> list[Waiter]:
        """Look again at these heads, oldest first; whoever goes, or moves, puts others under review."""
        heap: list[Any] = [(rank, ticket, i, group) for i, (rank, ticket, group) in enumerate(look)]
        pushed = len(heap)
        if pushed > 1:
            heapify(heap)
        while heap:
            rank, ticket, _, group = heappop(heap)
            waiter = group.head
            if waiter is None or group.ticket != ticket:
                continue
            account = self._short(group, waiter.amounts, rank, ticket, now)
            if account is None:
                more = self._unpark(group, now)
                self._grant(waiter, now, decided)
                self._pump(group.lead, now, decided)
            elif account is not group.watch:
                self._unwatch(group, now)
                self._watch(group, account, now)
                more = self._beside(group)
            elif self._arm(group, now):
                more = self._beside(group)
            else:
                continue
            for r, t, other in more:
                if other is not group:
                    pushed += 1
                    heappush(heap, (r, t, pushed, other))
        return decided
