"""Every book behaves alike: in memory, in an SQLite file or memory, in Postgres."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from interlock.admission.memory import PoolMemory
from interlock.catalog import Usage
from interlock.errors import StoreError
from interlock.runtime import CallRow, RunRow
from interlock.runtime.store.book import Book, MemoryBook
from interlock.runtime.store.opening import open_book, read_store
from interlock.runtime.store.reads import calls_in
from interlock.runtime.store.text import restored, storable

Rows = Callable[..., CallRow]
NASTY = "a\x00b \ud800 \\u0000 \ufdd0 \U0001f600 \u2028"


@pytest.fixture(params=["memory", "file", "sqlite-memory", "postgres"])
async def book(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Book]:
    opened: Book
    if request.param == "memory":
        opened = MemoryBook()
    elif request.param == "postgres":
        opened = open_book(request.getfixturevalue("postgres").fresh())
    else:
        opened = open_book({"file": f"sqlite:///{tmp_path}/s.db", "sqlite-memory": "sqlite:///:memory:"}[request.param])
    yield opened
    await opened.close()


async def test_a_row_reads_back_as_it_was_written(book: Book, make_row: Rows) -> None:
    await book.write_call(make_row(1))
    assert list(await book.read_calls()) == [make_row(1)]


async def test_b26_nul_and_lone_surrogates_come_back_as_they_were(book: Book, make_row: Rows, start: datetime) -> None:
    nasty = make_row(1, text=NASTY, error=f"bad {NASTY}", served_model=NASTY, provider=NASTY, stop_reason=NASTY)
    await book.write_call(nasty)
    assert list(await book.read_calls()) == [nasty]
    run = RunRow(run_id=NASTY, pipeline=NASTY, started_at=start, error=NASTY, error_code=NASTY)
    await book.write_run(run)
    assert list(await book.read_runs(run_id=NASTY)) == [run]


async def test_b26_waits_by_account_names_of_any_kind(book: Book, make_row: Rows) -> None:
    await book.write_call(make_row(waited={NASTY: 1.0}))
    assert (await book.read_calls())[0].waited == {NASTY: 1.0}


@given(st.text(st.characters(codec=None, exclude_categories=())))
def test_b26_any_text_is_stored_reversibly(text: str) -> None:
    stored = storable(text)
    assert restored(stored) == text
    assert "\x00" not in stored
    stored.encode()


async def test_text_of_any_length_is_no_reason_to_lose_a_row(book: Book, make_row: Rows, start: datetime) -> None:
    long = make_row(1, provider="p" * 1_000, outcome="o" * 1_000, stop_reason="s" * 1_000, currency="USDC")
    counted = replace(long, record=replace(long.record, usage=Usage(input_tokens=10**12)))
    await book.write_call(counted)
    assert list(await book.read_calls()) == [counted]
    run = RunRow(run_id="r" * 1_000, pipeline="p", started_at=start, error_code="E" * 1_000)
    await book.write_run(run)
    assert list(await book.read_runs()) == [run]


async def test_unknown_stays_null(book: Book, make_row: Rows) -> None:
    await book.write_call(make_row(usage=Usage(), cost=None, currency=None))
    (back,) = await book.read_calls()
    assert back.record.usage == Usage()
    assert back.record.cost is None


async def test_reading_by_time_run_and_number(book: Book, make_row: Rows, start: datetime) -> None:
    for number in range(10):
        await book.write_call(make_row(number))
    later = await book.read_calls(since=start + timedelta(seconds=7))
    assert [found.record.request_id for found in later] == ["req-7", "req-8", "req-9"]
    assert [found.record.request_id for found in await book.read_calls(limit=2)] == ["req-8", "req-9"]
    assert list(await book.read_calls(run_id="another")) == []


async def test_a_run_is_one_row_and_its_end_overwrites_its_beginning(book: Book, start: datetime) -> None:
    await book.write_run(RunRow(run_id="r", pipeline="p", started_at=start))
    ended = RunRow(run_id="r", pipeline="p", started_at=start, ended_at=start, status="failed", error="no")
    await book.write_run(ended)
    assert list(await book.read_runs()) == [ended]


# What a database adds.


async def test_what_is_queued_together_is_committed_together(store_url: str, make_row: Rows) -> None:
    book = open_book(store_url)
    await book.write_call(make_row())
    before = book.groups
    await asyncio.gather(*[asyncio.ensure_future(book.write_call(make_row(number))) for number in range(1_000)])
    assert book.groups - before < 100
    assert len(await book.read_calls(limit=5_000)) == 1_001
    await book.close()


async def test_a_row_that_cannot_be_written_loses_no_other(store_url: str, make_row: Rows) -> None:
    book = open_book(store_url)
    writes = [book.write_call(make_row(n, model=None if n == 1 else "m")) for n in range(3)]
    results = await asyncio.gather(*[asyncio.ensure_future(write) for write in writes], return_exceptions=True)
    assert [type(result) for result in results] == [type(None), StoreError, type(None)]
    assert [found.record.request_id for found in await book.read_calls()] == ["req-0", "req-2"]
    await book.close()


async def test_a_value_that_the_driver_cannot_encode_fails_its_row_and_is_not_tried_for_ever(
    store_url: str, make_row: Rows
) -> None:
    book = open_book(store_url)
    with pytest.raises(StoreError, match="could not be written"):
        await book.write_call(make_row(1, usage=Usage(input_tokens=2**70)))
    await book.write_call(make_row(2))
    assert [found.record.request_id for found in await book.read_calls()] == ["req-2"]
    await book.close()


async def test_closing_commits_what_nobody_awaited(store_url: str, make_row: Rows) -> None:
    book = open_book(store_url)
    for number in range(50):
        book.write_call(make_row(number))
    await book.close()
    assert len(calls_in(store_url)) == 50
    with pytest.raises(StoreError, match="closed"):
        book.write_call(make_row())
    assert read_store(store_url, _count("commits")) == 0, "a closed writer leaves no row of its own"


async def test_levels_of_two_processes_are_kept_side_by_side(store_url: str, start: datetime) -> None:
    one, two = open_book(store_url), open_book(store_url)
    for owner, book, lacks in (("one", one, 5.0), ("two", two, 7.0)):
        memories = {name: PoolMemory(lacks={"tokens": (lacks, 1.0)}) for name in ("p", "q")}
        book.write_levels(owner, memories, start, False)
        await book.read_levels()
    kept = await one.read_levels()
    assert {name: sorted(k.memory.lacks["tokens"][0] for k in each) for name, each in kept.items()} == {
        "p": [5.0, 7.0], "q": [5.0, 7.0],
    }  # fmt: skip
    await one.close()
    await two.close()


async def test_b66_two_loops_write_through_one_book(store_url: str, make_row: Rows) -> None:
    book = open_book(store_url)

    async def other() -> None:
        await book.write_call(make_row(2))

    await book.write_call(make_row(1))
    await asyncio.to_thread(lambda: asyncio.run(other()))
    assert [found.record.request_id for found in await book.read_calls()] == ["req-1", "req-2"]
    await book.close()


def _count(table: str) -> Callable[..., int]:
    return lambda connection: int(connection.exec_driver_sql(f"SELECT count(*) FROM {table}").scalar())
