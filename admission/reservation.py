"""What a grant hands out: a reservation for the job and a permit for each wire request, each settled exactly once.

| permit                        | its charge                                         |
|-------------------------------|----------------------------------------------------|
| never asked for, never sent   | given back when closed, or when the job ends       |
| sent, closed                  | settled as the table in `outcome.py` says          |
| sent, not closed at job's end | stays reserved until it is closed                  |

Held accounts are given back by `Reservation.release`, once.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import TYPE_CHECKING

from interlock.errors import UndeclaredResourceError

from .charges import NOTHING, REQUEST_ONLY, Charge, arriving, settle_charge
from .demand import CallCharge, Demand, Ticket
from .outcome import CallOutcome, OutcomeKind

if TYPE_CHECKING:
    from .controller import Admission
    from .waiting import Waiting

OPEN, SENT, CLOSED = range(3)
GIVEN_BACK = (OutcomeKind.RATE_LIMITED, OutcomeKind.OVERLOADED, OutcomeKind.REJECTED)
UNSENT = CallOutcome(kind=OutcomeKind.UNSENT)


class Permit:
    """One wire request: see `CallPermit`. `reserved` is what stands charged for it, None where it is unmetered."""

    __slots__ = (
        "_admission", "_epoch", "_state", "call", "reserved", "sent_at", "undeclared", "unproduced", "waiting"
    )  # fmt: skip

    def __init__(
        self,
        admission: Admission,
        waiting: Waiting,
        call: CallCharge,
        reserved: Charge | None,
        epoch: int,
        undeclared: bool,
        granted: Charge | None,
    ) -> None:
        self._admission, self.waiting, self.call, self._epoch = admission, waiting, call, epoch
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
        if self._state == OPEN:
            self._state = SENT
            self.sent_at = now = self._admission.clock.now()
            if self.unproduced is not None:
                arrives, self.unproduced = arriving(self.call.accounting, self.unproduced)
                self._admission.left(self.call.pool, self.waiting, arrives, sent=True)
                if self.unproduced is not None:
                    self._admission.growing.begin(self, now)
            throttle = self.call.pool.limiter.throttle
            # Sent into a hold by a job that was granted before it: its 429 would be old news.
            if now >= throttle.held_until:
                self._epoch = throttle.epoch

    def close(self, outcome: CallOutcome) -> None:
        """Settle it, teach the throttle, adopt reported limits. Only the first call counts."""
        state, call = self._state, self.call
        if state == CLOSED:
            return
        self._state = CLOSED
        if call.accounting.output == "expected":
            self._admission.growing.end(self)
        if self.unproduced is not None:
            self._admission.left(call.pool, self.waiting, self.unproduced)
        if state == OPEN or outcome.kind is OutcomeKind.UNSENT:
            self._admission.settle(call.pool, self.waiting, self.reserved, NOTHING)
            return
        if outcome.kind is OutcomeKind.COMPLETED and call.pool.limiter.throttle.calm and not outcome.reported:
            self._admission.settle(call.pool, self.waiting, self.reserved, self._used(outcome), sent_at=self.sent_at)
            return
        # A hold must stand before anything is given back, or what comes back would be sent into it.
        self._admission.learn(call.pool, outcome, self._epoch, self.sent_at, self.reserved)
        drained = outcome.kind is OutcomeKind.RATE_LIMITED
        self._admission.settle(
            call.pool, self.waiting, self.reserved, self._used(outcome), drained=drained, sent_at=self.sent_at
        )

    def _used(self, outcome: CallOutcome) -> Charge:
        kind, accounting = outcome.kind, self.call.accounting
        reserved = REQUEST_ONLY if self.reserved is None else self.reserved
        if kind is not OutcomeKind.COMPLETED and kind in GIVEN_BACK:
            return REQUEST_ONLY
        if outcome.usage is None or kind is OutcomeKind.UNKNOWN:
            return reserved
        used = settle_charge(accounting, outcome.usage, reserved)
        if kind is OutcomeKind.COMPLETED and accounting.output == "expected":
            seconds = self._admission.clock.now() - self.sent_at
            self.call.pool.observe_output(self.call.key, self.waiting.demand.kind, used.output_tokens, seconds)
        return used


class Reservation:
    """What a job was granted, until `release`."""

    __slots__ = ("_admission", "_epochs", "_permits", "_unused", "_waiting", "released")

    def __init__(self, admission: Admission, waiting: Waiting) -> None:
        self._admission, self._waiting = admission, waiting
        calls = waiting.demand.calls
        if len(calls) == 1:
            call = calls[0]
            self._unused, self._epochs = [call.count], [call.pool.limiter.throttle.epoch]
        else:
            self._unused = [call.count for call in calls]
            self._epochs = [call.pool.limiter.throttle.epoch for call in calls]
        self._permits: list[Permit] = []
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
        return self._waiting.decided_at

    @property
    def waited_s(self) -> float:
        return self._waiting.decided_at - self._waiting.since

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

    def permit(self, key: Hashable, *, input_tokens: int, output_tokens: int) -> Permit:
        """The next declared call of that key. Never waits.

        A call beyond the declared ones, or after `release`, is charged whole as a debt; one larger than declared is
        charged the difference. Both are marked `undeclared`. UndeclaredResourceError for a key never declared.
        """
        waiting, calls = self._waiting, self._waiting.demand.calls
        index = 0 if len(calls) == 1 and calls[0].key is key else self._place(key)
        call, undeclared = calls[index], False
        granted: Charge | None = None
        if waiting._charges:
            declared = self._unused[index] > 0 and not self.released
            if declared:
                self._unused[index] -= 1
                granted = waiting._charges[index]
            undeclared = not declared or input_tokens > call.input_tokens or output_tokens > call.output_tokens
        reserved = granted
        if undeclared:
            call = CallCharge(
                key=call.key,
                pool=call.pool,
                accounting=call.accounting,
                input_tokens=input_tokens,
                output_tokens=output_tokens,
            )
            reserved = self._admission.charge_more(call, reserved, waiting.demand.kind)
        permit = Permit(self._admission, waiting, call, reserved, self._epochs[index], undeclared, granted)
        self._permits.append(permit)
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
        for permit in self._permits:
            if permit._state == OPEN:
                permit.close(UNSENT)
        waiting = self._waiting
        if waiting._charges and any(self._unused):
            for call, charge, unused in zip(waiting.demand.calls, waiting._charges, self._unused, strict=True):
                for _ in range(unused):
                    self._admission.left(call.pool, waiting, charge)
                    self._admission.settle(call.pool, waiting, charge, NOTHING)
        self._admission.end(waiting)
