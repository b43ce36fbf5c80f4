"""SqlBook: rows in a database, through the one writer."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from interlock.errors import LeaseLostError

from .group import Row
from .journal import SqlJournal
from .journal_sql import lost_claims
from .owners import others
from .queue import SqlQueue
from .rows import CallRow, RunRow
from .sql import call_values, insert_call, run_values, upsert_run
from .writer import Writer

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from interlock.admission.memory import PoolMemory

    from .lease import Lease
    from .levels import Kept
    from .link import Link
    from .place import Place
    from .run_changes import Wanted

OnLost = Callable[[LeaseLostError], None]


class SqlBook:
    """What `open_book` gives. `owner` is this process's name in the store; `journal` is written by it."""

    def __init__(self, link: Link, place: Place, owner: str, lease: Lease | None = None) -> None:
        self.owner, self._lease = owner, lease
        self._insert_call = insert_call(place.kind)
        self._upsert_run = upsert_run(place.kind)
        self._writer = Writer(link, place.name, lost_claims, None if lease is None else lease.come_back)
        self.journal = SqlJournal(self._writer, place.kind, self._call_row, owner)
        self.queue = SqlQueue(self._writer, place.kind, owner, self.journal)
        #: Levels that are queued and not written yet, by whose they are.
        self._levels: dict[str, tuple[Mapping[str, PoolMemory], datetime, bool]] = {}
        self._levels_lock = threading.Lock()

    def on_lost(self, listener: OnLost) -> None:
        """Call `listener`, once and from another thread, when this process has been given up."""
        if self._lease is not None:
            self._lease.on_lost(listener)

    def on_wanted(self, heed: Callable[[Mapping[str, Wanted]], None]) -> None:
        """Call `heed`, from another thread, whenever what others want of this process's runs has changed: with all of
        it, by the run's id. A run of which nothing is wanted any more is not named."""
        if self._lease is not None:
            self._lease.on_wanted(heed)

    def _call_row(self, row: CallRow) -> Row:
        return self._insert_call, call_values(row), None

    def room(self) -> Awaitable[None] | None:
        return self._writer.room()

    def write_call(self, row: CallRow) -> Awaitable[None]:
        return self._writer.put([self._call_row(row)])

    def write_run(self, row: RunRow) -> Awaitable[None]:
        return self._writer.put([(self._upsert_run, run_values(row), ("run", row.run_id))])

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

        taken: list[tuple[Mapping[str, PoolMemory], datetime, bool]] = []

        def write(connection: Connection) -> None:
            if not taken:  # a transaction may be done again
                with self._levels_lock:
                    taken.append(self._levels.pop(owner))
            memories, at, closed = taken[0]
            save_levels(connection, owner, memories, at, closed)
            if closed:
                close_levels(connection, owner, at)

        with self._levels_lock:  # what waits to be written is brought up to date, not added to
            waits = self._levels.get(owner)
            if waits is not None:
                memories, closed = {**waits[0], **memories}, closed or waits[2]
            self._levels[owner] = memories, at, closed
        if waits is None:
            self._writer.run(write)

    async def read_levels(self) -> Mapping[str, Sequence[Kept]]:
        from .levels import read_levels

        return await self._writer.read(read_levels)

    async def others(self) -> int:
        """How many other processes have this store open."""
        return await self._writer.read(lambda connection: others(connection, self.owner))

    @property
    def groups(self) -> int:
        """Commits made so far."""
        return self._writer.groups

    async def close(self) -> None:
        """Commit what is queued, then leave: until that is done nobody may take this process's runs over."""
        await self._writer.close()
        if self._lease is not None:
            await asyncio.to_thread(self._lease.stop)
