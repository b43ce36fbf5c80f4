"""The asyncio shell of admission: it holds the clock, the line and the pools, and tells people what was decided.

Nothing here waits, and nothing is bound to an event loop: timers and callbacks go to whichever loop runs at that
moment. A waiting demand is one small object with two callbacks; it has no Task and no Future.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from math import inf
from typing import TYPE_CHECKING

from interlock.catalog.entry import Limits
from interlock.errors import AdmissionError, InterlockError, LeaseLostError

from .accounts import Account, HeldAccount
from .clock import Clock, Timer
from .deadlines import Deadlines
from .delivery import Delivery
from .demand import AdmissionStatistics, Demand, Explanation, Ticket
from .gates import CustomGate, Gate
from .levels import TRANSIT_S, Level
from .line import AT_ONCE, Line
from .memory import PoolMemory, remember
from .pauses import Pauses
from .pool import Pool
from .queues import CANCELLED, CHECKING, GRANTED, NO_TICKET, REFUSED, WAITING, Waiter
from .registry import Priced, Registry
from .report import account_statistics, explain, never_fits_error, timeout_error
from .reservation import Reservation
from .settling import Settling
from .waiting import OnGrant, OnRefuse, Waiting

if TYPE_CHECKING:
    from .ledger.protocol import Ledger
    from .sharing.courier import Courier

#: From how many waiting on it pays to forget what can be made again.
MANY = 1_000


class Admission:
    """Admission of one process. Every method returns at once, on the thread of the event loop.

    `jitter` gives numbers in [0, 1); it only ever lengthens a hold. `transit_s` is how long a request may be on its
    way: a provider's full bucket does not refill before it has arrived, so no level does here. `wall` is the time of
    day, with its zone: limits per day are given back by it (None: the system's). `freeze` keeps the garbage collector
    away from whoever waits where very many do: see `pauses.py`. `ledger` (opened) shares the pools with other
    processes; then `close` is to be awaited.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        jitter: Callable[[], float] = random.random,
        transit_s: float = TRANSIT_S,
        freeze: bool = True,
        wall: Callable[[], datetime] | None = None,
        ledger: Ledger | None = None,
    ) -> None:
        self.clock = clock
        self.now = clock.now
        self._line = Line()
        self._settling = Settling(self._line, clock, self._tell, jitter=jitter, transit_s=transit_s)
        self._registry = Registry(self._line, wall)
        self._delivery = Delivery(self._told)
        self.growing = self._settling.growing
        self._courier = None if ledger is None else self._made_courier(ledger)
        self._deadlines, self._pauses = Deadlines(), Pauses(freeze=freeze)
        self._timer: Timer | None = None
        self._timer_at = inf
        self._timer_loop: asyncio.AbstractEventLoop | None = None
        self._granted = self._refused = self._cancelled = self._unmetered = 0

    # What there is.

    def pool(self, name: str, limits: Limits, *, shared: bool = True) -> Pool:
        """The pool of that name, made at the first call. Changed limits are taken over; its levels are kept.

        Whoever waits then waits for the new limits, in its old place. Where there is a ledger its levels are there,
        unless it is not `shared`: its provider ends with this process.
        """
        now = self.now()
        known = self._registry.pools.get(name)
        before = None if known is None else (known.accounts, known.limits.max_concurrent)
        pool, changed = self._registry.pool(name, limits, now, self._courier if shared else None)
        if changed and before is not None:
            same = before == (pool.accounts, limits.max_concurrent)
            decided = [] if same else self._ask_again(before[0], now)
            self._tell([*decided, *self._line.recheck(pool.accounts, now)], now)
        return pool

    def _ask_again(self, accounts: Sequence[Account], now: float) -> list[Waiter]:
        """A pool has other accounts or slots than before: price anew whoever waits for one of these."""
        left, touched = self._line.withdraw(accounts, now)
        decided: list[Waiter] = []
        for waiting in left:
            assert isinstance(waiting, Waiting)
            waiting.group, waiting.amounts, waiting._charges = self._registry.price(waiting.demand)
            if waiting.group.never_fits(waiting.amounts) is None:
                decided += self._line.reenter(waiting, waiting.demand.workflow, now)
            else:
                waiting.state = REFUSED
                waiting.group.refused += 1
                decided.append(waiting)
        return decided + self._line.recheck(touched, now)

    def account(self, account: Gate | HeldAccount) -> Gate:
        """Register a held account, a gate or a user's own. ValueError if another one has its name."""
        return self._registry.gate(account)

    def changed(self, account: Gate | HeldAccount) -> None:
        """A held account's room or capacity has changed by itself: look whether somebody can go."""
        now = self.now()
        gate = self._registry.gate(account)
        if isinstance(gate, CustomGate):
            gate.capacity = gate.inner.capacity
        self._tell(self._line.recheck((gate,), now), now)

    def remember(self) -> dict[str, PoolMemory]:
        """What each pool must not forget when this process ends, by its name; fresh ones are left out, and shared
        ones, which the ledger remembers."""
        now = self.now()
        pools = self._registry.pools.items()
        memories = {name: remember(pool, now) for name, pool in pools if pool.link is None}
        return {name: memory for name, memory in memories.items() if not memory.empty}

    def levels(self) -> Iterator[Level]:
        """The metered accounts of every pool."""
        for pool in self._registry.pools.values():
            yield from pool.limiter.accounts

    def recall(self, memories: Mapping[str, PoolMemory], elapsed_s: float, *, crashed: bool = False) -> None:
        """Take over what an earlier process remembered `elapsed_s` seconds ago (a negative elapse counts 0).

        Levels are only lowered, now or when their pool is made: a restarted program does not burst twice. `crashed`: it
        could not say its last word, so what it may have taken since is taken off.
        """
        now = self.now()
        self._registry.recall(memories, now - max(elapsed_s, 0.0), now, crashed)

    # Asking.

    def submit(
        self, demand: Demand, on_grant: OnGrant, on_refuse: OnRefuse, *, ticket: Ticket | None = None
    ) -> Waiting:
        """Ask for all of it. One of the callbacks comes later, from the running loop, unless `cancel` comes first.

        `ticket` is the place of a job that comes back (`Reservation.ticket`). NeverFitsError at once when the demand is
        larger than an account can hold (of a shared pool: when the ledger has said so too); AdmissionTimeoutError at
        once when its own earliest fit is later than its `max_wait_s`.
        """
        now, line = self.now(), self._line
        if self._courier is not None and self._courier.lease_lost is not None:
            raise self._courier.lease_lost
        group, amounts, charges = self._registry.price(demand)
        place = NO_TICKET if ticket is None else ticket
        waiting = Waiting(self, demand, group, amounts, charges, on_grant, on_refuse, place, now)
        if line.take_now(waiting, demand.workflow, now):
            self._grant(waiting)
            if line.waiting:
                self._arm()  # for those of a loop that has gone
            return waiting
        never = group.never_fits(amounts)
        if never is not None:
            if never[0].asked and self._courier is not None and self._courier.check(waiting):
                waiting.state = CHECKING
                return waiting
            raise self._refuse(waiting, never_fits_error(demand, *never))
        self._wait(waiting, now)
        return waiting

    def _wait(self, waiting: Waiting, now: float) -> None:
        """Into the line, if its turn can come in time."""
        demand, line = waiting.demand, self._line
        if demand.max_wait_s is not None:
            if waiting.too_late(now + demand.max_wait_s):
                if demand.overflow == "proceed" and self._overflow(waiting, now):
                    return
                raise self._refuse(waiting, timeout_error(waiting, now))
            self._deadlines.add(now + demand.max_wait_s, waiting, line.waiting)
            line.moved = True
        if line.waiting >= MANY and self._registry.lasting(demand):
            waiting._charges = None
        self._tell(line.enter(waiting, demand.workflow, now), now)
        self._pauses.came(line.waiting)

    def price(self, demand: Demand) -> Priced:
        """What it would be charged now."""
        return self._registry.price(demand)

    def _grant(self, waiting: Waiting) -> None:
        if waiting._charges is None:
            waiting._charges = self._registry.charges(waiting.demand)
        if self._courier is not None and waiting._charges:
            for call, charge in zip(waiting.demand.calls, waiting._charges, strict=True):
                if call.pool.link is not None:
                    call.pool.link.took(charge, call.count)
        waiting._answer = Reservation(self._settling, waiting, waiting.demand.calls)
        self._granted += 1
        self._delivery.put(waiting)

    def _refuse(self, waiting: Waiting, error: AdmissionError) -> AdmissionError:
        waiting.state = REFUSED
        waiting.group.refused += 1
        self._refused += 1
        return error

    async def admit(self, demand: Demand, *, ticket: Ticket | None = None) -> Reservation:
        """`submit`, awaited. Cancelling the await leaves nothing behind."""
        done: asyncio.Future[Reservation] = asyncio.get_running_loop().create_future()

        def decided(answer: Reservation | InterlockError) -> None:
            if done.done():
                if isinstance(answer, Reservation):
                    answer.release()
            elif isinstance(answer, Reservation):
                done.set_result(answer)
            else:
                done.set_exception(answer)

        waiting = self.submit(demand, decided, decided, ticket=ticket)
        try:
            return await done
        except asyncio.CancelledError:
            if not waiting.cancel() and done.done() and not done.cancelled() and done.exception() is None:
                done.result().release()
            raise

    def cancel(self, waiting: Waiting) -> bool:
        """Leave the line, or give a grant back whose callback has not run yet. False: it was delivered or is over.

        No callback comes after it returned True.
        """
        if waiting._on_grant is None:
            return False
        now = self.now()
        waiting._on_grant = waiting._on_refuse = waiting._answer = None
        self._cancelled += 1
        if waiting.state == WAITING:
            waiting.seen_at = now
            self._tell(self._line.cancel(waiting, now), now)
        elif waiting.state == CHECKING:
            waiting.state = CANCELLED
        elif waiting.state == GRANTED:
            waiting.state = CANCELLED
            self._granted -= 1
            waiting.group.granted -= bool(waiting._charges) or not waiting.demand.calls
            self._unmetered -= waiting._charges == () and bool(waiting.demand.calls)
            if waiting.share is not None and waiting._charges and waiting.group.lead.active:
                waiting.share.credit += waiting.group.cost(waiting.amounts)
            if waiting._charges:
                self._unsend(waiting, now)
            self._tell(self._line.give(waiting.group.accounts, waiting.amounts, now), now)
        self._pauses.went(self._line.waiting)
        return True

    @staticmethod
    def _unsend(waiting: Waiting, now: float) -> None:
        """Of a grant that nobody has been told of: nothing of it will be sent."""
        for level, n in zip(waiting.group.meters, waiting.amounts):  # noqa: B905 - held amounts follow
            level.left(now, n)
        for call, charge in zip(waiting.demand.calls, waiting._charges or (), strict=True):
            if call.pool.link is not None:
                call.pool.link.unused(charge, call.count)

    # Sharing.

    def _made_courier(self, ledger: Ledger) -> Courier:
        from .sharing.courier import Courier

        return Courier(
            ledger,
            self._line,
            self.clock,
            told=lambda accounts: self._tell(self._line.recheck(accounts, now := self.now()), now),
            charges=lambda waiting: waiting._charges or self._registry.charges(waiting.demand),
            checked=self._checked,
            slots=self._has_slots,
            lost=self._lost,
        )

    def _checked(self, waiting: Waiting) -> None:
        """The ledger has said what its pools hold: whether it can ever fit is known."""
        if waiting.state != CHECKING:
            return  # it has gone
        now, demand, waiting.state = self.now(), waiting.demand, WAITING
        waiting.group, waiting.amounts, waiting._charges = group, amounts, _ = self._registry.price(demand)
        never = group.never_fits(amounts)
        try:
            if never is not None:
                raise self._refuse(waiting, never_fits_error(demand, *never))
            if self._line.take_now(waiting, demand.workflow, now):
                self._grant(waiting)
            else:
                self._wait(waiting, now)
        except AdmissionError as error:
            waiting._answer, waiting.seen_at = error, now
            self._delivery.put(waiting)

    def _has_slots(self, name: str, slots: int) -> None:
        """Another process's catalog limits how many calls run at once in that pool, and this one's does not."""
        pool, now = self._registry.pools[name], self.now()
        before = pool.accounts
        if pool.count_slots(slots):
            self._registry.reshaped()
            self._tell([*self._ask_again(before, now), *self._line.recheck(pool.accounts, now)], now)

    def lose(self, error: LeaseLostError) -> None:
        """The ledger has given this process up: whoever waits for it is refused, and whoever comes."""
        if self._courier is not None:
            self._courier.lose(error)

    def _lost(self, error: LeaseLostError) -> None:
        now = self.now()
        assert self._courier is not None
        checking = [waiting for waiting in self._courier.being_checked() if waiting.state == CHECKING]
        for waiting in [*self._line.everybody(), *checking]:
            self._line.cancel(waiting, now, REFUSED)
            assert isinstance(waiting, Waiting)
            waiting.state = REFUSED
            waiting._answer, waiting.seen_at = error, now
            self._refused += 1
            self._delivery.put(waiting)

    async def close(self) -> None:
        """Tell the ledger, if there is one, what it has not been told yet."""
        if self._courier is not None:
            await self._courier.close()

    # Deciding.

    def _overflow(self, waiting: Waiting, now: float) -> bool:
        """Let it go without the metered accounts, if what it holds besides is free."""
        gates = self._registry.pool_gates(waiting.demand)
        part = tuple(
            [
                0.0 if account.metered or account in gates else n
                for account, n in zip(waiting.group.accounts, waiting.amounts, strict=True)
            ]
        )
        accounts = waiting.group.accounts
        if any(n and account.free(now) < n for account, n in zip(accounts, part, strict=True)):
            return False
        for account, n in zip(accounts, part, strict=True):
            if n:
                account.take(now, n)
        waiting.amounts, waiting._charges = part, ()
        waiting.state, waiting.seen_at = GRANTED, now
        self._unmetered += 1
        self._grant(waiting)
        return True

    def _tell(self, decided: Sequence[Waiter], now: float) -> None:
        """Pass on what the line has decided, and set the timer for what it will decide by itself."""
        for waiting in decided:
            assert isinstance(waiting, Waiting)
            waiting.seen_at = now
            if waiting.state == GRANTED:
                self._grant(waiting)
                continue
            self._refused += 1
            never = waiting.group.never_fits(waiting.amounts)
            waiting._answer = never_fits_error(waiting.demand, *never) if never else timeout_error(waiting, now)
            self._delivery.put(waiting)
        if decided:
            return  # the timer is set when they have been told
        loop = self._timer_loop
        if self._line.moved:
            if not self._delivery.due:
                self._arm()
        elif loop is None or not loop.is_running():
            self._arm()

    def _told(self) -> None:
        self._pauses.went(self._line.waiting)
        if self._line.waiting or self._deadlines:
            self._arm()

    def _arm(self) -> None:
        """One timer, no later than the earliest instant at which something can change by itself.

        One that is too early is left to fire: to set timers anew costs more than to look once in vain.
        """
        at = self._line.next_instant()
        self._line.moved = False
        if self._deadlines:
            at = min(at, self._deadlines.earliest())
        loop = self._timer_loop
        if loop is None or not loop.is_running():
            try:
                loop = asyncio.get_running_loop()
            except RuntimeError:
                loop = None  # a finaliser, after the loop has gone: the next event inside a loop sets the timer
        if at >= self._timer_at and loop is self._timer_loop:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self.clock.call_at(at, self._wake) if at != inf and loop is not None else None
        self._timer_at, self._timer_loop = at, loop

    def _wake(self) -> None:
        self._timer, self._timer_at = None, inf
        now = self.now()
        self._tell(self._line.tick(now), now)
        for _ in range(AT_ONCE):
            late = self._deadlines.due(now)
            if late is None:
                break
            self._give_up(late, now)
        self._arm()

    def _give_up(self, waiting: Waiting, now: float) -> None:
        """Its `max_wait_s` is over."""
        error = timeout_error(waiting, now)
        decided = self._line.cancel(waiting, now, REFUSED)
        if waiting.demand.overflow == "proceed" and self._overflow(waiting, now):
            waiting.group.refused -= 1
        else:
            waiting._answer, waiting.seen_at = error, now
            self._refused += 1
            self._delivery.put(waiting)
        self._tell(decided, now)

    # Looking.

    def explain(self, waiting: Waiting) -> Explanation:
        """Which account it waits for, how much it lacks, and when it will go."""
        return explain(self._line, waiting, self.now())

    def statistics(self) -> AdmissionStatistics:
        """Frozen values of every account and of the line."""
        now = self.now()
        accounts = account_statistics(self._line, self._registry.pools.values(), self._registry.gates.values(), now)
        return AdmissionStatistics(
            accounts=accounts,
            waiting=self._line.waiting,
            oldest_wait_s=max((account.oldest_wait_s for account in accounts), default=0.0),
            granted=self._granted,
            refused=self._refused,
            cancelled=self._cancelled,
            unmetered=self._unmetered,
            settled=sum(pool.settled for pool in self._registry.pools.values()),
        )
