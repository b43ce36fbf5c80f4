"""The asyncio shell of admission: it holds the clock, the line and the pools, and tells people what was decided.

Nothing here waits, and nothing is bound to an event loop: timers and callbacks go to whichever loop runs at that
moment. A waiting demand is one small object with two callbacks; it has no Task and no Future.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from datetime import datetime
from math import inf

from interlock.catalog.entry import Limits
from interlock.errors import AdmissionError

from .accounts import TRANSIT_PART, TRANSIT_S, Account, CustomGate, Gate, HeldAccount, Level
from .charges import NOTHING, Charge
from .clock import Clock, Timer
from .deadlines import Deadlines
from .delivery import Delivery
from .demand import AdmissionStatistics, CallCharge, Demand, Explanation, Ticket
from .growing import Growing
from .limiter import TokenBucketRateLimiter
from .line import AT_ONCE, Line
from .memory import PoolMemory, remember
from .outcome import CallOutcome, OutcomeKind
from .pauses import Pauses
from .pool import Pool
from .queues import CANCELLED, GRANTED, NO_TICKET, REFUSED, WAITING, Waiter
from .registry import Priced, Registry
from .report import account_statistics, explain, never_fits_error, timeout_error
from .reservation import Reservation
from .waiting import OnGrant, OnRefuse, Waiting

log = logging.getLogger("interlock.admission")

#: From how many waiting on it pays to forget what can be made again.
MANY = 1_000


class Admission:
    """Admission of one process. Every method returns at once, on the thread of the event loop.

    `jitter` gives numbers in [0, 1); it only ever lengthens a hold. `transit_s` is how long a request may be on its
    way: a provider's full bucket does not refill before it has arrived, so no level does here. `wall` is the time of
    day, with its zone: limits per day are given back by it (None: the system's). `freeze` keeps the garbage collector
    away from whoever waits where very many do: see `pauses.py`.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        jitter: Callable[[], float] = random.random,
        transit_s: float = TRANSIT_S,
        freeze: bool = True,
        wall: Callable[[], datetime] | None = None,
    ) -> None:
        self.clock = clock
        self.now = clock.now
        self._jitter, self._transit_s = jitter, transit_s
        self._line = Line()
        self._registry = Registry(self._line, wall)
        self._delivery = Delivery(self._told)
        #: Answers under way, for its permits.
        self.growing = Growing(self)
        self._deadlines, self._pauses = Deadlines(), Pauses(freeze=freeze)
        self._timer: Timer | None = None
        self._timer_at = inf
        self._timer_loop: asyncio.AbstractEventLoop | None = None
        self._granted = self._refused = self._cancelled = self._unmetered = 0

    # What there is.

    def pool(self, name: str, limits: Limits) -> Pool:
        """The pool of that name, made at the first call. Changed limits are taken over; its levels are kept.

        Whoever waits then waits for the new limits, in its old place.
        """
        now = self.now()
        known = self._registry.pools.get(name)
        before = None if known is None else (known.accounts, known.limits.max_concurrent)
        pool, changed = self._registry.pool(name, limits, now)
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
        """What each pool must not forget when this process ends, by its name; fresh ones are left out."""
        now = self.now()
        memories = {name: remember(pool, now) for name, pool in self._registry.pools.items()}
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
        larger than an account can hold; AdmissionTimeoutError at once when its own earliest fit is later than its
        `max_wait_s`.
        """
        now, line = self.now(), self._line
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
            raise self._refuse(waiting, never_fits_error(demand, *never))
        if demand.max_wait_s is not None:
            if waiting.too_late(now + demand.max_wait_s):
                if demand.overflow == "proceed" and self._overflow(waiting, now):
                    return waiting
                raise self._refuse(waiting, timeout_error(waiting, now))
            self._deadlines.add(now + demand.max_wait_s, waiting, line.waiting)
            line.moved = True
        if line.waiting >= MANY and self._registry.lasting(demand):
            waiting._charges = None
        self._tell(line.enter(waiting, demand.workflow, now), now)
        self._pauses.came(line.waiting)
        return waiting

    def price(self, demand: Demand) -> Priced:
        """What it would be charged now."""
        return self._registry.price(demand)

    def _grant(self, waiting: Waiting) -> None:
        if waiting._charges is None:
            waiting._charges = self._registry.charges(waiting.demand)
        waiting._answer = Reservation(self, waiting, waiting.demand.calls)
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

        def decided(answer: Reservation | AdmissionError) -> None:
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
        elif waiting.state == GRANTED:
            waiting.state = CANCELLED
            self._granted -= 1
            waiting.group.granted -= bool(waiting._charges) or not waiting.demand.calls
            self._unmetered -= waiting._charges == () and bool(waiting.demand.calls)
            if waiting.share is not None and waiting._charges and waiting.group.lead.active:
                waiting.share.credit += waiting.group.cost(waiting.amounts)
            if waiting._charges:
                for level, n in zip(waiting.group.meters, waiting.amounts):  # noqa: B905 - held amounts follow
                    level.left(now, n)
            self._tell(self._line.give(waiting.group.accounts, waiting.amounts, now), now)
        self._pauses.went(self._line.waiting)
        return True

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

    # What a reservation and its permits do.

    def left(self, pool: Pool, waiting: Waiting, charge: Charge, now: float, *, sent: bool = False) -> None:
        """A call that was granted is being sent, or never will be: its pool refills again, once it has arrived."""
        transit_s = self._transit_s if sent else 0.0
        stopped, reshaped = False, pool.reshaped
        for level in pool.limiter.accounts:
            if reshaped and level not in waiting.group.accounts:
                continue
            part_s = transit_s and TRANSIT_PART * level.capacity * level.unit_s
            level.left(now + (transit_s if transit_s < part_s else part_s), charge[level.part])
            if level.watchers and level.watchers[0][2].wake == inf:
                stopped = True  # its oldest head could not tell when it fits
        if stopped:
            self._tell(self._line.recheck(pool.limiter.accounts, now), now)

    def settle(
        self,
        pool: Pool,
        waiting: Waiting,
        reserved: Charge | None,
        used: Charge,
        now: float,
        sent_at: float = inf,
        drained: bool = False,
        grows: bool = False,
    ) -> None:
        """One call has ended: give back what it did not use of its reservation, or owe what it used beyond.

        The workflow's share is corrected by the same, in seconds of the pool. `drained`: a 429 has emptied the pool,
        so what the refused calls took is gone from it; giving it back would send the next burst. Only a debt is eased.
        A level that came into the catalog after the grant was never charged, and has nothing to give back; nor has a
        window that opened after the call was `sent_at` (inf: it never was), nor a level that has been full since.
        """
        pool.settled += 1
        taken = NOTHING if reserved is None else reserved
        levels, reshaped = pool.limiter.accounts, pool.reshaped
        if not (self._line.waiting or reshaped or drained):
            for level in levels:  # nobody to wake, no share to correct: the common case, kept short
                part = level.part
                back = taken[part] - used[part]
                if back < 0 or (back and (level.was_full_at <= sent_at or grows)):
                    level.give(now, back)
            return
        backs: list[float] = []
        before = after = 0.0
        for level in levels:
            part, unit_s = level.part, level.unit_s
            a, b = taken[part], used[part]
            if reshaped:
                if level not in waiting.group.accounts:
                    a = 0.0
                elif sent_at < level.opened_at:
                    a = min(a, b)
            back = a - b
            a, b = a * unit_s, b * unit_s
            before, after = a if a > before else before, b if b > after else after
            if back > 0 and level.was_full_at > sent_at and not grows:
                back = 0.0  # the provider's bucket has been full since: there the difference is gone
            if drained and back > 0 and not level.per_day:
                back = min(back, max(-level.level(now), 0.0))
            backs.append(back)
        lead = waiting.group.lead
        if waiting.share is not None and lead is levels[0] and lead.active:
            waiting.share.credit += before - after
        self._tell(self._line.give(levels, backs, now), now)

    def owe(self, pool: Pool, reserved: Charge, output_tokens: float) -> Charge:
        """An answer under way has grown beyond its reservation: owe that at once. Returns its whole charge."""
        whole = reserved._replace(
            tokens=reserved.tokens + output_tokens, output_tokens=reserved.output_tokens + output_tokens
        )
        more = [a - b for a, b in zip(pool.select(reserved), pool.select(whole), strict=True)]
        self._line.give(pool.limiter.accounts, more, self.now())
        return whole

    def charge_more(self, call: CallCharge, reserved: Charge | None, kind: Hashable = None) -> Charge:
        """A call that was not declared, or not that large: owe the difference at once. Returns its whole charge."""
        now = self.now()
        pool = call.pool
        whole = pool.charge(call, kind)
        if reserved is not None:
            whole = Charge(*[max(a, b) for a, b in zip(whole, reserved, strict=True)])
            more = [b - a for a, b in zip(pool.select(reserved), pool.select(whole), strict=True)]
        else:
            more = list(pool.select(whole))
        self._line.give(pool.limiter.accounts, [-n for n in more], now)
        return whole

    def learn(self, pool: Pool, outcome: CallOutcome, epoch: int, sent_at: float, reserved: Charge | None) -> None:
        """What a call's end says about its pool: the throttle's signals, and the limits in the provider's headers."""
        now, limiter, kind, moved = self.now(), pool.limiter, outcome.kind, False
        if kind is OutcomeKind.COMPLETED:
            moved = limiter.succeeded(now, epoch)
        elif kind is OutcomeKind.RATE_LIMITED:
            moved = limiter.rate_limited(now, outcome.retry_after_s, epoch, self._jitter(), reserved or NOTHING)
        elif kind is OutcomeKind.OVERLOADED:
            moved = limiter.overloaded(now)
        elif outcome.day_spent:
            moved = limiter.day_spent(now, outcome.retry_after_s, epoch)
            if moved:
                log.warning(
                    "pool %s: the provider says that a limit per day is used up; %s", pool.name, limiter.closing(now)
                )
        if outcome.reported:
            moved = self._adopt(limiter, outcome, sent_at, now) or moved
        if moved:
            self._tell(self._line.recheck(limiter.accounts, now), now)

    @staticmethod
    def _adopt(limiter: TokenBucketRateLimiter, outcome: CallOutcome, sent_at: float, now: float) -> bool:
        known = set(limiter.adopted)
        changed = limiter.reported(now, sent_at, outcome.reported)
        for dimension, (before, after) in changed.items():
            if dimension not in known:
                log.warning(
                    "pool %s: the provider reports %s = %g a minute, the catalog says %g; the reported limit is used "
                    "(write it into the catalog, or `fixed: true` to keep yours)",
                    limiter.name,
                    dimension,
                    after,
                    before,
                )
        return bool(changed)

    def end(self, waiting: Waiting) -> None:
        """A job has ended: what it holds comes back."""
        group = waiting.group
        held = group.held
        if not held:
            return
        now = self.now()
        seconds, amounts, i = now - waiting.seen_at, waiting.amounts, group.metered
        for gate in held:
            gate.held_for(seconds)
        if self._line.waiting:
            self._tell(self._line.give(held, amounts[i:], now), now)
            return
        for gate in held:
            gate.give(now, amounts[i])
            i += 1

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
