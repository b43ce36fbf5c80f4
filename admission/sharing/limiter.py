"""SharedLimiter: the limiter of a shared pool, as one process sees it. The rules are the ledger's; here is a mirror.

What a call's end says is passed on as a signal, and taken up when the ledger's answer comes. Only a hold is believed at
once: nothing that was granted before and is not sent yet should still go.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from math import inf

from interlock.catalog.entry import Limits

from ..charges import NOTHING, Charge
from ..ledger.message import LevelState, PoolState, Signal, SignalKind
from ..levels import Level
from ..limiter import PER_DAY, Rate, TokenBucketRateLimiter, rates_of
from ..outcome import Dimension, ReportedLimit
from .accounts import SharedLevel
from .link import PoolLink

#: Headers are passed on where they say that a level is lower than thought by this part of what it holds, and at most so
#: often: they come with every answer.
LOWER_BY, REPORT_EVERY_S = 0.02, 0.25
#: How long a refusal without a hint holds this process' own until the ledger has said more.
UNTIL_ANSWERED_S = 1.0


class SharedLimiter(TokenBucketRateLimiter):
    """See `TokenBucketRateLimiter`; every level is a `SharedLevel`."""

    #: Its accounts, as what they are.
    shared: tuple[SharedLevel, ...]

    def __init__(
        self,
        name: str,
        limits: Mapping[str, Rate],
        link: PoolLink,
        *,
        now: float,
        burst_s: float,
        fixed: bool,
        day_resets: str,
        wall: Callable[[], datetime] | None,
    ) -> None:
        self._link, self._reported_at = link, -inf
        super().__init__(name, limits, now=now, burst_s=burst_s, fixed=fixed, day_resets=day_resets, wall=wall)
        link.limiter = self

    @classmethod
    def of_link(
        cls, link: PoolLink, limits: Limits, now: float, wall: Callable[[], datetime] | None = None
    ) -> SharedLimiter:
        return cls(
            link.name,
            rates_of(limits),
            link,
            now=now,
            burst_s=limits.burst_s,
            fixed=limits.fixed,
            day_resets=limits.day_resets,
            wall=wall,
        )

    def update(self, limits: Mapping[str, Rate], now: float, day_resets: str = "rolling") -> bool:
        changed = super().update(limits, now, day_resets)
        self.accounts = self.shared = tuple([self._shared(account, now) for account in self.accounts])
        seen: set[int] = set()
        for level in self.shared:
            level.takes = level.part not in seen
            seen.add(level.part)
        self._link.loose = tuple([part for part in range(len(NOTHING)) if part not in seen])
        self.levels = dict(zip(self.levels, self._metered(), strict=True))
        self.windowed = False
        return changed

    def _metered(self) -> tuple[SharedLevel, ...]:
        return self.shared[len(self.shared) - len(self.levels) :]

    def _shared(self, account: Level, now: float) -> SharedLevel:
        if isinstance(account, SharedLevel):
            return account
        rate = account.published_rate
        level = SharedLevel(account.name, account.capacity, rate, self._link, now=now, part=account.part)
        level.pool, level.per_day = self, account.per_day
        return level

    # What is reported.

    def rate_limited(
        self,
        now: float,
        retry_after_s: float | None = None,
        epoch: int | None = None,
        jitter: float = 0.0,
        asked: Charge = NOTHING,
    ) -> bool:
        self.throttle.rate_limited += 1
        self._tell(SignalKind.RATE_LIMITED, epoch, retry_after_s=retry_after_s, jitter=jitter, asked=asked)
        if epoch is None or epoch >= self.throttle.epoch:
            self._hold(now + min(retry_after_s or UNTIL_ANSWERED_S, UNTIL_ANSWERED_S))
        return False

    def overloaded(self, now: float) -> bool:
        self.throttle.overloaded += 1
        self._tell(SignalKind.OVERLOADED, None)
        return False

    def day_spent(self, now: float, retry_after_s: float | None = None, epoch: int | None = None) -> bool:
        self._tell(SignalKind.DAY_SPENT, epoch, retry_after_s=retry_after_s)
        self._hold(now + UNTIL_ANSWERED_S)
        return True

    def succeeded(self, now: float, epoch: int | None = None) -> bool:
        if not self.throttle.calm:
            self._tell(SignalKind.SUCCEEDED, epoch)
        return False

    def reported(
        self, now: float, sent_at: float, reported: Mapping[Dimension, ReportedLimit]
    ) -> dict[str, tuple[float, float]]:
        if now >= self._reported_at + REPORT_EVERY_S and any(
            self._is_news(now, sent_at, dimension.value, limit) for dimension, limit in reported.items()
        ):
            self._reported_at = now
            self._link.signal(
                Signal(
                    pool=self.name,
                    kind=SignalKind.REPORTED,
                    epoch=self.throttle.epoch,
                    reported=dict(reported),
                    sent_ago_s=now - sent_at,
                )
            )
        return {}

    def _is_news(self, now: float, sent_at: float, dimension: str, said: ReportedLimit) -> bool:
        level = self.levels.get(dimension)
        if level is None:
            return False
        if said.limit is not None and 0 < said.limit < inf and not self.fixed:
            before = level.published_rate * 60.0
            if abs(said.limit - before) > 1e-6 * before:
                return True
        if said.remaining is None or now < level.held_until:
            return False
        at_most = said.remaining + (now - sent_at) * level.published_rate
        return at_most < level.level(now) - LOWER_BY * level.capacity

    def _tell(
        self,
        kind: SignalKind,
        epoch: int | None,
        *,
        retry_after_s: float | None = None,
        jitter: float = 0.0,
        asked: Charge = NOTHING,
    ) -> None:
        self._link.signal(
            Signal(pool=self.name, kind=kind, epoch=epoch, retry_after_s=retry_after_s, jitter=jitter, asked=asked)
        )

    def passed(self, now: float) -> bool:
        return False

    def _hold(self, until: float) -> None:
        for level in self.accounts:
            level.held_until = max(level.held_until, until)

    # What the ledger says.

    def heard(self, state: PoolState, now: float) -> None:
        """Everything as it stands for everybody."""
        throttle = self.throttle
        throttle.epoch, throttle.calm = state.epoch, state.calm
        throttle.held_until = now + state.hold_in_s if state.hold_in_s > 0 else -inf
        throttle.closed_until = now + state.closed_in_s if state.closed_in_s > 0 else -inf
        throttle.mirror(state.slowdown)
        by_dimension = {level.dimension: level for level in state.levels}
        for level in self.shared:
            level.held_until = throttle.held_until
            said = by_dimension.get(level.name.rpartition(":")[2])
            if said is not None:
                self._bring(level, said, state.slowdown, now)

    def _bring(self, level: SharedLevel, said: LevelState, slowdown: float, now: float) -> None:
        name, rate = said.dimension, said.published_rate_per_s
        stated = self._stated.get(name)
        if stated is not None and abs(rate - stated.rate_per_s) > 1e-6 * rate:
            self.adopted.add(name)
        level.heard(
            now,
            capacity=said.capacity,
            published_rate=rate,
            rate=rate if name in PER_DAY else rate / slowdown,
            free=said.free,
        )
        level.was_full_at = now - said.full_ago_s
        level.opened_at = now - said.opened_ago_s
