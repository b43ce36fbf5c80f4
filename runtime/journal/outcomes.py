"""The table of outcomes in a user's own database: one row a step, committed together with the user's rows.

    interlock_outcome(run_id, step_id, result, databases, committed_at), run and step unique

With it a step that writes there happens exactly once: what was committed is read from here on replay, and a second
COMMIT of the same step is refused by the database itself. Rows of runs that have ended may be deleted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from interlock.errors import ConfigurationError

if TYPE_CHECKING:
    from sqlalchemy import Table
    from sqlalchemy.ext.asyncio import AsyncConnection

    from ..database import DatabaseProvider


#: Steps forgotten with one statement.
_AT_ONCE = 500


@dataclass(frozen=True, slots=True)
class OutcomeRow:
    """What a step resulted in, as JSON, and the databases its job commits to."""

    run_id: str
    step_id: str
    result: str
    databases: tuple[str, ...]


def outcome_table() -> Table:
    from sqlalchemy import Column, DateTime, MetaData, Table

    from ..store.schema import SafeText

    return Table(
        "interlock_outcome",
        MetaData(),
        Column("run_id", SafeText, primary_key=True),
        Column("step_id", SafeText, primary_key=True),
        Column("result", SafeText, nullable=False),
        Column("databases", SafeText, nullable=False),
        Column("committed_at", DateTime(timezone=True), nullable=False),
    )


async def prepare(providers: Sequence[DatabaseProvider]) -> None:
    """Make the table where it is missing. Raises ConfigurationError naming the database."""
    for provider in providers:
        try:
            async with provider.engine.begin() as connection:
                await connection.run_sync(outcome_table().create, checkfirst=True)
        except Exception as error:
            reason = getattr(error, "orig", None) or error
            raise ConfigurationError(
                f"the table interlock_outcome cannot be made in database {provider.name!r}"
                f" ({type(reason).__name__}: {reason}): let its user make tables, make it by hand, or register the"
                " database without outcomes=True"
            ) from None


async def insert(connection: AsyncConnection, row: OutcomeRow) -> bool:
    """Put the row into the transaction. False where the step was committed before: this transaction must not be."""
    from sqlalchemy.exc import IntegrityError

    values = {
        "run_id": row.run_id,
        "step_id": row.step_id,
        "result": row.result,
        "databases": ",".join(row.databases),
        "committed_at": datetime.now(UTC),
    }
    try:
        await connection.execute(outcome_table().insert(), values)
    except IntegrityError:
        return False
    return True


async def committed(providers: Sequence[DatabaseProvider], run_id: str) -> dict[str, str]:
    """The results of a run's steps that are committed in every database they write to, by step id."""
    found = await asyncio.gather(*[_committed_in(provider, run_id) for provider in providers])
    where: dict[str, set[str]] = {}
    results: dict[str, tuple[str, frozenset[str]]] = {}
    for provider, rows in zip(providers, found, strict=True):
        for step_id, result, databases in rows:
            where.setdefault(step_id, set()).add(provider.name)
            results[step_id] = result, frozenset(databases.split(","))
    known = {provider.name for provider in providers}
    return {
        step_id: result
        for step_id, (result, databases) in results.items()
        if (databases & known) <= where[step_id]  # one that is registered no more says nothing against it
    }


async def forget(providers: Sequence[DatabaseProvider], run_id: str, steps: Collection[str]) -> None:
    """Steps that somebody wants run again: what they commit then is not refused for what they had committed."""
    table, names = outcome_table(), sorted(steps)
    for provider in providers:
        async with provider.engine.begin() as connection:
            for start in range(0, len(names), _AT_ONCE):
                these = table.c.step_id.in_(names[start : start + _AT_ONCE])
                await connection.execute(table.delete().where(table.c.run_id == run_id, these))


async def _committed_in(provider: DatabaseProvider, run_id: str) -> list[tuple[str, str, str]]:
    from sqlalchemy import select

    table = outcome_table()
    question = select(table.c.step_id, table.c.result, table.c.databases).where(table.c.run_id == run_id)
    async with provider.engine.connect() as connection:
        return [(row[0], row[1], row[2]) for row in await connection.execute(question)]
