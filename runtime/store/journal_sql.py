"""The journal's statements: rows of `runs` and `steps`, and who may write them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import fields
from datetime import datetime
from decimal import Decimal
from functools import cache
from typing import TYPE_CHECKING, Any

from sqlalchemy import ARRAY, Text, bindparam, func, select, text

from interlock.errors import RunHeldError

from ..journal.protocol import Claim, RecordedRun, RecordedStep, RunEnd, RunHead, RunStatus, StepStatus
from ..journal.replay import is_refusal
from . import owners
from .prepared import Prepared, insert_for, prepared_insert
from .schema import calls, owners as owner_rows, runs, steps
from .text import storable

if TYPE_CHECKING:
    from sqlalchemy import Connection, Row

_HEAD = tuple(item.name for item in fields(RunHead))
_CLAIMED = ("status", "owner", "fence", "created_at")
_ALL_OF_A_STEP = tuple(column.name for column in steps.columns)
_COUNTED = ("status", "known_calls", "unknown_calls")
_STEP = tuple(item.name for item in fields(RecordedStep) if item.name not in _COUNTED)
#: The outcome of a call that was on its way when its process died.
UNKNOWN = "unknown"
#: How many rows of calls there are of each attempt of each step, and how many of them are of unknown outcome.
KnownCalls = dict[tuple[str | None, int], tuple[int, int]]


# What a group is made of. Each is made once a dialect: a group tells them apart by identity.


@cache
def insert_run(dialect: str) -> Prepared:
    return prepared_insert(dialect, runs, (*_HEAD, *_CLAIMED))


@cache
def upsert_intent(dialect: str) -> Prepared:
    names = ("fingerprint", "job", "status", "attempt", "requests", "again", "begun_at")
    over = {"value": None, "error_code": None, "ended_at": None, "copied": False}

    def changes(new: Any) -> dict[str, Any]:
        counted = {"tries": steps.c.tries + 1, "repeats": steps.c.repeats + new.repeats}
        return {**{name: new[name] for name in names}, **over, **counted}

    return prepared_insert(dialect, steps, _ALL_OF_A_STEP, changes)


@cache
def upsert_outcome(dialect: str) -> Prepared:
    names = ("fingerprint", "job", "status", "attempt", "value", "error_code", "ended_at", "copied")
    return prepared_insert(dialect, steps, _ALL_OF_A_STEP, lambda new: {name: new[name] for name in names})


@cache
def end_run(dialect: str) -> Prepared:
    names = ("status", "ended_at", "value", "error_code", "error")
    values = {name: bindparam(f"new_{name}", type_=runs.c[name].type) for name in names}
    statement = runs.update().where(runs.c.run_id == bindparam("of", type_=runs.c.run_id.type)).values(values)
    return Prepared(statement, ("of", *(f"new_{name}" for name in names)))


def head_values(head: RunHead, owner: str, at: datetime) -> dict[str, Any]:
    values = {name: getattr(head, name) for name in _HEAD}
    return {**values, **dict(zip(_CLAIMED, (str(RunStatus.RUNNING), owner, 1, at), strict=True))}


# Who may write.


def lost_claims(connection: Connection, claims: Collection[Claim]) -> set[Claim]:
    """Those whose run has changed hands or ended, or whose owner has lapsed."""
    names, run_ids = {claim.owner for claim in claims}, {claim.run_id for claim in claims}
    if connection.dialect.name == "postgresql":
        wanted = {"names": sorted(names), "run_ids": sorted(storable(run_id) for run_id in run_ids)}
        found = connection.execute(_held_by_the_living(connection), wanted)
    else:
        living = owners.alive(connection, names)
        found = connection.execute(_HELD.where(runs.c.run_id.in_(sorted(run_ids)), runs.c.owner.in_(sorted(living))))
    held = {row.run_id: (row.owner, row.fence) for row in found}
    return {claim for claim in claims if held.get(claim.run_id) != (claim.owner, claim.fence)}


_HELD = select(runs.c.run_id, runs.c.owner, runs.c.fence).where(runs.c.status == str(RunStatus.RUNNING))
_BY_THE_LIVING: list[Any] = []


def _held_by_the_living(connection: Connection) -> Any:
    """One statement, however many are asked about. Who is named as living is locked: a run changes hands only once its
    owner has been given up, so the runs need no lock of their own."""
    if not _BY_THE_LIVING:
        living = owners.living(connection, owner_rows.c.owner == func.any(bindparam("names", type_=ARRAY(Text))))
        these = living.with_for_update(read=True).cte("living")
        wanted = runs.c.run_id == func.any(bindparam("run_ids", type_=ARRAY(Text)))
        _BY_THE_LIVING.append(_HELD.where(wanted, runs.c.owner == these.c.owner))
    return _BY_THE_LIVING[0]


def begin(
    connection: Connection, head: RunHead, owner: str, reopen: Collection[RunStatus], at: datetime
) -> RecordedRun:
    """Make the run, take it, or only read it: see `Journal.begin`."""
    made = insert_for(connection.dialect.name)(runs).on_conflict_do_nothing(index_elements=["run_id"])
    if connection.execute(made, head_values(head, owner, at)).rowcount > 0:
        claim = Claim(run_id=head.run_id, owner=owner, fence=1)
        return RecordedRun(head=head, status=RunStatus.RUNNING, claim=claim, fresh=True)
    row = connection.execute(runs.select().where(runs.c.run_id == head.run_id).with_for_update()).one()
    if row.status not in reopen:
        return recorded(connection, row)
    if row.status == RunStatus.RUNNING and row.owner not in (None, owner) and not owners.give_up(connection, row.owner):
        raise RunHeldError(f"run {head.run_id!r} is under way in another process ({row.owner}): wait, or stop that one")
    fence = row.fence + 1
    over = dict.fromkeys(("ended_at", "value", "error_code", "error", "pause_requested_at", "cancel_requested_at"))
    values = {"owner": owner, "fence": fence, "status": str(RunStatus.RUNNING), "claimed_at": None, **over}
    if row.started_at is None:
        values["started_at"] = at
    connection.execute(runs.update().where(runs.c.run_id == head.run_id).values(values))
    row = connection.execute(runs.select().where(runs.c.run_id == head.run_id)).one()
    return recorded(connection, row, Claim(run_id=head.run_id, owner=owner, fence=fence))


# Reading back.


def read_recorded(connection: Connection, run_id: str) -> RecordedRun | None:
    row = connection.execute(runs.select().where(runs.c.run_id == run_id)).first()
    return None if row is None else recorded(connection, row)


def recorded(connection: Connection, row: Row[Any], claim: Claim | None = None) -> RecordedRun:
    spent, unpriced = spent_by(connection, row.run_id)
    status = RunStatus(row.status)
    end, refused = None, False
    if status in (RunStatus.RUNNING, RunStatus.QUEUED):
        refused = is_refusal(row.error_code)
    else:
        end = RunEnd(status=status, ended_at=row.ended_at, value=row.value, error_code=row.error_code, error=row.error)
    head = RunHead(**{name: row._mapping[name] for name in _HEAD})
    steps_ = _steps(connection, row.run_id)
    return RecordedRun(
        head=head,
        status=status,
        claim=claim,
        end=end,
        steps=steps_,
        spent=spent,
        unpriced=unpriced,
        refused=refused,
    )


def _steps(connection: Connection, run_id: str) -> dict[str, RecordedStep]:
    found = connection.execute(steps.select().where(steps.c.run_id == run_id).order_by(steps.c.position)).all()
    begun = any(row.status == StepStatus.BEGUN for row in found)
    known = known_calls(connection, run_id) if begun else {}
    return {row.step_id: _step(row, known) for row in found}


def _step(row: Row[Any], known: KnownCalls) -> RecordedStep:
    status = StepStatus(row.status)
    values = {name: row._mapping[name] for name in _STEP}
    of_it = known.get((row.step_id, row.attempt), (0, 0)) if status is StepStatus.BEGUN else (0, 0)
    return RecordedStep(**values, status=status, known_calls=of_it[0], unknown_calls=of_it[1])


def known_calls(connection: Connection, run_id: str) -> KnownCalls:
    question = select(calls.c.step_id, calls.c.attempt, calls.c.outcome == UNKNOWN, func.count())
    grouped = question.where(calls.c.run_id == run_id).group_by(calls.c.step_id, calls.c.attempt, text("3"))
    known: KnownCalls = {}
    for step_id, attempt, unknown, count in connection.execute(grouped):
        before = known.get((step_id, attempt), (0, 0))
        known[step_id, attempt] = (before[0] + count, before[1] + (count if unknown else 0))
    return known


def spent_by(connection: Connection, run_id: str) -> tuple[dict[str, Decimal], int]:
    """What the run's calls have cost, exactly, by currency; and how many of them have no known cost."""
    question = select(calls.c.currency, calls.c.cost, func.count()).where(calls.c.run_id == run_id)
    spent: dict[str, Decimal] = {}
    unpriced = 0
    for currency, cost, count in connection.execute(question.group_by(calls.c.currency, calls.c.cost)):
        if cost is None:
            unpriced += count
        elif cost and currency is not None:
            spent[currency] = spent.get(currency, Decimal(0)) + cost * count
    return spent, unpriced


def next_position(connection: Connection, run_id: str) -> int:
    last = connection.execute(select(func.max(steps.c.position)).where(steps.c.run_id == run_id)).scalar()
    return 0 if last is None else int(last) + 1
