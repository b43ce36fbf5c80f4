"""The server restarts, answers are lost, a pooler stands before it: nothing is lost and nothing counts twice."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import time
from collections.abc import Callable
from typing import Any

import pytest

from interlock.errors import StoreError
from interlock.runtime import CallRow
from interlock.runtime.store import sure
from interlock.runtime.store.opening import open_book
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
