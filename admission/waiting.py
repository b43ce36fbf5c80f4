"""A submitted demand, until its answer has been delivered: one small object with two callbacks."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from interlock.errors import AdmissionError

from .charges import Charge
from .demand import Demand
from .queues import REFUSED, WAITING, Group, Waiter
from .reservation import Reservation

if TYPE_CHECKING:
    from .controller import Admission

OnGrant = Callable[[Reservation], None]
OnRefuse = Callable[[AdmissionError], None]
STATES = ("waiting", "granted", "refused", "cancelled")


class Waiting(Waiter):
    """What `Admission.submit` returns. `since` and `decided_at` are instants of the clock, the latter while decided."""

    __slots__ = (
        "_admission",
        "_charges",
        "_error",
        "_on_grant",
        "_on_refuse",
        "_reservation",
        "decided_at",
        "demand",
    )

    sends = True

    def __init__(
        self,
        admission: Admission,
        demand: Demand,
        priced: tuple[Group, tuple[float, ...], tuple[Charge, ...]],
        on_grant: OnGrant,
        on_refuse: OnRefuse,
        ticket: int,
        now: float,
    ) -> None:
        # Not through Waiter.__init__: this is the hot path.
        self.group, self.amounts, self._charges = priced
        self.rank, self.ticket, self.state = -demand.priority, ticket, WAITING
        self.flow = self.share = self.waits = self._error = None
        self.since = self.parked_at = self.decided_at = now
        self._admission, self.demand = admission, demand
        self._on_grant: OnGrant | None = on_grant
        self._on_refuse: OnRefuse | None = on_refuse
        #: From the grant to its delivery. Made at the grant, for it carries the throttle's epoch of that moment.
        self._reservation: Reservation | None = None

    _error: AdmissionError | None

    def look(self) -> None:
        """What its answers are expected to put out may have been learnt while it waited."""
        if self.demand.calls and self.demand.calls[0].accounting.output == "expected" and self._charges:
            group, amounts, charges = self._admission.price(self.demand)
            if group is self.group:
                self.amounts, self._charges = amounts, charges

    @property
    def status(self) -> str:
        """`waiting`, `granted`, `refused` or `cancelled`."""
        return STATES[self.state]

    def waited_s(self, now: float) -> float:
        """Seconds it waits, or has waited until it was decided."""
        return (now if self.state == WAITING else self.decided_at) - self.since

    def cancel(self) -> bool:
        """See `Admission.cancel`."""
        return self._admission.cancel(self)

    def deliver(self) -> None:
        """Tell whoever asked. Once; nothing after a cancel."""
        grant, refuse, reservation = self._on_grant, self._on_refuse, self._reservation
        self._on_grant = self._on_refuse = self._reservation = None
        if reservation is not None and grant is not None:
            try:
                grant(reservation)
            except BaseException:
                reservation.release()
                raise
        elif self.state == REFUSED and refuse is not None and self._error is not None:
            refuse(self._error)

    def __repr__(self) -> str:
        return f"<Waiting {self.demand.label or self.demand.workflow!r} {self.status}>"
