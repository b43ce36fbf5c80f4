"""A database as something a job declares: a connection and a transaction that exist only while they are used.

The permit is granted with everything else the job needs. Checkout and BEGIN happen at the first statement, so nothing
stands idle in a transaction while a model answers; COMMIT comes when `run` has returned and before its result is
delivered; a failed, stopped or cancelled attempt is rolled back. Works on any SQLAlchemy async engine.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from interlock.errors import InterlockError

from .stopper import Stopper
from .uncancelled import uncancelled

if TYPE_CHECKING:
    from sqlalchemy import CursorResult, Executable, ScalarResult
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, AsyncSession

    from .journal.outcomes import OutcomeRow

log = logging.getLogger("interlock.runtime")

#: Rows of parameters, or one.
Parameters = Mapping[str, Any] | Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True, eq=False)
class DatabaseProvider:
    """A database jobs may ask for by `name`, on the user's own engine. `max_concurrent` jobs hold it at a time.

    Keep `max_concurrent` at or below what the engine's pool can give. Registered in `RuntimeSettings.databases`; the
    engine stays the user's to dispose of.

    `outcomes`: the table interlock_outcome stands in it (made where it is missing) and says which steps were committed,
    so that a step that writes here happens exactly once however the process ends. Without it: at least once.
    """

    name: str
    engine: AsyncEngine
    max_concurrent: int = 5
    outcomes: bool = False

    def __post_init__(self) -> None:
        if self.max_concurrent < 1:
            raise ValueError(f"max_concurrent of database {self.name!r} must be at least 1, not {self.max_concurrent}")


@dataclass(frozen=True, slots=True)
class DatabaseNeed:
    """What a job declared of a database. Without `transaction` the permit only counts."""

    provider: DatabaseProvider
    transaction: bool = True
    hold_transaction: bool = False


class DatabaseSession:
    """One job's transaction on one database: `await resources.database("tickets").execute(insert(...))`.

    It has no commit and no rollback of its own: the transaction is the job's.
    """

    __slots__ = ("_beginning", "_connection", "_need", "_session", "_settled", "_stopper")

    def __init__(self, need: DatabaseNeed, stopper: Stopper) -> None:
        self._need, self._stopper = need, stopper
        self._beginning: asyncio.Lock | None = None
        self._connection: AsyncConnection | None = None
        self._session: AsyncSession | None = None
        self._settled = False

    @property
    def begun(self) -> bool:
        """Whether a transaction is open."""
        return self._connection is not None

    @property
    def engine(self) -> AsyncEngine:
        """The engine itself, for a job whose permit only counts (`transaction=False`)."""
        return self._need.provider.engine

    async def execute(self, statement: Executable, parameters: Parameters | None = None) -> CursorResult[Any]:
        """Run one statement of SQLAlchemy Core."""
        connection = await self.connection()
        result: CursorResult[Any] = await self._stopper.run(connection.execute(statement, parameters))
        return result

    async def scalar(self, statement: Executable, parameters: Parameters | None = None) -> Any:
        """The first column of the first row, or None."""
        return (await self.execute(statement, parameters)).scalar()

    async def scalars(self, statement: Executable, parameters: Parameters | None = None) -> ScalarResult[Any]:
        """The first column of every row."""
        return (await self.execute(statement, parameters)).scalars()

    async def connection(self) -> AsyncConnection:
        """The connection, checked out and with its transaction begun."""
        self._stopper.check()
        if self._settled:
            raise InterlockError(f"the job's transaction on {self._need.provider.name!r} is over: its run has ended")
        if not self._need.transaction:
            raise InterlockError(
                f"database {self._need.provider.name!r} was declared with transaction=False, which only counts: use"
                " .engine, or declare transaction=True"
            )
        if self._connection is None:
            self._beginning = self._beginning or asyncio.Lock()
            async with self._beginning:
                if self._connection is None:
                    await uncancelled(self._begin())
            self._stopper.check()
        connection = self._connection
        assert connection is not None
        return connection

    async def session(self) -> AsyncSession:
        """An ORM session on the same transaction; flushed before the commit."""
        connection = await self.connection()
        if self._session is None:
            from sqlalchemy.ext.asyncio import AsyncSession

            self._session = AsyncSession(
                bind=connection, expire_on_commit=False, join_transaction_mode="create_savepoint"
            )
        return self._session

    async def _begin(self) -> None:
        connection = await self._need.provider.engine.connect()
        try:
            await connection.begin()
        except BaseException:
            await connection.close()
            raise
        self._connection = connection

    # The runtime's side.

    async def commit(self, outcome: OutcomeRow | None = None) -> None:
        """Commit, and the outcome of the job's step with it where the database keeps those."""
        self._settled = True
        connection = self._connection
        if connection is None:
            return
        try:
            if self._session is not None:
                await self._session.commit()
                await self._session.close()
            if outcome is not None and self._need.provider.outcomes:
                from .journal.outcomes import insert

                if not await insert(connection, outcome):
                    self._warn_committed(outcome)
                    await self.rollback()
                    return
            await connection.commit()
        except BaseException:
            await self.rollback()
            raise
        self._connection = None
        await self._give_back(connection)

    async def rollback(self) -> None:
        """Undo and return the connection, or throw it away where that fails."""
        self._settled = True
        connection, self._connection = self._connection, None
        if connection is None:
            return
        try:
            await connection.rollback()
        except Exception as error:
            self._warn("a rollback failed, so its connection is thrown away", error)
            with suppress(Exception):
                await connection.invalidate()
        await self._give_back(connection)

    async def _give_back(self, connection: AsyncConnection) -> None:
        """How the transaction ended is settled by now: a connection that will not go back changes nothing of it."""
        try:
            await connection.close()
        except Exception as error:
            self._warn("a connection could not be given back, so it is thrown away", error)
            with suppress(Exception):
                await connection.invalidate()

    def _warn_committed(self, outcome: OutcomeRow) -> None:
        log.warning(
            "database %r: step %r of run %r was committed there before; what it did this time is rolled back",
            self._need.provider.name, outcome.step_id, outcome.run_id,
        )  # fmt: skip

    def _warn(self, what: str, error: Exception) -> None:
        log.warning("database %r: %s (%s)", self._need.provider.name, what, type(error).__name__)
