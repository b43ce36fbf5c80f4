"""The circuit breaker of a model: whether calls should go to it now, or to a backup. Pure: the time is an argument.

| state     | what happens                                         | becomes                                        |
|-----------|------------------------------------------------------|------------------------------------------------|
| closed    | everything passes; successes forget failures         | open at the third failure in a row             |
| open      | nothing passes until `opens_at`                      | half open when that instant has come           |
| half open | one probe at a time passes; the rest is routed on    | closed at the second success in a row,         |
|           |                                                      | open again, for twice as long, at one failure  |

A *failure* is the provider's own: a 429, a 529, a 5xx, a lost or cut connection, an answer that is not of the wire.
What the caller did (a bad request, a refusal, a cut-off answer, a cancel, a wait that was too long) says nothing about
the provider, and counts as neither. An account without money opens the breaker at once.

The probe's slot is a token: whoever took it gives it back, however the call ended, and a token that never comes back
expires. So a half-open breaker can never be stuck, and a thousand callers at the instant it opens are one probe.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from math import inf

FAILURES = 3
SUCCESSES = 2
FIRST_OPEN_S, LONGEST_OPEN_S = 15.0, 600.0
#: An account that has no money is asked again this rarely.
QUOTA_OPEN_S = 300.0
#: Longer than any attempt: by then whoever took the slot is gone.
PROBE_EXPIRES_S = 3_600.0

#: The words of a record (`clients.outcomes`) that are the provider's own failure.
FAILURE_CODES = frozenset(
    {
        "llm_rate_limited",
        "llm_overloaded",
        "llm_transient",
        "malformed_response",
        "empty_response",
        "stream_interrupted",
    }
)
QUOTA_CODE = "quota_exhausted"
SUCCESS_CODE = "ok"


class BreakerState(StrEnum):
    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerStatistics:
    """One model's breaker now. `opens_for_s` is how long it stays open; `trips` counts since the start."""

    model: str
    state: BreakerState
    failures: int
    opens_for_s: float
    probing: bool
    trips: int


class Breaker:
    """See above. One per model."""

    __slots__ = ("_failures", "_open_s", "_probe", "_probe_at", "_successes", "opens_at", "trips")

    def __init__(self) -> None:
        self._failures = self._successes = self.trips = 0
        self._open_s = FIRST_OPEN_S
        self._probe: object | None = None
        self._probe_at = -inf
        #: When it lets a probe through; -inf while it is closed.
        self.opens_at = -inf

    def state(self, now: float) -> BreakerState:
        if self.opens_at == -inf:
            return BreakerState.CLOSED
        return BreakerState.OPEN if now < self.opens_at else BreakerState.HALF_OPEN

    def passes(self, now: float, owner: object | None = None) -> bool:
        """Whether a call may go. `owner` has the probe's slot, perhaps."""
        state = self.state(now)
        if state is BreakerState.HALF_OPEN:
            return self._probe is None or self._probe == owner or now - self._probe_at > PROBE_EXPIRES_S
        return state is BreakerState.CLOSED

    def take_probe(self, now: float, owner: object) -> bool:
        """Make `owner` the probe, where there is one to be. Returns whether the slot is its own now."""
        if self.state(now) is not BreakerState.HALF_OPEN or not self.passes(now, owner):
            return False
        self._probe, self._probe_at = owner, now
        return True

    def give_back(self, owner: object) -> None:
        """The owner's call is over, however it ended. Nothing, if the slot is not its own."""
        if self._probe is not None and self._probe == owner:
            self._probe = None

    def heard(self, now: float, code: str) -> bool:
        """One request has ended with the word `code` of its record. Returns whether the state changed."""
        if code == SUCCESS_CODE:
            return self._succeeded(now)
        if code == QUOTA_CODE:
            self._trip(now, QUOTA_OPEN_S)
            return True
        return code in FAILURE_CODES and self._failed(now)

    def _succeeded(self, now: float) -> bool:
        self._failures = 0
        if self.state(now) is not BreakerState.HALF_OPEN:
            return False  # one that was sent before it opened proves nothing about now
        self._successes += 1
        if self._successes < SUCCESSES:
            return False
        self.opens_at, self._open_s, self._successes = -inf, FIRST_OPEN_S, 0
        return True

    def _failed(self, now: float) -> bool:
        state = self.state(now)
        if state is BreakerState.OPEN:
            return False  # a straggler
        self._failures += 1
        if state is BreakerState.HALF_OPEN:
            self._open_s = min(self._open_s * 2, LONGEST_OPEN_S)
        elif self._failures < FAILURES:
            return False
        self._trip(now, self._open_s)
        return True

    def _trip(self, now: float, open_s: float) -> None:
        self.opens_at = max(self.opens_at, now + open_s)
        self._successes = 0
        self.trips += 1

    def statistics(self, model: str, now: float) -> BreakerStatistics:
        return BreakerStatistics(
            model=model,
            state=self.state(now),
            failures=self._failures,
            opens_for_s=max(self.opens_at - now, 0.0),
            probing=self._probe is not None,
            trips=self.trips,
        )
