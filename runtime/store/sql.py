"""From rows to columns and back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from interlock.catalog.usage import Usage
from interlock.catalog.words import Kind
from interlock.clients.record import CallRecord

from .rows import CallRow, RunRow
from .schema import runs

if TYPE_CHECKING:
    from sqlalchemy import Row
    from sqlalchemy.sql import Executable

_OWN = tuple(item.name for item in fields(CallRow) if item.name != "record")
_RECORD = tuple(item.name for item in fields(CallRecord) if item.name not in ("usage", "kind"))
_COUNTS = tuple(item.name for item in fields(Usage) if item.name != "estimated")
_RUN = tuple(item.name for item in fields(RunRow))


def insert_call(row: CallRow) -> dict[str, Any]:
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


def upsert_run() -> tuple[Executable, Callable[[RunRow], Mapping[str, Any]]]:
    from sqlalchemy.dialects.sqlite import insert

    statement = insert(runs)
    later = ("status", "ended_at", "error_code", "error")
    return (
        statement.on_conflict_do_update(
            index_elements=["run_id"], set_={name: statement.excluded[name] for name in (*later, "started_at")}
        ),
        lambda row: {name: getattr(row, name) for name in _RUN},
    )


def run_row(found: Row[Any]) -> RunRow:
    return RunRow(**{name: found._mapping[name] for name in _RUN})
