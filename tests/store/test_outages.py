"""The server restarts, answers are lost, a pooler stands before it: nothing is lost and nothing counts twice."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import Connection, text

from interlock.errors import StoreError
from interlock.runtime import CallRow
from interlock.runtime.store import link, sure
from interlock.runtime.store.opening import open_book, read_store
from interlock.runtime.store.reads import calls_in

Rows = Callable[..., CallRow]


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """A database that is away is tried again at once."""
    monkeypatch.setattr(sure, "FIRST_DELAY_S", 0.001)
    monkeypatch.setattr(sure, "LAST_DELAY_S", 0.01)


def ids(url: str) -> list[str | None]:
    return [row.record.request_id for row in calls_in(url, limit=10_000)]


def said_something(caplog: pytest.LogCaptureFixture) -> None:
    while not caplog.records:
        time.sleep(0.001)


async def test_b36_a_commit_whose_answer_is_lost_is_looked_up_and_not_done_twice(proxy: Any, make_row: Rows) -> None:
    book = await asyncio.to_thread(open_book, proxy.url)
    await book.write_call(make_row(0))
    for number in range(1, 6):
        proxy.lose_commits = number % 3  # the second one is of looking it up
        await book.write_call(make_row(number))
        assert proxy.lose_commits == 0
    await book.close()
    assert ids(proxy.behind) == [f"req-{number}" for number in range(6)]


async def test_the_answer_of_a_transaction_whose_commit_was_lost_is_given_all_the_same(proxy: Any) -> None:
    book = await asyncio.to_thread(open_book, proxy.url)
    calls = []

    def count(connection: Any) -> int:
        calls.append(1)
        connection.exec_driver_sql("CREATE TABLE once (x INTEGER)")
        return 42

    await book.read_calls()
    proxy.lose_commits = 1
    assert await book._writer.run(count) == 42
    assert len(calls) == 1
    await book.close()


async def test_a_server_restarted_under_load_loses_nothing_and_counts_nothing_twice(
    postgres: Any, make_row: Rows, caplog: pytest.LogCaptureFixture
) -> None:
    url = postgres.fresh()
    book = open_book(url)
    written = asyncio.Semaphore(0)

    async def caller(first: int) -> None:
        for number in range(first, first + 40):
            await book.write_call(make_row(number))
            written.release()

    callers = [asyncio.create_task(caller(first)) for first in range(0, 640, 40)]
    with caplog.at_level(logging.WARNING, "interlock.runtime"):
        for _ in range(2):
            for _ in range(60):
                await written.acquire()
            await asyncio.to_thread(postgres.stop)
            await asyncio.to_thread(postgres.start)
        await asyncio.gather(*callers)
    await book.close()
    assert sorted(ids(url), key=lambda name: int(str(name)[4:])) == [f"req-{number}" for number in range(640)]


async def test_while_the_server_is_away_everything_waits_and_it_is_said_once(
    postgres: Any, make_row: Rows, caplog: pytest.LogCaptureFixture
) -> None:
    url = postgres.fresh()
    book = open_book(url)
    await book.write_call(make_row(0))
    await asyncio.to_thread(postgres.stop)
    try:
        with caplog.at_level(logging.WARNING, "interlock.runtime"):
            write = asyncio.ensure_future(book.write_call(make_row(1)))
            await asyncio.to_thread(said_something, caplog)
            assert not write.done()
    finally:
        await asyncio.to_thread(postgres.start)
    await write
    said = [record.getMessage() for record in caplog.records]
    assert "is away" in said[0]
    assert "its rows wait, none is lost" in said[0]
    assert "is back after" in said[-1]
    assert len(said) == 2
    await book.close()
    assert ids(url) == ["req-0", "req-1"]


async def test_a_book_that_closes_while_the_server_is_away_gives_up_after_a_while(
    postgres: Any, make_row: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sure, "CLOSING_PATIENCE_S", 0.05)
    book = open_book(postgres.fresh())
    await book.write_call(make_row(0))
    await asyncio.to_thread(postgres.stop)
    try:
        write = asyncio.ensure_future(book.write_call(make_row(1)))
        await book.close()
        with pytest.raises(StoreError, match="is away, and what was to be written last is not in it"):
            await write
    finally:
        await asyncio.to_thread(postgres.start)


async def test_b69_a_pooler_that_changes_the_backend_between_transactions(proxy: Any, make_row: Rows) -> None:
    proxy.pooled = True
    book = await asyncio.to_thread(open_book, proxy.url)
    for number in range(20):
        await book.write_call(make_row(number))
        await book.read_calls(limit=1)
    await asyncio.gather(*[asyncio.ensure_future(book.write_call(make_row(n))) for n in range(20, 100)])
    assert len(await book.read_calls()) == 100
    before = proxy.connections
    await book.write_call(make_row(100))
    assert proxy.connections == before, "it has learnt, and does not connect anew each time"
    await book.close()


async def test_a_file_locked_by_another_program_for_long_is_waited_for(
    tmp_path: Any, make_row: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    from interlock.runtime.store import link

    monkeypatch.setattr(link, "LOCK_TIMEOUT_S", 0.001)
    url = f"sqlite:///{tmp_path}/s.db"
    book = open_book(url)
    lock = sqlite3.connect(tmp_path / "s.db", isolation_level=None, check_same_thread=False)
    lock.execute("BEGIN IMMEDIATE")
    write = asyncio.ensure_future(book.write_call(make_row(1)))
    for _ in range(20):
        await asyncio.sleep(0.002)
    assert not write.done()
    lock.execute("COMMIT")
    lock.close()
    await write
    await book.close()
    assert ids(url) == ["req-1"]


async def test_what_would_add_to_a_queue_that_is_long_waits_until_it_has_been_written(
    tmp_path: Any, make_row: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    from interlock.runtime.store import link, writer

    monkeypatch.setattr(link, "LOCK_TIMEOUT_S", 0.001)
    monkeypatch.setattr(writer, "MOST_QUEUED", 3)
    book = open_book(f"sqlite:///{tmp_path}/s.db")
    assert book.room() is None
    rows = [book.write_call(make_row(number)) for number in range(200)]
    first, second = book.room(), book.room()
    assert first is not None
    assert second is not None
    first.cancel()  # type: ignore[attr-defined]
    await second
    assert all(row.done() for row in rows)  # type: ignore[attr-defined]
    assert book.room() is None
    await book.close()


async def test_levels_that_wait_to_be_written_are_brought_up_to_date_and_take_one_place(
    tmp_path: Any, make_row: Rows, start: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from interlock.admission.memory import PoolMemory
    from interlock.runtime.store import link

    monkeypatch.setattr(link, "LOCK_TIMEOUT_S", 0.001)
    book = open_book(f"sqlite:///{tmp_path}/s.db")
    lock = sqlite3.connect(tmp_path / "s.db", isolation_level=None, check_same_thread=False)
    lock.execute("BEGIN IMMEDIATE")
    book.write_levels("one", {"gone": PoolMemory(lacks={"tokens": (1.0, 1.0)})}, start, False)
    write = asyncio.ensure_future(book.write_call(make_row(1)))
    before = book._writer._queue.qsize()
    for lacks in range(100):
        book.write_levels("one", {"p": PoolMemory(lacks={"tokens": (float(lacks), 1.0)})}, start, False)
    assert book._writer._queue.qsize() <= before + 1
    lock.execute("COMMIT")
    lock.close()
    await write
    kept = await book.read_levels()
    assert {name: one.memory.lacks["tokens"][0] for name, (one,) in kept.items()} == {"gone": 1.0, "p": 99.0}
    await book.close()


async def test_a_full_disk_is_waited_for_and_said(
    tmp_path: Any, make_row: Rows, caplog: pytest.LogCaptureFixture
) -> None:
    url = f"sqlite:///{tmp_path}/s.db"
    book = open_book(url)
    await book.write_call(make_row(0))
    raw = book._writer._link._engine.raw_connection().driver_connection  # type: ignore[attr-defined]
    (pages,) = raw.execute("PRAGMA page_count").fetchone()
    raw.execute(f"PRAGMA max_page_count={pages}")
    with caplog.at_level(logging.WARNING, "interlock.runtime"):
        write = asyncio.ensure_future(book.write_call(make_row(1, text="x" * 100_000)))
        await asyncio.to_thread(said_something, caplog)
    assert "is away (database or disk is full): its rows wait, none is lost" in caplog.text
    assert book.room() is not None
    assert not write.done()
    raw.execute("PRAGMA max_page_count=1000000")
    await write
    assert book.room() is None
    await book.close()
    assert ids(url) == ["req-0", "req-1"]


async def test_tables_that_are_dropped_while_they_are_used_are_said_with_what_to_do(
    store_url: str, make_row: Rows
) -> None:
    book = await asyncio.to_thread(open_book, store_url)
    await book.write_call(make_row(0))

    def drop(connection: Connection) -> None:
        for table in ("calls", "steps", "runs", "commits"):
            connection.execute(text(f"DROP TABLE {table}"))

    await asyncio.to_thread(read_store, store_url, drop, writes=True)
    for asked in (book.write_call(make_row(1)), book.read_calls()):
        with pytest.raises(
            StoreError, match=r"could not be .*calls|commits.*\. Its tables were dropped .* put back a copy"
        ):
            await asked
    await book.close()


def test_a_command_whose_transaction_has_to_give_way_tries_again(postgres: Any) -> None:
    from interlock.runtime.store.opening import read_store, upgrade_store

    url, asked = postgres.fresh(), []
    upgrade_store(url)

    def question(connection: Any, met: int, code: str = "40P01") -> int:
        asked.append(met)
        if len(asked) <= met:
            connection.exec_driver_sql(f"DO $$ BEGIN RAISE EXCEPTION 'met' USING ERRCODE = '{code}'; END $$")
        return 42

    assert read_store(url, lambda connection: question(connection, 2), writes=True) == 42
    assert len(asked) == 3
    for code in ("40001", "23505"):
        asked.clear()
        with pytest.raises(StoreError, match="met"):
            read_store(url, lambda connection, code=code: question(connection, 99, code), writes=True)
        assert len(asked) == (5 if code == "40001" else 1)


async def test_what_is_queued_when_the_writer_gives_up_is_not_tried_one_by_one(
    tmp_path: Any, make_row: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    from interlock.runtime.store import link

    monkeypatch.setattr(link, "LOCK_TIMEOUT_S", 0.001)
    monkeypatch.setattr(sure, "CLOSING_PATIENCE_S", 0.01)
    book = open_book(f"sqlite:///{tmp_path}/s.db")
    lock = sqlite3.connect(tmp_path / "s.db", isolation_level=None)
    lock.execute("BEGIN IMMEDIATE")
    tries: list[int] = []
    once = sure.Sure._once
    monkeypatch.setattr(sure.Sure, "_once", lambda self, *given, **more: (tries.append(1), once(self, *given, **more)))
    writes = [book._writer.run(lambda _: None) for _ in range(2_000)]
    await book.close()
    for write in writes:
        with pytest.raises(StoreError, match="is away"):
            await write
    assert len(tries) < 1_000
    lock.close()


async def test_who_is_frozen_with_rows_locked_keeps_nobody_waiting(
    postgres: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link, "IDLE_LIMIT_S", 0.05)
    url = postgres.fresh()
    books: list[Any] = [await asyncio.to_thread(open_book, url) for _ in range(2)]
    frozen, other = (book._writer for book in books)
    await other.run(lambda connection: connection.exec_driver_sql("create table once (x integer)"))
    await other.run(lambda connection: connection.exec_driver_sql("insert into once values (0)"))
    has_it, goes_on, tries = asyncio.Event(), threading.Event(), []
    loop = asyncio.get_running_loop()

    def add(connection: Any) -> None:
        connection.exec_driver_sql("update once set x = x + 1")
        tries.append(1)
        if len(tries) == 1:
            loop.call_soon_threadsafe(has_it.set)
            assert goes_on.wait(20)

    adding = asyncio.ensure_future(frozen.run(add))
    await has_it.wait()
    await asyncio.wait_for(other.run(lambda c: c.exec_driver_sql("update once set x = x + 10")), 20)
    goes_on.set()
    await adding
    found = await other.read(lambda connection: connection.exec_driver_sql("select x from once").scalar())
    assert (found, len(tries)) == (11, 2)  # what it had done was undone, and done again once
    for book in books:
        await book.close()
