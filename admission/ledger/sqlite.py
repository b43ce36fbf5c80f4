"""The ledger in an SQLite file: for all processes of one host.

A message is one transaction, under a lock of the file system that the processes queue for: SQLite's own waiting sleeps
and looks again, and most of the time nobody would have the lock. Statements run in a thread, so the loop goes on.
Commits survive whatever happens to a process; after a loss of power the last moments may be missing.
"""

from __future__ import annotations

import fcntl
import json
import os
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from math import inf
from pathlib import Path
from typing import Any, TypeVar

from interlock.errors import ConfigurationError, InterlockError, LedgerUnavailableError

from . import cold, rules
from .base import BaseLedger, kept, reply_of
from .forking import unforked
from .holder import holder
from .hostclock import boot_id, since_boot
from .message import Message, PoolState, PoolTerms, Reply
from .owners import LAST_WORDS_S, LEASE_PART, OwnerRow, beaten, check, lost, may_judge
from .rows import EPOCH, Claim, LevelRow, PoolBook, PoolRow, TotalRow
from .sqlite_schema import FORM, STATEMENTS
from .thread import LedgerThread
from .wire import pool_states, reply

T = TypeVar("T")

#: Seconds that whoever writes to the file without our lock is waited for, and an answer, with the wait for the lock.
BUSY_S, ANSWER_S = 30.0, 10.0


class ReplacedError(InterlockError):
    """The file has been deleted, or another stands in its place."""

    code = "ledger_replaced"


class Tables:
    """The rows in a file, on one connection. Everything between `with tables:` and its end is one transaction."""

    def __init__(self, path: Path, clock: Callable[[], float] | None) -> None:
        self.path = path
        self._lock = os.open(lock_of(path), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            self._connection = sqlite3.connect(path, timeout=BUSY_S, isolation_level=None, check_same_thread=False)
        except sqlite3.Error:
            os.close(self._lock)
            raise
        self.execute = self._connection.execute
        try:
            self.execute("pragma journal_mode = wal")
            self.execute("pragma synchronous = normal")
            self._file = self._identity()
        except (sqlite3.Error, ReplacedError):
            self.close()
            raise
        self._offset_s = 0.0
        self._clock = clock

    def make(self) -> None:
        """Make what is missing, and set the clock."""
        with self.transaction():
            (form,) = self.execute("pragma user_version").fetchone()
            if form not in (0, FORM):
                raise ConfigurationError(
                    f"the ledger in {self.path} was made by another release of Interlock (its form is {form}, this one "
                    f"knows {FORM}): run one release, or end all of its processes and delete the file"
                )
            self.execute(f"pragma user_version = {FORM}")
            for statement in STATEMENTS:
                self.execute(statement)
            found = self.execute("select boot, offset_s, latest from ledger_clock").fetchone()
            if found is None or found[0] != boot_id() or not found[0]:
                latest = -inf if found is None else found[2]
                self._offset_s = max(time.time() - EPOCH, latest) - since_boot()
                clock = (1, boot_id(), self._offset_s, self.now())
                self.execute("insert or replace into ledger_clock values (?, ?, ?, ?)", clock)
            else:
                self._offset_s = found[1]

    def now(self) -> float:
        return self._clock() if self._clock else since_boot() + self._offset_s

    @contextmanager
    def transaction(self) -> Iterator[None]:
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        try:
            if self._identity() != self._file:
                raise ReplacedError
            with unforked():
                self.execute("begin immediate")
                try:
                    yield
                    self.execute("commit")
                except BaseException:
                    if self._connection.in_transaction:
                        self.execute("rollback")
                    raise
        finally:
            fcntl.flock(self._lock, fcntl.LOCK_UN)

    def _identity(self) -> tuple[int, int]:
        """Which file stands there now. Whoever goes on with one that was deleted shares it with nobody."""
        try:
            found = os.stat(self.path)
        except FileNotFoundError:
            raise ReplacedError from None
        return found.st_dev, found.st_ino

    def close(self) -> None:
        self._connection.close()
        os.close(self._lock)

    # Owners.

    def enter(self, owner: str, now: float, alive_until: float) -> int:
        cursor = self.execute(
            "insert into ledger_owners (owner, since, alive_until, seq, reply) values (?, ?, ?, 0, '')",
            (owner, now, alive_until),
        )
        return int(cursor.lastrowid or 0)

    def owner(self, fence: int) -> OwnerRow | None:
        found = self.execute(
            "select owner, fence, since, alive_until, seq, reply from ledger_owners where fence = ?", (fence,)
        ).fetchone()
        return OwnerRow(*found) if found else None

    def silent(self, now: float) -> list[int]:
        return [fence for (fence,) in self.execute("select fence from ledger_owners where alive_until < ?", (now,))]

    def renew(self, row: OwnerRow) -> None:
        self.execute(
            "update ledger_owners set since = ?, alive_until = ? where fence = ?",
            (row.since, row.alive_until, row.fence),
        )
        self.execute("update ledger_clock set latest = ?", (self.now(),))

    def remove(self, fence: int, now: float) -> None:
        """Give back what this owner held."""
        held = "select row, unsent from ledger_totals join ledger_pools on name = pool where fence = ?"
        for row, unsent in self.execute(held, (fence,)).fetchall():
            pool = _pool(row)
            if rules.given_up(pool, json.loads(unsent), now):
                self.save_pool(pool)
        self.execute("delete from ledger_totals where fence = ?", (fence,))
        self.execute("delete from ledger_owners where fence = ?", (fence,))

    # Pools.

    def books(self, names: Sequence[str]) -> dict[str, PoolBook]:
        """Those of these pools that there are."""
        books: dict[str, PoolBook] = {}
        for name in names:
            found = self.execute("select row from ledger_pools where name = ?", (name,)).fetchone()
            if found is not None:
                totals = self.execute(
                    "select fence, slots, unsent, granted, claim from ledger_totals where pool = ?", (name,)
                )
                books[name] = PoolBook(_pool(found[0]), {fence: _total(rest) for fence, *rest in totals})
        return books

    def save_pool(self, row: PoolRow) -> None:
        self.execute("insert or replace into ledger_pools values (?, ?)", (row.name, _pool_json(row)))

    def save_total(self, pool: str, fence: int, total: TotalRow) -> None:
        claim = total.claim
        text = None
        if claim is not None:
            text = json.dumps([claim.priority, claim.since, claim.key, claim.charge, claim.slots, claim.lapses_at])
        self.execute(
            "insert or replace into ledger_totals values (?, ?, ?, ?, ?, ?)",
            (pool, fence, total.slots, json.dumps(total.unsent), total.granted, text),
        )


def lock_of(path: Path) -> str:
    """The file whose lock the processes queue for."""
    return f"{path}-lock"


def _pool(text: str) -> PoolRow:
    *values, learnt, levels = json.loads(text)
    row = PoolRow(*values)
    row.learnt, row.levels = learnt, [LevelRow(*level) for level in levels]
    return row


def _pool_json(row: PoolRow) -> str:
    levels = [
        (
            level.dimension, level.part, level.kind, level.capacity, level.published, level.rate, level.at, level.mark,
            level.unsent, level.held_until, level.owed, level.over, level.opened_at,
        )
        for level in row.levels
    ]  # fmt: skip
    return json.dumps(
        [
            row.name, row.limits, row.version, row.clock, row.epoch, row.slowdown, row.calm, row.held_until,
            row.closed_until, row.slots, row.look_at, row.learnt, levels,
        ]
    )  # fmt: skip


def _total(values: Sequence[Any]) -> TotalRow:
    slots, unsent, granted, claim = values
    total = TotalRow(slots, json.loads(unsent), granted)
    if claim is not None:
        priority, since, key, charge, claimed, lapses_at = json.loads(claim)
        total.claim = Claim(priority, since, key, tuple(charge), claimed, lapses_at)
    return total


class SQLiteLedger(BaseLedger):
    """One owner on the ledger in the file at `path`, which is made if it is not there.

    `clock` stands for the host's own, in tests: seconds since `rows.EPOCH`.
    """

    def __init__(self, path: str | Path, *, clock: Callable[[], float] | None = None, **settings: Any) -> None:
        super().__init__(**settings)
        self.path, self._clock = Path(path), clock
        self._thread = LedgerThread(f"interlock-ledger-file-{self.owner}")
        self._tables: Tables | None = None
        self._heart_tables: Tables | None = None

    async def _run(self, work: Callable[..., T], *args: Any, wait_s: float | None = None) -> T:
        """On the thread; what the file refuses, or who keeps it locked for too long, is a LedgerUnavailableError."""
        wait_s = ANSWER_S if wait_s is None else wait_s
        try:
            return await self._thread.do(self._spoken, work, *args, wait_s=wait_s)
        except TimeoutError:
            raise LedgerUnavailableError(
                f"the ledger in {self.path} has not answered for {wait_s:g} s: {holder(lock_of(self.path))}"
            ) from None

    def _spoken(self, work: Callable[..., T], *args: Any) -> T:
        try:
            return work(*args)
        except ReplacedError:
            raise lost(
                self.owner, f"the ledger's file {self.path} was deleted or replaced while it was in use"
            ) from None
        except sqlite3.Error as error:
            raise LedgerUnavailableError(f"the ledger in {self.path} cannot be used: {error}") from error
        except OSError as error:
            raise LedgerUnavailableError(f"the ledger in {self.path} cannot be opened: {error.strerror}") from error

    @property
    def _there(self) -> Tables:
        assert self._tables is not None
        return self._tables

    async def _enter(self) -> None:
        self.fence = await self._run(self._enter_here)

    def _enter_here(self) -> int:
        self._tables = self._tables or Tables(self.path, self._clock)
        tables = self._tables
        tables.make()
        with tables.transaction():
            now = tables.now()
            return tables.enter(self.owner, now, now + LEASE_PART * self.ttl_s)

    async def _register(self, terms: Sequence[PoolTerms]) -> Sequence[PoolState]:
        return await self._run(self._register_here, terms)

    def _register_here(self, terms: Sequence[PoolTerms]) -> Sequence[PoolState]:
        tables, states = self._there, list[float]()
        with tables.transaction():
            for one in terms:
                now, book = tables.now(), tables.books([one.name]).get(one.name)
                if book is None:
                    book = PoolBook(cold.created(one, now), {})
                    tables.save_pool(book.pool)
                else:
                    now = max(now, book.pool.clock)
                    if cold.updated(book.pool, one, now):
                        tables.save_pool(book.pool)
                out = sum(total.slots for total in book.totals.values())
                states += rules.state(book.pool, now, out, -1.0, 0)
        return pool_states([one.name for one in terms], states)

    async def _exchange(self, message: Message) -> Reply:
        return await self._run(self._exchange_here, message)

    def _exchange_here(self, message: Message) -> Reply:
        tables, names = self._there, message.pools()
        with tables.transaction():
            now, row = tables.now(), tables.owner(message.fence)
            if not check(row, message, now):
                assert row is not None
                return reply_of(message.seq, row.reply)
            books = tables.books(names)
            granted, states = rules.exchange(books, message, now, transit_s=self.transit_s)
            for name in names:
                tables.save_pool(books[name].pool)
                tables.save_total(name, message.fence, books[name].totals[message.fence])
            tables.execute(
                "update ledger_owners set seq = ?, reply = ? where fence = ?",
                (message.seq, kept(names, granted, states), message.fence),
            )
        return reply(message.seq, names, granted, states)

    async def _beat(self, revive: bool) -> None:
        await self._run(self._beat_with, self._there, revive)

    def _beat_here(self, revive: bool) -> None:
        def beat() -> None:
            self._heart_tables = self._heart_tables or Tables(self.path, self._clock)
            self._heart_tables._offset_s, self._heart_tables._file = self._there._offset_s, self._there._file
            self._beat_with(self._heart_tables, revive)

        self._spoken(beat)

    def _beats_over(self) -> None:
        if self._heart_tables is not None:
            self._heart_tables.close()

    def _beat_with(self, tables: Tables, revive: bool) -> None:
        with tables.transaction():
            now, row = tables.now(), tables.owner(self.fence)
            # Asked again: it may have waited for the file, and been stopped meanwhile.
            beaten(row, self.owner, now, self.ttl_s, revive=revive and self._awake)
            assert row is not None
            tables.renew(row)
            if may_judge(row, now, self.ttl_s):
                for fence in tables.silent(now):
                    tables.remove(fence, now)

    async def _leave(self) -> None:
        await self._run(self._leave_here, wait_s=LAST_WORDS_S)

    def _leave_here(self) -> None:
        tables = self._there
        with tables.transaction():
            tables.remove(self.fence, tables.now())

    async def _close(self) -> None:
        await self._thread.end(self._close_here, wait_s=LAST_WORDS_S)

    def _close_here(self) -> None:
        if self._tables is not None:
            self._tables.close()
            self._tables = None
