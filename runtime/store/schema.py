"""The tables. Columns are the names of the rows' fields; a decimal is text, so no digit of a price is lost."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from sqlalchemy import Boolean, Column, Dialect, Float, Index, Integer, MetaData, String, Table, Text
from sqlalchemy.types import TypeDecorator

from .text import restored, storable


class SafeText(TypeDecorator[str]):
    """Text with NUL and lone surrogates escaped reversibly."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        return None if value is None else storable(value)

    def process_result_value(self, value: str | None, dialect: Dialect) -> str | None:
        return None if value is None else restored(value)


class Money(TypeDecorator[Decimal]):
    """An exact decimal, as text."""

    impl = String
    cache_ok = True

    def process_bind_param(self, value: Decimal | None, dialect: Dialect) -> str | None:
        return None if value is None else str(value)

    def process_result_value(self, value: str | None, dialect: Dialect) -> Decimal | None:
        return None if value is None else Decimal(value)


class Moment(TypeDecorator[datetime]):
    """A moment in UTC, as ISO 8601 text of one width, so that it sorts and compares as text."""

    impl = String(32)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> str | None:
        return None if value is None else value.astimezone(UTC).isoformat(timespec="microseconds")

    def process_result_value(self, value: str | None, dialect: Dialect) -> datetime | None:
        return None if value is None else datetime.fromisoformat(value)


class Json(TypeDecorator[Any]):
    """Plain data as compact JSON text (ASCII, so every character is storable)."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Dialect) -> str | None:
        return None if value is None else json.dumps(dict(value), separators=(",", ":"), sort_keys=True)

    def process_result_value(self, value: str | None, dialect: Dialect) -> Any:
        return None if value is None else json.loads(value)


metadata = MetaData()

calls = Table(
    "calls",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("run_id", SafeText),
    Column("step_id", SafeText),
    Column("job_id", String(40), nullable=False),
    Column("job", SafeText, nullable=False),
    Column("workflow", SafeText, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("call", Integer, nullable=False),
    Column("kind", String(16), nullable=False),
    Column("model", SafeText, nullable=False),
    Column("provider", String(64), nullable=False),
    Column("wire_model_id", SafeText, nullable=False),
    Column("served_model", SafeText),
    Column("request_id", SafeText),
    Column("input_tokens", Integer),
    Column("output_tokens", Integer),
    Column("cache_read_tokens", Integer),
    Column("cache_write_tokens", Integer),
    Column("cache_write_1h_tokens", Integer),
    Column("reasoning_tokens", Integer),
    Column("usage_estimated", Boolean, nullable=False),
    Column("cost", Money),
    Column("currency", String(3)),
    Column("price_as_of", String(32)),
    Column("catalog_version", String(64), nullable=False),
    Column("waited_s", Float, nullable=False),
    Column("waited", Json, nullable=False),
    Column("started_at", Moment, nullable=False),
    Column("latency_s", Float, nullable=False),
    Column("first_piece_s", Float),
    Column("outcome", String(64), nullable=False),
    Column("error", SafeText),
    Column("stop_reason", String(32)),
    Column("unmetered", Boolean, nullable=False),
    Column("undeclared", Boolean, nullable=False),
    Column("request_hash", String(80), nullable=False),
    Column("text", SafeText),
    Index("calls_by_time", "started_at"),
    Index("calls_by_run", "run_id", "step_id"),
)

#: One row a pool: what its levels lacked when its last process wrote, and beside it what other processes did.
levels = Table(
    "levels",
    metadata,
    Column("pool", SafeText, primary_key=True),
    Column("owner", String(40), nullable=False),
    Column("saved_at", Moment, nullable=False),
    Column("closed", Boolean, nullable=False),
    Column("memory", Json, nullable=False),
    Column("others", Json),
)

runs = Table(
    "runs",
    metadata,
    Column("run_id", SafeText, primary_key=True),
    Column("pipeline", SafeText, nullable=False),
    Column("version", SafeText, nullable=False),
    Column("status", String(16), nullable=False),
    Column("started_at", Moment, nullable=False),
    Column("ended_at", Moment),
    Column("error_code", String(64)),
    Column("error", SafeText),
    Column("cost_cap", String(64)),
)
