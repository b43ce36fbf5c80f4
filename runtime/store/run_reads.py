"""What the runs in a store came to, read back for people: each run, its steps, its cost. Nothing here changes a row."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, TypeVar

from sqlalchemy import case, func, select

from ..journal.protocol import RunStatus, StepStatus
from ..journal.steps import commits_alone
from . import owners
from .journal_sql import UNKNOWN
from .schema import calls, owners as owner_rows, runs, steps

if TYPE_CHECKING:
    from sqlalchemy import Connection, Row

T = TypeVar("T")

#: Runs asked about with one statement.
_AT_ONCE = 500
#: A step of these has an outcome.
_OVER = (StepStatus.SUCCEEDED, StepStatus.FAILED, StepStatus.CANCELLED)

#: Beside the words of `RunStatus`: its process is gone and nobody has taken it over; it stands still until resumed.
INTERRUPTED, PAUSED = "interrupted", "paused"
#: In the hands of one who lives: an intent without an outcome is a call on its way.
_UNDER_WAY = (RunStatus.RUNNING, PAUSED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """What calls have cost by currency, exactly; how many there were, of which `unpriced` have no known cost and of
    `unknown` nobody knows whether they were answered."""

    costs: Mapping[str, Decimal] = field(default_factory=dict)
    calls: int = 0
    unpriced: int = 0
    unknown: int = 0

    def plus(self, currency: str | None, cost: Decimal | None, count: int, unknown: bool) -> Spent:
        costs = dict(self.costs)
        if cost is not None and currency is not None:
            costs[currency] = costs.get(currency, Decimal(0)) + cost * count
        return Spent(
            costs=costs,
            calls=self.calls + count,
            unpriced=self.unpriced + (count if cost is None else 0),
            unknown=self.unknown + (count if unknown else 0),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RunView:
    """One run. `status` is one of `RunStatus`, or `interrupted`, or `paused`. `done` of `steps` have an outcome,
    `failed` of them a bad one; `ambiguous` of them were begun by a process that is gone, and what they did is unknown.
    """

    run_id: str
    pipeline: str
    version: str
    status: str
    created_at: datetime | None
    started_at: datetime | None
    ended_at: datetime | None
    attempt: int
    steps: int = 0
    done: int = 0
    failed: int = 0
    ambiguous: int = 0
    spent: Spent = field(default_factory=Spent)
    cost_cap: str | None = None
    error_code: str | None = None
    error: str | None = None
    host: str | None = None
    pid: int | None = None
    cancel_requested_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StepView:
    """One step, in the order of first writing. `tries` is how often it was begun, `again` why it was begun although
    something of it was known; `ambiguous`: begun by a process that is gone, no call of it is on record, and it did
    more than commit to a database that says whether it did."""

    step_id: str
    job: str
    status: str
    tries: int
    again: str
    error_code: str | None
    begun_at: datetime | None
    ended_at: datetime | None
    spent: Spent
    ambiguous: bool


def list_runs(
    connection: Connection, *, status: str | None = None, pipeline: str | None = None, limit: int = 100
) -> list[RunView]:
    """The latest `limit` runs, oldest first."""
    question = select(runs).order_by(runs.c.created_at.desc(), runs.c.run_id.desc())
    if pipeline is not None:
        question = question.where(runs.c.pipeline == pipeline)
    stored = {INTERRUPTED: RunStatus.RUNNING, PAUSED: None}.get(status or "", status)
    if stored is not None:
        question = question.where(runs.c.status == str(stored))
    elif status == PAUSED:
        question = question.where(runs.c.pause_requested_at.is_not(None), runs.c.ended_at.is_(None))
    living = living_owners(connection)
    found: list[Row[Any]] = []
    for row in connection.execute(question):  # what the words mean beyond a column is judged here
        if status is None or status_of(row, living) == status:
            found.append(row)
        if len(found) >= limit:
            break
    return _viewed(connection, found[::-1], living)


def show_run(connection: Connection, run_id: str) -> tuple[RunView, list[StepView]] | None:
    row = connection.execute(runs.select().where(runs.c.run_id == run_id)).first()
    if row is None:
        return None
    living = living_owners(connection)
    (view,) = _viewed(connection, [row], living)
    spent = _spent(connection, [run_id], calls.c.step_id)
    found = connection.execute(steps.select().where(steps.c.run_id == run_id).order_by(steps.c.position)).all()
    unheard = _unheard(connection, [run_id]) if view.status not in _UNDER_WAY else set()
    return view, [_step(row, spent.get(row.step_id, Spent()), (run_id, row.step_id) in unheard) for row in found]


def left_runs(connection: Connection, *, pipeline: str, prefix: str) -> dict[str, list[str]]:
    """Runs whose ids begin so that were cut off, cancelled or failed, by the fingerprint of their call, oldest first.
    None that lives, that is paused, or that belongs to workers."""
    columns: Any = (runs.c.run_id, runs.c.fingerprint, runs.c.status, runs.c.owner, runs.c.pause_requested_at)
    question: Any = (
        select(*columns)
        .where(runs.c.pipeline == pipeline, runs.c.run_id.startswith(prefix, autoescape=True))
        .where(runs.c.claimed_at.is_(None), runs.c.pause_requested_at.is_(None))
        .order_by(runs.c.created_at, runs.c.run_id)
    )
    living = living_owners(connection)
    found: dict[str, list[str]] = {}
    for row in connection.execute(question):
        if status_of(row, living) in (INTERRUPTED, RunStatus.CANCELLED, RunStatus.FAILED):
            found.setdefault(row.fingerprint, []).append(row.run_id)
    return found


def status_of(row: Row[Any], living: Mapping[str, Any]) -> str:
    """The status as it is now, which the row alone does not say."""
    if row.status == RunStatus.RUNNING and row.owner not in living:
        return INTERRUPTED
    if row.status in (RunStatus.RUNNING, RunStatus.QUEUED) and row.pause_requested_at is not None:
        return PAUSED
    return str(row.status)


def living_owners(connection: Connection) -> dict[str, Row[Any]]:
    """Those that live, also by the look at their process where it is one of this host."""
    rows = connection.execute(select(owner_rows).where(owners.is_alive(connection)))
    return {row.owner: row for row in rows if not owners.incarnation(row).gone}


def _viewed(connection: Connection, rows: Sequence[Row[Any]], living: Mapping[str, Row[Any]]) -> list[RunView]:
    ids = [row.run_id for row in rows]
    spent, counts = _spent(connection, ids, calls.c.run_id), _step_counts(connection, ids)
    unheard = _unheard(connection, [row.run_id for row in rows if status_of(row, living) not in _UNDER_WAY])
    ambiguous: dict[str, int] = {}
    for run_id, _ in unheard:
        ambiguous[run_id] = ambiguous.get(run_id, 0) + 1
    views = []
    for row in rows:
        count, owner = counts.get(row.run_id, {}), living.get(row.owner or "")
        views.append(
            RunView(
                run_id=row.run_id,
                pipeline=row.pipeline,
                version=row.version,
                status=status_of(row, living),
                created_at=row.created_at,
                started_at=row.started_at,
                ended_at=row.ended_at,
                attempt=row.fence,
                steps=sum(count.values()),
                done=sum(count.get(word, 0) for word in _OVER),
                failed=count.get(StepStatus.FAILED, 0),
                ambiguous=ambiguous.get(row.run_id, 0),
                spent=spent.get(row.run_id, Spent()),
                cost_cap=row.cost_cap,
                error_code=row.error_code,
                error=row.error,
                host=None if owner is None else owner.host,
                pid=None if owner is None else owner.pid,
                cancel_requested_at=row.cancel_requested_at,
            )
        )
    return views


def _step(row: Row[Any], spent: Spent, ambiguous: bool) -> StepView:
    return StepView(
        step_id=row.step_id,
        job=row.job,
        status=row.status,
        tries=row.tries,
        again=row.again,
        error_code=row.error_code,
        begun_at=row.begun_at,
        ended_at=row.ended_at,
        spent=spent,
        ambiguous=ambiguous,
    )


def _step_counts(connection: Connection, run_ids: Sequence[str]) -> dict[str, dict[str, int]]:
    counts: dict[str, dict[str, int]] = {}
    for some in _portions(run_ids):
        question = select(steps.c.run_id, steps.c.status, func.count()).where(steps.c.run_id.in_(some))
        for run_id, status, count in connection.execute(question.group_by(steps.c.run_id, steps.c.status)):
            counts.setdefault(run_id, {})[status] = count
    return counts


def _unheard(connection: Connection, run_ids: Sequence[str]) -> set[tuple[str, str]]:
    """The steps of these runs that were begun and not ended, without a call of that attempt on record. Not those that
    could do nothing but commit to a database that says whether they did."""
    found: set[tuple[str, str]] = set()
    for some in _portions(run_ids):
        call = select(calls.c.id).where(
            calls.c.run_id == steps.c.run_id, calls.c.step_id == steps.c.step_id, calls.c.attempt == steps.c.attempt
        )
        question = select(steps.c.run_id, steps.c.step_id, steps.c.requests).where(
            steps.c.run_id.in_(some), steps.c.status == str(StepStatus.BEGUN), ~call.exists()
        )
        begun = connection.execute(question)
        found |= {(run_id, step_id) for run_id, step_id, requests in begun if not commits_alone(requests)}
    return found


def _spent(connection: Connection, run_ids: Sequence[str], by: Any) -> dict[str, Spent]:
    """What the calls of these runs have cost, by a column of theirs."""
    spent: dict[str, Spent] = {}
    unknown = case((calls.c.outcome == UNKNOWN, 1), else_=0)
    for some in _portions(run_ids):
        question = select(by, calls.c.currency, calls.c.cost, func.count(), func.sum(unknown))
        grouped = question.where(calls.c.run_id.in_(some)).group_by(by, calls.c.currency, calls.c.cost)
        for key, currency, cost, count, unheard in connection.execute(grouped):
            before = spent.get(key, Spent())
            rest = before.plus(currency, cost, count - unheard, False) if count > unheard else before
            spent[key] = rest.plus(currency, cost, unheard, True) if unheard else rest
    return spent


def _portions(values: Sequence[T]) -> Iterator[Sequence[T]]:
    for start in range(0, len(values), _AT_ONCE):
        yield values[start : start + _AT_ONCE]
