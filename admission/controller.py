"""The asyncio shell of admission: it holds the clock, the line and the pools, and tells people what was decided.

Nothing here waits, and nothing is bound to an event loop: timers and callbacks go to whichever loop runs at that
moment. A waiting demand is one small object with two callbacks; it has no Task and no Future.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Sequence
from heapq import heapify, heappop, heappush
from math import inf

from interlock.catalog.entry import Limits
from interlock.errors import AdmissionError, AdmissionTimeoutError, NeverFitsError

from .accounts import Account, CustomGate, Gate, HeldAccount, OpenLevel
from .charges import Charge
from .clock import Clock, Timer
from .delivery import Delivery
from .demand import AdmissionStatistics, CallCharge, Demand, Explanation, Ticket
from .limiter import TokenBucketRateLimiter
from .line import CANCELLED, GRANTED, NO_TICKET, REFUSED, WAITING, Line, Share, Waiter
from .outcome import CallOutcome, OutcomeKind
from .pool import Pool
from .report import account_statistics, explain, never_fits_error, timeout_error
from .reservation import Reservation

log = logging.getLogger("interlock.admission")

OnGrant = Callable[[Reservation], None]
OnRefuse = Callable[[AdmissionError], None]
STATES = ("waiting", "granted", "refused", "cancelled")


class Waiting(Waiter):
    """A submitted demand. `state` is an int of the line; `status` its word: waiting, granted, refused, cancelled."""

    __slots__ = ("_admission", "_charges", "_delivered", "_error", "_on_grant", "_on_refuse", "decided_at", "demand")

    _admission: Admission
    _charges: tuple[Charge, ...]
    _delivered: bool
    _error: AdmissionError | None
    _on_grant: OnGrant | None
    _on_refuse: OnRefuse | None
    decided_at: float
    demand: Demand

    @property
    def status(self) -> str:
        return STATES[self.state]

    def waited_s(self, now: float) -> float:
        """Seconds it waits, or has waited until it was decided."""
        return (now if self.state == WAITING else self.decided_at) - self.since

    def cancel(self) -> bool:
        """See `Admission.cancel`."""
        return self._admission.cancel(self)

    def deliver(self) -> None:
        """Tell whoever asked. Once; nothing after a cancel."""
        grant, refuse = self._on_grant, self._on_refuse
        self._on_grant = self._on_refuse = None
        if self.state == GRANTED and grant is not None:
            self._delivered = True
            reservation = self._admission.reserve(self)
            try:
                grant(reservation)
            except BaseException:
                reservation.release()
                raise
        elif self.state == REFUSED and refuse is not None and self._error is not None:
            self._delivered = True
            refuse(self._error)


class Shape:
    """How the demands of one set of pools and held accounts turn into amounts, in the order of their group.

    `places` maps each raw amount to its account where an account is named twice; None where none is.
    """

    __slots__ = ("group", "held", "places")

    def __init__(self, line: Line, raw: Sequence[Account]) -> None:
        accounts = list(dict.fromkeys(raw))
        accounts.sort(key=lambda account: not account.metered)  # stable: the leading pool's levels stay first
        self.group = line.group(tuple(accounts))
        self.places = None if list(raw) == accounts else [accounts.index(account) for account in raw]
        self.held = any(not account.metered for account in accounts)

    def arrange(self, raw: tuple[float, ...]) -> tuple[float, ...]:
        if self.places is None:
            return raw
        amounts = [0.0] * len(self.group.accounts)
        for place, n in zip(self.places, raw, strict=True):
            amounts[place] = min(amounts[place] + n, inf)
        return tuple(amounts)


class Admission:
    """Admission of one process. Every method returns at once, on the thread of the event loop.

    `jitter` gives numbers in [0, 1); it only ever lengthens a hold.
    """

    def __init__(self, clock: Clock, *, jitter: Callable[[], float] = random.random) -> None:
        self.clock = clock
        self._jitter = jitter
        self._line = Line()
        self._pools: dict[str, Pool] = {}
        self._held: dict[str, Gate] = {}
        self._custom: dict[int, CustomGate] = {}
        self._shapes: dict[object, Shape] = {}
        self._delivery = Delivery()
        self._deadlines: list[tuple[float, int, Waiting]] = []
        self._timer: Timer | None = None
        self._timer_at = inf
        self._timer_loop: asyncio.AbstractEventLoop | None = None
        self._submitted = self._granted = self._refused = self._cancelled = self._unmetered = self._settled = 0
        #: What a demand that names nothing draws on.
        self._nothing = OpenLevel("(nothing)")

    # What there is.

    def pool(self, name: str, limits: Limits) -> Pool:
        """The pool of that name, made at the first call. Changed limits are taken over; its levels are kept."""
        pool = self._pools.get(name)
        if pool is None:
            pool = self._pools[name] = Pool(name, limits, self.clock.now())
        elif pool.limits != limits:
            now = self.clock.now()
            if pool.update(limits, now):
                self._shapes.clear()
            self._tell(self._line.recheck(pool.accounts, now), now)
        return pool

    def account(self, account: Gate | HeldAccount) -> Gate:
        """Register a held account. ValueError if another one has its name."""
        known = self._custom.get(id(account))
        if known is not None:
            return known
        gate = account if isinstance(account, Gate) else CustomGate(account)
        if self._held.setdefault(gate.name, gate) is not gate:
            raise ValueError(f"there is another held account named {gate.name!r}")
        if isinstance(gate, CustomGate):
            self._custom[id(account)] = gate
        return gate

    def changed(self, account: Gate | HeldAccount) -> None:
        """A held account's room or capacity has changed by itself: look whether somebody can go."""
        now = self.clock.now()
        gate = self.account(account)
        if isinstance(gate, CustomGate):
            gate.capacity = gate.inner.capacity
        self._tell(self._line.recheck((gate,), now), now)

    # Asking.

    def submit(
        self, demand: Demand, on_grant: OnGrant, on_refuse: OnRefuse, *, ticket: Ticket | None = None
    ) -> Waiting:
        """Ask for all of it. One of the callbacks comes later, from the running loop, unless `cancel` comes first.

        `ticket` is the place of a job that comes back (`Reservation.ticket`). NeverFitsError at once when the demand is
        larger than an account can hold; AdmissionTimeoutError at once when its own earliest fit is later than its
        `max_wait_s`.
        """
        now = self.clock.now()
        shape, amounts, charges = self._price(demand)
        waiting = Waiting(
            shape.group, amounts, priority=demand.priority, ticket=NO_TICKET if ticket is None else ticket
        )
        waiting.demand, waiting._charges, waiting._admission = demand, charges, self
        waiting._on_grant, waiting._on_refuse = on_grant, on_refuse
        waiting._delivered, waiting._error = False, None
        waiting.since = waiting.decided_at = now
        if self._line.take_now(waiting, demand.workflow, now):
            self._granted += 1
            self._delivery.put(waiting)
            return waiting
        never = shape.group.never_fits(amounts)
        if never is not None:
            shape.group.refused += 1
            self._refused += 1
            raise never_fits_error(demand, *never)
        if demand.max_wait_s is not None and self._too_late(waiting, demand.max_wait_s, now):
            if demand.overflow == "proceed" and self._overflow(waiting, now):
                return waiting
            shape.group.refused += 1
            self._refused += 1
            raise timeout_error(waiting, now)
        if demand.max_wait_s is not None:
            self._expire_at(now + demand.max_wait_s, waiting)
        self._tell(self._line.enter(waiting, demand.workflow, now), now)
        return waiting

    async def admit(self, demand: Demand, *, ticket: Ticket | None = None) -> Reservation:
        """`submit`, awaited. Cancelling the await leaves nothing behind."""
        done: asyncio.Future[Reservation] = asyncio.get_running_loop().create_future()

        def granted(reservation: Reservation) -> None:
            if done.done():
                reservation.release()
            else:
                done.set_result(reservation)

        def refused(error: AdmissionError) -> None:
            if not done.done():
                done.set_exception(error)

        waiting = self.submit(demand, granted, refused, ticket=ticket)
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
        if waiting._delivered or waiting.state in (CANCELLED, REFUSED) and waiting._on_grant is None:
            return False
        now = self.clock.now()
        waiting._on_grant = waiting._on_refuse = None
        self._cancelled += 1
        if waiting.state == WAITING:
            waiting.decided_at = now
            self._tell(self._line.cancel(waiting, now), now)
        elif waiting.state == GRANTED:
            waiting.state = CANCELLED
            self._tell(self._line.give(waiting.group.accounts, waiting.amounts, now), now)
        return True

    def _price(self, demand: Demand) -> tuple[Shape, tuple[float, ...], tuple[Charge, ...]]:
        """The demand's group, its amounts there, and what each of its calls is charged."""
        key: object
        raw: tuple[float, ...]
        calls, held = demand.calls, demand.held
        if len(calls) == 1 and calls[0].count == 1:
            call = calls[0]
            pool = call.pool
            charge = pool.charge(call)
            charges: tuple[Charge, ...] = (charge,)
            raw = pool.select(charge)
            if pool.gate is not None:
                raw = (*raw, 1)
            key = pool
        else:
            charges = tuple([call.pool.charge(call) for call in calls])
            raw = ()
            for call, charge in zip(calls, charges, strict=True):
                raw += tuple([n * call.count for n in call.pool.select(charge)])
                if call.pool.gate is not None:
                    raw += (min(call.count, call.pool.gate.capacity),)
            key = tuple([call.pool for call in calls])
        if held:
            raw += tuple([n for _, n in held])
            key = (key, tuple([id(account) for account, _ in held]))
        shape = self._shapes.get(key)
        if shape is None:
            shape = self._shapes[key] = self._shape(demand)
        return shape, shape.arrange(raw or (0,)), charges

    def _shape(self, demand: Demand) -> Shape:
        raw: list[Account] = [account for call in demand.calls for account in call.pool.accounts]
        raw += [self.account(account) for account, _ in demand.held]
        return Shape(self._line, raw or [self._nothing])

    # Deciding.

    @staticmethod
    def _too_late(waiting: Waiting, max_wait_s: float, now: float) -> bool:
        for account, n in zip(waiting.group.accounts, waiting.amounts, strict=True):
            if account.metered and account.fit_at(now, n, first=True) > now + max_wait_s:
                return True
        return False

    def _overflow(self, waiting: Waiting, now: float) -> bool:
        """Let it go without the metered accounts, if what it holds besides is free."""
        gates = [call.pool.gate for call in waiting.demand.calls]
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
        waiting.state, waiting.decided_at = GRANTED, now
        self._granted += 1
        self._unmetered += 1
        self._delivery.put(waiting)
        return True

    def _tell(self, decided: Sequence[Waiter], now: float) -> None:
        for waiting in decided:
            assert isinstance(waiting, Waiting)
            waiting.decided_at = now
            if waiting.state == GRANTED:
                self._granted += 1
            else:
                self._refused += 1
                never = waiting.group.never_fits(waiting.amounts)
                waiting._error = never_fits_error(waiting.demand, *never) if never else timeout_error(waiting, now)
            self._delivery.put(waiting)
        if self._timer is not None or self._deadlines or self._line.waiting:
            self._arm()

    def _arm(self) -> None:
        """One timer, at the earliest instant at which something can change by itself."""
        deadlines = self._deadlines
        while deadlines and deadlines[0][2].state != WAITING:
            heappop(deadlines)
        at = self._line.next_instant()
        if deadlines and deadlines[0][0] < at:
            at = deadlines[0][0]
        loop = asyncio.get_running_loop()
        if at == self._timer_at and loop is self._timer_loop:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self.clock.call_at(at, self._wake) if at != inf else None
        self._timer_at, self._timer_loop = at, loop

    def _expire_at(self, instant: float, waiting: Waiting) -> None:
        deadlines = self._deadlines
        if len(deadlines) > 64 + 2 * self._line.waiting:  # mostly of demands that are long gone
            self._deadlines = deadlines = [entry for entry in deadlines if entry[2].state == WAITING]
            heapify(deadlines)
        self._submitted += 1
        heappush(deadlines, (instant, self._submitted, waiting))

    def _wake(self) -> None:
        self._timer, self._timer_at = None, inf
        now = self.clock.now()
        self._tell(self._line.tick(now), now)
        while self._deadlines and self._deadlines[0][0] <= now:
            waiting = heappop(self._deadlines)[2]
            if waiting.state == WAITING:
                self._give_up(waiting, now)
        self._arm()

    def _give_up(self, waiting: Waiting, now: float) -> None:
        """Its `max_wait_s` is over."""
        error = timeout_error(waiting, now)
        decided = self._line.cancel(waiting, now, REFUSED)
        if waiting.demand.overflow == "proceed" and self._overflow(waiting, now):
            waiting.group.refused -= 1
        else:
            waiting._error, waiting.decided_at = error, now
            self._refused += 1
            self._delivery.put(waiting)
        self._tell(decided, now)

    # What a reservation and its permits do.

    def reserve(self, waiting: Waiting) -> Reservation:
        accounts, amounts = waiting.group.accounts, waiting.amounts
        held: tuple[tuple[Account, float], ...] = ()
        if not accounts[-1].metered:
            held = tuple([(a, n) for a, n in zip(accounts, amounts, strict=True) if n and not a.metered])
        waited = waiting.decided_at - waiting.since
        waits = waiting.waits
        if waits is None:
            waits = {accounts[0].name: waited} if waited else {}
        return Reservation(
            self,
            waiting.demand,
            waiting._charges,
            held,
            waiting.share,
            ticket=waiting.ticket,
            granted_at=waiting.decided_at,
            waited_s=waited,
            waited_by_account=waits,
            unmetered=bool(waiting.demand.calls) and not waiting._charges,
        )

    def settle(self, pool: Pool, reserved: Charge | None, used: Charge, share: Share | None) -> None:
        """One call has settled: give back what it did not use, or owe what it used beyond."""
        now = self.clock.now()
        pool.settled += 1
        self._settled += 1
        levels = pool.limiter.accounts
        spent = pool.select(used)
        if reserved is None:
            self._tell(self._line.give(levels, [-n for n in spent], now), now)
            return
        taken = pool.select(reserved)
        if share is not None:
            share.credit += _cost(levels, taken) - _cost(levels, spent)
        self._tell(self._line.give(levels, [a - b for a, b in zip(taken, spent)], now), now)  # noqa: B905

    def charge_more(self, call: CallCharge, reserved: Charge | None) -> Charge:
        """A call that was not declared, or not that large: owe the difference at once. Returns its whole charge."""
        now = self.clock.now()
        pool = call.pool
        whole = pool.charge(call)
        if reserved is not None:
            whole = Charge(*[max(a, b) for a, b in zip(whole, reserved, strict=True)])
            more = [b - a for a, b in zip(pool.select(reserved), pool.select(whole), strict=True)]
        else:
            more = list(pool.select(whole))
        self._line.give(pool.limiter.accounts, [-n for n in more], now)
        return whole

    def learn(self, pool: Pool, outcome: CallOutcome, epoch: int, sent_at: float) -> None:
        """What a call's end says about its pool: the throttle's signals, and the limits in the provider's headers."""
        now, limiter, kind = self.clock.now(), pool.limiter, outcome.kind
        moved = False
        if kind is OutcomeKind.COMPLETED:
            moved = limiter.succeeded(now, epoch)
        elif kind is OutcomeKind.RATE_LIMITED:
            moved = limiter.rate_limited(now, outcome.retry_after_s, epoch, self._jitter())
        elif kind is OutcomeKind.OVERLOADED:
            moved = limiter.overloaded(now)
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

    def end(self, reservation: Reservation, unused: Sequence[tuple[Pool, Charge, int]]) -> None:
        """A job has ended: what it holds comes back, and the charges of calls it never made."""
        now = self.clock.now()
        decided: list[Waiter] = []
        for pool, charge, count in unused:
            levels, amounts = pool.limiter.accounts, pool.select(charge)
            if reservation._share is not None:
                reservation._share.credit += _cost(levels, amounts) * count
            decided += self._line.give(levels, [n * count for n in amounts], now)
        held = reservation._held
        if held:
            seconds = now - reservation.granted_at
            for account, _ in held:
                if isinstance(account, Gate):
                    account.held_for(seconds)
                    account.settled += 1
            decided += self._line.give([a for a, _ in held], [n for _, n in held], now)
        self._tell(decided, now)

    # Looking.

    def explain(self, waiting: Waiting) -> Explanation:
        """Which account it waits for, how much it lacks, and when it will go."""
        return explain(self._line, waiting, self.clock.now())

    def statistics(self) -> AdmissionStatistics:
        """Frozen values of every account and of the line."""
        now = self.clock.now()
        accounts = account_statistics(self._line, self._pools.values(), self._held.values(), now)
        return AdmissionStatistics(
            accounts=accounts,
            waiting=self._line.waiting,
            oldest_wait_s=max((account.oldest_wait_s for account in accounts), default=0.0),
            granted=self._granted,
            refused=self._refused,
            cancelled=self._cancelled,
            unmetered=self._unmetered,
            settled=self._settled,
        )


def _cost(levels: Sequence[Account], amounts: Sequence[float]) -> float:
    return max([level.cost(n) for level, n in zip(levels, amounts)])  # noqa: B905 - the hot path
