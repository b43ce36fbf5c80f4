"""A pool's limits: one `Level` per published dimension and the one `Throttle` they share. Pure: time is an argument."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from math import inf
from typing import Any

from interlock.catalog.days import ROLLING, day_reset
from interlock.catalog.entry import Limits

from .charges import NOTHING, Charge
from .levels import Level, OpenLevel
from .outcome import Dimension, ReportedLimit
from .throttle import LONGEST_HOLD_S, Throttle
from .windows import DAY_S, WindowLevel

#: Providers round a remaining token count to a thousand.
TOKEN_ROUNDING = 1_000
#: A day that is spent and whose reset nobody knows is tried once after 60 s, and then ever more rarely: some 30 times.
LONGEST_DAY_PROBE_S = 3_600.0


@dataclass(frozen=True, slots=True)
class Rate:
    """One published limit: at most `capacity` at once, `rate_per_s` refilled each second."""

    capacity: float
    rate_per_s: float


#: The dimensions a limiter may have, the dearest first: the first one of a pool is what fair share counts in. The
#: number is the place of its count in a `Charge`.
PARTS: Mapping[str, int] = {
    Dimension.TOKENS.value: 1,
    Dimension.INPUT_TOKENS.value: 2,
    Dimension.OUTPUT_TOKENS.value: 3,
    Dimension.REQUESTS.value: 0,
    "tokens_per_day": 1,
    "requests_per_day": 0,
}
PER_DAY = frozenset({"tokens_per_day", "requests_per_day"})


def _held(a_minute: float, burst_s: float) -> float:
    """What a limit holds at once. Not by way of the rate: 123 / 60 * 60 is less than 123, which a call may need."""
    return max(a_minute * burst_s / 60.0, 1.0)


def _utc_now() -> datetime:
    return datetime.now(UTC)


def rates_of(limits: Limits) -> dict[str, Rate]:
    """The rates a catalog entry states: per minute ones hold `burst_s` of their rate, per day ones a day's."""
    rates: dict[str, Rate] = {}
    per_minute = {
        Dimension.TOKENS.value: limits.tpm,
        Dimension.INPUT_TOKENS.value: limits.input_tpm,
        Dimension.OUTPUT_TOKENS.value: limits.output_tpm,
        Dimension.REQUESTS.value: limits.rpm,
    }
    for name, number in per_minute.items():
        if number is not None:
            rates[name] = Rate(_held(number, limits.burst_s), number / 60.0)
    for name, number in {"tokens_per_day": limits.tpd, "requests_per_day": limits.rpd}.items():
        if number is not None:
            rates[name] = Rate(max(number, 1.0), number / DAY_S)
    return rates


class TokenBucketRateLimiter:
    """The metered accounts of one pool.

    `levels` maps a dimension (`requests`, `tokens`, `input_tokens`, `output_tokens`, `tokens_per_day`,
    `requests_per_day`) to its level, an account named `<pool>:<dimension>`. A pool without limits has none; it can
    still be held, through `accounts`, which is what a demand on this pool draws on and is never empty.
    `fixed` keeps reported limits from being adopted. `day_resets` and `wall` (the time of day, with its zone) make
    windows of the limits per day.

    A limit per day is no measure of what a minute takes: a pool that has no other is open beside it.
    """

    def __init__(
        self,
        name: str,
        limits: Mapping[str, Rate],
        *,
        now: float = 0.0,
        burst_s: float = 60.0,
        fixed: bool = False,
        day_resets: str = ROLLING,
        wall: Callable[[], datetime] | None = None,
    ) -> None:
        unknown = [key for key in limits if str(key) not in PARTS]
        if unknown:
            raise ValueError(f"pool {name!r}: no such dimension: {unknown[0]!r}; there are {', '.join(PARTS)}")
        self.name, self.burst_s, self.fixed = name, burst_s, fixed
        self.throttle = Throttle(now)
        self.levels: dict[str, Level] = {}
        self._open = OpenLevel(f"{name}:open", now=now)
        self._open.pool = self
        self._drained_to: dict[str, float] = {}  # what each level was left with by the last 429 that counted
        self._credit = NOTHING  # what the provider will have at the end of the hold, if its hint is right
        #: What a demand on this pool draws on, in the order of `PARTS`.
        self.accounts: tuple[Level, ...] = ()
        #: Dimensions whose published limit a provider's header has changed, until the catalog's own is edited.
        self.adopted: set[str] = set()
        self._stated: dict[str, Rate] = {}  # what the catalog says
        self._wall = wall or _utc_now
        self._reset = day_reset(day_resets)
        self._day_probe_s = 0.0  # of a day that is spent and whose reset is not known: seconds to the next probe
        self.windowed = False
        self.update(limits, now, day_resets)

    @classmethod
    def of(
        cls, name: str, limits: Limits, now: float = 0.0, *, wall: Callable[[], datetime] | None = None
    ) -> TokenBucketRateLimiter:
        """From a catalog entry's limits. `max_concurrent` is not among them: that is a `CountingGate` beside it."""
        return cls(
            name,
            rates_of(limits),
            now=now,
            burst_s=limits.burst_s,
            fixed=limits.fixed,
            day_resets=limits.day_resets,
            wall=wall,
        )

    def to_state(self) -> dict[str, Any]:
        """What it has learnt, its levels apart, as JSON can carry it (with `Infinity`)."""
        return {
            "throttle": self.throttle.to_state(),
            "adopted": sorted(self.adopted),
            "drained_to": self._drained_to,
            "credit": self._credit,
            "day_probe_s": self._day_probe_s,
        }

    def learnt(self, state: Mapping[str, Any]) -> None:
        """Take over what `to_state` of a limiter with these limits said. Its levels are the caller's to set."""
        self.throttle = Throttle.from_state(state["throttle"])
        self.adopted = set(state["adopted"]) & self._stated.keys()
        self._drained_to = dict(state["drained_to"])
        self._credit = Charge(*state["credit"])
        self._day_probe_s = state["day_probe_s"]

    def update(self, limits: Mapping[str, Rate], now: float, day_resets: str = ROLLING) -> bool:
        """Take over changed limits; levels are carried over. Returns whether an account came or went."""
        wanted = {str(key): rate for key, rate in limits.items()}
        self.adopted = {key for key in self.adopted if wanted.get(key) == self._stated[key] and not self.fixed}
        self._stated = wanted
        slowdown = self.throttle.slowdown(now)
        self._reset = day_reset(day_resets)
        before, self.levels, was = self.levels, {}, self.accounts
        for dimension in PARTS:
            rate = wanted.get(dimension)
            if rate is None:
                continue
            level = before.get(dimension)
            if level is None or not self._still_fits(dimension, level):
                level = self._made(dimension, rate, level, now)
                level.set_rate(now, rate.rate_per_s / slowdown)
            elif dimension not in self.adopted and (level.capacity, level.published_rate) != (
                rate.capacity,
                rate.rate_per_s,
            ):
                level.set_limit(now, rate.capacity, rate.rate_per_s, rate.rate_per_s / slowdown)
            self.levels[dimension] = level
        self.windowed = any(isinstance(level, WindowLevel) for level in self.levels.values())
        minutes = self.levels.keys() - PER_DAY
        self.accounts = (*self.levels.values(),) if minutes else (self._open, *self.levels.values())
        return self.accounts != was

    def _still_fits(self, dimension: str, level: Level) -> bool:
        reset = level.reset if isinstance(level, WindowLevel) else None
        return dimension not in PER_DAY or reset == self._reset

    def _made(self, dimension: str, rate: Rate, before: Level | None, now: float) -> Level:
        """A new level; of a limit per day that now resets otherwise than `before`, as low as that one is."""
        name, part = f"{self.name}:{dimension}", PARTS[dimension]
        level: Level
        if dimension in PER_DAY and self._reset is not None:
            level = WindowLevel(name, rate.capacity, self._reset, self._wall, now=now, part=part)
        else:
            level = Level(name, rate.capacity, rate.rate_per_s, now=now, part=part)
        level.pool, level.per_day = self, dimension in PER_DAY
        level.hold(now, self.throttle.held_until, drain=False)
        if before is not None:
            level.unsent = before.unsent
            level.set_level(now, level.capacity - (before.capacity - before.level(now)))
        return level

    def earliest_fit(self, now: float, amounts: tuple[float, ...]) -> float:
        """The exact instant at which these amounts (aligned with `accounts`) fit, if nobody else draws."""
        return max([level.fit_at(now, n, first=True) for level, n in zip(self.accounts, amounts, strict=True)] + [now])

    # What is reported. Each returns whether a level changed how it moves: then the line has to look again.

    def rate_limited(
        self,
        now: float,
        retry_after_s: float | None = None,
        epoch: int | None = None,
        jitter: float = 0.0,
        asked: Charge = NOTHING,
    ) -> bool:
        """A 429 of a call granted in `epoch`: hold everyone; once per epoch drain to at most 0 and slow down.

        `asked` is what the refused call had reserved.
        """
        throttle, before = self.throttle, self.throttle.held_until
        kept_s, asked_s = self._kept(now, asked)
        counted = throttle.on_rate_limited(now, retry_after_s, epoch, jitter, kept_s=kept_s, asked_s=asked_s)
        if not counted and throttle.held_until == before:
            return False
        believed = counted and throttle.believed
        self._follow(now)
        for level in self.accounts:
            minutes = level.name.rpartition(":")[2] not in PER_DAY
            level.hold(now, throttle.held_until, drain=counted and minutes)  # a minute's refusal leaves the day's rest
            level.owed = minutes and (believed or throttle.closed(now))
        if counted:
            self._credit = asked if believed else NOTHING
            # What the refused call took comes back as far as it was a debt (`Settling.settle`).
            self._drained_to = {
                name: min(level.level(now) + asked[level.part], 0.0) for name, level in self.levels.items()
            }
        return True

    def _kept(self, now: float, asked: Charge) -> tuple[float | None, float]:
        """For the throttle's measurement: what of the refill since the last drain was not sent (the refused call was
        not), and that call's size; in seconds of the published refill, of the dimension that was used most."""
        kept: tuple[float, float] | None = None
        for name, level in self.levels.items():
            if name in PER_DAY:
                continue
            size = asked[level.part]
            # Levels begin full, and so does the provider: before the first drain its whole burst was there to be sent.
            left = level.level(now) + size - self._drained_to.get(name, 0.0)
            used = (left * level.unit_s, size * level.unit_s)
            kept = used if kept is None or used < kept else kept
        return (None, 0.0) if kept is None else kept

    def day_spent(self, now: float, retry_after_s: float | None = None, epoch: int | None = None) -> bool:
        """A refusal, of a call granted in `epoch`, that names a limit per day. Of many in flight the first counts.

        With a reset nothing passes until then, and nothing probes.

        Without one the provider's hint is waited out, and probed as rarely as `LONGEST_DAY_PROBE_S` says: a hint of
        seconds is not believed, for some providers give the minute's.
        """
        throttle = self.throttle
        if epoch is not None and epoch < throttle.epoch:
            return False
        throttle.epoch += 1  # what was sent before says nothing of the day
        windows = [level for level in self.levels.values() if isinstance(level, WindowLevel)]
        for window in windows:
            window.spent(now)
        if windows:
            return True
        if self._reset is not None:
            moment = self._wall()
            closed_s = probe_s = (self._reset.next(moment) - moment).total_seconds()
        else:
            closed_s = retry_after_s if retry_after_s is not None and LONGEST_HOLD_S < retry_after_s < inf else DAY_S
            probe_s = min(max(self._day_probe_s * 2, LONGEST_HOLD_S), LONGEST_DAY_PROBE_S, closed_s)
            self._day_probe_s = probe_s
        throttle.close(now, closed_s, probe_s)
        for level in self.accounts:
            level.hold(now, throttle.held_until, drain=False)
            level.owed = probe_s < closed_s
        return True

    def recalled(self, now: float) -> None:
        """The throttle has been told what an earlier process had learnt: hold and slow down as it did."""
        self._follow(now)
        for level in self.accounts:
            level.hold(now, self.throttle.held_until, drain=level is self._open)  # which has nothing else to be low by
            level.owed = self.throttle.closed(now) and level.name.rpartition(":")[2] not in PER_DAY

    def closing(self, now: float) -> str:
        """In words, until when nothing passes but a probe."""
        ends = [level.resets_at for level in self.levels.values() if isinstance(level, WindowLevel)]
        until_s = max(ends, default=self.throttle.closed_until) - now
        probing = "" if ends or self._reset is not None else ", but for a probe now and then"
        return f"nothing more is sent for {max(until_s, 0.0):,.0f} s{probing}"

    def overloaded(self, now: float) -> bool:
        """A 529: slow down harder; nothing is held or drained."""
        return self.throttle.on_overloaded(now) and self._follow(now)

    def succeeded(self, now: float, epoch: int | None = None) -> bool:
        """A call of `epoch` was served: after a while the pool speeds up, and a closed one opens."""
        changed = self.throttle.on_success(now, epoch) and self._follow(now)
        if not self.throttle.closed(now):
            self._day_probe_s = 0.0
        if self.accounts[0] is self._open and (epoch is None or epoch >= self.throttle.epoch):
            self._open.succeeded(calm=self.throttle.calm)
            return True
        return changed

    def passed(self, now: float) -> bool:
        """The first demand after a hold has gone on credit. True: it was a probe, and the pool is held again."""
        throttle = self.throttle
        throttle.on_passed(now)
        if self._day_probe_s and throttle.closed(now):
            throttle.held_until = min(now + self._day_probe_s, throttle.closed_until)
        probing = throttle.held_until > now
        for level in self.accounts:
            if probing:
                level.hold(now, throttle.held_until, drain=False)
            level.owed = probing and level.name.rpartition(":")[2] not in PER_DAY
        if not probing:
            self._forgive(now)
        return probing

    def _forgive(self, now: float) -> None:
        """What the first call after a hint took was there: it is no debt, up to the size of the call that was refused.

        Otherwise a provider would be left idle after each refusal for as long as a large call takes to refill.
        """
        credit, self._credit = self._credit, NOTHING
        for name, level in self.levels.items():
            debt = -level.level(now)
            if debt > 0 and credit[level.part] and name not in PER_DAY:
                level.set_level(now, min(credit[level.part], debt) - debt)
                self._drained_to[name] = self._drained_to.get(name, 0.0) + min(credit[level.part], debt)

    def _follow(self, now: float) -> bool:
        """Bring the levels to the throttle's slowdown and, where a probe has opened the pool, end their hold."""
        slowdown = self.throttle.slowdown(now)
        for level in self.accounts:
            if level.held_until > self.throttle.held_until:
                level.hold(now, self.throttle.held_until, drain=False)
            rate = level.published_rate / slowdown
            if rate != level.rate:
                level.set_rate(now, rate)
        return True

    def reported(
        self, now: float, sent_at: float, reported: Mapping[Dimension, ReportedLimit]
    ) -> dict[str, tuple[float, float]]:
        """What a provider's headers say, of a request sent at `sent_at`.

        A `limit` is adopted, up or down, unless `fixed`. `remaining` may only lower a level: to what the provider can
        have left by now, the refill since the request left included. Returns the limits that changed, per minute, as
        dimension: (before, after).
        """
        changed: dict[str, tuple[float, float]] = {}
        for dimension, state in reported.items():
            level = self.levels.get(dimension.value)
            if level is None:
                continue
            if state.limit is not None and 0 < state.limit < inf and not self.fixed:
                before, rate = level.published_rate * 60.0, state.limit / 60.0
                if abs(state.limit - before) > 1e-6 * before:
                    capacity = _held(state.limit, self.burst_s)
                    level.set_limit(now, capacity, rate, rate / self.throttle.slowdown(now))
                    self.adopted.add(dimension.value)
                    changed[dimension.value] = (before, state.limit)
            if state.remaining is not None and now >= level.held_until:
                rounding = TOKEN_ROUNDING if level.part and state.remaining % TOKEN_ROUNDING == 0 else 0
                at_most = state.remaining + rounding + (now - sent_at) * level.published_rate - level.unsent
                if -inf < at_most < level.level(now):
                    level.set_level(now, at_most)
        return changed
