"""The one thread that owns the database. It takes everything that is queued, commits it as one group, and says so.

A commit of its own costs a row some 800 µs of CPU, a share in a group of fifty about 25 µs. Nobody sets a delay: while
one group is being committed the next one gathers. Rows are queued by a plain call, so a caller that is being cancelled
leaves its row all the same; who must know that it is on disk awaits the future. Reads run in the same thread between
two groups, so SQLite sees one connection and nobody meets a lock of this process.

Where the database is away (a server that restarts, a file locked by another program for long, a full disk) everything
waits, nothing is lost, and it goes on by itself. What would add to the queue asks for `room` before it begins, so what
is queued by then is what was on its way and no more. See `sure` for a COMMIT whose answer was lost.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Hashable, Sequence
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, TypeVar

from interlock.errors import InterlockError, LeaseLostError, StoreError

from .group import Check, Row, Work, none_are_lost, write
from .link import Link
from .place import now_gone, reason
from .sure import Sure

if TYPE_CHECKING:
    from sqlalchemy import Connection

T = TypeVar("T")

#: Rows of one commit at most: a bound on what a crash may lose, and on how long a reader waits.
LARGEST_GROUP = 2_000
#: So much may be queued before nothing new is begun.
MOST_QUEUED = 10_000


class Writer:
    """Runs statements against one database in one thread. `close` commits what is queued and joins the thread.

    `check` says which of the claims that rows are written by are no longer good. `first` is called in each transaction
    that writes, before its work.
    """

    def __init__(
        self,
        link: Link,
        name: str,
        check: Check = none_are_lost,
        first: Callable[[Connection], None] | None = None,
    ) -> None:
        self._link, self._name, self._check = link, name, check
        self._queue: SimpleQueue[Work | None] = SimpleQueue()
        self._closed = False
        self._sure = Sure(link, name, first)
        self._next_room: asyncio.Future[None] | None = None
        #: Commits made: rows per commit is what a look at the grouping needs.
        self.groups = 0
        self._thread = threading.Thread(target=link.serve, args=(self._serve,), name="interlock-store", daemon=True)
        self._thread.start()

    def put(
        self, rows: Sequence[Row], *, claim: Hashable = None, makes: bool = False, ends: bool = False
    ) -> asyncio.Future[None]:
        """Queue rows that are committed as one. LeaseLostError, and nothing written, where `claim` is not good."""
        return self._put(Work(self._future(), rows, claim=claim, makes=makes, ends=ends))

    def room(self) -> Awaitable[None] | None:
        """What is to be awaited before something new is begun that will have rows to write: that the database is back,
        or that what is queued by now is committed. None: there is room."""
        if not (self._sure.away or self._queue.qsize() >= MOST_QUEUED) or self._closed:
            return None
        known = self._next_room
        if known is None or known.done() or known.get_loop() is not asyncio.get_running_loop():
            known = self._next_room = self.put(())  # nothing to write: it is answered in its turn
        return asyncio.shield(known)  # for all who wait, and whoever is cancelled takes it from nobody

    async def read(self, read: Callable[[Connection], T]) -> T:
        answer: T = await self._put(Work(self._future(), alone=read, reads=True))
        return answer

    def run(self, work: Callable[[Connection], T]) -> asyncio.Future[T]:
        """Queue `work`, in a transaction of its own. It may be called again where that one was not committed."""
        return self._put(Work(self._future(), alone=work))

    def _future(self) -> asyncio.Future[Any]:
        if self._closed:
            raise StoreError(f"the store {self._name} is closed")
        done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        # A row whose writer was cancelled is awaited by nobody; its failure is told by the job's own end.
        done.add_done_callback(_look_at)
        return done

    def _put(self, work: Work) -> asyncio.Future[Any]:
        self._queue.put(work)
        return work.done

    async def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._sure.hurry()
            self._queue.put(None)
        await asyncio.to_thread(self._thread.join)

    # What follows runs in the thread.

    def _serve(self) -> None:
        going = True
        while going:
            group, alone, going = self._gather()
            if group:
                self._commit(group)
            if alone is not None:
                self._answer(alone)
        self._sure.close()

    def _gather(self) -> tuple[list[Work], Work | None, bool]:
        """Everything queued up to the first that runs alone: (rows, that one, whether to go on)."""
        group: list[Work] = []
        while True:
            work = self._queue.get()
            if work is None:
                return group, None, False
            if work.alone is not None:
                return group, work, True
            group.append(work)
            if len(group) >= LARGEST_GROUP or self._queue.empty():
                return group, None, True

    def _commit(self, group: Sequence[Work]) -> None:
        try:
            refused = self._sure.transact(lambda connection: write(connection, group, self._check))
        except Exception as error:
            self._one_by_one(group, error)
            return
        self.groups += 1
        ids = {id(work) for work in refused}
        _deliver([(work.done, None, lost(work.claim) if id(work) in ids else None) for work in group])

    def _one_by_one(self, group: Sequence[Work], error: Exception) -> None:
        """A group failed as a whole: one bad row must not lose the others."""
        if len(group) == 1 or self._sure.gave_up is not None:
            _deliver([(work.done, None, self._failed(error)) for work in group])
            return
        for work in group:
            self._commit([work])

    def _answer(self, work: Work) -> None:
        assert work.alone is not None
        try:
            answer = self._sure.transact(work.alone, reads=work.reads)
        except Exception as error:
            _deliver([(work.done, None, self._failed(error))])
        else:
            _deliver([(work.done, answer, None)])

    def _failed(self, error: Exception) -> InterlockError:
        if isinstance(error, InterlockError):
            return error
        inner = getattr(error, "orig", None) or error
        said = f"the store {self._name} could not be written or read: {type(inner).__name__}: {reason(error)}"
        gone = now_gone(error)
        return StoreError(f"{said}. {gone}" if gone else said)


_End = tuple["asyncio.Future[Any]", Any, Exception | None]


def lost(claim: Any) -> LeaseLostError:
    return LeaseLostError(
        f"run {claim.run_id!r} is not in the hands of {claim.owner} any more (fence {claim.fence}): another process"
        " has taken it over, or it has ended; what this one did since is not kept"
    )


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
