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

from .accounts import Account
from .charges import NOTHING, REQUEST_ONLY, Charge, settle_charge
from .demand import CallCharge, Demand, Ticket
from .line import Share
from .outcome import CallOutcome, OutcomeKind
from .pool import Pool

if TYPE_CHECKING:
    from .controller import Admission

OPEN, SENT, CLOSED = range(3)
GIVEN_BACK = frozenset({OutcomeKind.RATE_LIMITED, OutcomeKind.OVERLOADED, OutcomeKind.REJECTED})


class Permit:
    """One wire request: see `CallPermit`. `reserved` is what stands charged for it (nothing where unmetered)."""

    __slots__ = (
        "_admission",
        "_call",
        "_epoch",
        "_pool",
        "_sent_at",
        "_share",
        "_state",
        "reserved",
        "undeclared",
        "unmetered",
    )

    def __init__(
        self, reservation: Reservation, call: CallCharge, reserved: Charge | None, epoch: int, undeclared: bool
    ) -> None:
        self._admission, self._share = reservation._admission, reservation._share
        self._call, self._pool, self._epoch = call, call.pool, epoch
        self.reserved = reserved
        self.undeclared = undeclared
        self.unmetered = reserved is None
        self._state = OPEN
        self._sent_at = 0.0

    @property
    def closed(self) -> bool:
        return self._state == CLOSED

    def sent(self) -> None:
        """The first byte is about to leave. A later call changes nothing."""
        if self._state == OPEN:
            self._state = SENT
            self._sent_at = now = self._admission.clock.now()
            throttle = self._pool.limiter.throttle
            if now >= throttle.held_until:
                self._epoch = throttle.epoch

    def close(self, outcome: CallOutcome) -> None:
        """Settle it, teach the throttle, adopt reported limits. Only the first call counts."""
        state = self._state
        if state == CLOSED:
            return
        self._state = CLOSED
        if state == OPEN or outcome.kind is OutcomeKind.UNSENT:
            self._admission.settle(self._pool, self.reserved, NOTHING, self._share)
        else:
            self._admission.settle(self._pool, self.reserved, self._used(outcome), self._share)
            self._admission.learn(self._pool, outcome, self._epoch, self._sent_at)

    def _used(self, outcome: CallOutcome) -> Charge:
        reserved = self.reserved or REQUEST_ONLY
        if outcome.kind in GIVEN_BACK:
            return REQUEST_ONLY
        if outcome.usage is None or outcome.kind is OutcomeKind.UNKNOWN:
            return reserved
        used = settle_charge(self._call.accounting, outcome.usage, reserved)
        if outcome.kind is OutcomeKind.COMPLETED and self._call.accounting.output == "expected":
            self._pool.observe_output(self._call.key, used.output_tokens)
        return used


class Reservation:
    """What a job was granted, until `release`. Times are the clock's seconds; `waited_by_account` adds up to `waited_s`."""

    __slots__ = (
        "_admission",
        "_charges",
        "_epochs",
        "_held",
        "_permits",
        "_released",
        "_share",
        "_unused",
        "demand",
        "granted_at",
        "ticket",
        "unmetered",
        "waited_by_account",
        "waited_s",
    )

    def __init__(
        self,
        admission: Admission,
        demand: Demand,
        charges: tuple[Charge, ...],
        held: tuple[tuple[Account, float], ...],
        share: Share | None,
        *,
        ticket: int,
        granted_at: float,
        waited_s: float,
        waited_by_account: Mapping[str, float],
        unmetered: bool,
    ) -> None:
        self._admission, self.demand, self._charges = admission, demand, charges
        self._held, self._share = held, share
        self.ticket = Ticket(ticket)
        self.granted_at, self.waited_s, self.waited_by_account = granted_at, waited_s, waited_by_account
        #: Whether it goes without a reservation of the metered accounts (`overflow="proceed"`).
        self.unmetered = unmetered
        self._unused = [call.count for call in demand.calls]
        self._epochs = [call.pool.limiter.throttle.epoch for call in demand.calls]
        self._permits: list[Permit] = []
        self._released = False

    @property
    def released(self) -> bool:
        return self._released

    def permit(self, key: Hashable, *, input_tokens: int, output_tokens: int) -> Permit:
        """The next declared call of that key. Never waits.

        A call beyond the declared ones, or after `release`, is charged whole as a debt; one larger than declared is
        charged the difference. Both are marked `undeclared`. UndeclaredResourceError for a key never declared.
        """
        index = self._place(key)
        call = self.demand.calls[index]
        asked = CallCharge(
            key=key, pool=call.pool, accounting=call.accounting, input_tokens=input_tokens, output_tokens=output_tokens
        )
        if self.unmetered:
            permit = Permit(self, asked, None, self._epochs[index], False)
        elif self._unused[index] and not self._released:
            self._unused[index] -= 1
            reserved = self._charges[index]
            larger = input_tokens > call.input_tokens or output_tokens > call.output_tokens
            if larger:
                reserved = self._admission.charge_more(asked, reserved)
            permit = Permit(self, asked, reserved, self._epochs[index], larger)
        else:
            reserved = self._admission.charge_more(asked, None)
            permit = Permit(self, asked, reserved, self._epochs[index], True)
        self._permits.append(permit)
        return permit

    def _place(self, key: Hashable) -> int:
        last = -1
        for i, call in enumerate(self.demand.calls):
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
        if self._released:
            return
        self._released = True
        for permit in self._permits:
            if permit._state == OPEN:
                permit.close(_UNSENT)
        calls: list[tuple[Pool, Charge, int]] = []
        if not self.unmetered:
            calls = [
                (call.pool, charge, unused)
                for call, charge, unused in zip(self.demand.calls, self._charges, self._unused, strict=True)
                if unused
            ]
        self._admission.end(self, calls)


_UNSENT = CallOutcome(kind=OutcomeKind.UNSENT)
