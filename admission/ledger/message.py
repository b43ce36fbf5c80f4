"""What a process says to the ledger and what it hears: one message in flight, the next waits for its reply.

    message = Message(owner=ledger.owner, fence=ledger.fence, seq=7, settles=(...,), asks=(...,))
    reply = await ledger.exchange(message)          # or the same message again, after an answer that never came

An amount is a `Charge`: a call counted in each way a limit may count it (requests, tokens, input, output), so that a
message means the same whatever limits its pools have by the time it arrives. The ledger takes of it what its pools
have limits for. Times are durations in seconds: nobody's clock but the ledger's own is ever compared.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from math import inf

from interlock.catalog.entry import Limits

from ..charges import NOTHING, Charge
from ..outcome import Dimension, ReportedLimit

#: Asks in one message, at most.
MOST_ASKS = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolTerms:
    """A pool and the limits it is to have, as the catalog states them. The latest that was registered counts."""

    name: str
    limits: Limits


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What one demand wants of one pool: all its calls there together, and `slots` of the pool's `max_concurrent`."""

    pool: str
    charge: Charge
    slots: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """One demand: all of its parts at once or nothing, each pool named once.

    `key` is its own in its process for as long as it waits (its ticket): what is asked again under the same key keeps
    its place. `priority`: higher goes first.
    """

    key: int
    parts: tuple[Part, ...]
    priority: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Settle:
    """What has become of grants in one pool since the last message, all of them together. One per pool and message.

    | field   | what is summed in it                                                                               |
    |---------|----------------------------------------------------------------------------------------------------|
    | `back`  | reserved minus used. Below 0: used beyond the reservation, or without one; a debt                   |
    | `day`   | the same for limits per day: what has come back to the minute's by itself has not come back to the  |
    |         | day's, and a day that has begun since the call was sent gets nothing back                           |
    | `eased` | reserved minus used of calls refused with a 429, not below 0: it only eases a debt, for the refusal |
    |         | says that the provider's bucket is empty. Not for limits per day                                    |
    | `sent`  | of what was granted: has left for the provider, and arrives within the time of transit              |
    | `left`  | of what was granted: has been taken by the provider, or will never be sent                          |
    | `slots` | calls that have ended                                                                               |

    A grant that nobody wants any more is `back`, `day`, `left` and `slots`, all of it. Whatever is granted must come
    back as `sent` or `left` some time: until then a level does not refill above what it holds without it.
    """

    pool: str
    back: Charge = NOTHING
    eased: Charge = NOTHING
    sent: Charge = NOTHING
    left: Charge = NOTHING
    slots: int = 0
    day: Charge = NOTHING


class SignalKind(StrEnum):
    SUCCEEDED = "succeeded"
    RATE_LIMITED = "rate_limited"
    OVERLOADED = "overloaded"
    DAY_SPENT = "day_spent"
    REPORTED = "reported"


@dataclass(frozen=True, slots=True, kw_only=True)
class Signal:
    """What the end of one call says about its pool, for the throttle: see `TokenBucketRateLimiter`.

    `epoch` is the pool's when the call was sent (None: now). `retry_after_s` and `asked`, what the refused call had
    reserved, go with RATE_LIMITED and DAY_SPENT; `jitter`, in [0, 1), with RATE_LIMITED. `reported` are the provider's
    headers, of a request sent `sent_ago_s` before this message; they may stand beside any kind. A success says nothing
    to a pool that is `calm`, and need not be told.
    """

    pool: str
    kind: SignalKind
    epoch: int | None = None
    retry_after_s: float | None = None
    jitter: float = 0.0
    asked: Charge = NOTHING
    reported: Mapping[Dimension, ReportedLimit] = field(default_factory=dict)
    sent_ago_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """In this order: the signals, the settles, then the asks, looked at one after the other.

    `seq` starts at 1 and grows by 1. A message sent again gets the reply that it got, and changes nothing twice.
    The first ask that is refused in a pool closes that pool for the rest of the message and becomes this owner's claim
    there. A claim lasts for as long as it is asked again: a message that touches its pool (`watch` is enough) without
    being refused there drops it, and it lapses by itself 2 s after it would have fitted.
    """

    owner: str
    fence: int
    seq: int
    signals: tuple[Signal, ...] = ()
    settles: tuple[Settle, ...] = ()
    asks: tuple[Ask, ...] = ()
    #: Pools whose state is to be in the reply besides those named above.
    watch: tuple[str, ...] = ()

    def pools(self) -> list[str]:
        """The names of all pools it touches, in order: the order in which they are locked."""
        names = {part.pool for ask in self.asks for part in ask.parts}
        names.update(settle.pool for settle in self.settles)
        names.update(signal.pool for signal in self.signals)
        names.update(self.watch)
        return sorted(names)


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelState:
    """One limit of a pool, after the message.

    `dimension` as in `TokenBucketRateLimiter.levels`, or `open` (no limit per minute is known). `free`: what could be
    taken, below 0 a debt, whatever holds or claims say. `full_ago_s`: since something was last taken of it while it was
    full (inf: never); what was sent before that gives nothing back. `opened_ago_s`: of a limit per day with a reset,
    since when the day counts; what was sent before gives nothing back either. `used`: of such a limit, this day's.
    """

    dimension: str
    capacity: float
    published_rate_per_s: float
    free: float
    full_ago_s: float = inf
    opened_ago_s: float = inf
    used: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolState:
    """A pool as it stands after the message, for everyone.

    `hold_in_s`: nothing passes for so long, 0 where it is open. `closed_in_s`: only probes pass for so long. `epoch`,
    `slowdown` and `calm` are the throttle's. `slots`: of `max_concurrent`, and how many of them are out, here and
    elsewhere (None: no such limit).
    `fit_in_s`: only where an ask was refused: when the claim fits if nobody gives anything back; inf where only that
    helps, or a limit that grows. Others do give back: ask again every tenth of a second or so, and at that instant.
    `claims`: how many other owners have an unmet claim here.
    """

    pool: str
    version: int
    epoch: int
    hold_in_s: float
    closed_in_s: float
    slowdown: float
    calm: bool
    levels: tuple[LevelState, ...]
    slots: tuple[int, int] | None = None
    fit_in_s: float | None = None
    claims: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """`granted`: the places in `message.asks` that were granted, in order. `pools`: every pool it touched, by name."""

    seq: int
    granted: tuple[int, ...]
    pools: Mapping[str, PoolState]
