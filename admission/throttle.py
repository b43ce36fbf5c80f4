"""The throttle of a pool: what its provider's refusals teach. Pure: the time is an argument.

A published limit is not what is served: accounts are smaller than the page says, others share them, and a provider
short of capacity serves less to everyone. So a pool's refill is divided by a slowdown s in [1, 10]. It is the product
of two: what the 429s have measured, and a passing one for overload.

429
    The pool is held for the provider's hint (jitter only adds; without one, or with a hint of 0, which tells nothing,
    1 s, doubling within an episode, until something succeeds) and its levels drop to at most 0. A hint is always waited
    out, but after a refusal that followed one it is not believed to be enough: from the second of an episode the hold
    is at least 1 s, 2 s, 4 s, ... The drain matters more than any formula: after a 429 the provider has next to nothing
    left, and whatever our level says is wrong. At the end of a hint that is believed one call goes, and as much of it
    as was refused is no debt: the hint says that it is there. The rest follow the refill, so there is no herd.

Measuring
    A refusal says that the provider's bucket was empty, but for less than the call that was refused. So between two of
    them it served exactly what it refilled: what was sent meanwhile over the time gone by *is* its rate, the more
    exactly the longer that time (and with a hint, which says how much was missing, within a second of it). The next
    rate is that, less `MARGIN`; there is nothing to search. A short measurement (under `EXACT_FROM` calls of the size
    refused) is a rough one, and cuts to no less than `DEEPEST_CUT`; each cuts to no more than `SHALLOWEST_CUT`, the
    first one, which measured from a burst, to no more than `UNMEASURED_CUT`. This happens once per *epoch*: a grant
    carries the number of the last change, and a refusal of a call from before it (of many in flight, most are) cuts
    nothing twice; its hint still prolongs the hold.

Probing
    That a limit has opened can be found only by asking for more than it gave, which costs a refusal where it has not:
    so probes are paid for. After a measurement the rate stays for `QUIET_FACTOR` times as long as was measured (a rough
    measurement is soon made again, a good one is kept), `LONGEST_QUIET_S` at most, or until `CALLS_A_PROBE` calls have
    been served, which keeps the refusals below one in so many. Then it climbs by 4%, 8%, 16%, ... every three seconds,
    until it is refused or the published rate is reached: from 30% to 100% in some twenty seconds. The climb is by time,
    gated on a success of a call sent since the last change (recovery by counting successes collapses where calls are
    slow: the slower the pool, the fewer there are to count).

A hint above 60 s
    closes the pool: one probe passes every 60 s, until a probe succeeds or the hint has run out.

529
    says nothing about our rate. The passing slowdown grows by 1.6, at most once in five seconds, and decays by 9% a
    second while calls succeed: a trickle of 529s costs a fifth of the rate, a provider that answers nothing else is
    called ten times less. Nothing is held or drained.

The numbers were settled on by simulation: benchmarks/admission/settling.py has the table, docs/throttle.md the reasons.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import Any

MAX_SLOWDOWN = 10.0
LONGEST_HOLD_S = 60.0
HOLD_JITTER = 0.1  # of the hint
FIRST_HOLD_S = 1.0
LONGEST_BLIND_HOLDS = 6  # doublings without a hint: 64 s, cut at the longest hold

MARGIN = 0.01
DEEPEST_CUT, SHALLOWEST_CUT = 0.4, 0.97
EXACT_FROM = 8.0  # times the size of the refused call
UNMEASURED_CUT = 0.75
QUIET_FACTOR, SHORTEST_QUIET_S, LONGEST_QUIET_S = 3.0, 5.0, 900.0
CALLS_A_PROBE = 250
FIRST_STEP, LARGEST_STEP, STEP_EVERY_S = 0.04, 0.64, 3.0

OVERLOADED_FACTOR = 1.6
OVERLOADED_EVERY_S = 5.0
OVERLOAD_DECAY_PER_S = 0.09


class Throttle:
    """See above. `held_until` and `closed_until` are instants, -inf where there is none; `epoch` counts the changes.

    `rate_limited` and `overloaded` count every 429 and 529 that was reported.
    """

    __slots__ = (
        "_drained",
        "_episode",
        "_last_overload",
        "_last_step",
        "_limit",
        "_measured_from",
        "_overload",
        "_overload_at",
        "_quiet_until",
        "_refilled_at",
        "_refilled_s",
        "_rest_s",
        "_served",
        "_step",
        "believed",
        "calm",
        "closed_until",
        "epoch",
        "held_until",
        "overloaded",
        "rate_limited",
    )

    def __init__(self, now: float = 0.0) -> None:
        self.epoch = self.rate_limited = self.overloaded = 0
        self.held_until = self.closed_until = -inf
        #: Whether a success has nothing to tell it.
        self.calm = True
        #: Whether the last hold is the provider's own hint, and there is no reason to doubt it.
        self.believed = False
        self._limit = self._overload = 1.0  # the two slowdowns
        self._episode = 0  # counted 429s since the last success
        # The measurement: since when, what was refilled meanwhile (in seconds of the published rate), and the size of
        # the call whose refusal began it.
        self._measured_from = self._refilled_at = now
        self._refilled_s = self._rest_s = 0.0
        self._drained = False
        # The probe: not before, calls served since, the next step, and when the last was.
        self._quiet_until, self._served, self._step, self._last_step = -inf, 0, FIRST_STEP, -inf
        self._last_overload = self._overload_at = -inf

    def to_state(self) -> dict[str, Any]:
        """All it knows, as JSON can carry it (with `Infinity`)."""
        return {name: getattr(self, name) for name in self.__slots__}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Throttle:
        """The throttle that said so. What it does not say is as in a fresh one."""
        throttle = cls()
        for name in cls.__slots__:
            if name in state:
                setattr(throttle, name, state[name])
        return throttle

    def slowdown(self, now: float) -> float:
        """What the refill is divided by, in [1, 10]. It changes only when something is reported."""
        return min(self._limit * self._overload, MAX_SLOWDOWN)

    def restore(self, now: float, *, slowdown: float, held_until: float, closed_until: float) -> None:
        """What an earlier process had learnt: it is believed until this one learns better."""
        self._limit = min(max(slowdown, 1.0), MAX_SLOWDOWN)
        self.held_until, self.closed_until = max(self.held_until, held_until), max(self.closed_until, closed_until)
        self._last_step = self._measured_from = self._refilled_at = max(now, self.held_until)
        self.calm = self._limit == 1.0 and not self.closed(now)

    def mirror(self, slowdown: float) -> None:
        """What is shared with other processes, and decided elsewhere."""
        self._limit, self._overload = slowdown, 1.0

    def closed(self, now: float) -> bool:
        """Whether a hint above 60 s is still in force: only a probe passes."""
        return now < self.closed_until

    def on_rate_limited(
        self,
        now: float,
        retry_after_s: float | None = None,
        epoch: int | None = None,
        jitter: float = 0.0,
        *,
        kept_s: float | None = None,
        asked_s: float = 0.0,
    ) -> bool:
        """A 429 of a call of `epoch` (None: of now). Returns whether it counted; a straggler's does not.

        `retry_after_s` is the provider's hint, `jitter` a number in [0, 1). In seconds of the published rate, `asked_s`
        is what was refused, and `kept_s` what of the refill since the last drain has not been sent (None: not known).
        """
        self.rate_limited += 1
        self.calm = False
        counted = epoch is None or epoch >= self.epoch
        blind_s = min(FIRST_HOLD_S * 2.0 ** min(self._episode, LONGEST_BLIND_HOLDS), LONGEST_HOLD_S)
        if retry_after_s is None or not retry_after_s > 0:  # not: of NaN too; and 0 tells nothing
            retry_after_s = None
            if not counted:
                return False
            hint = blind_s
        elif retry_after_s > LONGEST_HOLD_S:
            self.closed_until = max(self.closed_until, now + retry_after_s)
            hint = LONGEST_HOLD_S
        else:
            hint = max(retry_after_s, blind_s / 2) if counted and self._episode else retry_after_s
        self._refill(now)
        self.held_until = max(self.held_until, now + hint * (1.0 + HOLD_JITTER * jitter))
        self.believed = counted and self._episode == 0 and retry_after_s is not None
        if counted:
            self._episode += 1
            if self._episode == 1:  # a second refusal before any success says nothing about the rate
                self._cut(now, retry_after_s, kept_s, asked_s)
            self._begin(now)
            self.epoch += 1
        return counted

    def _refill(self, now: float) -> None:
        """Count what the levels have refilled by now; nothing does during a hold."""
        since = max(self._refilled_at, self.held_until)
        if now > since:
            self._refilled_s += (now - since) / self.slowdown(now)
        self._refilled_at = now

    def _cut(self, now: float, hint_s: float | None, kept_s: float | None, asked_s: float) -> None:
        """To the rate that was really served, or to a guess where that could not be measured."""
        share, lasted_s = 1.0 / self._limit, now - self._measured_from
        new = share * UNMEASURED_CUT
        rest_s = asked_s / 2  # what the provider had left: less than was asked of it
        if kept_s is None or lasted_s <= 0:
            lasted_s = 0.0
        else:
            sent_s = self._refilled_s - kept_s - self._rest_s
            served = (sent_s + rest_s) / lasted_s
            if hint_s is not None and hint_s * served <= asked_s + served:
                # After the hint it would have been there: that is more exact.
                served = (sent_s + asked_s) / (lasted_s + hint_s)
                rest_s = min(max(asked_s - hint_s * served, 0.0), asked_s)
            new = served * (1.0 - MARGIN)
            if sent_s < EXACT_FROM * asked_s:
                new = max(new, share * DEEPEST_CUT)
            new = min(new, share * (SHALLOWEST_CUT if self._drained else UNMEASURED_CUT))
        self._limit = min(1.0 / new, MAX_SLOWDOWN) if new > 0 else MAX_SLOWDOWN
        quiet_s = min(max(QUIET_FACTOR * lasted_s, SHORTEST_QUIET_S), LONGEST_QUIET_S)
        self._quiet_until = self.held_until + (quiet_s if self._drained else SHORTEST_QUIET_S)
        self._rest_s, self._drained = rest_s, True

    def _begin(self, now: float) -> None:
        """Measure from here, where the provider has next to nothing left."""
        self._measured_from, self._refilled_s = now, 0.0
        self._served, self._step, self._last_step = 0, FIRST_STEP, self.held_until

    def close(self, now: float, closed_s: float, probe_s: float) -> None:
        """Close it for `closed_s` seconds but for a probe after `probe_s`: not for its rate, which is left as it is."""
        self._refill(now)
        self.calm = False
        self.closed_until = max(self.closed_until, now + closed_s)
        self.held_until = max(self.held_until, now + probe_s)

    def on_overloaded(self, now: float) -> bool:
        """A 529. Returns whether it counted: at most one in five seconds does."""
        self.overloaded += 1
        self.calm = False
        if now - self._last_overload < OVERLOADED_EVERY_S:
            return False
        self._refill(now)
        self._last_overload = self._overload_at = now
        self._overload = min(self._overload * OVERLOADED_FACTOR, MAX_SLOWDOWN)
        self.epoch += 1
        return True

    def on_success(self, now: float, epoch: int | None = None) -> bool:
        """A call of `epoch` (None: of now) was served. Returns whether the slowdown or a closing changed."""
        if epoch is not None and epoch < self.epoch:
            return False
        self._episode = 0
        opened = now < self.closed_until
        self.closed_until = -inf
        if opened:
            self._refill(now)
            self.held_until = min(self.held_until, now)
        self._refill(now)
        before = self._limit, self._overload
        self._calm_down(now)
        self._climb(now)
        self.calm = self._limit == self._overload == 1.0
        return opened or before != (self._limit, self._overload)

    def _calm_down(self, now: float) -> None:
        if self._overload > 1.0 and now > self._overload_at:
            self._overload = max(self._overload * (1.0 - OVERLOAD_DECAY_PER_S) ** (now - self._overload_at), 1.0)
            self._overload_at = now

    def _climb(self, now: float) -> None:
        self._served += 1
        if self._limit == 1.0 or now < self._last_step + STEP_EVERY_S:
            return
        if now < self._quiet_until and self._served < CALLS_A_PROBE:
            return
        self._limit = max(self._limit / (1.0 + self._step), 1.0)
        self._step = min(self._step * 2, LARGEST_STEP)
        self._quiet_until, self._last_step = now, now

    def on_passed(self, now: float) -> None:
        """The first call after a hold has gone. While the pool is closed it is the probe: the next is 60 s away."""
        if now < self.closed_until:
            self._refill(now)
            self.held_until = min(now + LONGEST_HOLD_S, self.closed_until)
