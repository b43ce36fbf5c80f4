"""The one thread that owns the database. It takes everything that is queued, commits it as one group, and says so.

A commit of its own costs a row some 800 µs of CPU, a share in a group of fifty about 25 µs. Nobody sets a delay: while
one group is being committed the next one gathers. Rows are queued by a plain call, so a caller that is being cancelled
leaves its row all the same; who must know that it is on disk awaits the future. Reads run in the same thread between
two groups, so SQLite sees one connection and nobody meets a lock of this process.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping, Sequence
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, TypeVar

from interlock.errors import StoreError

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine
    from sqlalchemy.sql import Executable

T = TypeVar("T")

#: Rows of one commit at most: a bound on what a crash may lose, and on how long a reader waits.
LARGEST_GROUP = 2_000


class _Work:
    """One queued piece: a row for `statement`, or (no row) a `read` that runs alone."""

    __slots__ = ("done", "read", "row", "statement")

    def __init__(
        self,
        done: asyncio.Future[Any],
        statement: Executable | None,
        row: Mapping[str, Any] | None,
        read: Callable[[Connection], Any] | None,
    ) -> None:
        self.done, self.statement, self.row, self.read = done, statement, row, read


class Writer:
    """Runs statements against one engine in one thread. `close` commits what is queued and joins the thread."""

    def __init__(self, engine: Engine, name: str) -> None:
        self._engine, self._name = engine, name
        self._queue: SimpleQueue[_Work | None] = SimpleQueue()
        self._closed = False
        #: Commits made: rows per commit is what a look at the grouping needs.
        self.groups = 0
        self._thread = threading.Thread(target=self._serve, name="interlock-store", daemon=True)
        self._thread.start()

    def write(self, statement: Executable, row: Mapping[str, Any]) -> asyncio.Future[None]:
        return self._put(statement, row, None)

    async def read(self, read: Callable[[Connection], T]) -> T:
        answer: T = await self._put(None, None, read)
        return answer

    def run(self, work: Callable[[Connection], T]) -> asyncio.Future[T]:
        """Queue `work`, in a transaction of its own."""
        return self._put(None, None, work)

    def _put(
        self,
        statement: Executable | None,
        row: Mapping[str, Any] | None,
        read: Callable[[Connection], Any] | None,
    ) -> asyncio.Future[Any]:
        if self._closed:
            raise StoreError(f"the store {self._name} is closed")
        done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        # A row whose writer was cancelled is awaited by nobody; its failure is told by the job's own end.
        done.add_done_callback(_look_at)
        self._queue.put(_Work(done, statement, row, read))
        return done

    async def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._queue.put(None)
        await asyncio.to_thread(self._thread.join)

    # What follows runs in the thread.

    def _serve(self) -> None:
        with self._engine.connect() as connection:
            going = True
            while going:
                group, alone, going = self._gather()
                if group:
                    self._commit(connection, group)
                if alone is not None:
                    self._answer(connection, alone)
        self._engine.dispose()

    def _gather(self) -> tuple[list[_Work], _Work | None, bool]:
        """Everything queued up to the first read: (rows, the read, whether to go on)."""
        group: list[_Work] = []
        while True:
            work = self._queue.get()
            if work is None:
                return group, None, False
            if work.read is not None:
                return group, work, True
            group.append(work)
            if len(group) >= LARGEST_GROUP or self._queue.empty():
                return group, None, True

    def _commit(self, connection: Connection, group: Sequence[_Work]) -> None:
        try:
            with connection.begin():
                for statement, rows in _in_order(group):
                    connection.execute(statement, rows)
        except Exception as error:
            self._one_by_one(connection, group, error)
            return
        self.groups += 1
        _deliver([(work.done, None, None) for work in group])

    def _one_by_one(self, connection: Connection, group: Sequence[_Work], error: Exception) -> None:
        """A group failed as a whole: one bad row must not lose the others."""
        ends: list[_End] = []
        for work in group:
            try:
                if len(group) == 1:
                    raise error
                with connection.begin():
                    for statement, rows in _in_order((work,)):
                        connection.execute(statement, rows)
            except Exception as reason:
                ends.append((work.done, None, self._failed(reason)))
            else:
                ends.append((work.done, None, None))
        _deliver(ends)

    def _answer(self, connection: Connection, work: _Work) -> None:
        try:
            assert work.read is not None
            with connection.begin():
                answer = work.read(connection)
        except Exception as error:
            _deliver([(work.done, None, self._failed(error))])
        else:
            _deliver([(work.done, answer, None)])

    def _failed(self, error: Exception) -> StoreError:
        reason = getattr(error, "orig", None) or error
        return StoreError(f"the store {self._name} could not be written or read: {type(reason).__name__}: {reason}")


_End = tuple["asyncio.Future[Any]", Any, Exception | None]


def _in_order(group: Sequence[_Work]) -> list[tuple[Executable, list[Mapping[str, Any]]]]:
    """Neighbours of one statement together: an executemany each, and the order of rows kept."""
    runs: list[tuple[Executable, list[Mapping[str, Any]]]] = []
    for work in group:
        assert work.statement is not None
        assert work.row is not None
        if not runs or runs[-1][0] is not work.statement:
            runs.append((work.statement, []))
        runs[-1][1].append(work.row)
    return runs


def _deliver(ends: Sequence[_End]) -> None:
    """One wake-up of each event loop for the whole group."""
    loops: dict[asyncio.AbstractEventLoop, list[_End]] = {}
    for end in ends:
        loops.setdefault(end[0].get_loop(), []).append(end)
    for loop, its_ends in loops.items():
        try:
            loop.call_soon_threadsafe(_settle, its_ends)
        except RuntimeError:
            continue  # the loop is closed: nobody is left to tell, and the rows are written


def _settle(ends: Sequence[_End]) -> None:
    for done, answer, error in ends:
        if done.done():
            continue
        if error is None:
            done.set_result(answer)
        else:
            done.set_exception(error)


def _look_at(done: asyncio.Future[Any]) -> None:
    if not done.cancelled():
        done.exception()
