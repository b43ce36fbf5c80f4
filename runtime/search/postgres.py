"""A collection in Postgres with pgvector, searched by an HNSW index (extra `postgres`).

HNSW is approximate: of the ten nearest it finds nearly all. `index()` builds it once much has been stored, which is far
quicker than filling it row by row; from then on Postgres keeps it up. Without it a search reads every row and is exact.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from interlock.errors import ConfigurationError, InterlockError, StoreError

from ..uncancelled import uncancelled
from . import postgres_tables as tables
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
from .postgres_lost import LostConnectionError, is_lost, until_it_is_back

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from interlock.catalog.entry import ModelEntry

#: How many candidates a search keeps while it walks the graph: the more, the fewer it misses. 1,000 at most.
EF_SEARCH = 200
MOST_EF_SEARCH = 1_000
#: What building the index may take of the server's memory. Less than the index's own size makes it slow.
INDEX_MEMORY_MB = 512
CONNECTIONS = 4


class PostgresCollection(Collection):
    def __init__(self, place: str, name: str, dsn: str, *, create: bool = True) -> None:
        super().__init__(place, name)
        self._dsn, self._create = dsn, create
        self._pool: Any = None

    async def open(self) -> None:
        """Raises StoreError for a server that cannot be reached, ConfigurationError without the extra."""
        try:
            import asyncpg
            from pgvector.asyncpg import register_vector
        except ModuleNotFoundError as error:
            raise ConfigurationError(
                f"a store in Postgres needs {error.name}: pip install 'interlock[postgres]'"
            ) from None
        try:
            first = await asyncpg.connect(self._dsn)
            try:
                if self._create:
                    await tables.prepare(first)
                elif not await tables.is_there(first):
                    raise StoreError(f"there is no store {self.place}: nothing has been embedded into it")
            finally:
                await first.close()
            self._pool = await asyncpg.create_pool(self._dsn, min_size=0, max_size=CONNECTIONS, init=register_vector)
        except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, ValueError) as error:
            raise StoreError(
                f"the store {self.place} cannot be opened: {error or type(error).__name__}. Check that the server is "
                "there, that the user may create tables, and that pgvector is installed on it"
            ) from None

    async def close(self) -> None:
        pool, self._pool = self._pool, None
        if pool is not None:
            await uncancelled(pool.close())

    @until_it_is_back
    async def info(self) -> CollectionInfo | None:
        async with self._transaction() as connection:
            now = await tables.generation(connection, self.name)
            if now is None:
                return None
            count = await connection.fetchval(f"SELECT count(*) FROM {now.documents}")
        return CollectionInfo(name=self.name, model=now.model, width=now.width, count=count)

    @until_it_is_back
    async def add(
        self,
        documents: Sequence[Document],
        vectors: NDArray[Any],
        *,
        model: ModelEntry | VectorModel | str,
        replacement: bool = False,
    ) -> None:
        rows, given = rows_of(documents, vectors), VectorModel.of(model)
        if not rows:
            return
        width = len(rows[0].vector)
        while True:
            async with self._transaction() as connection:
                into = await tables.generation(connection, self.name, replacement=replacement)
                if into is not None:
                    require_same(self.place, self.name, (into.model, into.width), (given, width))
                    await tables.replace(connection, into, rows)
                    return
            if replacement:
                raise NoReplacementError(self.place, self.name)
            async with self._alone() as connection:
                if await tables.generation(connection, self.name) is None:
                    await tables.create(connection, self.name, given, width)

    @until_it_is_back
    async def unchanged(self, documents: Sequence[Document]) -> frozenset[str]:
        ids = stored_ids([document.id for document in documents])
        async with self._transaction() as connection:
            now = await tables.generation(connection, self.name)
            if now is None:
                return frozenset()
            wanted = f"SELECT id, digest, fields FROM {now.documents} WHERE id = ANY($1)"
            stored = {row["id"]: row for row in await connection.fetch(wanted, ids)}
            same = [
                (id, one)
                for id, one in zip(ids, documents, strict=True)
                if id in stored and stored[id]["digest"] == one.digest
            ]
            changed = [(id, text) for id, one in same if (text := fields_text(one)) != stored[id]["fields"]]
            if changed:
                await tables.take_over_fields(connection, now, changed)
        return frozenset(document.id for _, document in same)

    @until_it_is_back
    async def get(self, ids: Sequence[str]) -> tuple[Document, ...]:
        async with self._transaction() as connection:
            now = await tables.generation(connection, self.name)
            if now is None:
                return ()
            wanted = f"SELECT id, text, fields FROM {now.documents} WHERE id = ANY($1)"
            rows = await connection.fetch(wanted, stored_ids(ids))
        found = {document.id: document for document in (document_of(*row) for row in rows)}
        return tuple(found[id] for id in dict.fromkeys(ids) if id in found)

    @until_it_is_back
    async def delete(self, ids: Sequence[str]) -> int:
        async with self._transaction() as connection:
            now = await tables.generation(connection, self.name)
            if now is None:
                return 0
            gone = f"DELETE FROM {now.documents} WHERE id = ANY($1) RETURNING id"
            return len(await connection.fetch(gone, sorted(stored_ids(ids))))

    @until_it_is_back
    async def search(
        self, vector: NDArray[Any], *, k: int = 10, model: ModelEntry | VectorModel | str | None = None
    ) -> tuple[Hit, ...]:
        question, wanted = question_of(vector), require_k(k)
        async with self._transaction() as connection:
            now = await tables.generation(connection, self.name)
            if now is None:
                raise StoreError(f"{self.place} has no collection {self.name}: embed something into it first")
            asked = (now.model if model is None else VectorModel.of(model), len(question))
            require_same(self.place, self.name, (now.model, now.width), asked, writing=False)
            if wanted > MOST_EF_SEARCH:
                await connection.execute("SET LOCAL enable_indexscan = off")
            else:
                await connection.execute(f"SET LOCAL hnsw.ef_search = {max(EF_SEARCH, wanted)}")
            rows = await connection.fetch(
                f"SELECT id, text, fields, embedding FROM {now.documents}"
                f" ORDER BY {now.indexed} <#> {now.question} LIMIT $2",
                question,
                wanted,
            )
        found = [(row["id"], row["text"], row["fields"], _numbers(row["embedding"])) for row in rows]
        return hits_of(found, question, wanted)

    @until_it_is_back
    async def index(self, *, replacement: bool = False) -> None:
        async with self._connection() as connection:
            # One that builds is enough; the lock is the session's, for an index is built outside a transaction.
            now = await tables.generation(connection, self.name, replacement=replacement)
            if now is None or not await connection.fetchval("SELECT pg_try_advisory_lock($1, 1)", now.number):
                return
            try:
                await tables.build_index(connection, now, memory_mb=INDEX_MEMORY_MB)
            finally:
                await connection.execute("SELECT pg_advisory_unlock($1, 1)", now.number)

    @until_it_is_back
    async def begin_replacement(self, *, model: ModelEntry | VectorModel | str, width: int) -> None:
        given = VectorModel.of(model)
        async with self._alone() as connection:
            if await tables.generation(connection, self.name) is None:
                raise StoreError(f"{self.place} has no collection {self.name} that could be embedded again")
            begun = await tables.generation(connection, self.name, replacement=True)
            if begun is not None and (begun.model.identity, begun.width) == (given.identity, width):
                return
            if begun is not None:
                await tables.drop(connection, begun)
            await tables.create(connection, self.name, given, width, replacement=True)

    @until_it_is_back
    async def outdated(self, *, after: str = "", limit: int = 1_000) -> tuple[Document, ...]:
        async with self._transaction() as connection:
            pair = await tables.both(connection, self.name)
            if pair is None:
                return ()
            rows = await tables.lacking(connection, *pair, stored_ids([after])[0], limit)
        return tuple(document_of(*row) for row in rows)

    @until_it_is_back
    async def switch(self) -> int:
        async with self._alone() as connection:
            pair = await tables.both(connection, self.name)
            return 0 if pair is None else await tables.switch(connection, *pair)

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[Any]:
        import asyncpg

        if self._pool is None:
            raise StoreError(f"the store {self.place} is closed")
        try:
            async with self._pool.acquire() as connection:
                yield connection
        except InterlockError:
            raise
        except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
            reason = str(error) or type(error).__name__
            kind = LostConnectionError if is_lost(error) else StoreError
            raise kind(f"the store {self.place} could not be written or read: {reason}") from None

    @asynccontextmanager
    async def _transaction(self) -> AsyncIterator[Any]:
        """A transaction under which no table is made or dropped."""
        async with self._connection() as connection, connection.transaction():
            await connection.execute("SELECT pg_advisory_xact_lock_shared($1)", tables.LOCK)
            yield connection

    @asynccontextmanager
    async def _alone(self) -> AsyncIterator[Any]:
        """A transaction that waits for the others to end, and lets none begin."""
        async with self._connection() as connection, connection.transaction():
            await connection.execute("SELECT pg_advisory_xact_lock($1)", tables.LOCK)
            yield connection


def _numbers(stored: Any) -> Any:
    return stored.to_numpy() if hasattr(stored, "to_numpy") else stored
