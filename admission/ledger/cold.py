"""What is rare: refusals, reports, edited limits. The pool's real limiter is rebuilt from its row, told, written back.

So a shared pool has the very throttle that a single process has, with its tests and its tuning; nothing of it is said
twice. Pure but for the JSON: the time is an argument, and the row is held by whoever calls.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import lru_cache
from math import inf

from interlock.catalog.entry import Limits

from ..levels import Level, OpenLevel
from ..limiter import PARTS, TokenBucketRateLimiter, rates_of
from ..windows import WindowLevel
from .message import PoolTerms, Signal, SignalKind
from .rows import DIMENSIONS, MOST_SLOTS, OPEN, RATE, WINDOW, LevelRow, PoolRow, moment


@lru_cache(maxsize=1_024)
def _limits(text: str) -> Limits:
    return Limits.model_validate_json(text)


def _text(limits: Limits) -> str:
    """What is stated and no more: a release that knows more fields than this one may share the ledger."""
    return limits.model_dump_json(exclude_defaults=True, exclude={"pool", "as_of", "source"})


def created(terms: PoolTerms, now: float) -> PoolRow:
    """The row of a pool that nobody has used yet: full."""
    row = PoolRow(name=terms.name, limits=_text(terms.limits), clock=now)
    _write(row, TokenBucketRateLimiter.of(terms.name, terms.limits, now, wall=lambda: moment(now)))
    return row


def updated(row: PoolRow, terms: PoolTerms, now: float) -> bool:
    """Bring it to changed limits, its levels kept. Returns whether anything had changed."""
    text = _text(terms.limits)
    if text == row.limits:
        return False
    limiter = rebuilt(row, now)
    limits = terms.limits
    limiter.burst_s, limiter.fixed = limits.burst_s, limits.fixed
    limiter.update(rates_of(limits), now, limits.day_resets)
    row.limits = text
    _write(row, limiter)
    return True


def refreshed(row: PoolRow, now: float) -> None:
    """A limit per day may have begun again: look at the time of day."""
    _write(row, rebuilt(row, now))


def passed(row: PoolRow, now: float) -> None:
    """The first demand after a hold has gone on credit."""
    limiter = rebuilt(row, now)
    for level in limiter.accounts:
        if level.owed:
            level.passed(now)
    _write(row, limiter)


def told(row: PoolRow, signals: Iterable[Signal], now: float) -> None:
    """What calls that have ended say about it, one after the other."""
    limiter = rebuilt(row, now)
    for signal in signals:
        if signal.kind is SignalKind.SUCCEEDED:
            limiter.succeeded(now, signal.epoch)
        elif signal.kind is SignalKind.RATE_LIMITED:
            limiter.rate_limited(now, signal.retry_after_s, signal.epoch, signal.jitter, signal.asked)
        elif signal.kind is SignalKind.OVERLOADED:
            limiter.overloaded(now)
        elif signal.kind is SignalKind.DAY_SPENT:
            limiter.day_spent(now, signal.retry_after_s, signal.epoch)
        if signal.reported:
            limiter.reported(now, now - signal.sent_ago_s, signal.reported)
    _write(row, limiter)


def rebuilt(row: PoolRow, now: float) -> TokenBucketRateLimiter:
    """The limiter that the row was written from, at `now`."""
    limiter = TokenBucketRateLimiter.of(row.name, _limits(row.limits), now, wall=lambda: moment(now))
    learnt = json.loads(row.learnt)
    limiter.learnt(learnt)
    for level, kept in zip(limiter.accounts, row.levels, strict=True):
        level.capacity, level.published_rate, level.rate = kept.capacity, kept.published, kept.rate
        level.unit_s = 1.0 / kept.published
        level.unsent, level.held_until, level.owed = kept.unsent, kept.held_until, kept.owed
        if isinstance(level, OpenLevel):
            level.credits, level.next_at = kept.at, kept.mark
        elif isinstance(level, WindowLevel):
            level.used, level.over, level.opened_at, level.resets_at = kept.at, kept.over, kept.opened_at, kept.mark
            level.opened, level._look_at = learnt["opened"][DIMENSIONS[kept.dimension]], row.look_at
            level.level(now)  # and look, if it is time
        else:
            level.full_at, level.was_full_at = kept.at, kept.mark
    return limiter


def _write(row: PoolRow, limiter: TokenBucketRateLimiter) -> None:
    throttle = limiter.throttle
    windows = {name: level for name, level in limiter.levels.items() if isinstance(level, WindowLevel)}
    opened = {name: level.opened for name, level in windows.items()}
    row.learnt = json.dumps({**limiter.to_state(), "opened": opened})
    row.levels = [_level_row(level) for level in limiter.accounts]
    row.look_at = min((level._look_at for level in windows.values()), default=inf)
    slots = _limits(row.limits).max_concurrent
    row.slots = None if slots is None else min(slots, MOST_SLOTS)
    row.version += 1
    row.epoch, row.calm, row.slowdown = throttle.epoch, throttle.calm, throttle.slowdown(row.clock)
    row.held_until, row.closed_until = throttle.held_until, throttle.closed_until


def _level_row(level: Level) -> LevelRow:
    name = level.name.rpartition(":")[2]
    kind, at, mark, over, opened_at = RATE, level.full_at, level.was_full_at, False, -inf
    if isinstance(level, OpenLevel):
        kind, at, mark = OPEN, level.credits, level.next_at
    elif isinstance(level, WindowLevel):
        kind, at, mark, over, opened_at = WINDOW, level.used, level.resets_at, level.over, level.opened_at
    return LevelRow(
        dimension=DIMENSIONS.index(name),
        part=PARTS.get(name, 0),
        kind=kind,
        capacity=level.capacity,
        published=level.published_rate,
        rate=level.rate,
        at=at,
        mark=mark,
        unsent=level.unsent,
        held_until=level.held_until,
        owed=level.owed,
        over=over,
        opened_at=opened_at,
    )
