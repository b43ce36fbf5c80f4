"""The queue: runs that were put there for a worker. A run is claimed by one worker, and is nobody else's until that one
has ended or has been given up.

Rows of `runs` with status `queued`, the highest priority first and then the oldest. A claim is one statement: on
Postgres rows that another worker is about to claim are skipped, not waited for; SQLite has one writer at a time.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import fields
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from sqlalchemy import bindparam, func, or_, select, text

from interlock.errors import LeaseLostError

from ..journal.protocol import Claim, RecordedRun, RunHead, RunStatus
from . import journal_sql as sql, owners
from .schema import runs
from .sql import insert_for

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from .journal import SqlJournal
    from .writer import Writer

#: What a Postgres server is told to tell workers that runs have been put there.
CHANNEL = "interlock_runs"
_HEAD = tuple(item.name for item in fields(RunHead))


class SqlQueue:
    """The queue of a store, through its one writer. `owner` is this process's name there."""

    def __init__(self, writer: Writer, dialect: str, owner: str, journal: SqlJournal) -> None:
        self.dialect, self.owner = dialect, owner
        self._writer, self._journal = writer, journal

    async def put(self, heads: Sequence[RunHead], at: datetime) -> Mapping[str, RunHead]:
        """Put them there, all in one transaction. A run whose id is known already stays as it is, and its head is
        returned."""
        if not heads:
            return {}

        def work(connection: Connection) -> dict[str, RunHead]:
            return _put(connection, heads, at)

        return await self._writer.run(work)

    async def claim(self, most: int, at: datetime) -> list[RecordedRun]:
        """Take up to so many. What is recorded of them comes with them."""

        def work(connection: Connection) -> list[tuple[RecordedRun, int]]:
            return _claim(connection, self.owner, most, at)

        claimed = await self._writer.run(work)
        for run, position in claimed:
            self._journal.continued(run.head.run_id, position)
        return [run for run, _ in claimed]

    async def anything(self, at: datetime) -> bool:
        """Whether there is one to claim."""
        return await self._writer.read(lambda connection: connection.execute(_free(at).limit(1)).first() is not None)

    async def rescue(self) -> int:
        """Put back what dead owners had. Returns how many."""
        return await self._writer.run(_rescue)

    async def put_back(self, run_ids: Collection[str], at: datetime, *, later_s: float = 0.0, why: str = "") -> None:
        """Runs of this process that it cannot go on with: anybody may claim them, `later_s` from now on."""
        await self._writer.run(lambda connection: _put_back(connection, self.owner, run_ids, at, later_s, why))


def _put(connection: Connection, heads: Sequence[RunHead], at: datetime) -> dict[str, RunHead]:
    made = insert_for(connection.dialect.name)(runs).on_conflict_do_nothing(index_elements=["run_id"])
    known: dict[str, RunHead] = {}
    for start in range(0, len(heads), 500):
        some = heads[start : start + 500]
        ids = [head.run_id for head in some]
        there = connection.execute(runs.select().where(runs.c.run_id.in_(ids))).all()
        known |= {row.run_id: RunHead(**{name: row._mapping[name] for name in _HEAD}) for row in there}
        fresh = [_queued(head, at) for head in some if head.run_id not in known]
        if fresh:
            connection.execute(made, fresh)
    if connection.dialect.name == "postgresql":
        connection.execute(text("select pg_notify(:channel, '')"), {"channel": CHANNEL})
    return known


def _queued(head: RunHead, at: datetime) -> dict[str, Any]:
    values = {name: getattr(head, name) for name in _HEAD}
    return {**values, "status": str(RunStatus.QUEUED), "owner": None, "fence": 0, "created_at": at, "started_at": None}


def _free(at: datetime) -> Any:
    """What can be claimed, in its order."""
    return (
        select(runs.c.run_id)
        .where(runs.c.status == str(RunStatus.QUEUED), runs.c.pause_requested_at.is_(None))
        .where(or_(runs.c.not_before.is_(None), runs.c.not_before <= at))
        .order_by(runs.c.priority.desc(), runs.c.created_at, runs.c.run_id)
    )


def _claim(connection: Connection, owner: str, most: int, at: datetime) -> list[tuple[RecordedRun, int]]:
    if owner not in owners.alive(connection, {owner}):
        raise LeaseLostError(f"this process ({owner}) was given up by the others: it can claim nothing any more")
    free = _free(at).limit(most).with_for_update(skip_locked=True)
    if connection.dialect.name != "postgresql":
        free = _free(at).limit(most)
    taken = (
        runs.update()
        .where(runs.c.run_id.in_(free.scalar_subquery()))
        .values(
            status=str(RunStatus.RUNNING),
            owner=owner,
            fence=runs.c.fence + 1,
            claimed_at=at,
            not_before=None,
            started_at=func.coalesce(runs.c.started_at, bindparam("now", at, type_=runs.c.started_at.type)),
        )
        .returning(*runs.c)
    )
    rows = connection.execute(taken).all()
    rows = sorted(rows, key=lambda row: (-row.priority, row.created_at, row.run_id))
    return [_taken(connection, row, owner) for row in rows]


def _taken(connection: Connection, row: Any, owner: str) -> tuple[RecordedRun, int]:
    claim = Claim(run_id=row.run_id, owner=owner, fence=row.fence)
    if row.fence == 1:  # nobody has begun it: there is nothing to read back
        head = RunHead(**{name: row._mapping[name] for name in _HEAD})
        return RecordedRun(head=head, status=RunStatus.RUNNING, claim=claim, fresh=True), 0
    return sql.recorded(connection, row, claim), sql.next_position(connection, row.run_id)


def _rescue(connection: Connection) -> int:
    under_way = runs.c.status == str(RunStatus.RUNNING)
    found = connection.execute(select(runs.c.owner).where(under_way, runs.c.target.is_not(None)).distinct()).scalars()
    count = 0
    for owner in sorted(name for name in found if name is not None):
        if owners.give_up(connection, owner):
            back = runs.update().where(under_way, runs.c.owner == owner, runs.c.target.is_not(None))
            count += connection.execute(back.values(status=str(RunStatus.QUEUED))).rowcount
    return count


def _put_back(
    connection: Connection, owner: str, run_ids: Collection[str], at: datetime, later_s: float, why: str
) -> None:
    values: dict[str, Any] = {"status": str(RunStatus.QUEUED), "ended_at": None, "value": None, "error_code": None}
    values |= {"error": why or None, "not_before": at + timedelta(seconds=later_s) if later_s else None}
    ours = runs.update().where(runs.c.run_id.in_(list(run_ids)), runs.c.owner == owner)
    states = (str(RunStatus.RUNNING), str(RunStatus.CANCELLED))
    connection.execute(ours.where(runs.c.status.in_(states)).values(values))
