"""What a grant hands out: a reservation for the job and a permit for each wire request, each settled exactly once.

| permit                        | its charge                                         |
|-------------------------------|----------------------------------------------------|
| never asked for, never sent   | given back when closed, or when the job ends       |
| sent, closed                  | settled as the table in `outcome.py` says          |
| sent, not closed at job's end | stays reserved until it is closed                  |

Held accounts are given back by `Reservation.release`, once.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING

from interlock.errors import UndeclaredResourceError

from .charges import NOTHING, REQUEST_ONLY, Charge, arriving, settle_charge
from .demand import CallCharge, Demand, Ticket
from .outcome import CallOutcome, OutcomeKind

if TYPE_CHECKING:
    from .settling import Settling
    from .waiting import Waiting

OPEN, SENT, CLOSED = range(3)
# By names of this module: a member of an Enum is slow to look up, and a close asks for six.
COMPLETED, RATE_LIMITED, UNKNOWN, UNSENT = (
    OutcomeKind.COMPLETED, OutcomeKind.RATE_LIMITED, OutcomeKind.UNKNOWN, OutcomeKind.UNSENT
)  # fmt: skip
GIVEN_BACK = (OutcomeKind.RATE_LIMITED, OutcomeKind.OVERLOADED, OutcomeKind.REJECTED)
NEVER_SENT = CallOutcome(kind=UNSENT)


class Permit:
    """One wire request: see `CallPermit`. `reserved` is what stands charged for it, None where it is unmetered."""

    __slots__ = (
        "_epoch",
        "_settling",
        "_state",
        "call",
        "reserved",
        "sent_at",
        "undeclared",
        "unproduced",
        "waiting"
    )  # fmt: skip

    def __init__(
        self,
        settling: Settling,
        waiting: Waiting,
        call: CallCharge,
        reserved: Charge | None,
        epoch: int,
        undeclared: bool,
        granted: Charge | None,
    ) -> None:
        self._settling, self.waiting, self.call, self._epoch = settling, waiting, call, epoch
        #: What of the grant the provider has not taken from its bucket yet; None: nothing.
        self.unproduced = granted
        self.reserved, self.undeclared = reserved, undeclared
        self._state, self.sent_at = OPEN, 0.0

    @property
    def unmetered(self) -> bool:
        return self.reserved is None

    @property
    def closed(self) -> bool:
        return self._state == CLOSED

    def sent(self) -> None:
        """The first byte is about to leave. A later call changes nothing."""
        if self._state != OPEN:
            return
        self._state = SENT
        settling, call, granted = self._settling, self.call, self.unproduced
        self.sent_at = now = settling.now()
        if granted is not None:
            if call.accounting.output == "expected":
                granted, self.unproduced = arriving(call.accounting, granted)
                settling.growing.begin(self, now)
            else:
                self.unproduced = None
            settling.left(call.pool, self.waiting, granted, now, sent=True)
        throttle = call.pool.limiter.throttle
        # Sent into a hold by a job that was granted before it: its 429 would be old news.
        if now >= throttle.held_until:
            self._epoch = throttle.epoch

    def close(self, outcome: CallOutcome) -> None:
        """Settle it, teach the throttle, adopt reported limits. Only the first call counts."""
        state, settling, call, waiting = self._state, self._settling, self.call, self.waiting
        if state == CLOSED:
            return
        self._state = CLOSED
        now, pool, kind, reserved = settling.now(), call.pool, outcome.kind, self.reserved
        if call.accounting.output == "expected":
            settling.growing.end(self)
        if self.unproduced is not None:
            settling.left(pool, waiting, self.unproduced, now)
        if state == OPEN or kind is UNSENT:
            settling.settle(pool, waiting, reserved, NOTHING, now)
            return
        if kind is not COMPLETED or outcome.reported or not pool.limiter.throttle.calm:
            # A hold must stand before anything is given back, or what comes back would be sent into it.
            settling.learn(pool, outcome, self._epoch, self.sent_at, reserved)
        used = self._used(kind, outcome, now)
        grows = call.accounting.output == "expected"  # charged as it grows, and not when it was sent
        settling.settle(pool, waiting, reserved, used, now, self.sent_at, kind is RATE_LIMITED, grows)

    def _used(self, kind: OutcomeKind, outcome: CallOutcome, now: float) -> Charge:
        reserved, usage, call = self.reserved or REQUEST_ONLY, outcome.usage, self.call
        if kind is not COMPLETED and kind in GIVEN_BACK:
            return REQUEST_ONLY
        if usage is None or kind is UNKNOWN:
            return reserved
        used = settle_charge(call.accounting, usage, reserved)
        if kind is COMPLETED and call.accounting.output == "expected":
            call.pool.observe_output(call.key, self.waiting.demand.kind, used.output_tokens, now - self.sent_at)
        return used


class Reservation:
    """What a job was granted, until `release`."""

    __slots__ = ("_epochs", "_first", "_more", "_settling", "_unused", "_waiting", "released")

    def __init__(self, settling: Settling, waiting: Waiting, calls: tuple[CallCharge, ...]) -> None:
        self._settling, self._waiting = settling, waiting
        #: Of each of its calls, for how many no permit was asked yet.
        self._unused: tuple[int, ...] = (1,)
        if len(calls) == 1 and calls[0].count == 1:
            self._epochs: tuple[int, ...] = (calls[0].pool.limiter.throttle.epoch,)
        else:
            self._unused = tuple([call.count for call in calls])
            self._epochs = tuple([call.pool.limiter.throttle.epoch for call in calls])
        self._first: Permit | None = None  # most jobs ask for one
        self._more: Sequence[Permit] = ()
        self.released = False

    @property
    def demand(self) -> Demand:
        return self._waiting.demand

    @property
    def ticket(self) -> Ticket:
        """Its place in the line: hand it to `submit` when the job comes back."""
        return Ticket(self._waiting.ticket)

    @property
    def granted_at(self) -> float:
        """The clock's instant of the grant."""
        return self._waiting.seen_at

    @property
    def waited_s(self) -> float:
        return self._waiting.seen_at - self._waiting.since

    @property
    def waited_by_account(self) -> Mapping[str, float]:
        """Seconds waited, by the account it was short of; behind others of its kind, by its leading account."""
        waits, waited = self._waiting.waits, self.waited_s
        if waits is not None:
            return waits
        return {self._waiting.group.lead.name: waited} if waited else {}

    @property
    def unmetered(self) -> bool:
        """Whether it goes without a reservation of the metered accounts (`overflow="proceed"`)."""
        return bool(self._waiting.demand.calls) and not self._waiting._charges

    def permit(self, key: Hashable, *, input_tokens: int, output_tokens: int, continuation: bool = False) -> Permit:
        """The next declared call of that key. Never waits.

        A call beyond the declared ones, or after `release`, is charged whole as a debt; one larger than declared is
        charged the difference. Both are marked `undeclared`. UndeclaredResourceError for a key never declared.

        A `continuation` goes on with a declared call that its provider has paused: it is charged whole as well, but
        nobody could have declared it, and it takes none of the declared calls.
        """
        waiting, calls = self._waiting, self._waiting.demand.calls
        index = 0 if len(calls) == 1 and calls[0].key is key else self._place(key)
        call, further, undeclared = calls[index], False, False
        granted: Charge | None = None
        if waiting._charges:
            unused = self._unused
            declared = unused[index] > 0 and not self.released and not continuation
            if declared:
                self._unused = (0,) if unused == (1,) else (*unused[:index], unused[index] - 1, *unused[index + 1 :])
                granted = waiting._charges[index]
            further = not declared or input_tokens > call.input_tokens or output_tokens > call.output_tokens
            undeclared = further and not continuation
        reserved = granted
        if further:
            call = CallCharge(
                key=call.key,
                pool=call.pool,
                accounting=call.accounting,
                input_tokens=input_tokens,
                output_tokens=output_tokens,
            )
            reserved = self._settling.charge_more(call, reserved, waiting.demand.kind)
        permit = Permit(self._settling, waiting, call, reserved, self._epochs[index], undeclared, granted)
        if self._first is None:
            self._first = permit
        elif isinstance(self._more, list):
            self._more.append(permit)
        else:
            self._more = [permit]
        return permit

    def _place(self, key: Hashable) -> int:
        """The declared calls of that key; where several say it, those with one left."""
        last = -1
        for i, call in enumerate(self._waiting.demand.calls):
            if call.key is key or call.key == key:
                last = i
                if self._unused[i]:
                    break
        if last < 0:
            name = self.demand.label or "the job"
            raise UndeclaredResourceError(f"{name} asks for a call of {key}, which its demand does not declare")
        return last

    def release(self) -> None:
        """The end of the job. Everything not sent is given back, and all that is held. A later call changes nothing."""
        if self.released:
            return
        self.released = True
        if self._first is not None and self._first._state == OPEN:
            self._first.close(NEVER_SENT)
        for permit in self._more:
            if permit._state == OPEN:
                permit.close(NEVER_SENT)
        for unused in self._unused:
            if unused:
                self._give_back()
                break
        self._settling.end(self._waiting)

    def _give_back(self) -> None:
        """What its calls were granted for which no permit was asked."""
        settling, waiting = self._settling, self._waiting
        now = settling.now()
        for call, charge, unused in zip(waiting.demand.calls, waiting._charges or (), self._unused):  # noqa: B905 - none where unmetered
            for _ in range(unused):
                settling.left(call.pool, waiting, charge, now)
                settling.settle(call.pool, waiting, charge, NOTHING, now)
