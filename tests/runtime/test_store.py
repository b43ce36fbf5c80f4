"""The store: reversible text, groups, errors that say what to do, and reading by others."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from interlock.catalog import Kind, Usage
from interlock.clients.record import CallRecord
from interlock.errors import StoreError
from interlock.runtime import CallRow, LLMCall, RunRow, Runtime
from interlock.runtime.store.book import Book, MemoryBook
from interlock.runtime.store.opening import open_book, open_for_reading
from interlock.runtime.store.reads import calls_in
from interlock.runtime.store.text import restored, storable

START = datetime(2026, 11, 1, 12, tzinfo=UTC)
NASTY = "a\x00b \ud800 \\u0000 \ufdd0 \U0001f600 \u2028"


def row(number: int = 0, **changes: Any) -> CallRow:
    values: dict[str, Any] = {
        "kind": Kind.CHAT, "model": "m", "provider": "p", "wire_model_id": "w", "served_model": None,
        "request_id": f"req-{number}", "usage": Usage(input_tokens=3, estimated=True), "cost": Decimal("0.054399"),
        "currency": "USD", "price_as_of": "2026-11-01", "started_at": START + timedelta(seconds=number),
        "latency_s": 0.25, "first_piece_s": None, "outcome": "ok", "error": None, "stop_reason": "end_turn",
        "unmetered": False, "undeclared": False, "request_hash": "f" * 64, "text": None,
    }  # fmt: skip
    return CallRow(
        record=CallRecord(**{**values, **changes}),
        run_id="run",
        step_id="0/k:x",
        job_id=f"{number:032x}",
        job="LLMCall",
        workflow="triage",
        attempt=2,
        waited_s=1.5,
        waited={"pool:tokens": 1.0, "db:x": 0.5},
        catalog_version="abc",
    )


@pytest.fixture(params=["memory", "file", "sqlite-memory"])
async def book(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Book]:
    """Every book behaves alike."""
    urls = {"file": f"sqlite:///{tmp_path}/s.db", "sqlite-memory": "sqlite:///:memory:"}
    opened: Book = MemoryBook() if request.param == "memory" else open_book(urls[request.param])
    yield opened
    await opened.close()


async def test_a_row_reads_back_as_it_was_written(book: Book) -> None:
    await book.write_call(row(1))
    assert list(await book.read_calls()) == [row(1)]


async def test_b26_nul_and_lone_surrogates_come_back_as_they_were(book: Book) -> None:
    nasty = row(1, text=NASTY, error=f"bad {NASTY}", served_model=NASTY)
    await book.write_call(nasty)
    (back,) = await book.read_calls()
    assert back == nasty
    run = RunRow(run_id=NASTY, pipeline=NASTY, started_at=START, error=NASTY)
    await book.write_run(run)
    assert list(await book.read_runs(run_id=NASTY)) == [run]


async def test_b26_waits_by_account_names_of_any_kind(book: Book) -> None:
    from dataclasses import replace

    odd = replace(row(), waited={NASTY: 1.0})
    await book.write_call(odd)
    assert (await book.read_calls())[0].waited == {NASTY: 1.0}


@given(st.text(st.characters(codec=None, exclude_categories=())))
def test_b26_any_text_is_stored_reversibly(text: str) -> None:
    stored = storable(text)
    assert restored(stored) == text
    assert "\x00" not in stored
    stored.encode()


async def test_unknown_stays_null(book: Book) -> None:
    await book.write_call(row(usage=Usage(), cost=None, currency=None))
    (back,) = await book.read_calls()
    assert back.record.usage == Usage()
    assert back.record.cost is None


async def test_reading_by_time_run_and_number(book: Book) -> None:
    for number in range(10):
        await book.write_call(row(number))
    later = await book.read_calls(since=START + timedelta(seconds=7))
    assert [found.record.request_id for found in later] == ["req-7", "req-8", "req-9"]
    assert [found.record.request_id for found in await book.read_calls(limit=2)] == ["req-8", "req-9"]
    assert list(await book.read_calls(run_id="another")) == []


async def test_a_run_is_one_row_and_its_end_overwrites_its_beginning(book: Book) -> None:
    await book.write_run(RunRow(run_id="r", pipeline="p", started_at=START))
    ended = RunRow(run_id="r", pipeline="p", started_at=START, ended_at=START, status="failed", error="no")
    await book.write_run(ended)
    assert list(await book.read_runs()) == [ended]


async def test_a_file_of_an_earlier_version_is_brought_up_and_keeps_its_rows(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/old.db"
    first = open_book(url)
    await first.write_call(row(1))
    await first.close()
    with closing(sqlite3.connect(tmp_path / "old.db")) as old:
        old.execute("ALTER TABLE calls DROP COLUMN cache_write_1h_tokens")
        old.commit()
    with pytest.raises(StoreError, match="earlier version: open it once with a Runtime"):
        open_for_reading(url)
    again = open_book(url)
    split = row(2, usage=Usage(input_tokens=1, cache_write_tokens=9, cache_write_1h_tokens=5))
    await again.write_call(split)
    assert list(await again.read_calls()) == [row(1), split]
    await again.close()
    open_for_reading(url).dispose()


async def test_what_is_queued_together_is_committed_together(tmp_path: Path) -> None:
    book = open_book(f"sqlite:///{tmp_path}/s.db")
    await book.write_call(row())
    before = book.groups
    await asyncio.gather(*[asyncio.ensure_future(book.write_call(row(number))) for number in range(1_000)])
    assert book.groups - before < 100
    assert len(await book.read_calls(limit=5_000)) == 1_001
    await book.close()


async def test_a_row_that_cannot_be_written_loses_no_other(tmp_path: Path) -> None:
    book = open_book(f"sqlite:///{tmp_path}/s.db")
    writes = [book.write_call(row(n, model=None if n == 1 else "m")) for n in range(3)]
    results = await asyncio.gather(*[asyncio.ensure_future(write) for write in writes], return_exceptions=True)
    assert [type(result) for result in results] == [type(None), StoreError, type(None)]
    assert [found.record.request_id for found in await book.read_calls()] == ["req-0", "req-2"]
    await book.close()


async def test_closing_commits_what_nobody_awaited(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/s.db"
    book = open_book(url)
    for number in range(50):
        book.write_call(row(number))
    await book.close()
    assert len(calls_in(url)) == 50
    with pytest.raises(StoreError, match="closed"):
        book.write_call(row())


async def test_the_log_is_written_ahead(tmp_path: Path) -> None:
    book = open_book(f"sqlite:///{tmp_path}/s.db")
    await book.write_call(row())
    reader = sqlite3.connect(tmp_path / "s.db")
    assert reader.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert reader.execute("SELECT cost, waited, started_at FROM calls").fetchone() == (
        "0.054399",
        '{"db:x":0.5,"pool:tokens":1.0}',
        "2026-11-01T12:00:00.000000+00:00",
    )
    reader.close()
    await book.close()


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("sqlite:////nowhere/at/all/s.db", r"nowhere/at/all does not exist"),
        ("postgresql+asyncpg://me:hunter22@host/db", r"write sqlite:///"),
        ("what is this", r"cannot be read"),
        ("sqlite:////etc/hostname", r"cannot be opened"),
    ],
)
async def test_a_store_that_cannot_be_opened_is_one_sentence(world: Any, url: str, said: str) -> None:
    with pytest.raises(StoreError, match=said) as caught:
        async with world.runtime(store=url):
            pass
    assert "hunter22" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_reading_a_store_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="there is no store"):
        calls_in(f"sqlite:///{tmp_path}/none.db")
    assert not (tmp_path / "none.db").exists()
    sqlite3.connect(tmp_path / "other.db").execute("CREATE TABLE t (x)").connection.close()
    with pytest.raises(StoreError, match="not a store of Interlock"):
        calls_in(f"sqlite:///{tmp_path}/other.db")


async def test_a_store_that_fails_fails_the_job_whose_row_is_lost(
    world: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world.runtime(store=f"sqlite:///{tmp_path}/s.db") as runtime:
        await world.until(runtime.run(LLMCall("x")))
        connection = sqlite3.connect(tmp_path / "s.db")
        connection.execute("DROP TABLE calls")
        connection.commit()
        connection.close()
        with pytest.raises(StoreError, match="no such table"):
            await world.until(runtime.run(LLMCall("x")))
        assert runtime.statistics().admission.account("model:fake-small:requests").debt == 0


async def test_the_answers_text_is_kept_only_where_the_deployment_says_so(world: Any) -> None:
    for keep, expected in ((False, None), (True, "ok")):
        async with world.runtime(keep_text=keep, store="sqlite:///:memory:") as runtime:
            await world.until(runtime.run(LLMCall("x")))
            assert (await runtime.calls())[0].record.text == expected


async def test_b26_a_nul_in_an_answer_loses_nothing(world: Any, Step: Any) -> None:
    world.provider.script(Step(text="a\x00b"))
    async with world.runtime(keep_text=True, store="sqlite:///:memory:") as runtime:
        response = await world.until(runtime.run(LLMCall("x")))
        assert response.text == (await runtime.calls())[0].record.text == "a\x00b"


async def test_the_loop_is_never_blocked_by_the_store(world: Any, tmp_path: Path) -> None:
    async with world.runtime(store=f"sqlite:///{tmp_path}/s.db") as runtime:
        assert isinstance(runtime, Runtime)
        lock = sqlite3.connect(tmp_path / "s.db", isolation_level=None)
        lock.execute("BEGIN IMMEDIATE")
        handle = runtime.submit(LLMCall("x"))
        await world.run_until(lambda: world.provider.count == 1 and world.provider.in_flight == 0)
        for _ in range(20):
            await asyncio.sleep(0.001)
        assert not handle.done, "its record is not committed yet"
        lock.execute("COMMIT")
        lock.close()
        assert (await handle).text == "ok"
