"""Statements that are run with very many rows: compiled once, their values bound by a loop as short as can be.

SQLAlchemy looks at each row of an `executemany` anew, which costs more than writing it does. The SQL and the columns'
types are its own all the same. (One array a column and one execution for all, on Postgres, was measured: it is no
cheaper, on neither side.)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sqlalchemy import Connection, Dialect, Table
    from sqlalchemy.sql import ClauseElement

#: A bind's name and what makes the driver's value of it.
Bind = tuple[str, Callable[[Any], Any] | None]
#: What becomes of the row that has the key already, from the row that was to be inserted.
Changes = Callable[[Any], Mapping[str, Any]]


class Prepared:
    """One statement for one dialect. `names` are the keys that every row has."""

    __slots__ = ("_binds", "_constants", "_names", "_sql", "_statement")

    def __init__(self, statement: ClauseElement, names: Sequence[str]) -> None:
        self._statement, self._names = statement, tuple(names)
        self._sql = ""
        self._binds: list[Bind] = []
        self._constants: dict[str, Any] = {}

    def execute(self, connection: Connection, rows: Sequence[Mapping[str, Any]]) -> None:
        if not self._sql:
            self._compile(connection.dialect)
        binds, constants = self._binds, self._constants
        whole = [{**constants, **row} for row in rows] if constants else rows
        values = [tuple([row[name] if bind is None else bind(row[name]) for name, bind in binds]) for row in whole]
        connection.exec_driver_sql(self._sql, values)

    def _compile(self, dialect: Dialect) -> None:
        compiled: Any = self._statement.compile(dialect=dialect, column_keys=list(self._names))
        kinds = {name: compiled.binds[name].type for name in compiled.positiontup}
        self._binds = [
            (name, kinds[name].dialect_impl(dialect).bind_processor(dialect)) for name in compiled.positiontup
        ]
        self._constants = {name: compiled.params[name] for name in kinds if name not in self._names}
        self._sql = str(compiled)  # last: another writer's thread may be compiling the same


def prepared_insert(dialect: str, table: Table, names: Sequence[str], changes: Changes | None = None) -> Prepared:
    """Insert rows; with `changes`, change the one that has the key already."""
    keys = [column.name for column in table.primary_key]
    statement = insert_for(dialect)(table)
    if changes is not None:
        statement = statement.on_conflict_do_update(index_elements=keys, set_=changes(statement.excluded))
    return Prepared(statement, names)


def insert_for(dialect: str) -> Any:
    """The `insert` that knows ON CONFLICT: each database has one of its own, and they are used alike."""
    if dialect == "postgresql":
        from sqlalchemy.dialects import postgresql

        return postgresql.insert
    from sqlalchemy.dialects import sqlite

    return sqlite.insert
