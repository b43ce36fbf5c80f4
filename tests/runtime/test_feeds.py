"""Maps over a feed (an async iterable), and two readers of one thing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest

from interlock.errors import JobCancelledError
from interlock.runtime import Job, JobResources, LLMCall, PipelineContext, Runtime, pipeline


@dataclass(frozen=True)
class Give(Job[int]):
    value: int

    async def run(self, resources: JobResources) -> int:
        return self.value


class Feed:
    """One item, and then nothing for ever; says how it was left, and fails when it is."""

    def __init__(self, *, fails: bool = False) -> None:
        self.left, self.fails = "", fails

    async def items(self) -> AsyncIterator[int]:
        yield 0
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            self.left = "cancelled"
            if self.fails:
                raise ValueError("while it was left") from None
            raise


async def test_a_cancelled_pipeline_does_not_wait_for_its_feed(world: Any, runtime: Runtime) -> None:
    feed = Feed()

    @pipeline
    async def reads(ctx: PipelineContext) -> list[int]:
        return await ctx.map(feed.items(), Give)

    started = world.clock.now()
    handle = runtime.submit(reads())
    await world.clock.settle()
    handle.cancel()
    with pytest.raises(JobCancelledError):
        await world.until(handle)
    assert world.clock.now() == started  # no grace period was needed
    assert feed.left == "cancelled"


@pytest.mark.parametrize("fails", [False, True])
async def test_a_map_left_early_leaves_no_task_behind(world: Any, runtime: Runtime, fails: bool) -> None:
    feed, complaints = Feed(fails=fails), []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: complaints.append(context["message"]))

    @pipeline
    async def reads(ctx: PipelineContext) -> int:
        async for value in ctx.map(feed.items(), Give):
            await asyncio.sleep(0)
            return value
        return -1

    before = len(asyncio.all_tasks())
    assert await world.until(runtime.run(reads())) == 0
    assert len(asyncio.all_tasks()) == before
    assert complaints == []


async def test_a_failing_map_ends_its_feed(world: Any, runtime: Runtime) -> None:
    feed, complaints = Feed(fails=True), []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: complaints.append(context["message"]))

    def wrong(item: int) -> Job[int]:
        raise KeyError(item)

    @pipeline
    async def reads(ctx: PipelineContext) -> list[int]:
        return await ctx.map(feed.items(), wrong)

    with pytest.raises(KeyError):
        await world.until(runtime.run(reads()))
    assert complaints == []


async def test_two_readers_of_one_map_are_told_so(world: Any, runtime: Runtime) -> None:
    @pipeline
    async def reads(ctx: PipelineContext) -> Any:
        outcomes = ctx.map(range(4), lambda n: LLMCall(str(n)), limit=1).outcomes()

        async def read() -> list[int]:
            return [outcome.index async for outcome in outcomes]

        return await asyncio.gather(read(), read(), return_exceptions=True)

    first, second = await world.until(runtime.run(reads()))
    assert first == [0, 1, 2, 3]
    assert isinstance(second, RuntimeError)


async def test_two_readers_of_one_stream_are_told_so(world: Any, runtime: Runtime, Step: Any) -> None:
    world.provider.script(Step(pieces=["a", "b"]))

    @pipeline
    async def reads(ctx: PipelineContext) -> Any:
        async with ctx.stream(LLMCall("x")) as pieces:

            async def read() -> str:
                return "".join([piece.text async for piece in pieces])

            return await asyncio.gather(read(), read(), return_exceptions=True)

    first, second = await world.until(runtime.run(reads()))
    assert first == "ab"
    assert isinstance(second, RuntimeError)


@pytest.mark.parametrize("limit", [0, -1, 1.5, float("nan"), None, "2"])
async def test_a_limit_that_is_none_is_refused(world: Any, runtime: Runtime, limit: Any) -> None:
    @pipeline
    async def maps(ctx: PipelineContext) -> list[int]:
        return await ctx.map(range(3), Give, limit=limit)

    with pytest.raises(ValueError, match="limit of a map"):
        await world.until(runtime.run(maps()))


async def test_a_map_runs_once_for_its_steps_have_one_identity(world: Any, runtime: Runtime) -> None:
    @pipeline
    async def maps(ctx: PipelineContext) -> list[int]:
        mapped = ctx.map(range(3), Give)
        first = await mapped
        with pytest.raises(RuntimeError, match="has been run"):
            await mapped
        with pytest.raises(RuntimeError, match="has been run"):
            aiter(mapped)
        return first

    assert await world.until(runtime.run(maps())) == [0, 1, 2]
