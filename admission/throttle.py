"""The throttle of a pool: what its providers' refusals teach. Pure: the time is an argument.

(essay)
"""

from __future__ import annotations

from math import inf

MAX_SLOWDOWN = 10.0
LONGEST_HOLD_S = 60.0  # a longer hint closes the pool and is probed
HOLD_JITTER = 0.1  # of the hint, added only
FIRST_HOLD_S = 1.0  # without a hint; doubles within an episode

RATE_LIMITED_FACTOR = 1.2
OVERLOADED_FACTOR = 1.6
OVERLOADED_EVERY_S = 5.0
DECAY_PER_S = 0.05
NEAR_FAILURE = 1.03
FIRST_STEP = 0.02
PROBE_EVERY_S = 5.0
LONGEST_PROBE_S = 60.0
SAME_PLACE = 1.08
LONGEST_CREDIT_S = 30.0


class Throttle:
    """See the essay above. `slowdown` is in [1, 10]; `held_until` and `closed_until` are instants."""

    __slots__ = (
        "_episode",
        "_failed_at",
        "_last_overload",
        "_last_step",
        "_probe_every_s",
        "_slowdown",
        "_step",
        "_succeeded",
        "closed_until",
        "epoch",
        "held_until",
        "overloaded",
        "rate_limited",
    )

    def __init__(self) -> None:
        self.epoch = 0
        self.held_until = -inf
        self.closed_until = -inf
        self.rate_limited = self.overloaded = 0
        self._slowdown = 1.0
        self._episode = 0  # refusals since the last success
        self._failed_at: float | None = None  # the slowdown at the last failure
        self._last_overload = -inf
        self._last_step = -inf
        self._step = FIRST_STEP
        self._probe_every_s = PROBE_EVERY_S
        self._succeeded = False

    def slowdown(self, now: float) -> float:
        """What the refill is divided by, in [1, 10]. It changes only when something is reported."""
        return self._slowdown

    @property
    def calm(self) -> bool:
        """Whether a success has nothing to tell it."""
        return self._slowdown == 1.0 and self._episode == 0 and self.closed_until == -inf

    def closed(self, now: float) -> bool:
        """Whether a hint above 60 s is still in force: only a probe passes."""
        return now < self.closed_until

    def on_rate_limited(
        self, now: float, retry_after_s: float | None = None, epoch: int | None = None, jitter: float = 0.0
    ) -> bool:
        """A 429 of a call of `epoch`. Returns whether it counted: False for a straggler of an earlier epoch.

        `jitter` is in [0, 1) and only adds. A straggler's own hint still prolongs the hold.
        """
        self.rate_limited += 1
        counted = epoch is None or epoch >= self.epoch
        if not counted and retry_after_s is None:
            return False
        hint = retry_after_s if retry_after_s is not None else FIRST_HOLD_S * 2.0 ** min(self._episode, 6)
        if hint > LONGEST_HOLD_S:
            if retry_after_s is not None:
                self.closed_until = max(self.closed_until, now + hint)
            hint = LONGEST_HOLD_S
        until = now + hint * (1.0 + HOLD_JITTER * jitter)
        if not counted:
            self.held_until = max(self.held_until, now + hint)
            return False
        self.held_until = max(self.held_until, until)
        self._episode += 1
        self.epoch += 1
        self._fail(now, RATE_LIMITED_FACTOR)
        return True

    def on_overloaded(self, now: float) -> bool:
        """A 529. Returns whether it counted: at most one in a few seconds does."""
        self.overloaded += 1
        if now - self._last_overload < OVERLOADED_EVERY_S:
            return False
        self._last_overload = now
        self.epoch += 1
        self._fail(now, OVERLOADED_FACTOR)
        return True

    def _fail(self, now: float, factor: float) -> None:
        same = (
            self._failed_at is not None
            and self._failed_at / SAME_PLACE <= self._slowdown <= self._failed_at * SAME_PLACE
        )
        self._probe_every_s = min(self._probe_every_s * 2, LONGEST_PROBE_S) if same else PROBE_EVERY_S
        self._failed_at = self._slowdown
        self._slowdown = min(self._slowdown * factor, MAX_SLOWDOWN)
        self._step = FIRST_STEP
        self._last_step = max(now, self.held_until)
        self._succeeded = False

    def on_success(self, now: float, epoch: int | None = None) -> bool:
        """A call of `epoch` was served. Returns whether the slowdown or the closing changed."""
        if epoch is not None and epoch < self.epoch:
            return False
        self._episode = 0
        if self._slowdown == 1.0 and self.closed_until == -inf:
            return False
        changed = False
        if now < self.closed_until:
            self.closed_until = -inf
            self.held_until = min(self.held_until, now)
            changed = True
        return self._recover(now) or changed

    def _recover(self, now: float) -> bool:
        elapsed = min(now - self._last_step, LONGEST_CREDIT_S)
        if elapsed <= 0 or self._slowdown == 1.0:
            return False
        near = (self._failed_at or 1.0) * NEAR_FAILURE
        if self._slowdown > near:
            self._slowdown = max(self._slowdown * (1.0 - DECAY_PER_S) ** elapsed, near, 1.0)
        elif elapsed >= self._probe_every_s:
            self._slowdown = max(self._slowdown * (1.0 - self._step), 1.0)
            self._step = min(self._step * 2, 0.5)
        else:
            return False
        self._last_step = now
        return True

    def on_passed(self, now: float) -> None:
        """The first demand after a hold has gone. While the pool is closed it was the probe: the next is 60 s away."""
        if now < self.closed_until:
            self.held_until = min(now + LONGEST_HOLD_S, self.closed_until)
