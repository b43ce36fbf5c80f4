"""SqlJournal: the journal's rows in the store, through its one writer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from ..journal.protocol import Claim, Intent, RecordedRun, RunEnd, RunHead, RunStatus, StepOutcome, StepStatus
from . import journal_sql as sql
from .group import Row
from .rows import CallRow
from .writer import Writer, lost

if TYPE_CHECKING:
    from sqlalchemy import Connection

#: Steps forgotten with one statement.
_AT_ONCE = 500


class SqlJournal:
    """See `journal.protocol.Journal`. `call_row` makes a call's row for a group; `owner` is this process's name."""

    def __init__(self, writer: Writer, dialect: str, call_row: Callable[[CallRow], Row], owner: str = "") -> None:
        self.owner = owner
        self._writer, self._dialect, self._call_row = writer, dialect, call_row
        self._positions: dict[str, int] = {}  # the next one, of each run that is under way

    def create(self, head: RunHead, *, owner: str) -> tuple[Claim, Awaitable[None]]:
        claim = Claim(run_id=head.run_id, owner=owner, fence=1)
        row = (sql.insert_run(self._dialect), sql.head_values(head, owner, _now()), ("run", head.run_id))
        self._positions[head.run_id] = 0
        return claim, self._writer.put([row], claim=claim, makes=True)

    async def begin(self, head: RunHead, *, owner: str, reopen: Collection[RunStatus]) -> RecordedRun:
        at = _now()

        def begin(connection: Connection) -> tuple[RecordedRun, int]:
            run = sql.begin(connection, head, owner, reopen, at)
            return run, 0 if run.fresh else sql.next_position(connection, head.run_id)

        run, position = await self._writer.run(begin)
        if run.claim is not None:
            self._positions[head.run_id] = position
        return run

    def continued(self, run_id: str, position: int) -> None:
        """A run was claimed; its next step is written at `position`."""
        self._positions[run_id] = position

    def intend(self, claim: Claim, intent: Intent) -> Awaitable[None]:
        values = {
            "run_id": claim.run_id,
            "step_id": intent.step_id,
            "position": self._position(claim),
            "fingerprint": intent.fingerprint,
            "job": intent.job,
            "status": str(StepStatus.BEGUN),
            "attempt": intent.attempt,
            "requests": intent.requests,
            "again": intent.again,
            "begun_at": intent.at,
            "value": None,
            "error_code": None,
            "ended_at": None,
            "copied": False,
            "tries": 1,
            "repeats": int(intent.again != ""),
        }
        key = ("step", claim.run_id, intent.step_id)
        return self._writer.put([(sql.upsert_intent(self._dialect), values, key)], claim=claim)

    def conclude(self, claim: Claim, outcome: StepOutcome, calls: Sequence[CallRow] = ()) -> Awaitable[None]:
        values = {
            "run_id": claim.run_id,
            "step_id": outcome.step_id,
            "position": self._position(claim),
            "fingerprint": outcome.fingerprint,
            "job": outcome.job,
            "status": str(outcome.status),
            "attempt": outcome.attempt,
            "value": outcome.value,
            "error_code": outcome.error_code,
            "ended_at": outcome.at,
            "copied": outcome.copied,
            "requests": None,
            "again": "",
            "begun_at": None,
            "tries": 0,
            "repeats": 0,
        }
        key = ("step", claim.run_id, outcome.step_id)
        rows = [self._call_row(call) for call in calls]
        return self._writer.put([*rows, (sql.upsert_outcome(self._dialect), values, key)], claim=claim)

    def keep_calls(self, claim: Claim, calls: Sequence[CallRow]) -> Awaitable[None]:
        return self._writer.put([self._call_row(call) for call in calls], claim=claim)

    async def check(self, claim: Claim) -> None:
        if await self._writer.read(lambda connection: sql.lost_claims(connection, {claim})):
            raise lost(claim)

    def end(self, claim: Claim, end: RunEnd) -> Awaitable[None]:
        self._positions.pop(claim.run_id, None)
        values: dict[str, Any] = {
            "of": claim.run_id,
            "new_status": str(end.status),
            "new_ended_at": end.ended_at,
            "new_value": end.value,
            "new_error_code": end.error_code,
            "new_error": end.error,
        }
        return self._writer.put([(sql.end_run(self._dialect), values, ("run", claim.run_id))], claim=claim, ends=True)

    async def drop(self, claim: Claim, steps: Collection[str]) -> None:
        names = sorted(steps)

        def drop(connection: Connection) -> None:
            from .schema import steps as table

            if sql.lost_claims(connection, {claim}):
                raise lost(claim)
            for start in range(0, len(names), _AT_ONCE):
                these = table.c.step_id.in_(names[start : start + _AT_ONCE])
                connection.execute(table.delete().where(table.c.run_id == claim.run_id, these))

        await self._writer.run(drop)

    async def read(self, run_id: str) -> RecordedRun | None:
        return await self._writer.read(lambda connection: sql.read_recorded(connection, run_id))

    def _position(self, claim: Claim) -> int:
        position = self._positions.get(claim.run_id, 0)
        self._positions[claim.run_id] = position + 1
        return position


def _now() -> datetime:
    return datetime.now(UTC)
