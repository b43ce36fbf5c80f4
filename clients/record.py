"""The record of one wire request, and what the template needs from whoever reserved it."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any, Protocol

from interlock.admission.permit import CallPermit
from interlock.catalog.spec import ModelBinding
from interlock.catalog.usage import Usage
from interlock.catalog.words import Kind


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRecord:
    """One attempt of one call: a row before its result is used. None is unknown, never 0. Times are seconds."""

    kind: Kind
    model: str  # the entry's id
    provider: str
    wire_model_id: str
    served_model: str | None
    request_id: str | None
    usage: Usage
    cost: Decimal | None
    currency: str | None
    price_as_of: str | None
    started_at: datetime  # UTC
    latency_s: float
    first_piece_s: float | None
    outcome: str  # "ok", or the `code` of the error; "cancelled"
    error: str | None  # redacted text
    stop_reason: str | None
    unmetered: bool
    undeclared: bool
    request_hash: str
    text: str | None = None  # only where the deployment says so
    decision: Mapping[str, Any] | None = None  # answers that a temperature is applied to, before it and after


class CallSeat(Protocol):
    """Where a call sits: the reservation it draws on and the book it is written into. The runtime implements it."""

    @property
    def binding(self) -> ModelBinding: ...

    def permit(self, *, input_tokens: int, output_tokens: int, continuation: bool = False) -> CallPermit:
        """The right to one wire request of that size. Never waits: what was not declared is charged as debt.

        `continuation`: it goes on with a turn that the provider has paused. It is charged at once, and is not
        undeclared.
        """
        ...

    def record(self, record: CallRecord) -> Awaitable[None]:
        """Queue the row at once (also when the caller is being cancelled); await it to know it is committed."""
        ...
