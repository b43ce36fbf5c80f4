"""Steps of one's own, streams, cancelled ones and other tasks: what a replay makes of each."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from journal.kept import Kept, ask, cut_off, run_on, steps_of

from interlock.errors import (
    ConfigurationError,
    JobCancelledError,
)
from interlock.runtime import PipelineContext, Runtime, pipeline
from interlock.runtime.journal.protocol import StepStatus


@pytest.fixture
def journal() -> Kept:
    return Kept()


@pipeline
async def three(ctx: PipelineContext, text: str = "x") -> list[str]:
    return [(await ctx.run(ask(f"{text} {number}"))).text for number in range(3)]


# Steps of one's own, streams, tasks.


async def test_a_step_of_ones_own_runs_once_and_its_failure_is_read_back(world: Any, journal: Kept) -> None:
    done: list[str] = []

    def work(what: str) -> str:
        done.append(what)
        if what == "bad":
            raise ValueError("bad work")
        return what.upper()

    @pipeline
    async def working(ctx: PipelineContext) -> list[str]:
        good = await ctx.step(work, "good")
        try:
            await ctx.step(work, "bad")
        except ValueError as error:
            good += f" {error}"
        return [good, (await ctx.run(ask("x"))).text]

    left = await cut_off(world, journal, working(), after=1)
    assert await run_on(world, left, working()) == ["GOOD bad work", "ok"]
    assert done == ["good", "bad"]


async def test_b21_a_step_of_ones_own_that_was_cut_off_runs_again_and_nothing_is_said_of_paying(
    world: Any, journal: Kept, caplog: pytest.LogCaptureFixture
) -> None:
    left: list[Kept] = []

    async def work() -> str:
        left.append(journal.left())
        return "done"

    @pipeline
    async def working(ctx: PipelineContext) -> str:
        return await ctx.step(work)

    assert await run_on(world, journal, working()) == "done"
    with caplog.at_level(logging.WARNING, "interlock.runtime"):
        assert await run_on(world, left[0], working()) == "done"
    assert "its last attempt may have done its work; it runs again" in caplog.text
    assert left[0]._runs["r"].steps["0"].again == "ambiguous"


async def test_a_stream_is_read_back_in_pieces_also_where_it_was_left(world: Any, journal: Kept) -> None:
    seen: list[list[str]] = []

    @pipeline
    async def reading(ctx: PipelineContext) -> list[str]:
        whole: list[str] = []
        async with ctx.stream(ask("whole")) as pieces:
            async for piece in pieces:
                whole.append(piece.text if piece.response is None else f"={piece.response.text}")
        part: list[str] = []
        async with ctx.stream(ask("part")) as pieces:
            async for piece in pieces:
                part.append(piece.text)
                if len(part) == 2:
                    break
        seen.append(part)
        return ["".join(whole[:-1]), whole[-1], (await ctx.run(ask("last"))).text]

    long = world.step(pieces=["a", "b", "c", "d"], text="abcd")
    world.provider.script(long, long)
    left = await cut_off(world, journal, reading(), after=3)
    assert steps_of(left) == {"0": "succeeded", "1": "cancelled", "2": "begun"}
    sent = world.provider.count
    assert await run_on(world, left, reading()) == ["abcd", "=abcd", "ok"]
    assert seen == [["a", "b"], ["a", "b"]]
    assert world.provider.count == sent + 1


async def test_a_timeout_of_the_pipelines_own_is_no_outcome(world: Any, journal: Kept) -> None:
    slow = [True]

    @pipeline
    async def hasty(ctx: PipelineContext) -> str:
        task = asyncio.ensure_future(ctx.branch("b").run(ask("slow")))
        await ctx.run(ask("other"))
        if slow[0]:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await ctx.run(ask("third"))
            return "late"
        await ctx.run(ask("third"))
        return str((await task).text)

    world.provider.always = lambda seen: world.step(latency_s=40.0 if "slow" in str(seen.body) else 1.0)
    left = await cut_off(world, journal, hasty(), after=3)
    assert steps_of(left)["b:b/0"] == "interrupted"
    slow[0] = False
    assert await run_on(world, left, hasty()) == "ok"


async def test_a_context_used_from_a_second_task_names_the_branch(world: Any, journal: Kept) -> None:
    @pipeline
    async def careless(ctx: PipelineContext) -> None:
        ctx.now()
        await asyncio.gather(asyncio.create_task(_now(ctx)))

    with pytest.raises(RuntimeError, match=r"ctx\.branch\(name\)"):
        await run_on(world, journal, careless())


async def _now(ctx: PipelineContext) -> None:
    ctx.now()


async def test_a_cancelled_handle_is_read_back_as_such(world: Any, journal: Kept) -> None:
    @pipeline
    async def choosing(ctx: PipelineContext) -> str:
        handle = ctx.submit(ask("unwanted"))
        first = (await ctx.run(ask("wanted"))).text
        handle.cancel("enough")
        with pytest.raises(JobCancelledError, match="enough"):
            await handle
        return first + str((await ctx.run(ask("last"))).text)

    world.provider.script(world.step(latency_s=30.0))
    left = await cut_off(world, journal, choosing(), after=3)
    sent = world.provider.count
    assert await run_on(world, left, choosing()) == "okok"
    assert world.provider.count == sent + 1
    assert left._runs["r"].steps["0"].status is StepStatus.CANCELLED


async def test_without_a_journal_nothing_is_kept(world: Any) -> None:
    async with world.runtime() as runtime:
        await world.until(runtime.run(three(), run_id="r"))
        await world.until(runtime.run(three(), run_id="r"))
        assert world.provider.count == 6
        with pytest.raises(ConfigurationError, match="nothing is journaled"):
            await runtime.resume("r")
    assert isinstance(runtime, Runtime)
