"""An attempt nobody heard of again, put on record: what it may have sent, and the most that may have cost."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from interlock.catalog.pricing import worst_cost
from interlock.catalog.usage import Usage
from interlock.catalog.words import Kind
from interlock.clients.record import CallRecord

from ..store.rows import CallRow
from .protocol import StepStatus

if TYPE_CHECKING:
    from interlock.catalog import Catalog

    from .protocol import RecordedStep, RunHead

#: The outcome such a call is recorded with.
UNKNOWN = "unknown"


def unknown_calls(step: RecordedStep, head: RunHead, catalog: Catalog) -> list[CallRow]:
    """One row a declared model of a step that has an intent, no outcome and no call on record. The usage is what was
    reserved, flagged estimated; no cost where the model has no price by now."""
    if step.status is not StepStatus.BEGUN or step.known_calls:
        return []
    declared: list[Any] = json.loads(step.requests).get("calls", []) if step.requests is not None else []
    rows: list[CallRow] = []
    for number, (model, provider, wire_model_id, kind, input_tokens, output_tokens, calls) in enumerate(declared, 1):
        entry = catalog.entries.get(model)
        prices = None if entry is None else entry.prices
        price = worst_cost(prices, input_tokens, output_tokens)
        record = CallRecord(
            kind=Kind(kind),
            model=model,
            provider=provider,
            wire_model_id=wire_model_id,
            served_model=None,
            request_id=None,
            usage=Usage(input_tokens=input_tokens * calls, output_tokens=output_tokens * calls, estimated=True),
            cost=None if price is None else price * calls,
            currency=None if prices is None else prices.currency,
            price_as_of=None if prices is None or prices.as_of is None else str(prices.as_of),
            started_at=step.begun_at or datetime.now(UTC),
            latency_s=0.0,
            first_piece_s=None,
            outcome=UNKNOWN,
            error="the process ended before its answer was recorded",
            stop_reason=None,
            unmetered=False,
            undeclared=False,
            request_hash="",
        )
        rows.append(
            CallRow(
                record=record,
                run_id=head.run_id,
                step_id=step.step_id,
                job=step.job,
                workflow=head.workflow or head.pipeline,
                attempt=step.attempt,
                call=number,
            )
        )
    return rows


def with_cost(spent: Mapping[str, Decimal], rows: Iterable[CallRow]) -> dict[str, Decimal]:
    """What was spent, by currency, and these on top of it."""
    total = dict(spent)
    for row in rows:
        cost, currency = row.record.cost, row.record.currency
        if cost is not None and currency is not None:
            total[currency] = total.get(currency, Decimal(0)) + cost
    return total
