"""What others ask of a run: to be cancelled, paused, let go on, forgotten. Each a function on a connection."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from sqlalchemy import delete, func, or_, select

from interlock.errors import ConfigurationError

from ..journal.protocol import RunStatus
from . import owners
from .schema import calls, runs, steps

if TYPE_CHECKING:
    from sqlalchemy import Connection, Row

#: Runs forgotten in one transaction: others write between two of them.
AT_ONCE = 200
_GOING = (str(RunStatus.RUNNING), str(RunStatus.QUEUED))


@dataclass(frozen=True, slots=True, kw_only=True)
class Pruned:
    runs: int = 0
    steps: int = 0
    calls: int = 0

    def plus(self, other: Pruned) -> Pruned:
        return Pruned(runs=self.runs + other.runs, steps=self.steps + other.steps, calls=self.calls + other.calls)


def cancel_run(connection: Connection, run_id: str, at: datetime) -> bool:
    """Whether it is cancelled now. False: its process lives, and is asked to.

    Raises ConfigurationError for a run that is not there or has ended.
    """
    row = _going(connection, run_id, "cancelled")
    here = runs.c.run_id == run_id
    if row.status == RunStatus.RUNNING and row.owner is not None and not owners.give_up(connection, row.owner):
        connection.execute(runs.update().where(here).values(cancel_requested_at=at))
        return False
    over = {"status": str(RunStatus.CANCELLED), "ended_at": at, "cancel_requested_at": at, "fence": row.fence + 1}
    connection.execute(
        runs.update().where(here).values(error_code="job_cancelled", error="cancelled from outside", **over)
    )
    return True


def pause_run(connection: Connection, run_id: str, at: datetime) -> None:
    """Ask that nothing of it starts until it is resumed. Raises ConfigurationError as `cancel_run`."""
    _going(connection, run_id, "paused")
    connection.execute(runs.update().where(runs.c.run_id == run_id).values(pause_requested_at=at))


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What somebody wants of a run that this process has."""

    pause: bool = False
    cancel: bool = False


def wanted(connection: Connection, owner: str) -> dict[str, Wanted]:
    """What is wanted of the runs that `owner` has under way; those of which nothing is are not named."""
    asked = or_(runs.c.pause_requested_at.is_not(None), runs.c.cancel_requested_at.is_not(None))
    question = select(runs.c.run_id, runs.c.pause_requested_at, runs.c.cancel_requested_at).where(
        runs.c.owner == owner, runs.c.status == str(RunStatus.RUNNING), asked
    )
    return {
        run_id: Wanted(pause=pause is not None, cancel=cancel is not None)
        for run_id, pause, cancel in connection.execute(question)
    }


def unpause_run(connection: Connection, run_id: str) -> bool:
    """Let it go on. Whether that is all: a process that lives has it, or a worker will.

    Raises ConfigurationError for a run that is not there.
    """
    row = _row(connection, run_id)
    if row.pause_requested_at is not None:
        connection.execute(runs.update().where(runs.c.run_id == run_id).values(pause_requested_at=None))
    if row.status == RunStatus.QUEUED:
        return True
    return row.status == RunStatus.RUNNING and row.owner is not None and not owners.give_up(connection, row.owner)


def prune(connection: Connection, before: datetime, *, keep_calls: bool = False) -> Pruned:
    """Forget the next `AT_ONCE` runs that ended before then, with their steps and calls. Nothing left: zeros."""
    old = select(runs.c.run_id).where(runs.c.ended_at < before, runs.c.status.not_in(_GOING))
    ids = (
        connection.execute(old.order_by(runs.c.ended_at).limit(AT_ONCE).with_for_update(skip_locked=True))
        .scalars()
        .all()
    )
    return Pruned(
        runs=_deleted(connection, runs, ids),
        steps=_deleted(connection, steps, ids),
        calls=0 if keep_calls else _deleted(connection, calls, ids),
    )


def prune_calls(connection: Connection, before: datetime) -> Pruned:
    """Forget the next calls of no run in the store that were made before then."""
    known = select(runs.c.run_id).where(runs.c.run_id == calls.c.run_id)
    old = select(calls.c.id).where(calls.c.started_at < before, or_(calls.c.run_id.is_(None), ~known.exists()))
    ids = connection.execute(old.order_by(calls.c.started_at).limit(AT_ONCE * 10)).scalars().all()
    return Pruned(calls=connection.execute(delete(calls).where(calls.c.id.in_(ids))).rowcount if ids else 0)


def countable(connection: Connection, before: datetime, *, keep_calls: bool = False) -> Pruned:
    """What `prune` and `prune_calls` would forget in the end."""
    old = select(runs.c.run_id).where(runs.c.ended_at < before, runs.c.status.not_in(_GOING))
    counts = [connection.execute(select(func.count()).select_from(old.subquery())).scalar_one()]
    counts += [
        connection.execute(select(func.count()).select_from(table).where(table.c.run_id.in_(old))).scalar_one()
        for table in (steps, calls)
    ]
    if keep_calls:
        return Pruned(runs=counts[0], steps=counts[1])
    known = select(runs.c.run_id).where(runs.c.run_id == calls.c.run_id)
    loose = select(func.count()).select_from(calls)
    loose = loose.where(calls.c.started_at < before, or_(calls.c.run_id.is_(None), ~known.exists()))
    return Pruned(runs=counts[0], steps=counts[1], calls=counts[2] + connection.execute(loose).scalar_one())


def _deleted(connection: Connection, table: Any, run_ids: Sequence[str]) -> int:
    return connection.execute(delete(table).where(table.c.run_id.in_(run_ids))).rowcount if run_ids else 0


def _row(connection: Connection, run_id: str) -> Row[Any]:
    row = connection.execute(runs.select().where(runs.c.run_id == run_id).with_for_update()).first()
    if row is None:
        raise ConfigurationError(f"there is no run {run_id!r} in the store: `interlock runs list` names them")
    return row


def _going(connection: Connection, run_id: str, what: str) -> Row[Any]:
    row = _row(connection, run_id)
    if row.status not in _GOING:
        raise ConfigurationError(f"run {run_id!r} cannot be {what}: it has ended ({row.status})")
    return row
