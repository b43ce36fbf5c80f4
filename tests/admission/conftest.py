"""One admission on a clock moved by hand, and a short way to ask it for things."""

from __future__ import annotations

from typing import Any

import pytest

from interlock.admission import (
    Admission,
    CallCharge,
    CallOutcome,
    Demand,
    ManualClock,
    OutcomeKind,
    Pool,
    Reservation,
    Waiting,
)
from interlock.catalog.entry import Accounting, Limits
from interlock.catalog.usage import Usage
from interlock.errors import AdmissionError


class House:
    """An admission, its clock, and who was answered what, in order."""

    def __init__(self, clock: ManualClock | None = None, *, freeze: bool = False) -> None:
        self.clock = clock or ManualClock()
        self.admission = Admission(self.clock, jitter=lambda: 0.0, transit_s=0.0, freeze=freeze)
        self.granted: list[Reservation] = []
        self.refused: list[AdmissionError] = []
        self.answers: dict[str, Reservation | AdmissionError] = {}
        #: Whether whatever is granted is sent at once, as a job would; else nothing is until `finish`.
        self.sends = False
        self.sent: dict[Reservation, list[Any]] = {}

    def pool(self, name: str = "p", **limits: Any) -> Pool:
        return self.admission.pool(name, Limits(**limits))

    @staticmethod
    def call(pool: Pool, input_tokens: int = 1, output_tokens: int = 0, *, key: str = "k", **more: Any) -> CallCharge:
        accounting = more.pop("accounting", Accounting())
        return CallCharge(
            key=key, pool=pool, accounting=accounting, input_tokens=input_tokens, output_tokens=output_tokens, **more
        )

    def ask(
        self, *calls: CallCharge, held: tuple[Any, ...] = (), ticket: Any = None, label: str = "", **more: Any
    ) -> Waiting:
        """Submit, collecting the answer under `label`."""
        demand = Demand(calls=calls, held=held, label=label, **more)

        def granted(reservation: Reservation) -> None:
            assert label == "" or label not in self.answers, f"{label} was answered twice"
            self.answers[label] = reservation
            self.granted.append(reservation)
            if self.sends:
                calls = [call for call in demand.calls for _ in range(call.count)]
                self.sent[reservation] = [self._send(reservation, call) for call in calls]

        def refused(error: AdmissionError) -> None:
            assert label == "" or label not in self.answers, f"{label} was answered twice"
            self.answers[label] = error
            self.refused.append(error)

        return self.admission.submit(demand, granted, refused, ticket=ticket)

    @staticmethod
    def _send(reservation: Reservation, call: CallCharge) -> Any:
        permit = reservation.permit(call.key, input_tokens=call.input_tokens, output_tokens=call.output_tokens)
        permit.sent()
        return permit

    def finish(
        self,
        reservation: Reservation,
        kind: OutcomeKind = OutcomeKind.COMPLETED,
        *,
        used: tuple[int, int] | None = None,
        release: bool = True,
        **outcome: Any,
    ) -> None:
        """Send the next declared call of the first key, if it was not, and close it; then release."""
        sent = self.sent.get(reservation)
        permit = sent.pop(0) if sent else self._send(reservation, reservation.demand.calls[0])
        usage = None if used is None else Usage(input_tokens=used[0], output_tokens=used[1])
        permit.close(CallOutcome(kind=kind, usage=usage, **outcome))
        if release:
            reservation.release()

    def level(self, name: str) -> float:
        return self.admission.statistics().account(name).level

    def granted_labels(self) -> list[str]:
        return [reservation.demand.label for reservation in self.granted]


@pytest.fixture
def house() -> House:
    return House()


@pytest.fixture
def new_house() -> type[House]:
    return House
