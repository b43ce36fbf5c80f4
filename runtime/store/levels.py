"""What pools must not forget, in one table: a row a pool, however often programs start. Runs in the writer's thread."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from interlock.admission.memory import PoolMemory, lower

from .prepared import insert_for
from .schema import levels

if TYPE_CHECKING:
    from sqlalchemy import Connection, Row

#: A pool nobody has touched for so long is forgotten.
FORGOTTEN_AFTER = timedelta(days=7)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """One pool's memory, when it was read, and whether its process could say its last word."""

    memory: PoolMemory
    saved_at: datetime
    closed: bool


def merged(a: Kept, b: Kept) -> Kept:
    """Both, at the later of their moments: the lower of each level."""
    newer, older = (a, b) if a.saved_at >= b.saved_at else (b, a)
    apart_s = (newer.saved_at - older.saved_at).total_seconds()
    return Kept(
        memory=lower(newer.memory, older.memory.after(apart_s)),
        saved_at=newer.saved_at,
        closed=newer.closed and older.closed,
    )


def save_levels(
    connection: Connection, owner: str, memories: Mapping[str, PoolMemory], at: datetime, closed: bool
) -> None:
    """Write what `owner` remembers. What another process wrote last is kept beside it, never overwritten."""
    insert = insert_for(connection.dialect.name)
    for name in sorted(memories):  # one order for all, so that two processes cannot lock each other's rows
        values = {"owner": owner, "saved_at": at, "closed": closed, "memory": memories[name].to_json(), "others": None}
        statement = insert(levels).values(pool=name, **values).on_conflict_do_nothing(index_elements=["pool"])
        if connection.execute(statement).rowcount > 0:
            continue
        here = levels.c.pool == name
        row = connection.execute(levels.select().where(here).with_for_update()).one()
        others = _others(row, owner)
        values["others"] = None if others is None else _to_json(others)
        connection.execute(levels.update().where(here).values(values))


def close_levels(connection: Connection, owner: str, before: datetime) -> None:
    """`owner` has said its last word. Pools that nobody has touched for long are dropped."""
    connection.execute(levels.update().where(levels.c.owner == owner).values(closed=True))
    connection.execute(levels.delete().where(levels.c.saved_at < before - FORGOTTEN_AFTER))


def read_levels(connection: Connection) -> dict[str, list[Kept]]:
    """All that is remembered, by the pool's name. A row that cannot be read says nothing."""
    found: dict[str, list[Kept]] = {}
    for row in connection.execute(levels.select()):
        kept = [_own(row), _others(row, row.owner)]
        found[row.pool] = [one for one in kept if one is not None]
    return found


def _own(row: Row[Any]) -> Kept | None:
    try:
        return Kept(memory=PoolMemory.from_json(row.memory), saved_at=row.saved_at, closed=row.closed)
    except (TypeError, KeyError, ValueError, AttributeError):
        return None


def _others(row: Row[Any], owner: str) -> Kept | None:
    """What processes other than `owner` have written into the row."""
    others = _from_json(row.others)
    own = None if row.owner == owner else _own(row)
    if own is None or others is None:
        return own or others
    return merged(own, others)


def _to_json(kept: Kept) -> dict[str, Any]:
    return {"memory": kept.memory.to_json(), "saved_at": kept.saved_at.isoformat(), "closed": kept.closed}


def _from_json(data: Mapping[str, Any] | None) -> Kept | None:
    try:
        return Kept(
            memory=PoolMemory.from_json(data["memory"]),  # type: ignore[index]
            saved_at=datetime.fromisoformat(data["saved_at"]),  # type: ignore[index]
            closed=bool(data["closed"]),  # type: ignore[index]
        )
    except (TypeError, KeyError, ValueError, AttributeError):
        return None
