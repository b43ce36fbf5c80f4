"""From rows to columns and back."""

from __future__ import annotations

from dataclasses import fields
from functools import cache
from typing import TYPE_CHECKING, Any

from interlock.catalog.usage import Usage
from interlock.catalog.words import Kind
from interlock.clients.record import CallRecord

from .prepared import Prepared, insert_for as insert_for, prepared_insert
from .rows import CallRow, RunRow
from .schema import calls, runs

if TYPE_CHECKING:
    from sqlalchemy import Row

_OWN = tuple(item.name for item in fields(CallRow) if item.name != "record")
_RECORD = tuple(item.name for item in fields(CallRecord) if item.name not in ("usage", "kind"))
_COUNTS = tuple(item.name for item in fields(Usage) if item.name != "estimated")
_RUN = tuple(item.name for item in fields(RunRow))


def call_values(row: CallRow) -> dict[str, Any]:
    record = row.record
    values: dict[str, Any] = {name: getattr(row, name) for name in _OWN}
    for name in _RECORD:
        values[name] = getattr(record, name)
    for name in _COUNTS:
        values[name] = getattr(record.usage, name)
    values["kind"] = str(record.kind)
    values["usage_estimated"] = record.usage.estimated
    return values


def call_row(found: Row[Any]) -> CallRow:
    values = found._mapping
    usage = Usage(**{name: values[name] for name in _COUNTS}, estimated=values["usage_estimated"])
    record = CallRecord(**{name: values[name] for name in _RECORD}, usage=usage, kind=Kind(values["kind"]))
    return CallRow(record=record, **{name: values[name] for name in _OWN})


@cache
def insert_call(dialect: str) -> Prepared:
    return prepared_insert(dialect, calls, [column.name for column in calls.columns if column.name != "id"])


@cache
def upsert_run(dialect: str) -> Prepared:
    names = ("status", "ended_at", "error_code", "error", "started_at")
    return prepared_insert(dialect, runs, (*_RUN, "created_at"), lambda new: {name: new[name] for name in names})


def run_values(row: RunRow) -> dict[str, Any]:
    return {**{name: getattr(row, name) for name in _RUN}, "created_at": row.started_at}


def run_row(found: Row[Any]) -> RunRow:
    return RunRow(**{name: found._mapping[name] for name in _RUN})
