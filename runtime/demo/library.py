"""Where the demo keeps what it learned: one SQLite table, and a meter on the connections to it."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Column, Float, Integer, LargeBinary, MetaData, String, Table, delete, event, func, insert, select
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

if TYPE_CHECKING:
    from sqlalchemy import Connection
    from sqlalchemy.ext.asyncio import AsyncConnection

METADATA = MetaData()

MODULES = Table(
    "modules",
    METADATA,
    Column("name", String, primary_key=True),
    Column("entries", Integer, nullable=False),  # stored so far
    Column("likeness", Float, nullable=False),  # their mean
)

KEYWORDS = Table(
    "keywords",
    METADATA,
    Column("keyword", String, primary_key=True),
    Column("entry", String, primary_key=True),
)

ENTRIES = Table(
    "entries",
    METADATA,
    Column("name", String, primary_key=True),
    Column("module", String, nullable=False),
    Column("kind", String, nullable=False),
    Column("area", String, nullable=False),
    Column("deprecated", Float, nullable=False),  # the probability that it is
    Column("title", String, nullable=False),
    Column("summary", String, nullable=False),
    Column("likeness", Float, nullable=False),  # the cosine of what was written and what it was written about
    Column("vector", LargeBinary, nullable=False),  # float32, little-endian, of length one
)


@dataclass(frozen=True, slots=True)
class Found:
    """One answer of the search: `score` is the cosine with the question."""

    module: str
    name: str
    title: str
    score: float


#: How long a statement waits for another's transaction. SQLite's own 5 s are too short for 24 on a busy machine.
BUSY_S = 60.0


async def open_library(path: Path, *, connections: int) -> AsyncEngine:
    """An empty library in that file, with a pool of so many connections."""
    engine = create_async_engine(
        f"sqlite+aiosqlite:///{path}",
        pool_reset_on_return=None,
        pool_size=connections,
        max_overflow=0,
        connect_args={"timeout": BUSY_S},
    )

    @event.listens_for(engine.sync_engine, "connect")
    def configure(connection: Any, _: object) -> None:
        cursor = connection.cursor()
        cursor.execute("PRAGMA journal_mode=WAL")
        cursor.close()

    async with engine.begin() as connection:
        await connection.run_sync(METADATA.create_all)
    return engine


def to_bytes(vector: NDArray[np.float32]) -> bytes:
    return vector.astype("<f4").tobytes()


async def store(execute: Callable[..., Awaitable[Any]], row: Mapping[str, Any], keywords: Sequence[str]) -> None:
    """Write one entry, its keywords and its module's summary, replacing what was there."""
    name, module = row["name"], row["module"]
    await execute(insert(ENTRIES).prefix_with("OR REPLACE"), row)
    await execute(delete(KEYWORDS).where(KEYWORDS.c.entry == name))
    await execute(insert(KEYWORDS), [{"keyword": word, "entry": name} for word in dict.fromkeys(keywords)])
    stored = select(func.count(), func.avg(ENTRIES.c.likeness)).where(ENTRIES.c.module == module)
    count, likeness = (await execute(stored)).one()
    summary = {"name": module, "entries": count, "likeness": likeness}
    await execute(insert(MODULES).prefix_with("OR REPLACE"), summary)


async def search(connection: AsyncConnection, question: NDArray[np.float32], count: int = 5) -> tuple[Found, ...]:
    """The stored entries nearest to the question's vector, best first."""
    columns = (ENTRIES.c.module, ENTRIES.c.name, ENTRIES.c.title, ENTRIES.c.vector)
    rows: Sequence[Any] = (await connection.execute(select(*columns).order_by(ENTRIES.c.name))).all()
    if not rows:
        return ()
    scores = np.stack([np.frombuffer(row.vector, dtype="<f4") for row in rows]) @ question
    best = np.argsort(-scores, kind="stable")[:count]
    return tuple(Found(rows[i].module, rows[i].name, rows[i].title, round(float(scores[i]), 3)) for i in best)


class ConnectionMeter:
    """Seconds for which connections were taken from the pool, and the part of them that the work itself needs.

    `held_s` is from checkout to return. `work_s` is from a transaction's first statement to its last, and the commit,
    without the time spent `elsewhere` in between: what the same work takes however it is arranged.
    """

    def __init__(self, engine: AsyncEngine) -> None:
        self.work_s = 0.0
        self.holds: list[tuple[float, float]] = []  # from, until, on the monotonic clock
        self._taken: dict[object, float] = {}
        self._spans: dict[object, tuple[float, float]] = {}  # first statement begun, last one ended
        pool = engine.sync_engine.pool
        event.listen(pool, "checkout", self._checkout)
        event.listen(pool, "checkin", self._checkin)
        event.listen(engine.sync_engine, "before_execute", self._before)
        event.listen(engine.sync_engine, "after_execute", self._after)
        self._time_commits(engine.sync_engine.dialect)

    @property
    def held_s(self) -> float:
        return sum(until - since for since, until in self.holds)

    @contextmanager
    def elsewhere(self) -> Iterator[None]:
        """Around what a transaction waits for that is not the database."""
        begun = time.monotonic()
        try:
            yield
        finally:
            self.work_s -= time.monotonic() - begun

    def _checkout(self, connection: object, *_: object) -> None:
        self._taken[connection] = time.monotonic()

    def _checkin(self, connection: object, _: object) -> None:
        if (since := self._taken.pop(connection, None)) is not None:
            self.holds.append((since, time.monotonic()))
        first, last = self._spans.pop(connection, (0.0, 0.0))
        self.work_s += last - first

    def _before(self, connection: Connection, *_: object) -> None:
        now = time.monotonic()
        self._spans.setdefault(connection.connection.dbapi_connection, (now, now))

    def _after(self, connection: Connection, *_: object) -> None:
        key = connection.connection.dbapi_connection
        self._spans[key] = (self._spans[key][0], time.monotonic())

    def _time_commits(self, dialect: Any) -> None:
        commit = dialect.do_commit

        def timed(connection: object) -> None:
            begun = time.monotonic()
            try:
                commit(connection)
            finally:
                self.work_s += time.monotonic() - begun

        dialect.do_commit = timed  # SQLAlchemy announces a commit before it happens and says nothing after it
