"""An attempt nobody heard of again, put on record: what it may have sent, and the most that may have cost."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from interlock.catalog.pricing import worst_cost
from interlock.catalog.usage import Usage
from interlock.catalog.words import Kind
from interlock.clients.record import CallRecord

from ..store.rows import CallRow

if TYPE_CHECKING:
    from interlock.catalog import Catalog

    from .protocol import RecordedStep, RunHead

#: The outcome such a call is recorded with.
UNKNOWN = "unknown"


def unknown_calls(step: RecordedStep, head: RunHead, catalog: Catalog) -> list[CallRow]:
    """One row a declared model, its usage what was reserved and flagged so; no cost where it has no price by now."""
    declared = json.loads(step.requests)["calls"] if step.requests is not None else []
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
