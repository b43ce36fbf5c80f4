"""The ledger in PostgreSQL: for every process that reaches the database.

A message is one call of a function in the database (`postgres_rules.py`), and its pools are locked for just as long as
that takes, however far away the process is. Only what is rare (refusals, reports, the end of a day) is decided here,
by the Python rules, with the pools' rows locked meanwhile.

A commit is not waited for until it is on the disk: everybody on a pool would wait in turn. What a crash of the server
may so forget, its last moments, each process remembers and says again when it is back (`_remind`).
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from time import monotonic
from typing import Any

from interlock.errors import ConfigurationError, LeaseLostError, LedgerUnavailableError

from . import cold, rules
from .base import BaseLedger
from .message import Message, PoolState, PoolTerms, Reply
from .owners import LEASE_PART, OwnerRow, check, lapsed, lost, may_judge
from .postgres_rows import (
    MAKE_POOL,
    SAVE_POOL,
    SAVE_TOTAL,
    arguments,
    pool_row,
    pool_values,
    total_row,
    total_values,
)
from .postgres_rules import ALL_GRANTED, IRREGULAR, LAPSED, LOST, NAME, STALE, UNKNOWN
from .postgres_schema import STATEMENTS
from .rows import PoolBook, PoolRow
from .wire import pool_states, reply

try:
    import asyncpg
except ModuleNotFoundError as error:
    raise ConfigurationError("a ledger in PostgreSQL needs asyncpg: pip install 'interlock[postgres]'") from error

CALL = f"select * from {NAME}($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)"
NOW = "select interlock_ledger_now()"
#: `owners.beaten` in one statement, so that one that is stopped in the midst of it locks nothing.
BEAT = """
update ledger_owners w
set since = case when w.alive_until < n.now_ then n.now_ else w.since end, alive_until = n.now_ + $2
from (select interlock_ledger_now() as now_) n
where w.fence = $1 and w.owner = $4 and (w.alive_until >= n.now_ or $3)
returning w.since, n.now_
"""
SILENT_S = "select interlock_ledger_now() - alive_until from ledger_owners where fence = $1 and owner = $2"
#: What an owner has out, with the pools, which are locked in the order of their names.
HELD = """
select p.*, t.unsent as held_unsent from ledger_pools p join ledger_totals t on t.pool = p.name
where t.fence = $1 order by p.name for no key update of p
"""
#: Making the tables is one process's at a time.
MAKING = "select pg_advisory_xact_lock(7264510931)"

#: Seconds for an answer, for a connection; between two attempts to connect, at first and at most.
ANSWER_S, CONNECT_S, FIRST_WAIT_S, LONGEST_WAIT_S = 10.0, 5.0, 0.05, 2.0
#: How long the server lets a process that has rows locked say nothing (it was stopped): then it is cut off.
IDLE_LIMIT_S = 2.0
LIMIT_IDLE_TIME = "select set_config('idle_in_transaction_session_timeout', $1, true)"
#: Messages that old are on the server's disk (three times its `wal_writer_delay` of 0.2 s, and more).
ON_DISK_S = 1.5
#: Again at once: another took a lock that this one wanted (for longer than a `lock_timeout` allows), or the server says
#: to try again.
AGAIN = (asyncpg.DeadlockDetectedError, asyncpg.SerializationError, asyncpg.LockNotAvailableError)
GONE = (
    OSError, TimeoutError, asyncpg.PostgresConnectionError, asyncpg.InterfaceError, asyncpg.OperatorInterventionError,
    asyncpg.InsufficientResourcesError, asyncpg.CannotConnectNowError,
    asyncpg.ReadOnlySQLTransactionError,  # a standby that another server is being made of
    asyncpg.InternalClientError,  # what asyncpg says to a question that crosses the server's goodbye
)  # fmt: skip
#: The tables, or the function over them, were there when the ledger was opened.
DROPPED = (asyncpg.UndefinedTableError, asyncpg.UndefinedFunctionError, asyncpg.InvalidSchemaNameError)
#: What no waiting will mend.
WRONG = (asyncpg.InvalidAuthorizationSpecificationError, asyncpg.InvalidCatalogNameError)


class Link:
    """One connection, made when it is needed and again when it broke, not too often. Everything else is an error."""

    def __init__(self, dsn: str, prepared: bool) -> None:
        self._dsn, self._cached = dsn, 100 if prepared else 0
        self._connection: Any = None
        self._busy = asyncio.Lock()
        self._not_before, self._wait_s = 0.0, FIRST_WAIT_S
        #: Counts the connections made.
        self.made = 0

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Any]:
        """The connection, nobody else's meanwhile. What breaks it is a LedgerUnavailableError."""
        async with self._busy:
            try:
                if self._connection is None or self._connection.is_closed():
                    await self._connect()
                yield self._connection
            except GONE as error:
                self._drop()
                raise LedgerUnavailableError(f"the ledger's database cannot be reached: {_words(error)}") from error
            except AGAIN as error:
                raise LedgerUnavailableError(f"the ledger's database has too many at once: {_words(error)}") from error
            except asyncpg.InsufficientPrivilegeError as error:
                raise ConfigurationError(
                    f"the ledger's database does not let this role use its tables: {_words(error)}. Grant the role "
                    "`create` on the schema, or let its owner open the ledger once and grant the role its tables"
                ) from error
            except DROPPED as error:
                raise LeaseLostError(
                    f"the ledger's tables were dropped while this process used them ({_words(error)}): what it held "
                    "there is not known any more, and its work stops here. A new process makes the tables anew"
                ) from error
            except asyncio.CancelledError:
                self._drop()  # whatever it was doing
                raise

    async def _connect(self) -> None:
        if monotonic() < self._not_before:
            raise LedgerUnavailableError("the ledger's database cannot be reached; it is tried again in a moment")
        self._not_before = monotonic() + self._wait_s * (0.5 + random.random())
        self._wait_s = min(self._wait_s * 2, LONGEST_WAIT_S)
        connect: Any = asyncpg.connect
        try:
            self._connection = await connect(
                self._dsn, timeout=CONNECT_S, command_timeout=ANSWER_S, statement_cache_size=self._cached
            )
        except WRONG as error:
            raise ConfigurationError(f"the ledger's database lets nobody in by this address: {error}") from error
        self.made += 1
        self._not_before, self._wait_s = 0.0, FIRST_WAIT_S

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.terminate()

    async def close(self) -> None:
        async with self._busy:
            connection, self._connection = self._connection, None
            if connection is not None:
                try:
                    await connection.close(timeout=CONNECT_S)
                except GONE:
                    connection.terminate()


def _reply(message: Message, names: Sequence[str], granted: Sequence[int], states: Sequence[float]) -> Reply:
    return reply(message.seq, names, range(len(message.asks)) if granted == ALL_GRANTED else granted, states)


def _words(error: BaseException) -> str:
    return str(error) or type(error).__name__


@asynccontextmanager
async def transaction(connection: Any) -> AsyncIterator[None]:
    """One whose locks do not outlast a process that is stopped in the midst of it."""
    async with connection.transaction():
        await connection.fetchval(LIMIT_IDLE_TIME, f"{1000 * IDLE_LIMIT_S:.0f}ms")
        yield


class PostgresLedger(BaseLedger):
    """One owner on the ledger in a database; `url` as SQLAlchemy or libpq write it.

    `prepared=False`: no prepared statements, for a pooler that hands each transaction to another backend.
    """

    def __init__(self, url: str, *, prepared: bool = True, **settings: Any) -> None:
        super().__init__(**settings)
        self._dsn, self._prepared = url.replace("postgresql+asyncpg://", "postgresql://", 1), prepared
        self._link = Link(self._dsn, prepared)
        self._recent: deque[tuple[float, Message, tuple[int, ...]]] = deque()
        self._heard_on = 0  # the connection on which the server was last asked what it remembers
        self._runner: asyncio.Runner | None = None
        self._heart_link: Link | None = None

    async def _enter(self) -> None:
        async with self._link.connection() as connection:
            await self._make(connection)
            found = await connection.fetchrow(
                "insert into ledger_owners (owner, since, alive_until, seq, names, granted, states) "
                "select $1, now_, now_ + $2, 0, '{}', '{}', '{}' from interlock_ledger_now() now_ returning fence",
                self.owner,
                LEASE_PART * self.ttl_s,
            )
            self.fence, self._heard_on = found["fence"], self._link.made

    @staticmethod
    async def _make(connection: Any) -> None:
        there = "select to_regproc($1) is not null and to_regclass('ledger_totals') is not null"
        if await connection.fetchval(there, NAME):
            return
        async with connection.transaction():
            await connection.execute(MAKING)
            for statement in STATEMENTS:
                await connection.execute(statement)

    async def _register(self, terms: Sequence[PoolTerms]) -> Sequence[PoolState]:
        states: list[float] = []
        names = [one.name for one in terms]
        async with self._link.connection() as connection, transaction(connection):
            now = await connection.fetchval(NOW)
            await connection.executemany(MAKE_POOL, [pool_values(cold.created(one, now)) for one in terms])
            books = await self._books(connection, names)
            now = await connection.fetchval(NOW)
            edited: list[PoolRow] = []
            for one in terms:
                book = books[one.name]
                at = max(now, book.pool.clock)
                if cold.updated(book.pool, one, at):
                    edited.append(book.pool)
                out = sum(total.slots for total in book.totals.values())
                states += rules.state(book.pool, at, out, -1.0, 0)
            await connection.executemany(SAVE_POOL, [pool_values(row) for row in edited])
        return pool_states(names, states)

    @staticmethod
    async def _books(connection: Any, names: Sequence[str]) -> dict[str, PoolBook]:
        """Those of these pools that there are, locked in the order of their names."""
        pools = "select * from ledger_pools where name = any($1::text[]) order by name for no key update"
        books = {row["name"]: PoolBook(pool_row(row), {}) for row in await connection.fetch(pools, names)}
        for row in await connection.fetch("select * from ledger_totals where pool = any($1::text[])", names):
            if row["pool"] in books:
                books[row["pool"]].totals[row["fence"]] = total_row(row)
        return books

    async def _exchange(self, message: Message) -> Reply:
        names = message.pools()
        async with self._link.connection() as connection:
            if self._heard_on != self._link.made:
                await self._remind(connection)
                self._heard_on = self._link.made
            attempt = 0
            while True:
                try:
                    answer = await self._said(connection, message, names)
                    break
                except AGAIN:
                    attempt += 1
                    if attempt == 5:
                        raise
                    await asyncio.sleep(random.random() * 0.01 * 2**attempt)
        now = monotonic()
        self._recent.append((now, message, answer.granted))
        while self._recent[0][0] < now - ON_DISK_S:
            self._recent.popleft()
        return answer

    async def _said(self, connection: Any, message: Message, names: list[str]) -> Reply:
        if message.signals:
            return await self._decided_here(connection, message, names)
        status, granted, states, lapsed_s = await connection.fetchrow(CALL, *arguments(message, names, self.transit_s))
        if status == IRREGULAR:
            return await self._decided_here(connection, message, names)
        if status == LOST:
            raise lost(self.owner)
        if status == LAPSED:
            raise lapsed(self.owner, lapsed_s)
        if status == STALE:
            raise ValueError(f"message {message.seq} of {self.owner} comes after a later one")
        if status == UNKNOWN:
            raise rules.UnknownPoolError(f"one of these pools is not registered with this ledger: {', '.join(names)}")
        return _reply(message, names, granted, states)

    async def _decided_here(
        self, connection: Any, message: Message, names: list[str], given: Sequence[int] | None = None
    ) -> Reply:
        """The same by the Python rules, the rows locked meanwhile. `given`: granted already, whatever there is."""
        async with transaction(connection):
            row, kept = await self._owner(connection)
            books = await self._books(connection, names)
            now = await connection.fetchval(NOW)
            if given is None and not check(row, message, now):
                return _reply(message, names, kept["granted"], kept["states"])
            granted, states = rules.exchange(books, message, now, transit_s=self.transit_s, given=given)
            await connection.executemany(SAVE_POOL, [pool_values(books[name].pool) for name in names])
            totals = [total_values(name, self.fence, books[name].totals[self.fence]) for name in names]
            await connection.executemany(SAVE_TOTAL, totals)
            await connection.execute(
                "update ledger_owners set seq = $2, names = $3, granted = $4, states = $5 where fence = $1",
                self.fence,
                message.seq,
                names,
                granted,
                states,
            )
        return reply(message.seq, names, granted, states)

    async def _owner(self, connection: Any) -> tuple[OwnerRow | None, Any]:
        found = await connection.fetchrow("select * from ledger_owners where fence = $1 for no key update", self.fence)
        if found is None:
            return None, None
        row = OwnerRow(found["owner"], found["fence"], found["since"], found["alive_until"], found["seq"])
        return row, found

    async def _remind(self, connection: Any) -> None:
        """A new connection, perhaps of a server that crashed: say again what it has forgotten of this owner."""
        # By its name too: a database that was made anew counts its fences from 1 again.
        mine = "select seq from ledger_owners where fence = $1 and owner = $2"
        seq = await connection.fetchval(mine, self.fence, self.owner)
        if seq is None:
            raise lost(self.owner)
        for _, message, granted in list(self._recent):
            if message.seq > seq:
                await self._decided_here(connection, message, message.pools(), granted)

    async def _beat(self, revive: bool) -> None:
        await self._beat_on(self._link, revive)

    async def _beat_on(self, link: Link, revive: bool) -> None:
        async with link.connection() as connection:
            found = await connection.fetchrow(BEAT, self.fence, LEASE_PART * self.ttl_s, revive, self.owner)
            if found is None:
                silent_s = await connection.fetchval(SILENT_S, self.fence, self.owner)
                raise lost(self.owner) if silent_s is None else lapsed(self.owner, silent_s)
            now = found["now_"]
            if may_judge(OwnerRow(self.owner, self.fence, found["since"], now), now, self.ttl_s):
                silent = "select fence from ledger_owners where alive_until < $1 order by fence"
                for found in await connection.fetch(silent, now):
                    await self._remove(connection, found["fence"], now)

    async def _remove(self, connection: Any, fence: int, silent_since: float | None = None) -> None:
        """Give back what this owner held; with `silent_since`, unless it has been heard again."""
        async with transaction(connection):
            # Its own messages hold this row while they run: no lock is wanted in another order.
            alive_until = await connection.fetchval(
                "select alive_until from ledger_owners where fence = $1 for update skip locked", fence
            )
            if alive_until is None or (silent_since is not None and alive_until >= silent_since):
                return
            held = [(pool_row(found), found["held_unsent"]) for found in await connection.fetch(HELD, fence)]
            now = await connection.fetchval(NOW)
            changed = [row for row, unsent in held if rules.given_up(row, unsent, now)]
            await connection.executemany(SAVE_POOL, [pool_values(row) for row in changed])
            await connection.execute("delete from ledger_totals where fence = $1", fence)
            await connection.execute("delete from ledger_owners where fence = $1", fence)

    async def _leave(self) -> None:
        async with self._link.connection() as connection:
            await self._remove(connection, self.fence)

    async def _close(self) -> None:
        await self._link.close()

    # On the heart's thread, which has a loop of its own.

    def _beat_here(self, revive: bool) -> None:
        if self._runner is None:
            self._runner = asyncio.Runner()
        self._runner.run(self._beat_alone(revive))

    async def _beat_alone(self, revive: bool) -> None:
        self._heart_link = self._heart_link or Link(self._dsn, self._prepared)
        await self._beat_on(self._heart_link, revive)

    def _beats_over(self) -> None:
        if self._runner is not None:
            if self._heart_link is not None:
                self._runner.run(self._heart_link.close())
            self._runner.close()
