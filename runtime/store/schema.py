"""The tables. Columns are the names of the rows' fields; a decimal is text, so no digit of a price is lost.

A change here is a migration too (`migrations/versions`), and a test compares the two on both databases. Text has no
length: a value that is longer than somebody thought must not lose a row that was paid for.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from sqlalchemy import BigInteger, Boolean, Column, Dialect, Float, Index, Integer, MetaData, Table, Text, desc
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

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: Decimal | None, dialect: Dialect) -> str | None:
        return None if value is None else str(value)

    def process_result_value(self, value: str | None, dialect: Dialect) -> Decimal | None:
        return None if value is None else Decimal(value)


class Moment(TypeDecorator[datetime]):
    """A moment in UTC, as ISO 8601 text of one width, so that it sorts and compares as text."""

    impl = Text
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


#: A key that counts up. SQLite's own is an INTEGER, and no other type.
Counted = BigInteger().with_variant(Integer, "sqlite")

metadata = MetaData()

calls = Table(
    "calls",
    metadata,
    Column("id", Counted, primary_key=True),
    Column("run_id", SafeText),
    Column("step_id", SafeText),
    Column("job_id", Text, nullable=False),
    Column("job", SafeText, nullable=False),
    Column("workflow", SafeText, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("call", Integer, nullable=False),
    Column("kind", Text, nullable=False),
    Column("model", SafeText, nullable=False),
    Column("provider", SafeText, nullable=False),
    Column("wire_model_id", SafeText, nullable=False),
    Column("served_model", SafeText),
    Column("request_id", SafeText),
    Column("input_tokens", BigInteger),
    Column("output_tokens", BigInteger),
    Column("cache_read_tokens", BigInteger),
    Column("cache_write_tokens", BigInteger),
    Column("cache_write_1h_tokens", BigInteger),
    Column("reasoning_tokens", BigInteger),
    Column("usage_estimated", Boolean, nullable=False),
    Column("cost", Money),
    Column("currency", Text),
    Column("price_as_of", Text),
    Column("catalog_version", Text, nullable=False),
    Column("waited_s", Float, nullable=False),
    Column("waited", Json, nullable=False),
    Column("started_at", Moment, nullable=False),
    Column("latency_s", Float, nullable=False),
    Column("first_piece_s", Float),
    Column("outcome", SafeText, nullable=False),
    Column("error", SafeText),
    Column("stop_reason", SafeText),
    Column("unmetered", Boolean, nullable=False),
    Column("undeclared", Boolean, nullable=False),
    Column("request_hash", Text, nullable=False),
    Column("text", SafeText),
    Column("decision", Json),
    Index("calls_by_time", "started_at"),
    Index("calls_by_run", "run_id", "step_id"),
)

#: One row a pool: what its levels lacked when its last process wrote, and beside it what other processes did.
levels = Table(
    "levels",
    metadata,
    Column("pool", SafeText, primary_key=True),
    Column("owner", Text, nullable=False),
    Column("saved_at", Moment, nullable=False),
    Column("closed", Boolean, nullable=False),
    Column("memory", Json, nullable=False),
    Column("others", Json),
)

#: One row a run. `owner` and `fence` are of who has it, or had it last; the fence is raised whenever it changes hands.
#: `target`, `fingerprint` and `arguments` say what it runs; `value` is the JSON of its result or its error;
#: `pause_requested_at` and `cancel_requested_at` are what somebody wants of it.
runs = Table(
    "runs",
    metadata,
    Column("run_id", SafeText, primary_key=True),
    Column("pipeline", SafeText, nullable=False),
    Column("version", SafeText, nullable=False),
    Column("status", Text, nullable=False),
    Column("started_at", Moment),
    Column("ended_at", Moment),
    Column("error_code", SafeText),
    Column("error", SafeText),
    Column("cost_cap", SafeText),
    Column("target", SafeText),
    Column("fingerprint", Text, nullable=False, server_default=""),
    Column("arguments", SafeText),
    Column("value", SafeText),
    Column("priority", BigInteger, nullable=False, server_default="0"),
    Column("workflow", SafeText, nullable=False, server_default=""),
    Column("owner", SafeText),
    Column("fence", BigInteger, nullable=False, server_default="0"),
    Column("created_at", Moment),
    Column("claimed_at", Moment),  # by a worker, from the queue; of a run that a program has begun itself: null
    Column("not_before", Moment),
    Column("pause_requested_at", Moment),
    Column("cancel_requested_at", Moment),
    Index("runs_to_claim", "status", desc("priority"), "created_at", "run_id"),  # in the queue's order
    Index("runs_by_time", "created_at"),
    Index("runs_by_owner", "owner"),
)

#: The journal: one row a step, its last intent and its outcome in one. The attempts are the rows of `calls`. `position`
#: is the order of first writing within the run; `tries` counts the intents, `repeats` those that were made although
#: something of the step was known already.
steps = Table(
    "steps",
    metadata,
    Column("run_id", SafeText, primary_key=True),
    Column("step_id", SafeText, primary_key=True),
    Column("position", BigInteger, nullable=False),
    Column("fingerprint", Text, nullable=False),
    Column("job", SafeText, nullable=False),
    Column("status", Text, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("value", SafeText),
    Column("error_code", SafeText),
    Column("requests", SafeText),
    Column("again", SafeText, nullable=False),
    Column("begun_at", Moment),
    Column("ended_at", Moment),
    Column("copied", Boolean, nullable=False),
    Column("tries", Integer, nullable=False),
    Column("repeats", Integer, nullable=False),
)

#: Incarnations of processes. `seen` is in seconds of the clock named `epoch`.
owners = Table(
    "owners",
    metadata,
    Column("owner", Text, primary_key=True),
    Column("fence", BigInteger, nullable=False),
    Column("host", SafeText, nullable=False),
    Column("place", Text, nullable=False),
    Column("pid", BigInteger, nullable=False),
    Column("born", Text, nullable=False),
    Column("ttl_s", Float, nullable=False),
    Column("epoch", SafeText, nullable=False),
    Column("seen", Float, nullable=False),
    Column("lost", Boolean, nullable=False),
)

#: The last group that each writer is known to have committed: where the answer to a COMMIT is lost, it stands here.
commits = Table(
    "commits",
    metadata,
    Column("writer", Text, primary_key=True),
    Column("number", BigInteger, nullable=False),
    Column("at", Moment, nullable=False),
)
