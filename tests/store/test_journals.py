"""One behaviour suite for the journals: in this process, in an SQLite file, in Postgres."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from interlock.errors import LeaseLostError, RunHeldError, StoreError
from interlock.runtime import CallRow
from interlock.runtime.journal.memory import MemoryJournal
from interlock.runtime.journal.protocol import (
    Claim,
    Intent,
    Journal,
    RecordedRun,
    RecordedStep,
    RunEnd,
    RunHead,
    RunStatus,
    StepOutcome,
    StepStatus,
)
from interlock.runtime.store.opening import open_book, read_store
from interlock.runtime.store.schema import owners
from interlock.runtime.store.sql_book import SqlBook

Rows = Callable[..., CallRow]
NASTY = "a\x00b \ud800 \\u0000 \ufdd0"
CUT_OFF = (RunStatus.RUNNING, RunStatus.QUEUED)


@dataclass
class Two:
    """One journal as two processes have it."""

    one: Journal
    two: Journal
    lapse: Callable[[str], None]
    owner: str = "one"
    other: str = "two"


@pytest.fixture(params=["memory", "file", "postgres"])
async def two(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Two]:
    if request.param == "memory":
        journal = MemoryJournal()
        yield Two(journal, journal, lambda owner: journal.lapse())
        return
    url = f"sqlite:///{tmp_path}/s.db" if request.param == "file" else request.getfixturevalue("postgres").fresh()
    one, other = open_book(url), open_book(url)

    def lapse(owner: str) -> None:
        late = owners.update().where(owners.c.owner == owner).values(seen=owners.c.seen - 100, ttl_s=0.001)
        read_store(url, lambda connection: connection.execute(late), writes=True)

    yield Two(one.journal, other.journal, lapse, one.owner, other.owner)
    await asyncio.gather(one.close(), other.close())


def head(run_id: str = "r", **changes: Any) -> RunHead:
    at = datetime.fromisoformat("2026-11-01T12:00:00+00:00")
    whole = RunHead(
        run_id=run_id, pipeline="triage", started_at=at, target="m:triage", version="3", fingerprint="f" * 64,
        arguments='{"x": 1}', cost_cap="0.50", priority=7, workflow="w",
    )  # fmt: skip
    return replace(whole, **changes)


def intent(at: datetime, step: str = "0", attempt: int = 1, **changes: Any) -> Intent:
    return replace(Intent(step_id=step, fingerprint="abc", job="LLMCall", attempt=attempt, at=at), **changes)


def outcome(at: datetime, step: str = "0", attempt: int = 1, **changes: Any) -> StepOutcome:
    whole = StepOutcome(
        step_id=step, fingerprint="abc", job="LLMCall", status=StepStatus.SUCCEEDED, at=at, attempt=attempt, value="1"
    )
    return replace(whole, **changes)


async def recorded(journal: Journal, run_id: str = "r") -> RecordedRun:
    found = await journal.read(run_id)
    assert found is not None
    return found


async def test_a_run_reads_back_as_it_was_written(two: Two, start: datetime, make_row: Rows) -> None:
    claim, made = two.one.create(head(), owner=two.owner)
    assert claim == Claim(run_id="r", owner=two.owner, fence=1)
    await made
    await two.one.intend(claim, intent(start, "0", requests='{"a": 1}', again="unknown"))
    await two.one.intend(claim, intent(start, "1"))
    later = start + timedelta(seconds=1)
    call = make_row(1, run_id="r", step_id="0", attempt=1)
    await two.one.conclude(claim, outcome(later, "0", value='"done"', copied=True), [call])
    found = await recorded(two.two)
    assert (found.head, found.status, found.claim, found.end) == (head(), RunStatus.RUNNING, None, None)
    counted = {name: replace(step, known_calls=0, unknown_calls=0) for name, step in found.steps.items()}
    assert counted == {
        "0": RecordedStep(
            step_id="0", fingerprint="abc", job="LLMCall", status=StepStatus.SUCCEEDED, attempt=1, value='"done"',
            requests='{"a": 1}', again="unknown", begun_at=start, ended_at=later, copied=True,
        ),
        "1": RecordedStep(
            step_id="1", fingerprint="abc", job="LLMCall", status=StepStatus.BEGUN, attempt=1, begun_at=start
        ),
    }  # fmt: skip
    assert found.spent == {"USD": Decimal("0.054399")}
    end = RunEnd(status=RunStatus.FAILED, ended_at=later, value='{"e": 1}', error_code="x", error="no")
    await two.one.end(claim, end)
    ended = await recorded(two.two)
    assert (ended.status, ended.end) == (RunStatus.FAILED, end)
    assert await two.two.read("another") is None


async def test_b26_whatever_a_model_says_comes_back(two: Two, start: datetime) -> None:
    name = f"run {NASTY}"
    claim, _ = two.one.create(head(name, arguments=NASTY, workflow=NASTY, pipeline=NASTY), owner=two.owner)
    two.one.intend(claim, intent(start, NASTY, requests=NASTY))
    await two.one.conclude(claim, outcome(start, NASTY, value=NASTY, error_code=NASTY))
    await two.one.end(claim, RunEnd(status=RunStatus.FAILED, ended_at=start, value=NASTY, error=NASTY))
    found = await recorded(two.two, name)
    assert found.head.arguments == found.steps[NASTY].value == found.steps[NASTY].requests == NASTY
    assert found.end is not None
    assert found.end.error == NASTY


async def test_everything_queued_at_once_is_kept_in_its_order(two: Two, start: datetime) -> None:
    claim, _ = two.one.create(head(), owner=two.owner)
    for attempt in (1, 2, 3):
        two.one.intend(claim, intent(start, "0", attempt))
        two.one.conclude(claim, outcome(start, "0", attempt, status=StepStatus.FAILED, value=str(attempt)))
    two.one.intend(claim, intent(start, "1"))
    two.one.conclude(claim, outcome(start, "2"))
    await two.one.intend(claim, intent(start, "0", 4))
    steps = (await recorded(two.one)).steps
    assert list(steps) == ["0", "1", "2"], "in the order of their first writing"
    assert [(step.status, step.attempt, step.value) for step in steps.values()] == [
        (StepStatus.BEGUN, 4, None),
        (StepStatus.BEGUN, 1, None),
        (StepStatus.SUCCEEDED, 1, "1"),
    ]


async def test_steps_keep_their_order_over_the_lives_of_a_run(two: Two, start: datetime) -> None:
    claim, _ = two.one.create(head(), owner=two.owner)
    for name in ("b", "a"):
        await two.one.conclude(claim, outcome(start, name))
    two.lapse(two.owner)
    again = await two.two.begin(head(), owner=two.other, reopen=CUT_OFF)
    assert again.claim is not None
    await two.two.conclude(again.claim, outcome(start - timedelta(hours=1), "0"))
    assert list((await recorded(two.two)).steps) == ["b", "a", "0"]


async def test_the_calls_of_an_attempt_without_an_outcome_are_counted(
    two: Two, start: datetime, make_row: Rows
) -> None:
    claim, _ = two.one.create(head(), owner=two.owner)
    two.one.intend(claim, intent(start, "0", 2))
    rows = [
        make_row(n, run_id="r", step_id="0", attempt=attempt, outcome=ended, cost=cost)
        for n, (attempt, ended, cost) in enumerate([(1, "ok", Decimal(1)), (2, "ok", None), (2, "unknown", Decimal(2))])
    ]
    await two.one.keep_calls(claim, rows)
    found = await recorded(two.one)
    assert (found.steps["0"].known_calls, found.steps["0"].unknown_calls) == (2, 1)
    assert (found.spent, found.unpriced) == ({"USD": Decimal(3)}, 1)


async def test_b36_of_two_who_begin_a_run_at_once_one_gets_it(two: Two) -> None:
    ends = await asyncio.gather(
        two.one.begin(head(), owner=two.owner, reopen=CUT_OFF),
        two.two.begin(head(), owner=two.other, reopen=CUT_OFF),
        return_exceptions=True,
    )
    assert sorted(type(end).__name__ for end in ends) == ["RecordedRun", "RunHeldError"]


async def test_b36_a_run_in_the_hands_of_one_who_lives_is_not_taken(two: Two, start: datetime) -> None:
    claim, made = two.one.create(head(), owner=two.owner)
    await made
    with pytest.raises(RunHeldError, match="'r' is under way"):
        await two.two.begin(head(), owner=two.other, reopen=CUT_OFF)
    await two.one.intend(claim, intent(start))


async def test_b34_what_a_lapsed_owner_still_writes_is_refused_by_name_and_changes_nothing(
    two: Two, start: datetime, make_row: Rows
) -> None:
    claim, _ = two.one.create(head(), owner=two.owner)
    await two.one.intend(claim, intent(start))
    two.lapse(two.owner)
    taken = await two.two.begin(head(), owner=two.other, reopen=CUT_OFF)
    assert taken.claim == Claim(run_id="r", owner=two.other, fence=2)
    assert not taken.fresh
    late = [
        two.one.conclude(claim, outcome(start, value="late"), [make_row(1, run_id="r")]),
        two.one.keep_calls(claim, [make_row(2, run_id="r")]),
        two.one.end(claim, RunEnd(status=RunStatus.SUCCEEDED, ended_at=start)),
        two.one.check(claim),
        two.one.drop(claim, ["0"]),
    ]
    for write in late:
        with pytest.raises(LeaseLostError, match=rf"run 'r' is not in the hands of {two.owner} any more \(fence 1\)"):
            await write
    found = await recorded(two.two)
    assert (found.status, found.spent, found.steps["0"].status) == (RunStatus.RUNNING, {}, StepStatus.BEGUN)
    await two.two.check(taken.claim)
    await two.two.conclude(taken.claim, outcome(start, value="mine"))
    assert (await recorded(two.one)).steps["0"].value == "mine"


async def test_b34_a_lapsed_owner_is_refused_although_nobody_took_its_run(two: Two, start: datetime) -> None:
    claim, made = two.one.create(head(), owner=two.owner)
    await made
    two.lapse(two.owner)
    with pytest.raises(LeaseLostError):
        await two.one.intend(claim, intent(start))


async def test_a_claim_ends_with_its_run(two: Two, start: datetime) -> None:
    claim, _ = two.one.create(head(), owner=two.owner)
    end = RunEnd(status=RunStatus.SUCCEEDED, ended_at=start, value="1")
    two.one.end(claim, end)
    with pytest.raises(LeaseLostError):
        await two.one.intend(claim, intent(start))  # queued together with the end
    with pytest.raises(LeaseLostError):
        await two.one.conclude(claim, outcome(start))
    looked = await two.two.begin(head(), owner=two.other, reopen=CUT_OFF)
    assert (looked.claim, looked.end) == (None, end)


async def test_an_ended_run_is_opened_again_by_whoever_asks_for_that(two: Two, start: datetime) -> None:
    claim, _ = two.one.create(head(), owner=two.owner)
    two.one.conclude(claim, outcome(start, "0"))
    await two.one.end(claim, RunEnd(status=RunStatus.FAILED, ended_at=start, error="no"))
    again = await two.two.begin(head(version="4"), owner=two.other, reopen=[RunStatus.FAILED])
    assert again.claim == Claim(run_id="r", owner=two.other, fence=2)
    assert (again.status, again.end, again.head.version) == (RunStatus.RUNNING, None, "3")
    assert list(again.steps) == ["0"]
    await two.two.drop(again.claim, ["0", "none"])
    assert (await recorded(two.two)).steps == {}


async def test_its_own_run_is_taken_again_with_a_higher_fence(two: Two, start: datetime) -> None:
    first, made = two.one.create(head(), owner=two.owner)
    await made
    second = (await two.one.begin(head(), owner=two.owner, reopen=CUT_OFF)).claim
    assert second == Claim(run_id="r", owner=two.owner, fence=2)
    with pytest.raises(LeaseLostError):
        await two.one.intend(first, intent(start))
    await two.one.intend(second, intent(start))


# What a database adds.


@pytest.fixture
async def books(store_url: str) -> AsyncIterator[tuple[SqlBook, SqlBook]]:
    one, two = open_book(store_url), open_book(store_url)
    yield one, two
    await asyncio.gather(one.close(), two.close())


async def test_an_outcome_and_its_calls_are_both_there_or_neither(
    books: tuple[SqlBook, SqlBook], start: datetime, make_row: Rows
) -> None:
    book, _ = books
    claim, _made = book.journal.create(head(), owner=book.owner)
    good = book.journal.conclude(claim, outcome(start, "0"), [make_row(0, run_id="r")])
    bad = book.journal.conclude(claim, outcome(start, "1"), [make_row(1, run_id="r", model=None)])
    last = book.journal.conclude(claim, outcome(start, "2"), [make_row(2, run_id="r")])
    await good
    await last
    with pytest.raises(StoreError, match="could not be written"):
        await bad
    found = await recorded(book.journal)
    assert list(found.steps) == ["0", "2"]
    assert [row.record.request_id for row in await book.read_calls()] == ["req-0", "req-2"]


async def test_a_lost_claim_does_not_touch_the_others_of_its_group(
    books: tuple[SqlBook, SqlBook], start: datetime, make_row: Rows
) -> None:
    book, _ = books
    mine, _made = book.journal.create(head("mine"), owner=book.owner)
    await _made
    theirs = Claim(run_id="theirs", owner=book.owner, fence=1)
    writes = [
        book.journal.intend(mine, intent(start, "0")),
        book.journal.intend(theirs, intent(start, "0")),
        book.write_call(make_row(1)),
        book.journal.intend(mine, intent(start, "1")),
    ]
    ends = await asyncio.gather(*[asyncio.ensure_future(write) for write in writes], return_exceptions=True)
    assert [type(end).__name__ for end in ends] == ["NoneType", "LeaseLostError", "NoneType", "NoneType"]
    assert list((await recorded(book.journal, "mine")).steps) == ["0", "1"]


async def test_many_runs_share_their_commits(books: tuple[SqlBook, SqlBook], start: datetime) -> None:
    book, _ = books
    claims = [book.journal.create(head(f"r{n}"), owner=book.owner)[0] for n in range(64)]
    await book.journal.check(claims[-1])
    before = book.groups

    async def work(claim: Claim) -> None:
        for step in range(10):
            await book.journal.intend(claim, intent(start, str(step)))
            await book.journal.conclude(claim, outcome(start, str(step)))

    await asyncio.gather(*map(work, claims))
    assert book.groups - before < 200, "1,280 rows"
    for claim in claims:
        steps = (await recorded(book.journal, claim.run_id)).steps
        assert {step.status for step in steps.values()} == {StepStatus.SUCCEEDED}
        assert len(steps) == 10
