"""A collection in an SQLite file. One thread of its own owns the connection; several processes may share the file.

Vectors are plain little-endian float32 in a plain table, so a file that was written where sqlite-vec loads is read
where it does not, and the other way round. A row is never changed but in its fields: a replaced document gets a new
key, which is how a reader knows what it has not seen.
"""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from interlock.admission.ledger.forking import unforked
from interlock.errors import StoreError

from ..uncancelled import uncancelled
from . import sqlite_tables as tables
from .collection import Collection, NoReplacementError
from .documents import (
    CollectionInfo,
    Document,
    Hit,
    VectorModel,
    document_of,
    fields_text,
    hits_of,
    question_of,
    require_k,
    require_same,
    rows_of,
    stored_ids,
)
from .scan import HeldVectors, chosen, scan_in_steps, scan_with_extension, steps
from .sqlite_tables import Generation

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from interlock.catalog.entry import ModelEntry

    from .documents import Row
    from .scan import Float32

T = TypeVar("T")

#: Seconds to wait for another process that is writing.
BUSY_S = 60.0


class SqliteCollection(Collection):
    """Searches are exact. With `hold_mb` a first search takes the vectors into memory, a byte a number, as long as they
    fit in that many MB; later ones read what is new and the few that come into question. With 0 each search reads the
    file."""

    def __init__(self, place: str, name: str, path: str, *, create: bool = True, hold_mb: int = 1_024) -> None:
        super().__init__(place, name)
        self._path, self._create = path, create
        self._hold = hold_mb * 1_000_000
        self._held: HeldVectors | None = None
        self._held_of: Generation | None = None
        self._too_large = 0  # so many rows did not fit
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="interlock-search")
        self._connection: sqlite3.Connection | None = None
        self._nothing: sqlite3.Connection | None = None  # what is read of a file that is not there yet
        self._closed = False
        #: Whether sqlite-vec is there; known once the file is open.
        self.has_extension = False

    async def open(self) -> None:
        """Raises StoreError for a file that cannot be opened."""
        await self._run(self._open)

    async def close(self) -> None:
        if not self._closed:
            await uncancelled(self._run(self._shut))
            self._thread.shutdown(wait=False)

    @property
    def held_bytes(self) -> int:
        """Memory that the vectors take now."""
        held = self._held
        return 0 if held is None else held.size

    async def info(self) -> CollectionInfo | None:
        return await self._run(self._info)

    async def add(
        self,
        documents: Sequence[Document],
        vectors: NDArray[Any],
        *,
        model: ModelEntry | VectorModel | str,
        replacement: bool = False,
    ) -> None:
        rows = rows_of(documents, vectors)
        if rows:
            await self._run(partial(self._add, rows, VectorModel.of(model), replacement))

    async def unchanged(self, documents: Sequence[Document]) -> frozenset[str]:
        return await self._run(partial(self._unchanged, documents))

    async def get(self, ids: Sequence[str]) -> tuple[Document, ...]:
        found = await self._run(partial(self._get, stored_ids(ids)))
        return tuple(found[id] for id in dict.fromkeys(ids) if id in found)

    async def delete(self, ids: Sequence[str]) -> int:
        return await self._run(partial(self._delete, stored_ids(ids)))

    async def search(
        self, vector: NDArray[Any], *, k: int = 10, model: ModelEntry | VectorModel | str | None = None
    ) -> tuple[Hit, ...]:
        question = question_of(vector)
        wanted = None if model is None else VectorModel.of(model)
        return await self._run(partial(self._search, question, require_k(k), wanted))

    async def begin_replacement(self, *, model: ModelEntry | VectorModel | str, width: int) -> None:
        await self._run(partial(self._begin_replacement, VectorModel.of(model), width))

    async def outdated(self, *, after: str = "", limit: int = 1_000) -> tuple[Document, ...]:
        return await self._run(partial(self._outdated, stored_ids([after])[0], limit))

    async def switch(self) -> int:
        return await self._run(self._switch)

    # What follows runs in the thread.

    async def _run(self, work: Callable[[], T]) -> T:
        if self._closed:
            raise StoreError(f"the store {self.place} is closed")

        def guarded() -> T:
            try:
                return work()
            except sqlite3.Error as error:
                raise StoreError(f"the store {self.place} could not be written or read: {error}") from None

        return await asyncio.get_running_loop().run_in_executor(self._thread, guarded)

    def _open(self) -> None:
        if self._is_there():
            self._connection = self._connect(self._path)
        elif not self._create:
            raise StoreError(
                f"there is no store {self.place}: nothing has been embedded into it, or its path is another"
            )
        elif not os.access(Path(self._path).parent, os.W_OK):
            raise StoreError(f"the store {self.place} cannot be opened. {_advice(self._path)}")

    def _is_there(self) -> bool:
        return self._path == ":memory:" or Path(self._path).exists()

    def _connect(self, path: str) -> sqlite3.Connection:
        try:
            only_read = not self._create and not _may_be_written(path)
            connection = tables.read_only(path) if only_read else self._writable(path)
        except sqlite3.Error as error:
            raise StoreError(f"the store {self.place} cannot be opened: {error}. {_advice(path)}") from None
        self.has_extension = tables.load_extension(connection)
        return connection

    def _writable(self, path: str) -> sqlite3.Connection:
        connection = sqlite3.connect(path, timeout=BUSY_S, isolation_level=None)
        try:
            tables.prepare(connection, busy_s=BUSY_S)
        except BaseException:
            connection.close()
            raise
        return connection

    def _connected(self, *, writing: bool) -> sqlite3.Connection:
        """The file is made by the first write: what is refused before that leaves none behind."""
        if self._closed:
            raise StoreError(f"the store {self.place} is closed")
        if self._connection is None and (writing or self._is_there()):
            self._connection = self._connect(self._path)
        if self._connection is None:
            self._nothing = self._nothing or self._connect(":memory:")
            return self._nothing
        return self._connection

    def _shut(self) -> None:
        self._closed = True
        for connection in (self._connection, self._nothing):
            if connection is not None:
                connection.close()
        self._connection = self._nothing = self._held = None

    @contextmanager
    def _transaction(self, how: str = "DEFERRED") -> Iterator[sqlite3.Connection]:
        connection = self._connected(writing=how != "DEFERRED")
        with unforked():
            connection.execute(f"BEGIN {how}")
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise

    def _info(self) -> CollectionInfo | None:
        with self._transaction() as connection:
            now = tables.generation(connection, self.name)
            if now is None:
                return None
            count = connection.execute(f"SELECT count(*) FROM {now.documents}").fetchone()[0]
        return CollectionInfo(name=self.name, model=now.model, width=now.width, count=count)

    def _add(self, rows: Sequence[Row], model: VectorModel, replacement: bool) -> None:
        width = len(rows[0].vector)
        with self._transaction("IMMEDIATE") as connection:
            into = tables.generation(connection, self.name, replacement=replacement)
            if into is None:
                if replacement:
                    raise NoReplacementError(self.place, self.name)
                into = tables.create(connection, self.name, model, width)
            require_same(self.place, self.name, (into.model, into.width), (model, width))
            tables.replace(connection, into, rows)

    def _unchanged(self, documents: Sequence[Document]) -> frozenset[str]:
        ids = stored_ids([document.id for document in documents])
        with self._transaction() as connection:
            now = tables.generation(connection, self.name)
            if now is None:
                return frozenset()
            stored = tables.digests(connection, now, ids)
        same = [pair for pair in zip(ids, documents, strict=True) if stored.get(pair[0], ("",))[0] == pair[1].digest]
        changed = [(text, id) for id, one in same if (text := fields_text(one)) != stored[id][1]]
        if changed:
            with self._transaction("IMMEDIATE") as connection:
                now = tables.generation(connection, self.name)
                if now is not None:
                    connection.executemany(f"UPDATE {now.documents} SET fields = ? WHERE id = ?", changed)
        return frozenset(document.id for _, document in same)

    def _get(self, ids: list[str]) -> dict[str, Document]:
        with self._transaction() as connection:
            now = tables.generation(connection, self.name)
            if now is None:
                return {}
            wanted = f"SELECT id, text, fields FROM {now.documents} WHERE id IN (SELECT value FROM json_each(?))"
            found = [document_of(*row) for row in connection.execute(wanted, (json.dumps(ids),))]
        return {document.id: document for document in found}

    def _delete(self, ids: list[str]) -> int:
        with self._transaction("IMMEDIATE") as connection:
            now = tables.generation(connection, self.name)
            return 0 if now is None else tables.remove(connection, now, ids)

    def _search(self, question: Float32, k: int, model: VectorModel | None) -> tuple[Hit, ...]:
        with self._transaction() as connection:
            now = tables.generation(connection, self.name)
            if now is None:
                raise StoreError(f"{self.place} has no collection {self.name}: embed something into it first")
            asked = (model or now.model, len(question))
            require_same(self.place, self.name, (now.model, now.width), asked, writing=False)
            keys = self._nearest(connection, now, question, k)
            wanted = (
                f"SELECT d.id, d.text, d.fields, v.vector FROM {now.documents} d JOIN {now.vectors} v ON v.key = d.key"
                " WHERE d.key IN (SELECT value FROM json_each(?))"
            )
            found = connection.execute(wanted, (json.dumps(keys),)).fetchall()
        return hits_of(found, question, k)

    def _nearest(self, connection: sqlite3.Connection, now: Generation, question: Float32, k: int) -> list[int]:
        """Keys of a few rows, the `k` nearest among them."""
        held = self._up_to_date(connection, now)
        if held is not None:
            keys = held.candidates(question, k)
            return scan_in_steps(chosen(connection, now.vectors, now.width, keys), question, k)
        if self.has_extension:
            found = scan_with_extension(connection, now.vectors, question, k)
            if found is not None:
                return found
        return scan_in_steps(steps(connection, now.vectors, now.width), question, k)

    def _up_to_date(self, connection: sqlite3.Connection, now: Generation) -> HeldVectors | None:
        """The vectors in memory as this transaction sees them; None where they are not held."""
        if not self._hold or now.number == self._too_large:
            return None
        before, held = self._held_of, self._held
        if before is None or held is None or before.number != now.number or held.dead > len(held) // 2:
            before, held = None, HeldVectors()
        if before is not None and before.removed != now.removed:
            held.keep_only(row[0] for row in connection.execute(f"SELECT key FROM {now.documents}"))
        self._held, self._held_of = None, None
        if not held.add(steps(connection, now.vectors, now.width, held.next_key), most=self._hold):
            self._too_large = now.number
            return None
        self._held, self._held_of = held, now
        return held

    def _begin_replacement(self, model: VectorModel, width: int) -> None:
        with self._transaction("IMMEDIATE") as connection:
            if tables.generation(connection, self.name) is None:
                raise StoreError(f"{self.place} has no collection {self.name} that could be embedded again")
            begun = tables.generation(connection, self.name, replacement=True)
            if begun is not None and (begun.model.identity, begun.width) == (model.identity, width):
                return
            if begun is not None:
                tables.drop(connection, begun)
            tables.create(connection, self.name, model, width, replacement=True)

    def _outdated(self, after: str, limit: int) -> tuple[Document, ...]:
        with self._transaction() as connection:
            pair = tables.both(connection, self.name)
            if pair is None:
                return ()
            return tuple(document_of(*row) for row in tables.lacking(connection, *pair, after, limit))

    def _switch(self) -> int:
        with self._transaction("IMMEDIATE") as connection:
            pair = tables.both(connection, self.name)
            if pair is None:
                return 0
            return tables.switch(connection, *pair)


def _may_be_written(path: str) -> bool:
    """The file, and its log beside it; what is not there yet is made."""
    if path == ":memory:" or not Path(path).exists():
        return True
    return os.access(path, os.W_OK) and os.access(Path(path).parent, os.W_OK)


def _advice(path: str) -> str:
    folder = Path(path or ".").parent
    if not _may_be_written(path) and tables.has_log(path):
        return (
            f"Its log {path}-wal can only be read where the folder may be written: search it there once, or copy both."
        )
    if path and not folder.is_dir():
        return f"The folder {folder} does not exist: make it, or name another file."
    return "Check that the file may be written and is an SQLite database, or name another one."
