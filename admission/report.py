"""What admission says about itself: why somebody waits, what the accounts hold, and the refusals in words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from math import inf
from typing import TYPE_CHECKING

from interlock.errors import AdmissionTimeoutError, NeverFitsError

from .accounts import Account
from .demand import AccountStatistics, Demand, Explanation
from .gates import CustomMeter, Gate
from .levels import Level, OpenLevel
from .line import Line
from .pool import Pool
from .queues import WAITING, Group

if TYPE_CHECKING:
    from .waiting import Waiting

STARVES = "; a higher priority goes first for as long as it keeps coming"


def never_fits_error(demand: Demand, account: Account, ask: float) -> NeverFitsError:
    name = demand.label or demand.workflow or "a demand"
    return NeverFitsError(
        f"{name} asks {ask:,.10g} of {account.name}, which holds at most {account.capacity:,.10g}{_made_of(account)}: "
        f"it can never be admitted. Make the call smaller (its output limit counts too), or raise the limit"
        f"{' or its burst_s' if _made_of(account) else ''} in the catalog",
        account=account.name,
        ask=ask,
        limit=account.capacity,
    )


def _made_of(account: Account) -> str:
    """` (12,000 a minute x burst_s 1)`: what the catalog says, of which the capacity is made. A day's is stated as it
    is."""
    if not isinstance(account, Level) or isinstance(account, OpenLevel) or account.name.endswith("_per_day"):
        return ""
    burst_s = account.capacity / account.published_rate
    return f" ({account.published_rate * 60:,.10g} a minute x burst_s {burst_s:.6g})"


def timeout_error(waiting: Waiting, now: float) -> AdmissionTimeoutError:
    demand, group = waiting.demand, waiting.group
    account = group.watch or group.lead
    for candidate, n in zip(group.accounts, waiting.amounts, strict=True):
        if group.watch is None and candidate.free(now) < n:
            account = candidate
            break
    name = demand.label or demand.workflow or "a demand"
    waited = now - waiting.since
    limit = 0.0 if demand.max_wait_s is None else demand.max_wait_s
    return AdmissionTimeoutError(
        f"{name} was not admitted within {limit:g} s (waited {waited:.3g} s for {account.name}); nothing was sent. "
        f"Wait longer (max_wait_s), send fewer calls at once, raise the limit in the catalog, or let it overflow "
        f"(overflow='proceed')",
        account=account.name,
        waited_s=waited,
        max_wait_s=demand.max_wait_s,
    )


def explain(line: Line, waiting: Waiting, now: float) -> Explanation:
    if waiting.state != WAITING:
        return Explanation(account=None, lacks=0.0, earliest_s=None, ahead=0, estimate=False, reason=waiting.status)
    group = waiting.group
    head, account = group.head, group.watch
    if head is None or account is None:
        return _explain_unseen(waiting, now)
    if head is waiting:
        return _explain_head(group, account, now)
    ahead = _ahead(group, waiting)
    first = _explain_head(group, account, now)
    earliest = None
    if first.earliest_s is not None:
        earliest = first.earliest_s + ahead * group.cost(waiting.amounts)
    reason = f"{ahead} of the same accounts go first; the foremost is {first.reason}"
    if head.rank < waiting.rank:
        reason += STARVES
    return Explanation(
        account=account.name, lacks=first.lacks, earliest_s=earliest, ahead=ahead, estimate=True, reason=reason
    )


def _explain_unseen(waiting: Waiting, now: float) -> Explanation:
    """Nobody of its group has been found short: it is asked for in the middle of a step, or of a large release."""
    group = waiting.group
    account, lacks = group.lead, 0.0
    for each, n in zip(group.accounts, waiting.amounts, strict=False):
        short = n - (each.level(now) if isinstance(each, Level) else each.free(now))
        if short > lacks:
            account, lacks = each, short
    ahead = max(_ahead(group, waiting), 0)
    reason = f"about to be looked at on {account.name}, behind {ahead} of the same accounts"
    return Explanation(account=account.name, lacks=lacks, earliest_s=None, ahead=ahead, estimate=True, reason=reason)


def _ahead(group: Group, waiting: Waiting) -> int:
    """How many of its group go first, about: the fair share of the other workflows is taken to be even."""
    ahead = 1 + len(group.returned) if waiting.flow else 1
    if waiting.flow is not None:
        place = waiting.flow.place(waiting)
        flows = [flow for flow in group.flows.values() if flow.rank <= waiting.rank and flow is not waiting.flow]
        ahead += place + sum(min(place + 1, len(flow)) for flow in flows)
    return min(ahead, group.waiting - 1)


def _explain_head(group: Group, account: Account, now: float) -> Explanation:
    head = group.head
    assert head is not None  # so says who calls
    need, older, higher = _claimed(group, account)
    own = head.amounts[group.accounts.index(account)]
    held_until = account.held_until if isinstance(account, Level) else -inf
    level = account.level(now) if isinstance(account, Level) else account.free(now)
    lacks = max(need - level, 0.0)
    at = _all_fit_at(group, now) if account.timed else inf
    if held_until > now:
        reason = f"held back with the whole pool for {held_until - now:.3g} s more, after a 429"
    elif isinstance(account, OpenLevel) and not older:
        reason = f"let in slowly by {account.name} after a 429, for there is no limit to follow"
    elif older and lacks:
        reason = f"short of {lacks:,.4g} of {account.name}, of which {need - own:,.4g} are set aside for {older} ahead"
    elif older:
        reason = f"behind {older} that wait for {account.name}"
    else:
        reason = f"short of {lacks:,.4g} of {account.name}"
    if isinstance(account, CustomMeter) and at != inf:
        reason += f", which says that it fits in {max(at - now, 0.0):.3g} s"
    if higher:
        reason += STARVES
    earliest = max(at - now, 0.0) if at != inf else None
    estimate = any(_claimed(group, each)[1] for each in group.accounts)
    return Explanation(
        account=account.name, lacks=lacks, earliest_s=earliest, ahead=older, estimate=estimate, reason=reason
    )


def _claimed(group: Group, account: Account) -> tuple[float, int, bool]:
    """What the head and those before it claim of an account, how many those are, and whether one has a higher
    priority."""
    need, older, higher = 0.0, 0, False
    for rank, _, n, other in account.claims:
        need += n
        if other is group:
            break
        older += 1
        higher |= rank < group.head.rank  # type: ignore[union-attr]
    return need, older, higher


def _all_fit_at(group: Group, now: float) -> float:
    """When everything the head needs is there. The account it watches is the first that it lacks, not always the
    last."""
    latest = now
    for account in group.accounts:
        need, older, _ = _claimed(group, account)
        if isinstance(account, Level):
            at = account.fit_at(now, need, first=not older) if need <= account.capacity else inf
        elif need <= account.free(now):
            at = now
        else:
            at = account.fit_at(now, need, first=not older)
        latest = max(latest, at)
    return latest


def account_statistics(
    line: Line, pools: Iterable[Pool], gates: Iterable[Gate], now: float
) -> tuple[AccountStatistics, ...]:
    waiting: Counter[Account] = Counter()
    granted: Counter[Account] = Counter()
    refused: Counter[Account] = Counter()
    oldest: dict[Account, float] = {}
    for group in line.groups:
        since = _oldest(group)
        for account in group.accounts:
            waiting[account] += group.waiting
            granted[account] += group.granted
            refused[account] += group.refused
            if since is not None:
                oldest[account] = min(oldest.get(account, inf), since)

    def of(account: Account, settled: int, pool: Pool | None) -> AccountStatistics:
        metered = isinstance(account, Level)
        level = account.level(now) if isinstance(account, Level) else account.free(now)
        throttle = pool.throttle if pool is not None and metered else None
        return AccountStatistics(
            name=account.name,
            metered=metered,
            level=level,
            capacity=account.capacity,
            rate_per_s=account.published_rate if isinstance(account, Level) else None,
            slowdown=throttle.slowdown(now) if throttle else 1.0,
            held_back_s=account.held_back_s(now),
            held_for_s=max(throttle.held_until - now, 0.0) if throttle else 0.0,
            closed=throttle.closed(now) if throttle else False,
            debt=max(-level, 0.0),
            waiting=waiting[account],
            oldest_wait_s=now - oldest.get(account, now),
            granted=account.granted + granted[account],
            refused=account.refused + refused[account],
            settled=settled,
            rate_limited=throttle.rate_limited if throttle else 0,
            overloaded=throttle.overloaded if throttle else 0,
        )

    rows: list[AccountStatistics] = []
    for pool in pools:
        rows += [of(level, pool.settled, pool) for level in pool.limiter.accounts]
        if pool.gate is not None:
            rows.append(of(pool.gate, pool.gate.settled, pool))
    rows += [of(gate, gate.settled, None) for gate in gates]
    return tuple(rows)


def _oldest(group: Group) -> float | None:
    """When the longest waiting of the group came, or None."""
    since = [waiter.since for _, _, waiter in group.returned if waiter.state == WAITING]
    if group.head is not None:
        since.append(group.head.since)
    for flow in group.flows.values():
        front = flow.front()
        if front is not None:
            since.append(front.since)
    return min(since, default=None)
