"""The queue: runs that were put there for a worker. A run is claimed by one worker, and is nobody else's until that one
has ended or has been given up.

Rows of `runs` with status `queued`, the highest priority first and then the oldest. A claim is one statement: on
Postgres rows that another worker is about to claim are skipped, not waited for; SQLite has one writer at a time.
"""

from __future__ import annotations

from collections.abc import Awaitable, Collection, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from sqlalchemy import and_, bindparam, func, not_, or_, select, text

from interlock.errors import LeaseLostError

from ..journal.calling import check_same
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
#: Claimed and not ended. What a program of the user's has begun by itself is its own to go on with: nobody put it
#: there.
_TAKEN = and_(runs.c.status == str(RunStatus.RUNNING), runs.c.claimed_at.is_not(None))


@dataclass(frozen=True, slots=True)
class Lacking:
    """What a worker cannot run: a pipeline whose code it does not have; or, with a `version`, runs of it that were
    begun with that one."""

    target: str
    version: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """Runs that were put there and have not ended. `queued`: nobody has them; `paused`: nor that, and nobody may claim
    them until they are resumed; `under_way`: some process has them."""

    queued: int = 0
    paused: int = 0
    under_way: int = 0


class SqlQueue:
    """The queue of a store, through its one writer. `owner` is this process's name there."""

    def __init__(self, writer: Writer, dialect: str, owner: str, journal: SqlJournal) -> None:
        self.dialect, self.owner = dialect, owner
        self._writer, self._journal = writer, journal

    async def put(self, heads: Sequence[RunHead], at: datetime) -> Mapping[str, RunHead]:
        """Put them there, all in one transaction. A run whose id is known already stays as it is, and its head is
        returned. Raises ReplayMismatchError, and puts nothing there, where one of these is the run of another call."""
        if not heads:
            return {}

        def work(connection: Connection) -> dict[str, RunHead]:
            return _put(connection, heads, at)

        return await self._writer.run(work)

    async def claim(self, most: int, at: datetime, lacking: Collection[Lacking] = ()) -> list[RecordedRun]:
        """Take up to so many, none of those that are `lacking`. What is recorded of them comes with them."""

        def work(connection: Connection) -> list[tuple[RecordedRun, int]]:
            return _claim(connection, self.owner, most, at, lacking)

        claimed = await self._writer.run(work)
        for run, position in claimed:
            self._journal.continued(run.head.run_id, position)
        return [run for run, _ in claimed]

    async def anything(self, at: datetime, lacking: Collection[Lacking] = ()) -> bool:
        """Whether there is one to claim."""
        one = _free(at, lacking).order_by(None).limit(1)
        return await self._writer.read(lambda connection: connection.execute(one).first() is not None)

    async def left(self) -> Left:
        """What has not ended, whoever has it."""
        return await self._writer.read(_left)

    async def begun_as(self, head: RunHead) -> None:
        """A run of this process that nobody had begun is begun with other code than it was put there with."""
        ours = runs.update().where(runs.c.run_id == head.run_id, runs.c.owner == self.owner)
        statement = ours.values(version=head.version, fingerprint=head.fingerprint)
        await self._writer.run(lambda connection: connection.execute(statement))

    async def rescue(self) -> int:
        """Put back what dead workers had. Returns how many."""
        return await self._writer.run(_rescue)

    def put_back(self, run_ids: Collection[str], *, until: datetime | None = None, why: str = "") -> Awaitable[None]:
        """Runs of this process that it cannot go on with: anybody may claim them, from `until` on. Queued when it is
        called, so it is done before whatever is asked later."""
        return self._writer.run(lambda connection: _put_back(connection, self.owner, run_ids, until, why))


def _put(connection: Connection, heads: Sequence[RunHead], at: datetime) -> dict[str, RunHead]:
    insert = insert_for(connection.dialect.name)(runs).on_conflict_do_nothing(index_elements=["run_id"])
    made = insert.returning(runs.c.run_id)
    known: dict[str, RunHead] = {}
    for start in range(0, len(heads), 500):
        some = heads[start : start + 500]
        there = _heads(connection, {head.run_id for head in some})
        fresh = {head.run_id: _queued(head, at) for head in some if head.run_id not in there}
        if fresh:
            put = set(connection.execute(made, list(fresh.values())).scalars())
            if len(put) < len(fresh):  # somebody else has put some of them there at this moment
                there |= _heads(connection, fresh.keys() - put)
        known |= there
    mine: dict[str, RunHead] = {}
    for head in heads:
        check_same(known.get(head.run_id) or mine.setdefault(head.run_id, head), head, version=False)
    if connection.dialect.name == "postgresql":
        connection.execute(text("select pg_notify(:channel, '')"), {"channel": CHANNEL})
    return known


def _heads(connection: Connection, run_ids: Collection[str]) -> dict[str, RunHead]:
    rows = connection.execute(runs.select().where(runs.c.run_id.in_(sorted(run_ids))))
    return {row.run_id: RunHead(**{name: row._mapping[name] for name in _HEAD}) for row in rows}


def _queued(head: RunHead, at: datetime) -> dict[str, Any]:
    values = {name: getattr(head, name) for name in _HEAD}
    return {**values, "status": str(RunStatus.QUEUED), "owner": None, "fence": 0, "created_at": at, "started_at": None}


def _free(at: datetime, lacking: Collection[Lacking]) -> Any:
    """What can be claimed, in its order."""
    return (
        select(runs.c.run_id)
        .where(runs.c.status == str(RunStatus.QUEUED), runs.c.pause_requested_at.is_(None))
        .where(or_(runs.c.not_before.is_(None), runs.c.not_before <= at))
        .where(*[not_(_is(one)) for one in lacking])
        .order_by(runs.c.priority.desc(), runs.c.created_at, runs.c.run_id)
    )


def _is(lacking: Lacking) -> Any:
    of_it = runs.c.target == lacking.target
    # Nobody has begun it yet, so it may be begun with any version.
    return of_it if lacking.version is None else and_(of_it, runs.c.version == lacking.version, runs.c.fence > 0)


def _claim(
    connection: Connection, owner: str, most: int, at: datetime, lacking: Collection[Lacking]
) -> list[tuple[RecordedRun, int]]:
    if owner not in owners.alive(connection, {owner}):
        raise LeaseLostError(f"this process ({owner}) was given up by the others: it can claim nothing any more")
    free = _free(at, lacking).limit(most).with_for_update(skip_locked=True)
    if connection.dialect.name != "postgresql":
        free = _free(at, lacking).limit(most)
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
    while rows := connection.execute(taken).all():
        stopped = [row.run_id for row in rows if row.cancel_requested_at is not None]
        if stopped:
            _cancel(connection, stopped, at)
        rows = [row for row in rows if row.cancel_requested_at is None]
        if rows:
            break
    rows = sorted(rows, key=lambda row: (-row.priority, row.created_at, row.run_id))
    return [_taken(connection, row, owner) for row in rows]


def _cancel(connection: Connection, run_ids: Sequence[str], at: datetime) -> None:
    """Their worker was asked to cancel them, and ended before it did."""
    over = {"status": str(RunStatus.CANCELLED), "ended_at": at, "error_code": "job_cancelled"}
    these = runs.update().where(runs.c.run_id.in_(run_ids))
    connection.execute(these.values(error="cancelled from outside", **over))


def _taken(connection: Connection, row: Any, owner: str) -> tuple[RecordedRun, int]:
    claim = Claim(run_id=row.run_id, owner=owner, fence=row.fence)
    if row.fence == 1:  # nobody has begun it: there is nothing to read back
        head = RunHead(**{name: row._mapping[name] for name in _HEAD})
        return RecordedRun(head=head, status=RunStatus.RUNNING, claim=claim, fresh=True), 0
    run = sql.recorded(connection, row, claim)
    fresh = not (run.steps or run.spent or run.unpriced)  # claimed before, and nothing came of it
    return replace(run, fresh=fresh), sql.next_position(connection, row.run_id)


def _left(connection: Connection) -> Left:
    queued, paused = runs.c.status == str(RunStatus.QUEUED), runs.c.pause_requested_at.is_not(None)
    counts = (func.count().filter(queued, ~paused), func.count().filter(queued, paused), func.count().filter(_TAKEN))
    row = connection.execute(select(*counts).where(or_(queued, _TAKEN))).one()
    return Left(queued=row[0], paused=row[1], under_way=row[2])


def _rescue(connection: Connection) -> int:
    found = connection.execute(select(runs.c.owner).where(_TAKEN).distinct()).scalars()
    count = 0
    for owner in sorted(name for name in found if name is not None):
        if owners.give_up(connection, owner):
            back = runs.update().where(_TAKEN, runs.c.owner == owner)
            count += connection.execute(back.values(status=str(RunStatus.QUEUED))).rowcount
    return count


def _put_back(connection: Connection, owner: str, run_ids: Collection[str], until: datetime | None, why: str) -> None:
    ours = runs.update().where(runs.c.run_id.in_(list(run_ids)), runs.c.owner == owner)
    back = ours.where(runs.c.status == str(RunStatus.RUNNING))
    connection.execute(back.values(status=str(RunStatus.QUEUED), error=why or None, not_before=until))
