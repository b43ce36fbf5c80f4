"""A group: what was queued together and is committed together. Pure but for the statements it runs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from .prepared import Prepared

#: One row for a statement, and what it is a row of: two rows of one key are written in the order of their coming. None
#: for rows that are only added.
Row = tuple["Prepared", Mapping[str, Any], Hashable]


class Work:
    """One queued piece: `rows`, or (no rows) `alone`, a function with a transaction of its own.

    `claim` is the right its rows are written by. It is asked for in the group's transaction, unless this work `makes`
    it; a work that `ends` it is the last it is good for.
    """

    __slots__ = ("alone", "claim", "done", "ends", "makes", "reads", "rows")

    def __init__(
        self,
        done: asyncio.Future[Any],
        rows: Sequence[Row] = (),
        alone: Callable[[Connection], Any] | None = None,
        *,
        reads: bool = False,
        claim: Hashable = None,
        makes: bool = False,
        ends: bool = False,
    ) -> None:
        self.done, self.rows, self.alone, self.reads = done, rows, alone, reads
        self.claim, self.makes, self.ends = claim, makes, ends


#: Which of these claims are no longer good.
Check = Callable[["Connection", set[Any]], set[Any]]


def none_are_lost(connection: Connection, claims: set[Any]) -> set[Any]:
    return set()


def write(connection: Connection, group: Sequence[Work], check: Check) -> list[Work]:
    """Run the group's statements; the works whose claim is no longer good, of which nothing was written."""
    asked = {work.claim for work in group if work.claim is not None}
    asked -= {work.claim for work in group if work.makes}
    over = check(connection, asked) if asked else set()
    refused: list[Work] = []
    plan = Plan()
    for work in group:
        if work.claim is not None and work.claim in over:
            refused.append(work)
            continue
        for row in work.rows:
            plan.add(row)
        if work.ends:
            over.add(work.claim)
    for statement, rows in plan.batches:
        statement.execute(connection, rows)
    return refused


class Plan:
    """Rows by statement: as few executions as the order within each key allows."""

    __slots__ = ("_last", "batches")

    def __init__(self) -> None:
        self.batches: list[tuple[Prepared, list[Mapping[str, Any]]]] = []
        self._last: dict[Hashable, int] = {}  # the batch in which a key was written last

    def add(self, row: Row) -> None:
        statement, values, key = row
        after = -1 if key is None else self._last.get(key, -1)
        for index in range(after + 1, len(self.batches)):
            if self.batches[index][0] is statement:
                break
        else:
            index = len(self.batches)
            self.batches.append((statement, []))
        self.batches[index][1].append(values)
        if key is not None:
            self._last[key] = index
