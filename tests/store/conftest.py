"""One store of each kind, and rows to put there."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from interlock.catalog import Kind, Usage
from interlock.clients.record import CallRecord
from interlock.runtime import CallRow

START = datetime(2026, 11, 1, 12, tzinfo=UTC)


@pytest.fixture
def start() -> datetime:
    return START


@pytest.fixture
def make_row() -> Callable[..., CallRow]:
    """A call's row by its number. What is given by name changes the record, or the row."""
    record = CallRecord(
        kind=Kind.CHAT, model="m", provider="p", wire_model_id="w", served_model=None, request_id=None,
        usage=Usage(input_tokens=3, estimated=True), cost=Decimal("0.054399"), currency="USD",
        price_as_of="2026-11-01", started_at=START, latency_s=0.25, first_piece_s=None, outcome="ok", error=None,
        stop_reason="end_turn", unmetered=False, undeclared=False, request_hash="f" * 64, text=None,
    )  # fmt: skip
    of_record = set(CallRecord.__dataclass_fields__)

    def make(number: int = 0, **changes: Any) -> CallRow:
        changes.setdefault("request_id", f"req-{number}")
        changes.setdefault("started_at", START + timedelta(seconds=number))
        row = CallRow(
            record=replace(record, **{name: value for name, value in changes.items() if name in of_record}),
            run_id="run",
            step_id="0/k:x",
            job_id=f"{number:032x}",
            job="LLMCall",
            workflow="triage",
            attempt=2,
            waited_s=1.5,
            waited={"pool:tokens": 1.0, "db:x": 0.5},
            catalog_version="abc",
        )
        return replace(row, **{name: value for name, value in changes.items() if name not in of_record})

    return make


@pytest.fixture(params=["file", "postgres"])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A new, empty store of each kind that outlives who opens it."""
    if request.param == "file":
        return f"sqlite:///{tmp_path}/s.db"
    url: str = request.getfixturevalue("postgres").fresh()
    return url


@pytest.fixture
async def proxy(postgres: Any) -> AsyncIterator[Any]:
    """A new database behind something that can be told to misbehave."""
    from store_proxy import PostgresProxy

    async with PostgresProxy(postgres.fresh()) as opened:
        yield opened
