"""Questions to the store. They run on any SQLAlchemy connection: the writer's, or one opened for reading."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from sqlalchemy import select

from .opening import read_store
from .rows import CallRow, RunRow
from .schema import calls, runs
from .sql import call_row, run_row

if TYPE_CHECKING:
    from sqlalchemy import Connection


def read_calls(
    connection: Connection, since: datetime | None = None, run_id: str | None = None, limit: int = 1000
) -> list[CallRow]:
    """The latest `limit` calls, oldest first."""
    question = select(calls).order_by(calls.c.id.desc()).limit(limit)
    if since is not None:
        question = question.where(calls.c.started_at >= since)
    if run_id is not None:
        question = question.where(calls.c.run_id == run_id)
    return [call_row(found) for found in reversed(connection.execute(question).all())]


def read_runs(connection: Connection, run_id: str | None = None, limit: int = 1000) -> list[RunRow]:
    """The latest `limit` runs, oldest first."""
    question = select(runs).order_by(runs.c.started_at.desc()).limit(limit)
    if run_id is not None:
        question = question.where(runs.c.run_id == run_id)
    return [run_row(found) for found in reversed(connection.execute(question).all())]


def calls_in(url: str, *, since: datetime | None = None, run_id: str | None = None, limit: int = 1000) -> list[CallRow]:
    """The latest calls recorded in the store at `url`, oldest first; for programs that only look.

    Raises StoreError where there is no store.
    """
    return read_store(url, lambda connection: read_calls(connection, since, run_id, limit))
