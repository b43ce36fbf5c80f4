"""From a URL to a book. What cannot be opened is one sentence, without a password in it."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from interlock.errors import StoreError

from .rows import CallRow, RunRow

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine

    from interlock.admission.memory import PoolMemory

    from .levels import Kept

#: What a commit survives. NORMAL with a write-ahead log: a killed process; FULL: the loss of power too, at a price.
Durability = Literal["NORMAL", "FULL"]


class SqlBook:
    """Rows in a database, through the one writer."""

    def __init__(self, engine: Engine, name: str) -> None:
        from .schema import calls
        from .sql import insert_call, upsert_run
        from .writer import Writer

        self._insert_call = calls.insert()
        self._call_values, (self._upsert_run, self._run_values) = insert_call, upsert_run()
        self._writer = Writer(engine, name)

    def write_call(self, row: CallRow) -> Awaitable[None]:
        return self._writer.write(self._insert_call, self._call_values(row))

    def write_run(self, row: RunRow) -> Awaitable[None]:
        return self._writer.write(self._upsert_run, self._run_values(row))

    async def read_calls(
        self, *, since: datetime | None = None, run_id: str | None = None, limit: int = 1000
    ) -> Sequence[CallRow]:
        from .reads import read_calls

        return await self._writer.read(lambda connection: read_calls(connection, since, run_id, limit))

    async def read_runs(self, *, run_id: str | None = None, limit: int = 1000) -> Sequence[RunRow]:
        from .reads import read_runs

        return await self._writer.read(lambda connection: read_runs(connection, run_id, limit))

    def write_levels(self, owner: str, memories: Mapping[str, PoolMemory], at: datetime, closed: bool) -> None:
        from .levels import close_levels, save_levels

        def write(connection: Connection) -> None:
            save_levels(connection, owner, memories, at, closed)
            if closed:
                close_levels(connection, owner, at)

        self._writer.run(write)

    async def read_levels(self) -> Mapping[str, Sequence[Kept]]:
        from .levels import read_levels

        return await self._writer.read(read_levels)

    @property
    def groups(self) -> int:
        """Commits made so far."""
        return self._writer.groups

    async def close(self) -> None:
        await self._writer.close()


def open_book(url: str, *, durability: Durability = "NORMAL") -> SqlBook:
    """Open (and create) the store at an SQLAlchemy URL: `sqlite:///interlock.db`, `sqlite:///:memory:`.

    Raises StoreError: an unreadable URL, a database that this version cannot store in, a file that cannot be opened.
    """
    engine, name = _engine(url)
    try:
        with engine.connect() as connection:
            _prepare(connection, durability)
    except Exception as error:
        engine.dispose()
        reason = getattr(error, "orig", None) or error
        raise StoreError(f"the store {name} cannot be opened: {reason}. {_advice(url)}") from None
    return SqlBook(engine, name)


def open_for_reading(url: str) -> Engine:
    """An engine that reads a store that exists. Raises StoreError where there is none or it is not one of ours."""
    from sqlalchemy import inspect

    engine, name = _engine(url)
    path = engine.url.database
    if not path or path == ":memory:" or not Path(path).is_file():
        raise StoreError(f"there is no store {name}: nothing has been recorded there yet, or the path is another")
    try:
        with engine.connect().execution_options(interlock_read=True) as connection:
            known = inspect(connection).has_table("calls")
            old = known and bool(_missing(connection))
    except Exception as error:
        engine.dispose()
        reason = getattr(error, "orig", None) or error
        raise StoreError(f"the store {name} cannot be opened: {reason}. {_advice(url)}") from None
    if not known:
        engine.dispose()
        raise StoreError(f"{name} is a database, but not a store of Interlock: it has no table `calls`")
    if old:
        engine.dispose()
        raise StoreError(f"the store {name} is of an earlier version: open it once with a Runtime, which brings it up")
    return engine


def _engine(url: str) -> tuple[Engine, str]:
    from sqlalchemy import create_engine, event
    from sqlalchemy.engine import make_url
    from sqlalchemy.pool import StaticPool

    try:
        parsed = make_url(url)
    except Exception:
        raise StoreError("the store's URL cannot be read; write it as sqlite:///interlock.db") from None
    name = parsed.render_as_string(hide_password=True)
    if parsed.get_backend_name() != "sqlite":
        raise StoreError(f"the store {name} is of a kind this version cannot use: write sqlite:///interlock.db")
    # One connection, made here and used by the writer's thread alone: a memory database would be another one in each.
    options: dict[str, Any] = {"poolclass": StaticPool, "connect_args": {"check_same_thread": False, "timeout": 30}}
    engine = create_engine(parsed.set(drivername="sqlite"), **options)

    @event.listens_for(engine, "connect")
    def _connected(connection: Any, _record: Any) -> None:
        # The driver's own transaction handling would start them late; SQLAlchemy's BEGIN does it on the word.
        connection.isolation_level = None

    @event.listens_for(engine, "begin")
    def _begun(connection: Connection) -> None:
        raw: Any = connection.connection.driver_connection
        raw.execute("BEGIN" if _reading(connection) else "BEGIN IMMEDIATE")

    return engine, name


def _reading(connection: Connection) -> bool:
    return bool(connection.get_execution_options().get("interlock_read"))


def _prepare(connection: Connection, durability: Durability) -> None:
    from .schema import metadata

    raw = connection.connection.cursor()
    raw.execute("PRAGMA journal_mode=WAL")
    raw.execute(f"PRAGMA synchronous={'FULL' if durability == 'FULL' else 'NORMAL'}")
    raw.close()
    with connection.begin():
        metadata.create_all(connection)
        for column in _missing(connection):
            added = f"{column.name} {column.type.compile(connection.dialect)}"
            connection.exec_driver_sql(f"ALTER TABLE calls ADD COLUMN {added}")


def _missing(connection: Connection) -> list[Any]:
    """The columns of `calls` that a file of an earlier version has not. What it could not know stays null."""
    from sqlalchemy import inspect

    from .schema import calls

    there = {column["name"] for column in inspect(connection).get_columns("calls")}
    return [column for column in calls.columns if column.name not in there and column.nullable]


def _advice(url: str) -> str:
    path = url.partition(":///")[2]
    folder = Path(path or ".").parent
    if path and not folder.is_dir():
        return f"The folder {folder} does not exist: make it, or name another file."
    return "Check that the file may be written and is an SQLite database, or name another one."
