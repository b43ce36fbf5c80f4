"""A submitted demand, until its answer has been delivered: one small object with two callbacks."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from interlock.errors import InterlockError

from .charges import Charge
from .demand import Demand
from .queues import GRANTED, WAITING, Group, Waiter
from .reservation import Reservation

if TYPE_CHECKING:
    from .controller import Admission

OnGrant = Callable[[Reservation], None]
OnRefuse = Callable[[InterlockError], None]
#: As users see them, by number: whoever is being checked waits too.
STATES = ("waiting", "granted", "refused", "cancelled", "waiting")


class Waiting(Waiter):
    """What `Admission.submit` returns. A million may wait, so it is small."""

    __slots__ = ("_admission", "_answer", "_charges", "_on_grant", "_on_refuse", "demand")

    sends = True

    def __init__(
        self,
        admission: Admission,
        demand: Demand,
        group: Group,
        amounts: tuple[float, ...],
        charges: tuple[Charge, ...],
        on_grant: OnGrant,
        on_refuse: OnRefuse,
        ticket: int,
        now: float,
    ) -> None:
        # Not through Waiter.__init__: this is the hot path.
        self.group, self.amounts, self.rank, self.ticket, self.state = group, amounts, -demand.priority, ticket, WAITING
        self.flow = self.share = self.waits = self._answer = None
        self.since = self.seen_at = now
        self._admission, self.demand = admission, demand
        self._on_grant: OnGrant | None = on_grant
        self._on_refuse: OnRefuse | None = on_refuse
        #: What each of its calls is charged, empty where it goes unmetered. None while it waits and they follow from
        #: the calls alone: then they are made again at the grant.
        self._charges: tuple[Charge, ...] | None = charges

    #: From the decision to its delivery. A reservation is made at the grant: it carries the epoch of that moment.
    _answer: Reservation | InterlockError | None

    def look(self) -> None:
        """What its answers are expected to put out may have been learnt while it waited."""
        if self._charges and any(call.accounting.output == "expected" for call in self.demand.calls):
            group, amounts, charges = self._admission.price(self.demand)
            if group is self.group:
                self.amounts, self._charges = amounts, charges

    @property
    def status(self) -> str:
        """`waiting`, `granted`, `refused` or `cancelled`."""
        return STATES[self.state]

    def waited_s(self, now: float) -> float:
        """Seconds it waits, or has waited until it was decided."""
        return (now if self.state == WAITING else self.seen_at) - self.since

    def too_late(self, deadline: float) -> bool:
        """Whether its own earliest fit is after that instant."""
        for account, n in zip(self.group.accounts, self.amounts, strict=True):
            if account.metered and not account.fit_at(self.since, n, first=True) <= deadline:  # not: of NaN too
                return True
        return False

    def cancel(self) -> bool:
        """See `Admission.cancel`."""
        return self._admission.cancel(self)

    def deliver(self) -> None:
        """Tell whoever asked. Once; nothing after a cancel."""
        answer, grant, refuse = self._answer, self._on_grant, self._on_refuse
        self._on_grant = self._on_refuse = self._answer = None
        if answer is None or grant is None or refuse is None:
            return
        if self.state != GRANTED:
            refuse(answer)  # type: ignore[arg-type]
            return
        try:
            grant(answer)  # type: ignore[arg-type]
        except BaseException:
            answer.release()  # type: ignore[union-attr]
            raise

    def __repr__(self) -> str:
        return f"<Waiting {self.demand.label or self.demand.workflow!r} {self.status}>"
