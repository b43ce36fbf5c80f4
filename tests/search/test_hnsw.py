"""What is Postgres's own: the index, its widest column, and what is said where something is missing."""

from __future__ import annotations

import asyncio
from typing import Any

import asyncpg
import numpy as np
import pytest
from postgres_server import PostgresTestServer
from search.places import some, unit

from interlock.errors import StoreError
from interlock.runtime.search import Document, open_collection, postgres as postgres_store, postgres_lost
from interlock.runtime.search.postgres import PostgresCollection
from interlock.runtime.search.postgres_lost import is_lost


async def opened(url: str, **options: Any) -> PostgresCollection:
    collection = await open_collection(url, **options)
    assert isinstance(collection, PostgresCollection)
    return collection


async def test_the_index_is_built_once_and_a_broken_one_anew(postgres: PostgresTestServer) -> None:
    url = postgres.fresh()
    documents, vectors = some(300)
    plain = await asyncpg.connect(url.replace("+asyncpg", ""))
    asked = "SELECT indexrelid, indisvalid FROM pg_index WHERE indexrelid = to_regclass('interlock_documents_1_hnsw')"
    try:
        async with await opened(url) as collection, await opened(url) as other:
            await collection.index()  # of nothing
            await collection.add(documents[:250], vectors[:250], model="m")
            assert await plain.fetchrow(asked) is None
            await collection.index()
            first = await plain.fetchrow(asked)
            assert first["indisvalid"]
            await other.index()
            assert (await plain.fetchrow(asked))["indexrelid"] == first["indexrelid"]
            await plain.execute("UPDATE pg_index SET indisvalid = FALSE WHERE indexrelid = $1", first["indexrelid"])
            await collection.index()  # as after a build that was cut off
            assert (await plain.fetchrow(asked))["indisvalid"]
            await collection.add(documents[250:], vectors[250:], model="m")
            assert (await collection.search(vectors[280], k=1))[0].id == "d280"
    finally:
        await plain.close()


@pytest.mark.parametrize("width", [1_300, 1_999, 2_000, 2_001, 3_072])
async def test_a_column_wider_than_an_index_takes_is_indexed_in_half(postgres: PostgresTestServer, width: int) -> None:
    _, vectors = some(60, width=width)
    documents = [Document(id=f"d{at}-{'i' * 1_900}", text="text " * 2_000, fields={"f": "x" * 900}) for at in range(60)]
    async with await opened(postgres.fresh()) as collection:
        await collection.add(documents, vectors, model="m")
        await collection.index()
        hits = await collection.search(vectors[17], k=5)
    assert hits[0].id == documents[17].id
    assert hits[0].score == pytest.approx(1.0, abs=1e-6)  # scored in full


async def test_more_than_an_index_gives_is_found_without_it(postgres: PostgresTestServer) -> None:
    url = postgres.fresh()
    documents, vectors = some(1_500, width=8)
    async with await opened(url) as collection:
        await collection.add(documents, vectors, model="m")
        await collection.index()
    plain = await asyncpg.connect(url.replace("+asyncpg", ""))
    try:  # by itself Postgres would read so few rows one by one
        await plain.execute(f"ALTER DATABASE {await plain.fetchval('SELECT current_database()')} SET enable_sort = off")
    finally:
        await plain.close()
    async with await opened(url) as collection:
        for k in (500, 1_000, 1_400):
            assert len(await collection.search(vectors[0], k=k)) == k


async def test_a_store_that_is_only_read_makes_nothing(postgres: PostgresTestServer) -> None:
    url = postgres.fresh()
    with pytest.raises(StoreError, match="there is no store"):
        await open_collection(url, create=False)
    plain = await asyncpg.connect(url.replace("+asyncpg", ""))
    try:
        assert await plain.fetchval("SELECT to_regclass('interlock_collections')") is None
        assert await plain.fetchval("SELECT count(*) FROM pg_extension WHERE extname = 'vector'") == 0
    finally:
        await plain.close()


async def test_a_server_that_goes_is_waited_for(
    postgres: PostgresTestServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tried = asyncio.Event()

    def noted(error: Exception) -> bool:
        tried.set()
        return is_lost(error)

    monkeypatch.setattr(postgres_store, "is_lost", noted)
    monkeypatch.setattr(postgres_lost, "AGAIN_S", 0.01)
    documents, vectors = some(10)
    async with await opened(postgres.fresh()) as collection:
        await collection.add(documents[:5], vectors[:5], model="m")
        postgres.stop()
        adding = asyncio.create_task(collection.add(documents[5:], vectors[5:], model="m"))
        await tried.wait()
        monkeypatch.setattr(postgres_lost, "PATIENCE_S", 0.0)
        with pytest.raises(StoreError, match="could not be written or read"):
            await collection.info()
        postgres.start()
        await adding
        assert (await collection.search(vectors[8], k=1))[0].id == "d8"
    assert not caplog.records


async def test_nothing_is_read_while_tables_are_made_and_dropped(postgres: PostgresTestServer) -> None:
    url = postgres.fresh()
    documents, vectors = some(3)
    async with await opened(url) as one, await opened(url) as other:
        await one.add(documents, vectors, model="m")
        async with one._alone() as alone:
            reading = asyncio.create_task(other.info())
            waiting = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
            while not reading.done() and not await alone.fetchval(waiting):
                pass
            assert not reading.done()
        info = await reading
    assert info is not None
    assert info.count == 3


async def test_a_connection_that_is_lost_while_much_is_written_is_noticed(postgres: PostgresTestServer) -> None:
    url = postgres.fresh()
    documents, vectors = some(1_000, width=2_000)  # more than the buffers on the way take
    waiting = "SELECT pid FROM pg_locks WHERE relation = 'interlock_documents_1'::regclass AND NOT granted"
    async with await opened(url) as collection:
        await collection.add(documents[:1], vectors[:1], model="m")
        other = await asyncpg.connect(url.replace("+asyncpg", ""))
        try:
            async with other.transaction():
                await other.execute("LOCK TABLE interlock_documents_1 IN EXCLUSIVE MODE")
                adding = asyncio.create_task(collection.add(documents, vectors, model="m"))
                while not (pid := await other.fetchval(waiting)):
                    pass
                await other.execute("SELECT pg_terminate_backend($1)", pid)
            await asyncio.wait_for(adding, 30)
        finally:
            await other.close()
        assert (await collection.search(vectors[999], k=1))[0].id == "d999"


async def test_vectors_are_kept_to_the_bit(postgres: PostgresTestServer) -> None:
    url = postgres.fresh()
    documents, _ = some(3)
    vectors = unit(np.array([[1e-30, 1.0], [-0.0, -1.0], [0.6, 0.8]]))
    async with await opened(url) as collection:
        await collection.add(documents, vectors, model="m")
        async with collection._transaction() as connection:
            rows = await connection.fetch("SELECT id, embedding FROM interlock_documents_1 ORDER BY id")
    stored = np.stack([row["embedding"].to_numpy() for row in rows])
    assert stored.tobytes() == vectors.tobytes()
