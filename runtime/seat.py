"""JobSeat: where a client's call sits. It draws on the job's reservation and is written into the job's book."""

from __future__ import annotations

import logging
from collections.abc import Awaitable
from typing import TYPE_CHECKING

from interlock.admission.outcome import CallOutcome, OutcomeKind
from interlock.clients.abstract import DECLARED_SLACK, DECLARED_SLACK_TOKENS
from interlock.errors import InvalidRequestError, TransactionOpenError

if TYPE_CHECKING:
    from interlock.admission.permit import CallPermit
    from interlock.catalog.spec import ModelBinding
    from interlock.clients.record import CallRecord

    from .resources import JobResources

log = logging.getLogger("interlock.runtime")


class JobSeat:
    """The runtime's `CallSeat`."""

    __slots__ = ("_binding", "_resources")

    def __init__(self, resources: JobResources, binding: ModelBinding) -> None:
        self._resources, self._binding = resources, binding

    @property
    def binding(self) -> ModelBinding:
        return self._binding

    def permit(self, *, input_tokens: int, output_tokens: int, continuation: bool = False) -> CallPermit:
        """Raises TransactionOpenError, what the job was stopped with, and under `strict_declarations`
        InvalidRequestError for a call that was not declared. All before anything is sent."""
        resources = self._resources
        resources.stopper.check()
        self._check_transactions()
        input_tokens = self._as_declared(input_tokens)
        permit = resources.reservation_permit(self._binding, input_tokens, output_tokens, continuation=continuation)
        if permit.undeclared:
            self._undeclared(permit, input_tokens, output_tokens)
        return permit

    def _as_declared(self, tokens: int) -> int:
        """The model's correction may have moved since the declaration: what was no larger then is what was declared."""
        declared, raw = self._binding.input_tokens, self._binding.raw_input_tokens
        if tokens <= declared:
            return tokens
        within = tokens <= declared * DECLARED_SLACK + DECLARED_SLACK_TOKENS
        same = raw is not None and getattr(tokens, "raw", tokens) <= raw
        return declared if within or same else tokens

    def record(self, record: CallRecord) -> Awaitable[None]:
        return self._resources.record(record)

    def _check_transactions(self) -> None:
        for name in self._resources.open_transactions():
            raise TransactionOpenError(
                f"job {self._resources.job_name} called {self._binding.entry.id} after its transaction on {name!r} had"
                " begun, so a connection would stand idle while the model answers: call the model first, or declare"
                " require_database(..., hold_transaction=True)"
            )

    def _undeclared(self, permit: CallPermit, input_tokens: int, output_tokens: int) -> None:
        binding, resources = self._binding, self._resources
        message = (
            f"job {resources.job_name} declared {binding.calls} call(s) of {binding.entry.id} with"
            f" {binding.input_tokens} input and {binding.output_tokens} output tokens, and makes one beyond that with"
            f" {input_tokens} and {output_tokens}"
        )
        if resources.strict:
            permit.close(CallOutcome(kind=OutcomeKind.UNSENT))
            raise InvalidRequestError(message, model=binding.entry.id, provider=binding.entry.provider, sent=False)
        resources.warn_once(message)
