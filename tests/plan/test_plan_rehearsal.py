"""A pipeline's own code, rehearsed: what it would call, in which order, and that nothing of it has an effect."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import urllib.request
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest
from pydantic import BaseModel
from sqlalchemy.ext.asyncio import create_async_engine

from interlock import Choice, DatabaseProvider, Grade, Job, LLMCall, ModelSpec, Noul, PipelineContext, pipeline
from interlock.admission import CountingGate
from interlock.catalog import Catalog
from interlock.errors import ConfigurationError, UndeclaredResourceError
from interlock.runtime.model_calls import DecisionCall, EmbeddingCall
from interlock.runtime.plan.guard import RehearsalError
from interlock.runtime.plan.rehearsal import Rehearsed, rehearse
from interlock.runtime.plan.sizes import Sizes
from interlock.runtime.settings import RuntimeSettings

from .conftest import MakeCatalog


class Triage(BaseModel):
    summary: str
    tags: list[str]


ran: list[str] = []


@dataclass(frozen=True)
class Save(Job[str]):
    text: str
    REPLY: ClassVar = ModelSpec(Grade.SMALL, max_output_tokens=200)

    def requirements(self, needs: Any) -> None:
        needs.require_database("tickets", transaction=True)
        needs.require_model(self.REPLY, input=self.text, calls=2)
        needs.require("gpu", 2)

    async def run(self, resources: Any) -> str:
        ran.append("save")
        return "saved"


@dataclass(frozen=True)
class Untyped(Job[Any]):
    async def run(self, resources: Any) -> Any:
        ran.append("untyped")


@dataclass(frozen=True)
class WithExample(Job[Any]):
    async def run(self, resources: Any) -> Any:
        ran.append("with example")

    def rehearse(self) -> Any:
        return {"rows": [1, 2, 3]}


def go(
    function: Any,
    catalog: Catalog,
    inputs: Iterable[Mapping[str, Any]] = ({"text": "A ticket about the bill."},),
    **more: Any,
) -> Rehearsed:
    engine = create_async_engine("sqlite+aiosqlite:///nowhere/there/is/no/such.db")
    settings = RuntimeSettings(
        catalog=catalog,
        store=None,
        databases=(DatabaseProvider("tickets", engine, 3),),
        accounts=(CountingGate("gpu", 4),),
    )
    return rehearse(function, inputs, settings, catalog, Sizes(), **more)


def shape(found: Rehearsed) -> list[tuple[str, tuple[int, ...]]]:
    return [(job.name, job.after) for job in found.lines[0].jobs]


@pipeline
async def triage(ctx: PipelineContext, text: str) -> str:
    decision, draft, vector = await ctx.gather(
        DecisionCall(text, {"team": Choice.of("Which team?", "billing", "sales"), "urgent": Noul.of("Urgent?")}),
        LLMCall(text, model=Grade.SMALL, max_output_tokens=400, response_model=Triage),
        EmbeddingCall(text),
    )
    assert decision.choice("team").choice in ("billing", "sales")
    assert vector.vector.shape == (1024,)
    saved = await ctx.run(Save(draft.summary))
    reply = await ctx.run(LLMCall(f"Thank them. {saved}", model=Grade.SMALL, max_output_tokens=100))
    assert 60 < len(reply.text) < 400  # about as long as it is expected to be
    return reply.text


def test_a_pipelines_calls_are_priced_as_they_would_be(make_catalog: MakeCatalog) -> None:
    ran.clear()
    found = go(triage, make_catalog())
    assert shape(found) == [
        ("DecisionCall", ()),
        ("LLMCall", ()),
        ("EmbeddingCall", ()),
        ("Save", (0, 1, 2)),
        ("LLMCall", (3,)),
    ]
    jobs = found.lines[0].jobs
    assert [job.workflow for job in jobs] == ["triage"] * 5
    assert jobs[3].held == (("db:tickets", 1), ("gpu", 2))
    ((entry, limit, count),) = [(call.entry.id, call.output_tokens, call.count) for call in jobs[3].calls]
    assert (entry, limit, count) == ("small", 200, 2)
    assert jobs[1].calls[0].output_tokens == 400
    assert jobs[1].calls[0].input_tokens > 150  # its schema is counted
    assert ran == []
    assert any("job Save (1)" in note for note in found.notes)
    assert any("at random" in note for note in found.notes)


def test_the_same_seed_rehearses_the_same(make_catalog: MakeCatalog) -> None:
    assert go(triage, make_catalog(), seed=4).lines == go(triage, make_catalog(), seed=4).lines


@pipeline
async def one(ctx: PipelineContext, text: str) -> str:
    first = await ctx.run(LLMCall(text, max_output_tokens=10))
    second = await ctx.run(LLMCall(first.text, max_output_tokens=10))
    return second.text


@pipeline
async def fan(ctx: PipelineContext, text: str) -> list[str]:
    return await ctx.map([text, text + "!", text + "?"], one, limit=2)


def test_chains_side_by_side_come_after_their_own_only(make_catalog: MakeCatalog) -> None:
    found = go(fan, make_catalog())
    jobs = found.lines[0].jobs
    assert len(jobs) == 6
    firsts = [place for place, job in enumerate(jobs) if not job.after]
    assert len(firsts) == 2  # of three, two are under way at a time
    for place, job in enumerate(jobs):
        assert len(job.after) <= 1
        assert all(other < place for other in job.after)


@pipeline
async def waits(ctx: PipelineContext, text: str) -> None:
    await ctx.run(LLMCall(text, max_output_tokens=10))
    await asyncio.sleep(90)
    handle = ctx.submit(LLMCall(text, max_output_tokens=20))
    async with ctx.stream(LLMCall(text, max_output_tokens=30)) as pieces:
        said = [piece async for piece in pieces]
    assert said[-1].response is not None
    await handle


def test_a_pause_of_its_own_and_streams_and_handles(make_catalog: MakeCatalog) -> None:
    first, second, third = go(waits, make_catalog()).lines[0].jobs
    assert second.after == third.after == (0,)
    assert second.delay_s == third.delay_s == pytest.approx(90.0)
    assert first.delay_s == 0


@pipeline
async def looks_into(ctx: PipelineContext, text: str) -> Any:
    found = await ctx.run(Untyped())
    return found["rows"]


@pipeline
async def passes_on(ctx: PipelineContext, text: str) -> Any:
    return [await ctx.run(Untyped()), (await ctx.run(WithExample()))["rows"]]


def test_a_result_that_cannot_be_made_up_is_said_where_it_is_needed(make_catalog: MakeCatalog) -> None:
    with pytest.raises(RehearsalError, match=r"cannot go on without the result of job Untyped.*def rehearse\(self\)"):
        go(looks_into, make_catalog())
    assert len(go(passes_on, make_catalog()).lines) == 1
    assert ran == []


def charge_card(text: str) -> int:
    ran.append("charged")
    return 7


@pipeline
async def stepped(ctx: PipelineContext, text: str) -> int:
    amount = await ctx.step(charge_card, text)
    assert isinstance(amount, int)
    await ctx.run(LLMCall(f"{text} {amount}", max_output_tokens=10))
    return amount


def test_steps_are_not_run_unless_asked(make_catalog: MakeCatalog) -> None:
    ran.clear()
    found = go(stepped, make_catalog())
    assert ran == []
    assert any("steps not run (--run-steps runs them): charge_card (1)" in note for note in found.notes)
    go(stepped, make_catalog(), run_steps=True)
    assert ran == ["charged"]


def connects(text: str) -> None:
    with socket.socket() as opened:
        opened.connect(("127.0.0.1", 9))


def fetches(text: str) -> None:
    urllib.request.urlopen("http://127.0.0.1:9/")


def starts(text: str) -> None:
    subprocess.run(["true"], check=True)


def opens(text: str) -> None:
    import sqlite3

    sqlite3.connect(":memory:")


@pytest.mark.parametrize("effect", [connects, fetches, starts, opens])
def test_nothing_leaves_the_process(effect: Any, make_catalog: MakeCatalog) -> None:
    @pipeline
    async def leaks(ctx: PipelineContext, text: str) -> None:
        effect(text)

    with pytest.raises((RehearsalError, ConfigurationError), match="while it is planned"):
        go(leaks, make_catalog())


def test_the_guard_sleeps_again_afterwards(make_catalog: MakeCatalog) -> None:
    go(one, make_catalog())
    starts("")


async def _hang() -> None:
    await asyncio.get_running_loop().create_future()


@pipeline
async def stuck(ctx: PipelineContext, text: str) -> None:
    await _hang()


def test_a_pipeline_that_waits_for_ever_is_said(make_catalog: MakeCatalog) -> None:
    with pytest.raises(RehearsalError, match="waits for something that will not come"):
        go(stuck, make_catalog())


@pipeline
async def endless(ctx: PipelineContext, text: str) -> None:
    while True:
        await ctx.run(LLMCall(text, max_output_tokens=10))


def test_a_pipeline_that_does_not_end_is_said(make_catalog: MakeCatalog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("interlock.runtime.plan.rehearsal.MOST_JOBS", 50)
    with pytest.raises(RehearsalError, match="does not end by itself"):
        go(endless, make_catalog())


@pipeline
async def picky(ctx: PipelineContext, text: str) -> None:
    await ctx.run(LLMCall(text, max_output_tokens=10))
    if "bad" in text:
        raise ValueError("no such ticket")


def test_lines_that_fail_are_counted_and_all_failing_is_an_error(make_catalog: MakeCatalog) -> None:
    found = go(picky, make_catalog(), [{"text": "good"}, {"text": "bad"}, {"text": "bad"}])
    assert len(found.lines) == 1
    assert found.failed == {"ValueError: no such ticket": 2}
    with pytest.raises(RehearsalError, match=r"every line of picky failed.*no such ticket"):
        go(picky, make_catalog(), [{"text": "bad"}])


@pipeline
async def wrong(ctx: PipelineContext, text: str) -> None:
    await ctx.run(LLMCall(text, model="no-such-model", max_output_tokens=10))


@dataclass(frozen=True)
class Elsewhere(Job[None]):
    def requirements(self, needs: Any) -> None:
        needs.require_database("orders")


@pipeline
async def unregistered(ctx: PipelineContext, text: str) -> None:
    await ctx.run(Elsewhere())


def test_what_is_wrong_with_the_set_up_is_said_as_a_run_would(make_catalog: MakeCatalog) -> None:
    with pytest.raises(Exception, match="no-such-model"):
        go(wrong, make_catalog())
    with pytest.raises((ConfigurationError, UndeclaredResourceError), match="no database 'orders' is registered"):
        go(unregistered, make_catalog())


UNREACHABLE = """\
models:
  - {id: far, grade: SMALL, provider: anthropic-direct, wire_model_id: far, context_window: 1000, max_output_tokens: 99}
pins: {SMALL: [far]}
"""


def test_a_model_without_a_key_is_planned_all_the_same_and_said_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    found = go(one, Catalog.load(UNREACHABLE, file="far"), [{"text": "a"}, {"text": "b"}])
    assert [call.entry.id for job in found.lines[0].jobs for call in job.calls] == ["far", "far"]
    (note,) = [note for note in found.notes if "cannot be called from here" in note]
    assert "ANTHROPIC_API_KEY" in note
