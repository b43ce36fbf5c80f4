"""The spans: a run, a job, its waits, its requests.

A waiting job has no span, as it has no Task: the span of a job begins at its first grant, with the time at which it
stood in the line as its start. From then on it is the current span of the job's own code, in threads too.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextvars import Context
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from opentelemetry import context as otel_context, trace
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, TracerProvider

from interlock.clients.outcomes import OK
from interlock.errors import code_of

from . import catalogue as names
from .harmless import harmless, nothing

if TYPE_CHECKING:
    from interlock.admission import Reservation

    from ..execution import Execution
    from ..store.rows import CallRow

#: The name that spans and meters are emitted under.
SCOPE = "interlock"


def _unseen() -> Span:
    return trace.INVALID_SPAN


class Spans:
    """One per Runtime. `wall` is the wall clock, in UTC."""

    def __init__(self, provider: TracerProvider | None, *, wall: Callable[[], datetime]) -> None:
        self._tracer = trace.get_tracer(SCOPE, tracer_provider=provider)
        self._wall = wall
        self.raised: set[tuple[str, type[Exception]]] = set()

    @harmless(_unseen)
    def begin(self, execution: Execution[Any], submitter: Context, waited_s: float, *, pipeline: bool) -> Span:
        """The span of a job at its first grant, `waited_s` after it asked."""
        parent = submitter.run(otel_context.get_current)
        kind = "run" if pipeline else "job"
        return self._tracer.start_span(
            f"{kind} {execution.name}",
            context=parent,
            start_time=_nanoseconds(self._wall() - timedelta(seconds=waited_s)),
            attributes=_said(
                {
                    names.RUN_ID: execution.run.run_id,
                    names.JOB_ID: execution.id,
                    names.JOB: execution.name,
                    names.WORKFLOW: execution.workflow or None,
                    names.STEP_ID: execution.step_id,
                }
            ),
        )

    @harmless(nothing)
    def enter(self, span: Span, context: Context) -> None:
        """Make it the current span of whatever runs in `context`."""
        current = context.run(trace.set_span_in_context, span)
        context.run(otel_context.attach, current)

    @harmless(nothing)
    def waited(self, span: Span, execution: Execution[Any], reservation: Reservation) -> None:
        """The wait that a grant ended."""
        if not span.is_recording() or reservation.waited_s <= 0:
            return
        now = self._wall()
        by_account = reservation.waited_by_account
        longest = max(by_account, key=by_account.__getitem__, default=None)
        wait = self._tracer.start_span(
            "admission",
            context=trace.set_span_in_context(span),
            start_time=_nanoseconds(now - timedelta(seconds=reservation.waited_s)),
            attributes=_said({names.WAITED_FOR: longest, names.WORKFLOW: execution.workflow or None}),
        )
        wait.end(_nanoseconds(now))

    @harmless(nothing)
    def end(self, span: Span, execution: Execution[Any], error: BaseException | None) -> None:
        if span.is_recording():
            span.set_attributes(_said({names.STATE: str(execution.state), names.ATTEMPTS: execution.attempt}))
            if error is not None:
                _fail(span, code_of(error))
        span.end(_nanoseconds(self._wall()))

    @harmless(nothing)
    def request(self, span: Span, row: CallRow) -> None:
        """One wire request of a job, over by now."""
        record = row.record
        if not span.is_recording():
            return
        request = self._tracer.start_span(
            f"{record.kind.value} {record.wire_model_id}",
            context=trace.set_span_in_context(span),
            kind=SpanKind.CLIENT,
            start_time=_nanoseconds(record.started_at),
            attributes=_said(of_request(row)),
        )
        if record.outcome != OK:
            _fail(request, record.outcome)
        request.end(_nanoseconds(record.started_at + timedelta(seconds=record.latency_s)))


def of_request(row: CallRow) -> dict[names.Attribute, Any]:
    """What is told of a request; None is unknown."""
    record, usage = row.record, row.record.usage
    cached = [usage.input_tokens, usage.cache_read_tokens, usage.cache_write_tokens]
    return {
        **model_of(row),
        names.ENTRY: record.model,
        names.RESPONSE_ID: record.request_id,
        names.FINISH: None if record.stop_reason is None else (record.stop_reason,),
        names.FIRST_CHUNK: record.first_piece_s,
        names.INPUT: None if usage.input_tokens is None else sum(each or 0 for each in cached),
        names.OUTPUT: usage.output_tokens,
        names.CACHE_READ: usage.cache_read_tokens,
        names.CACHE_WRITE: usage.cache_write_tokens,
        names.REASONING: usage.reasoning_tokens,
        names.OUTPUT_TEXT: None if record.text is None else _messages(record.text),
        names.ATTEMPT: row.attempt,
        names.COST: None if record.cost is None else float(record.cost),
        names.CURRENCY: None if record.cost is None else record.currency,
        names.UNMETERED: record.unmetered or None,
        names.UNDECLARED: record.undeclared or None,
    }


def model_of(row: CallRow) -> dict[names.Attribute, Any]:
    """Which model a request went to, in the conventions' words."""
    record = row.record
    return {
        names.OPERATION: record.kind.value,
        names.PROVIDER: names.PROVIDER_NAMES.get(record.provider, record.provider),
        names.MODEL: record.wire_model_id,
        names.SERVED: record.served_model,
    }


def _messages(text: str) -> str:
    return json.dumps([{"role": "assistant", "parts": [{"type": "text", "content": text}]}], ensure_ascii=False)


def _said(attributes: Mapping[names.Attribute, Any]) -> dict[str, Any]:
    return {attribute.name: value for attribute, value in attributes.items() if value is not None}


def _fail(span: Span, code: str) -> None:
    span.set_attribute(names.ERROR.name, code)
    span.set_status(Status(StatusCode.ERROR, code))


def _nanoseconds(moment: datetime) -> int:
    return int(moment.timestamp() * 1_000_000) * 1_000
