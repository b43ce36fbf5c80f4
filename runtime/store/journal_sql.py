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
from . import owners
from .schema import calls, runs, steps
from .sql import insert_for, upsert
from .text import storable

if TYPE_CHECKING:
    from sqlalchemy import Connection, Row
    from sqlalchemy.sql import Executable

_HEAD = tuple(item.name for item in fields(RunHead))
_COUNTED = ("status", "known_calls", "unknown_calls")
_STEP = tuple(item.name for item in fields(RecordedStep) if item.name not in _COUNTED)
#: The outcome of a call that was on its way when its process died.
UNKNOWN = "unknown"
#: How many rows of calls there are of each attempt of each step, and how many of them are of unknown outcome.
KnownCalls = dict[tuple[str | None, int], tuple[int, int]]


# What a group is made of. Each is made once a dialect: a group tells them apart by identity.


@cache
def insert_run(dialect: str) -> Executable:
    return runs.insert()


@cache
def upsert_intent(dialect: str) -> Executable:
    names = ("fingerprint", "job", "status", "attempt", "requests", "again", "begun_at")
    over = {"value": None, "error_code": None, "ended_at": None, "copied": False}

    def changes(new: Any) -> dict[str, Any]:
        counted = {"tries": steps.c.tries + 1, "repeats": steps.c.repeats + new.repeats}
        return {**{name: new[name] for name in names}, **over, **counted}

    return upsert(dialect, steps, changes)


@cache
def upsert_outcome(dialect: str) -> Executable:
    names = ("fingerprint", "job", "status", "attempt", "value", "error_code", "ended_at", "copied")
    return upsert(dialect, steps, lambda new: {name: new[name] for name in names})


@cache
def end_run(dialect: str) -> Executable:
    names = ("status", "ended_at", "value", "error_code", "error")
    values = {name: bindparam(f"new_{name}", type_=runs.c[name].type) for name in names}
    return runs.update().where(runs.c.run_id == bindparam("of", type_=runs.c.run_id.type)).values(values)


def head_values(head: RunHead, owner: str, at: datetime) -> dict[str, Any]:
    values = {name: getattr(head, name) for name in _HEAD}
    claimed = {"status": str(RunStatus.RUNNING), "owner": owner, "fence": 1, "claimed_at": at, "created_at": at}
    return {**values, **claimed}


# Who may write.


def lost_claims(connection: Connection, claims: Collection[Claim]) -> set[Claim]:
    """Those whose run has changed hands or ended, or whose owner has lapsed."""
    living = owners.alive(connection, {claim.owner for claim in claims})
    held = _held(connection, sorted({claim.run_id for claim in claims}))
    return {
        claim for claim in claims if claim.owner not in living or held.get(claim.run_id) != (claim.owner, claim.fence)
    }


def _held(connection: Connection, run_ids: list[str]) -> dict[str, tuple[str, int]]:
    """Who has each of the runs that are under way."""
    question = select(runs.c.run_id, runs.c.owner, runs.c.fence).where(runs.c.status == str(RunStatus.RUNNING))
    if connection.dialect.name == "postgresql":  # one statement whatever their number
        wanted = bindparam("wanted", [storable(name) for name in run_ids], type_=ARRAY(Text))
        question = question.where(runs.c.run_id == func.any(wanted))
    else:
        question = question.where(runs.c.run_id.in_(run_ids))
    return {row.run_id: (row.owner, row.fence) for row in connection.execute(question)}


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
    values = {"owner": owner, "fence": fence, "status": str(RunStatus.RUNNING), "claimed_at": at, **over}
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
    end = None
    if status not in (RunStatus.RUNNING, RunStatus.QUEUED):
        end = RunEnd(status=status, ended_at=row.ended_at, value=row.value, error_code=row.error_code, error=row.error)
    head = RunHead(**{name: row._mapping[name] for name in _HEAD})
    steps_ = _steps(connection, row.run_id)
    return RecordedRun(head=head, status=status, claim=claim, end=end, steps=steps_, spent=spent, unpriced=unpriced)


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
