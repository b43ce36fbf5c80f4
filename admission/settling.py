"""What a reservation and its permits do to the accounts: settle, owe, learn. Every method returns at once.

A pool that is shared with other processes has a link: what became of a call is told through it, and its accounts are
credited by the ledger.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Sequence
from math import inf
from typing import TYPE_CHECKING

from .charges import NOTHING, Charge
from .clock import Clock
from .demand import CallCharge
from .growing import Growing
from .levels import TRANSIT_PART
from .limiter import TokenBucketRateLimiter
from .line import Line
from .outcome import CallOutcome, OutcomeKind
from .pool import Pool
from .queues import Waiter

if TYPE_CHECKING:
    from .waiting import Waiting

log = logging.getLogger("interlock.admission")


class Settling:
    """One per `Admission`. `tell` passes on what the line has decided."""

    def __init__(
        self,
        line: Line,
        clock: Clock,
        tell: Callable[[Sequence[Waiter], float], None],
        *,
        jitter: Callable[[], float],
        transit_s: float,
    ) -> None:
        self._line, self._tell, self._jitter, self._transit_s = line, tell, jitter, transit_s
        self.clock, self.now = clock, clock.now
        #: Answers under way, for its permits.
        self.growing = Growing(self)

    def left(self, pool: Pool, waiting: Waiting, charge: Charge, now: float, *, sent: bool = False) -> None:
        """A call that was granted is being sent, or never will be: its pool refills again, once it has arrived."""
        if pool.link is not None:
            pool.link.left(charge, sent=sent)
            return
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
        if pool.link is not None:
            pool.link.settle(taken, used, sent_at, drained=drained, grows=grows)
            self._correct_share(pool, waiting, taken, used)
            return
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

    @staticmethod
    def _correct_share(pool: Pool, waiting: Waiting, taken: Charge, used: Charge) -> None:
        lead, levels = waiting.group.lead, pool.limiter.accounts
        if waiting.share is not None and lead is levels[0] and lead.active:
            before = max([taken[level.part] * level.unit_s for level in levels])
            waiting.share.credit += before - max([used[level.part] * level.unit_s for level in levels])

    def owe(self, pool: Pool, reserved: Charge, output_tokens: float) -> Charge:
        """An answer under way has grown beyond its reservation: owe that at once. Returns its whole charge."""
        whole = reserved._replace(
            tokens=reserved.tokens + output_tokens, output_tokens=reserved.output_tokens + output_tokens
        )
        if pool.link is not None:
            pool.link.owe(Charge(0, output_tokens, 0, output_tokens))
            return whole
        more = [a - b for a, b in zip(pool.select(reserved), pool.select(whole), strict=True)]
        self._line.give(pool.limiter.accounts, more, self.now())
        return whole

    def charge_more(self, call: CallCharge, reserved: Charge | None, kind: Hashable = None) -> Charge:
        """A call that was not declared, or not that large: owe the difference at once. Returns its whole charge."""
        now, pool = self.now(), call.pool
        whole = pool.charge(call, kind)
        if reserved is not None:
            whole = Charge(*[max(a, b) for a, b in zip(whole, reserved, strict=True)])
        more = Charge(*[b - a for a, b in zip(reserved or NOTHING, whole, strict=True)])
        if pool.link is not None:
            pool.link.owe(more)
        else:
            self._line.give(pool.limiter.accounts, [-n for n in pool.select(more)], now)
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
