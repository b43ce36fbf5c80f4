"""`interlock runs` and `interlock store`, on SQLite and on Postgres."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from sqlalchemy import text
from typer.testing import CliRunner

from interlock.runtime import CallRow
from interlock.runtime.cli.app import app
from interlock.runtime.journal.protocol import Intent, RunEnd, RunHead, RunStatus, StepOutcome, StepStatus
from interlock.runtime.store.opening import open_book, read_store, upgrade_store
from interlock.runtime.store.run_changes import Wanted, wanted
from interlock.runtime.store.schema import calls, runs, steps
from interlock.runtime.store.sql_book import SqlBook

Rows = Callable[..., CallRow]
NOW = datetime.now(UTC)


def interlock(*words: str, code: int = 0) -> str:
    result = CliRunner().invoke(app, list(words))
    assert result.exit_code == code, result.output
    return result.output if code else result.stdout


def listed(url: str, *words: str) -> dict[str, Any]:
    return {run["run"]: run for run in json.loads(interlock("runs", "list", "--json", "--store", url, *words))}


def shown(url: str, run: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(interlock("runs", "show", run, "--json", "--store", url))
    return found


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[SqlBook]:
    book = await asyncio.to_thread(open_book, url, ttl_s=2)
    try:
        yield book
    finally:
        await book.close()


async def write_run(book: SqlBook, run_id: str, make_row: Rows, *, ends: RunStatus | None, at: datetime = NOW) -> None:
    """Two steps: one went well at the second try, one was begun and its call is on its way."""
    journal = book.journal
    claim, _ = journal.create(RunHead(run_id=run_id, pipeline="triage", started_at=at, cost_cap="5"), owner=book.owner)
    for attempt, cost in ((1, None), (2, Decimal("0.10"))):
        journal.intend(claim, Intent(step_id="0", fingerprint="f", job="LLMCall", attempt=attempt, at=at))
        call = make_row(attempt, run_id=run_id, step_id="0", attempt=attempt, cost=cost, started_at=at)
        await journal.keep_calls(claim, [call])
    call = make_row(3, run_id=run_id, step_id="0", attempt=2, cost=Decimal("0.20"), started_at=at)
    done = StepOutcome(step_id="0", fingerprint="f", job="LLMCall", status=StepStatus.SUCCEEDED, attempt=2, at=at)
    await journal.conclude(claim, done, [call])
    await journal.intend(claim, Intent(step_id="1", fingerprint="f", job="Save", attempt=1, at=at, again="unknown"))
    if ends is not None:
        await journal.end(claim, RunEnd(status=ends, ended_at=at + timedelta(seconds=3), error_code="x", error="why"))


async def test_runs_are_listed_with_their_progress_and_their_cost(store_url: str, make_row: Rows) -> None:
    async with opened(store_url) as book:
        await write_run(book, "one", make_row, ends=None)
        await write_run(book, "two", make_row, ends=RunStatus.FAILED, at=NOW + timedelta(seconds=1))
        found = await asyncio.to_thread(listed, store_url)
        assert list(found) == ["one", "two"]
        one = found["one"]
        assert (one["status"], one["done"], one["steps"], one["ambiguous"]) == ("running", 1, 2, 0)
        assert (one["calls"], one["cost"], one["calls_of_unknown_cost"]) == (3, {"USD": "0.30"}, 1)
        assert (found["two"]["status"], found["two"]["error_code"]) == ("failed", "x")
        assert list(await asyncio.to_thread(listed, store_url, "--status", "failed")) == ["two"]
        assert list(await asyncio.to_thread(listed, store_url, "--limit", "1")) == ["two"]
        assert list(await asyncio.to_thread(listed, store_url, "--pipeline", "none")) == []
        table = await asyncio.to_thread(interlock, "runs", "list", "--store", store_url)
        assert "0.3000 USD + ?" in table
        assert "1/2" in table


async def test_a_run_whose_process_is_gone_is_shown_as_that_and_what_is_ambiguous_is_said(
    store_url: str, make_row: Rows
) -> None:
    async with opened(store_url) as book:
        await write_run(book, "r", make_row, ends=None)
        assert shown_in_words(store_url, "r", "in process")
    run = shown(store_url, "r")
    assert (run["status"], run["ambiguous"], run["attempt"]) == ("interrupted", 1, 1)
    assert list(listed(store_url, "--status", "interrupted")) == ["r"]
    assert list(listed(store_url, "--status", "running")) == []
    first, second = run["step_list"]
    assert (first["step"], first["status"], first["tries"], first["calls"]) == ("0", "succeeded", 2, 3)
    assert first["cost"] == {"USD": "0.30"}
    assert (second["status"], second["ambiguous"], second["again"]) == ("begun", True, "unknown")
    words = shown_in_words(store_url, "r", "interlock runs resume r")
    assert "1 steps were begun and not heard of again" in words
    assert "ambiguous; run again: unknown" in words
    assert "0.3000 USD + ? of at most 5" in words


async def test_a_step_that_could_do_nothing_but_commit_where_that_is_known_is_not_ambiguous(store_url: str) -> None:
    async with opened(store_url) as book:
        claim, _ = book.journal.create(RunHead(run_id="s", pipeline="p", started_at=NOW), owner=book.owner)
        for step_id, says in (("0", True), ("1", False)):
            needs = json.dumps({"calls": [], "databases": ["tickets"], "says": says})
            intent = Intent(step_id=step_id, fingerprint="f", job="Save", attempt=1, at=NOW, requests=needs)
            await book.journal.intend(claim, intent)
    run = shown(store_url, "s")
    assert [step["ambiguous"] for step in run["step_list"]] == [False, True]
    assert (run["status"], run["ambiguous"], listed(store_url)["s"]["ambiguous"]) == ("interrupted", 1, 1)


def shown_in_words(url: str, run: str, expected: str) -> str:
    words = interlock("runs", "show", run, "--store", url)
    assert expected in words
    return words


async def test_a_living_process_hears_of_cancel_and_pause(store_url: str, make_row: Rows) -> None:
    heard: asyncio.Queue[dict[str, Wanted]] = asyncio.Queue()
    loop = asyncio.get_running_loop()
    async with opened(store_url) as book:
        book.on_wanted(lambda wanted: loop.call_soon_threadsafe(heard.put_nowait, dict(wanted)))
        await write_run(book, "r", make_row, ends=None)

        async def hears(wanted: dict[str, Wanted]) -> None:
            while await heard.get() != wanted:  # what was wanted before is told again until it is not
                pass

        await asyncio.to_thread(interlock, "runs", "pause", "r", "--store", store_url)
        await hears({"r": Wanted(pause=True)})
        assert (await asyncio.to_thread(shown, store_url, "r"))["status"] == "paused"
        assert "goes on" in await asyncio.to_thread(interlock, "runs", "resume", "r", "--store", store_url)
        await hears({})
        said = await asyncio.to_thread(interlock, "runs", "cancel", "r", "--store", store_url)
        assert "within 5 s" in said
        await hears({"r": Wanted(cancel=True)})


async def test_a_run_of_nobody_is_cancelled_at_once_and_an_ended_one_not_at_all(store_url: str, make_row: Rows) -> None:
    async with opened(store_url) as book:
        await write_run(book, "r", make_row, ends=None)
    assert interlock("runs", "cancel", "r", "--store", store_url) == "Run r is cancelled.\n"
    run = shown(store_url, "r")
    assert (run["status"], run["error_code"]) == ("cancelled", "job_cancelled")
    for word in ("cancel", "pause"):
        assert "it has ended (cancelled)" in interlock("runs", word, "r", "--store", store_url, code=2)
        assert "there is no run 'x'" in interlock("runs", word, "x", "--store", store_url, code=2)
    for word in ("show", "resume"):
        assert "there is no run 'x'" in interlock("runs", word, "x", "--store", store_url, code=2)


def test_a_queued_run_is_cancelled_or_paused_before_anybody_begins_it(store_url: str) -> None:
    upgrade_store(store_url)
    queued = [
        {"run_id": name, "pipeline": "p", "version": "", "status": "queued", "created_at": NOW} for name in ("a", "b")
    ]
    read_store(store_url, lambda c: c.execute(runs.insert(), queued), writes=True)
    interlock("runs", "cancel", "a", "--store", store_url)
    interlock("runs", "pause", "b", "--store", store_url)
    assert {name: run["status"] for name, run in listed(store_url).items()} == {"a": "cancelled", "b": "paused"}
    assert "goes on" in interlock("runs", "resume", "b", "--store", store_url)
    assert listed(store_url)["b"]["status"] == "queued"


async def test_prune_forgets_what_ended_long_ago_and_nothing_else(store_url: str, make_row: Rows) -> None:
    old = NOW - timedelta(days=31)
    async with opened(store_url) as book:
        for n in range(5):
            await write_run(book, f"old {n}", make_row, ends=RunStatus.SUCCEEDED, at=old)
        await write_run(book, "recent", make_row, ends=RunStatus.FAILED, at=NOW - timedelta(days=29))
        await write_run(book, "old and under way", make_row, ends=None, at=old)
        await book.write_call(make_row(8, run_id=None, started_at=old))
        await book.write_call(make_row(9, run_id=None))
    prune = ("runs", "prune", "--older-than", "30d", "--store", store_url)
    assert interlock(*prune, "--dry-run") == "Would forget 5 runs, 10 steps and 16 calls.\n"
    assert interlock(*prune, "--dry-run", "--keep-calls") == "Would forget 5 runs, 10 steps and 0 calls.\n"
    assert interlock(*prune) == "Forgot 5 runs, 10 steps and 16 calls.\n"
    assert set(listed(store_url)) == {"recent", "old and under way"}
    assert count(store_url, steps) == 4
    assert count(store_url, calls) == 7
    assert interlock(*prune) == "Forgot 0 runs, 0 steps and 0 calls.\n"
    assert "'soon' is no period" in interlock("runs", "prune", "--older-than", "soon", "--store", store_url, code=2)


async def test_prune_goes_in_portions(store_url: str, make_row: Rows, monkeypatch: pytest.MonkeyPatch) -> None:
    from interlock.runtime.store import run_changes

    monkeypatch.setattr(run_changes, "AT_ONCE", 2)
    old = NOW - timedelta(days=31)
    async with opened(store_url) as book:
        for n in range(5):
            await write_run(book, f"old {n}", make_row, ends=RunStatus.SUCCEEDED, at=old)
    said = interlock("runs", "prune", "--older-than", "30d", "--keep-calls", "--store", store_url)
    assert said == "Forgot 5 runs, 10 steps and 0 calls.\n"
    assert count(store_url, calls) == 15


def count(url: str, table: Any) -> int:
    return read_store(url, lambda c: int(c.execute(text(f"SELECT count(*) FROM {table.name}")).scalar_one()))


def test_the_store_is_made_and_brought_up_by_a_command(store_url: str) -> None:
    assert "The store was made (schema" in interlock("store", "upgrade", "--store", store_url)
    assert "is up to date" in interlock("store", "upgrade", "--store", store_url)


def test_no_password_is_shown(postgres: Any) -> None:
    url = postgres.fresh().replace("postgres@", "postgres:hunter22@")
    upgrade_store(url)
    for words in (("runs", "list"), ("calls",)):
        said = interlock(*words, "--store", url)
        assert "No " in said
        assert "hunter22" not in said
    for words in (("runs", "show", "x"), ("calls",)):
        said = interlock(*words, "--store", url.replace("/test_", "/nowhere_"), code=2)
        assert "hunter22" not in said


async def test_a_cancelled_run_that_is_taken_up_again_does_not_hear_the_old_word(store_url: str) -> None:
    head = RunHead(run_id="s", pipeline="p", started_at=NOW)
    async with opened(store_url) as book:
        await book.journal.create(head, owner=book.owner)[1]
    interlock("runs", "cancel", "s", "--store", store_url)
    async with opened(store_url) as book:
        taken = await book.journal.begin(head, owner=book.owner, reopen={RunStatus.CANCELLED})
        assert taken.claim is not None
        owner = book.owner
        assert await asyncio.to_thread(read_store, store_url, lambda connection: wanted(connection, owner)) == {}
