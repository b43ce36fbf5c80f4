"""The throttle of a pool: what its provider's refusals teach. Pure: the time is an argument.

A published limit is not what is served: accounts are smaller than the page says, others share them, and a provider
short of capacity serves less to everyone. So a pool's refill is divided by a slowdown s in [1, 10], found by trying.

429
    The pool is held for the provider's hint (jitter only adds; without a hint 1 s, doubling within an episode, until
    something succeeds) and its levels drop to at most 0. A hint is always waited out, but after a refusal that followed
    one it is not believed to be enough: from the second of an episode the hold is at least 1 s, 2 s, 4 s, ..., or a
    provider that says 0 would refuse job after job. The drain matters more than any formula: after a 429 the provider
    has next to nothing left, and whatever our level says is wrong. At the end of the hold one call goes on credit and
    the rest follow the refill, so there is no herd. s grows by a factor, once per *epoch*: a grant carries the number
    of the last change, and a refusal of a call from before it (of many in flight, most are) cuts nothing twice; its
    hint still prolongs the hold.

A hint above 60 s
    closes the pool: one probe passes every 60 s, until a probe succeeds or the hint has run out.

529
    s grows harder, at most once in five seconds; nothing is held or drained.

Recovery
    is by time, and only when a call sent since the last change has succeeded (counting successes collapses where calls
    are slow: the slower the pool, the fewer there are to count). Since everything after a drain goes by the refill, a
    rate that is too high is refused within seconds, so the rate of the last failure is a good guess of the true one:
    s decays quickly, 5% a second, to just above where it failed (to the last place that held, if a probe failed), and
    from there probes: a step of 2%, doubled after each that holds, back to 2% on a failure. The time between probes
    starts at 5 s and doubles when it fails where it failed before, up to 40 s; beyond that place it is 5 s again. A
    steady limit is so tried ever more rarely, and one that has opened is found in a minute or two.

The numbers were settled on by simulation (tests/admission/test_throttle_simulation.py): against providers that serve
100, 60 and 30% of what they publish it gets 99% of what they serve.
"""

from __future__ import annotations

from math import inf

MAX_SLOWDOWN = 10.0
LONGEST_HOLD_S = 60.0
HOLD_JITTER = 0.1  # of the hint
FIRST_HOLD_S = 1.0
LONGEST_BLIND_HOLDS = 6  # doublings without a hint: 64 s, cut at the longest hold

RATE_LIMITED_FACTOR = 1.35
OVERLOADED_FACTOR = 1.6
OVERLOADED_EVERY_S = 5.0
DECAY_PER_S = 0.05
LONGEST_DECAY_S = 30.0  # a pool that was idle for an hour has learnt nothing in it
NEAR_FAILURE = 1.03
FIRST_STEP, LARGEST_STEP = 0.02, 0.32
PROBE_EVERY_S, LONGEST_PROBE_S = 5.0, 40.0
SAME_PLACE = 1.08


class Throttle:
    """See above. `held_until` and `closed_until` are instants, -inf where there is none; `epoch` counts the changes.

    `rate_limited` and `overloaded` count every 429 and 529 that was reported.
    """

    __slots__ = (
        "_episode",
        "_failed_at",
        "_held_at",
        "_last_overload",
        "_last_step",
        "_probe_every_s",
        "_return_to",
        "_slowdown",
        "_step",
        "calm",
        "closed_until",
        "epoch",
        "held_until",
        "overloaded",
        "rate_limited",
    )

    def __init__(self) -> None:
        self.epoch = self.rate_limited = self.overloaded = 0
        self.held_until = self.closed_until = -inf
        #: Whether a success has nothing to tell it.
        self.calm = True
        self._slowdown = 1.0
        self._episode = 0  # counted 429s since the last success
        self._failed_at = 1.0  # the slowdown at the last failure
        self._held_at = 1.0  # the slowdown before the last probe: that one was served
        self._return_to = 1.0  # where the quick recovery ends
        self._last_overload = self._last_step = -inf
        self._step = FIRST_STEP
        self._probe_every_s = PROBE_EVERY_S

    def slowdown(self, now: float) -> float:
        """What the refill is divided by, in [1, 10]. It changes only when something is reported."""
        return self._slowdown

    def closed(self, now: float) -> bool:
        """Whether a hint above 60 s is still in force: only a probe passes."""
        return now < self.closed_until

    def on_rate_limited(
        self, now: float, retry_after_s: float | None = None, epoch: int | None = None, jitter: float = 0.0
    ) -> bool:
        """A 429 of a call of `epoch` (None: of now). Returns whether it counted; a straggler's does not.

        `retry_after_s` is the provider's hint, `jitter` a number in [0, 1).
        """
        self.rate_limited += 1
        self.calm = False
        counted = epoch is None or epoch >= self.epoch
        blind_s = min(FIRST_HOLD_S * 2.0 ** min(self._episode, LONGEST_BLIND_HOLDS), LONGEST_HOLD_S)
        if retry_after_s is None or not retry_after_s >= 0:  # not: of NaN too
            if not counted:
                return False
            hint = blind_s
        elif retry_after_s > LONGEST_HOLD_S:
            self.closed_until = max(self.closed_until, now + retry_after_s)
            hint = LONGEST_HOLD_S
        else:
            hint = max(retry_after_s, blind_s / 2) if counted and self._episode else retry_after_s
        self.held_until = max(self.held_until, now + hint * (1.0 + HOLD_JITTER * jitter))
        if counted:
            self._episode += 1
            self._fail(RATE_LIMITED_FACTOR, self.held_until)
        return counted

    def on_overloaded(self, now: float) -> bool:
        """A 529. Returns whether it counted: at most one in five seconds does."""
        self.overloaded += 1
        self.calm = False
        if now - self._last_overload < OVERLOADED_EVERY_S:
            return False
        self._last_overload = now
        self._fail(OVERLOADED_FACTOR, max(now, self.held_until))
        return True

    def _fail(self, factor: float, recover_from: float) -> None:
        if self._episode <= 1:  # a second refusal before any success says nothing about the rate: keep the first place
            same = self._failed_at / SAME_PLACE <= self._slowdown <= self._failed_at * SAME_PLACE
            self._probe_every_s = min(self._probe_every_s * 2, LONGEST_PROBE_S) if same else PROBE_EVERY_S
            self._failed_at = self._slowdown
            self._return_to = max(self._failed_at * NEAR_FAILURE, self._held_at)
            self._held_at = 1.0
        self._slowdown = min(self._slowdown * factor, MAX_SLOWDOWN)
        self._step = FIRST_STEP
        self._last_step = recover_from
        self.epoch += 1

    def on_success(self, now: float, epoch: int | None = None) -> bool:
        """A call of `epoch` (None: of now) was served. Returns whether the slowdown or a closing changed."""
        if epoch is not None and epoch < self.epoch:
            return False
        self._episode = 0
        opened = now < self.closed_until
        self.closed_until = -inf
        if opened:
            self.held_until = min(self.held_until, now)
        changed = self._recover(now) or opened
        self.calm = self._slowdown == 1.0
        return changed

    def _recover(self, now: float) -> bool:
        elapsed = now - self._last_step
        if elapsed <= 0 or self._slowdown == 1.0:
            return False
        if self._slowdown > self._return_to:
            decay = (1.0 - DECAY_PER_S) ** min(elapsed, LONGEST_DECAY_S)
            self._slowdown = max(self._slowdown * decay, self._return_to)
        elif elapsed >= self._probe_every_s:
            self._held_at = self._slowdown
            self._slowdown = max(self._slowdown * (1.0 - self._step), 1.0)
            self._step = min(self._step * 2, LARGEST_STEP)
            if self._slowdown * SAME_PLACE < self._failed_at:
                self._probe_every_s = PROBE_EVERY_S
            if self._slowdown == 1.0:
                self._held_at = 1.0
        else:
            return False
        self._last_step = now
        return True

    def on_passed(self, now: float) -> None:
        """The first call after a hold has gone. While the pool is closed it is the probe: the next is 60 s away."""
        if now < self.closed_until:
            self.held_until = min(now + LONGEST_HOLD_S, self.closed_until)
