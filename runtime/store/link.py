"""How a store's one thread reaches its database. SQLite is called as it is; Postgres through asyncpg, in a loop of the
thread's own, so that the rest reads the same for both.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING, Any, Protocol
from uuid import uuid4

from interlock.admission.ledger.forking import unforked
from interlock.errors import StoreError

from .place import Place, sqlstate

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine

log = logging.getLogger("interlock.runtime")

#: Seconds in which a connection must be made, and a statement answered, before it counts as lost.
CONNECT_TIMEOUT_S, STATEMENT_TIMEOUT_S = 10.0, 60.0
#: Seconds SQLite waits for another process's lock before it says so; and where whoever uses it tries again by itself.
LOCK_TIMEOUT_S, SHORT_LOCK_TIMEOUT_S = 30.0, 4.0
#: Seconds that a server lets a process with rows locked say nothing (it was frozen, or its host): then it is cut off,
#: and the others go on.
IDLE_LIMIT_S = 5.0
#: The setting for it: of a transaction, so that nothing is left behind with a pooler.
IDLE_SETTING = "idle_in_transaction_session_timeout"
#: What a server says while it stops, starts, has no room (for connections, on its disk), or is a standby: it is away,
#: and what was asked is no fault. Or that it has cut this process off, which said nothing for too long.
_AWAY = {"57P01", "57P02", "57P03", "53300", "53100", "25006", "25P03"}
#: A prepared statement is not there, or there already.
_POOLED = {"26000", "42P05"}
#: Two transactions met: done again, each goes through.
MET = {"40001", "40P01"}


def idle_limit() -> str:
    """`IDLE_LIMIT_S` as the server reads it."""
    return f"{1_000 * IDLE_LIMIT_S:.0f}ms"


class Link(Protocol):
    """What the thread needs. All but `serve` is called from within `serve`.

    `numbers`: whether the answer to a COMMIT can be lost, so that transactions are numbered.
    """

    numbers: bool

    def serve(self, work: Callable[[], None]) -> None:
        """Run `work` in this thread, where connections may be used."""
        ...

    def connect(self) -> Connection: ...

    def shorten_lock_wait(self, connection: Connection) -> None:
        """For whoever tries again by itself where the file is locked: it is told so soon."""
        ...

    def limit_idle_time(self, connection: Connection) -> None:
        """At a transaction's beginning: the server ends one whose process says nothing for `IDLE_LIMIT_S`."""
        ...

    def drop(self, connection: Connection) -> None:
        """Let go of one that may be lost, without a word to the other side."""
        ...

    def is_away(self, error: BaseException) -> bool:
        """Whether the database could not be reached, was busy or had no room: try again, nothing is wrong with what was
        asked."""
        ...

    def dispose(self) -> None: ...


@contextmanager
def transaction(connection: Connection) -> Iterator[None]:
    """One on this connection; the process is not forked in the midst of one in SQLite."""
    with unforked() if connection.dialect.name == "sqlite" else nullcontext(), connection.begin():
        yield


class SqliteLink:
    """One connection: a memory database would be another one in each, and a file has one writer at a time.
    Without a `durability` it is used as it is found."""

    numbers = False

    def __init__(self, place: Place, durability: str | None) -> None:
        self._engine = sqlite_engine(place)
        self._durability = durability

    def serve(self, work: Callable[[], None]) -> None:
        work()

    def connect(self) -> Connection:
        connection = self._engine.connect()
        if self._durability is not None:
            raw = connection.connection.cursor()
            raw.execute("PRAGMA journal_mode=WAL")
            raw.execute(f"PRAGMA synchronous={'FULL' if self._durability == 'FULL' else 'NORMAL'}")
            raw.close()
        return connection

    def shorten_lock_wait(self, connection: Connection) -> None:
        raw = connection.connection.cursor()
        raw.execute(f"PRAGMA busy_timeout={min(SHORT_LOCK_TIMEOUT_S, LOCK_TIMEOUT_S) * 1000:.0f}")
        raw.close()

    def limit_idle_time(self, connection: Connection) -> None:
        return None

    def drop(self, connection: Connection) -> None:
        connection.close()

    def is_away(self, error: BaseException) -> bool:
        code = getattr(getattr(error, "orig", error), "sqlite_errorname", "")
        return code.startswith(("SQLITE_BUSY", "SQLITE_LOCKED", "SQLITE_FULL"))

    def dispose(self) -> None:
        self._engine.dispose()


class PostgresLink:
    """A connection at a time, made anew when it is lost.

    Behind a pooler that hands out another backend for each transaction, a statement that was prepared is suddenly not
    there, or another client's: it is noticed, and from then on each is prepared where it is run.
    """

    numbers = True

    def __init__(self, place: Place) -> None:
        self._place, self._pooled = place, False
        self._engine = postgres_engine(place)

    def serve(self, work: Callable[[], None]) -> None:
        from sqlalchemy.util import greenlet_spawn

        asyncio.run(greenlet_spawn(work))

    def connect(self) -> Connection:
        return self._engine.connect()

    def shorten_lock_wait(self, connection: Connection) -> None:
        return None

    def limit_idle_time(self, connection: Connection) -> None:
        connection.exec_driver_sql(f"select set_config('{IDLE_SETTING}', '{idle_limit()}', true)")

    def drop(self, connection: Connection) -> None:
        with suppress(Exception):  # what is to be let go is broken anyway
            connection.invalidate()
        with suppress(Exception):
            connection.close()

    def is_away(self, error: BaseException) -> bool:
        state = sqlstate(error)
        if state in _POOLED and not self._pooled:
            log.info("the store %s is behind a pooler: its statements are prepared anew each time", self._place.name)
            self._pooled = True
            self._engine = postgres_engine(self._place, pooled=True)
        if state:
            return state in _AWAY or state in MET or state in _POOLED or state.startswith("08")
        invalidated = getattr(error, "connection_invalidated", None)
        # A value that the driver cannot encode is an InterfaceError as well, so its class says nothing.
        return _is_of_the_network(error) if invalidated is None else bool(invalidated)

    def dispose(self) -> None:
        self._engine.dispose()


def _is_of_the_network(error: BaseException) -> bool:
    """Whether an error that the driver did not translate is of the connection rather than of what was asked."""
    inner: BaseException | None = error
    for _ in range(4):
        if isinstance(inner, (OSError, EOFError)):  # a TimeoutError is one, and so are those of TLS and of names
            return True
        inner = None if inner is None else inner.__cause__
    return False


def link_to(place: Place, durability: str | None = "NORMAL") -> Link:
    return SqliteLink(place, durability) if place.kind == "sqlite" else PostgresLink(place)


def sqlite_engine(place: Place) -> Engine:
    from sqlalchemy import create_engine, event
    from sqlalchemy.pool import StaticPool

    options: dict[str, Any] = {
        "poolclass": StaticPool,
        "connect_args": {"check_same_thread": False, "timeout": LOCK_TIMEOUT_S},
    }
    engine = create_engine(place.url, **options)

    @event.listens_for(engine, "connect")
    def _connected(connection: Any, _record: Any) -> None:
        # The driver's own transaction handling would start them late; SQLAlchemy's BEGIN does it on the word.
        connection.isolation_level = None

    @event.listens_for(engine, "begin")
    def _begun(connection: Connection) -> None:
        raw: Any = connection.connection.driver_connection
        raw.execute("BEGIN" if connection.get_execution_options().get("interlock_read") else "BEGIN IMMEDIATE")

    return engine


def postgres_engine(place: Place, *, pooled: bool = False) -> Engine:
    """The blocking face of an asyncio engine: to be used inside `greenlet_spawn` only."""
    from sqlalchemy.ext.asyncio import create_async_engine
    from sqlalchemy.pool import NullPool

    arguments: dict[str, Any] = {
        "timeout": CONNECT_TIMEOUT_S,
        "command_timeout": STATEMENT_TIMEOUT_S,
        "server_settings": {"application_name": "interlock"},
        # Behind a pooler that hands out another backend each transaction, two clients must not name one alike.
        "prepared_statement_name_func": lambda: f"interlock_{uuid4().hex}",
    }
    if pooled:
        arguments |= {"prepared_statement_cache_size": 0, "statement_cache_size": 0}
    try:
        return create_async_engine(place.url, poolclass=NullPool, connect_args=arguments).sync_engine
    except ModuleNotFoundError as error:
        if error.name != "asyncpg":
            raise
        raise StoreError(
            f"the store {place.name} needs asyncpg, which is not installed: pip install 'interlock[postgres]'"
        ) from None
