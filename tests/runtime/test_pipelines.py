"""Pipelines: step identity, gather, map, stream, nesting, cancellation, run rows."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest

from interlock.admission import CountingGate
from interlock.clients.options import StreamingMode
from interlock.clients.response import StopReason
from interlock.errors import (
    DependencyFailedError,
    InterlockError,
    JobCancelledError,
    JobDeadlockError,
    OutputTruncatedError,
    QuotaExhaustedError,
)
from interlock.runtime import (
    Job,
    JobHandle,
    JobRequirements,
    JobResources,
    JobState,
    LLMCall,
    PipelineContext,
    Runtime,
    pipeline,
)


@dataclass(frozen=True)
class Double(Job[int]):
    value: int

    async def run(self, resources: JobResources) -> int:
        return 2 * self.value


@dataclass(frozen=True)
class Where(Job[str]):
    async def run(self, resources: JobResources) -> str:
        assert resources.step_id is not None
        return resources.step_id


@dataclass(frozen=True)
class Fail(Job[int]):
    message: str = "no"

    async def run(self, resources: JobResources) -> int:
        raise QuotaExhaustedError(self.message)


@dataclass(frozen=True)
class Forever(Job[int]):
    async def run(self, resources: JobResources) -> int:
        await asyncio.get_running_loop().create_future()
        return 0


@pipeline
async def inner(ctx: PipelineContext) -> list[str]:
    return [await ctx.run(Where()), await ctx.run(Where(), key="last")]


async def test_step_ids_are_scope_paths_with_ordinals_and_keys(world: Any, runtime: Runtime) -> None:
    @pipeline
    async def outer(ctx: PipelineContext) -> list[Any]:
        first = await ctx.run(Where())
        both = await ctx.gather(Where(), Where())
        keyed = await ctx.run(Where(), key="a/b%")
        mapped = await ctx.map(["x", "y"], lambda item: Where())
        by_key = await ctx.map(["x", "y"], lambda item: Where(), key=str)
        nested = await ctx.run(inner())
        branched = await ctx.branch("audit").run(Where())
        return [first, *both, keyed, *mapped, *by_key, *nested, branched]

    assert await world.until(runtime.run(outer())) == [
        "0", "1/0", "1/1", "k:a%2Fb%25", "2/0", "2/1", "3/k:x", "3/k:y", "4/0", "4/k:last", "b:audit/0",
    ]  # fmt: skip


async def test_step_ids_are_given_when_the_context_is_called(world: Any, runtime: Runtime) -> None:
    @pipeline
    async def late(ctx: PipelineContext) -> list[str]:
        first, second = ctx.run(Where()), ctx.run(Where())
        later = await second
        return [await first, later]

    assert await world.until(runtime.run(late())) == ["0", "1"]


async def test_a_second_task_must_branch(world: Any, runtime: Runtime) -> None:
    async def aside(ctx: PipelineContext) -> str:
        return await ctx.run(Where())

    @pipeline
    async def two_tasks(ctx: PipelineContext, branch: bool) -> str:
        await ctx.run(Where())
        return await asyncio.create_task(aside(ctx.branch("side") if branch else ctx))

    assert await world.until(runtime.run(two_tasks(True))) == "b:side/0"
    with pytest.raises(RuntimeError, match=r"ctx\.branch"):
        await world.until(runtime.run(two_tasks(False)))


async def test_a_key_is_used_once(world: Any, runtime: Runtime) -> None:
    @pipeline
    async def twice(ctx: PipelineContext) -> None:
        await ctx.run(Where(), key="a")
        await ctx.run(Where(), key="a")

    with pytest.raises(ValueError, match="'a' was used twice"):
        await world.until(runtime.run(twice()))


async def test_gather_raises_the_first_failure_once_the_others_have_ended(world: Any, runtime: Runtime) -> None:
    handles: list[JobHandle[Any]] = []

    @pipeline
    async def mixed(ctx: PipelineContext) -> None:
        try:
            await ctx.gather(Forever(), Fail("first"), Double(1))
        finally:
            handles.append(ctx.submit(Double(3)))

    with pytest.raises(QuotaExhaustedError, match="first"):
        await world.until(runtime.run(mixed()))
    assert runtime.statistics().live == 0
    assert runtime.statistics().cancelled >= 1


async def test_map_keeps_order_and_its_limit(world: Any, runtime: Runtime, Step: Any) -> None:
    world.provider.always = lambda seen: Step(
        text=seen.body["turns"][0][1][0], latency_s=float(len(world.provider.seen) % 3)
    )

    @pipeline
    async def many(ctx: PipelineContext) -> list[str]:
        return [response.text async for response in ctx.map(range(40), lambda n: LLMCall(f"n{n}"), limit=5)]

    assert await world.until(runtime.run(many())) == [f"n{n}" for n in range(40)]
    assert world.provider.most_in_flight == 5


async def test_map_reads_its_items_as_it_goes(world: Any, runtime: Runtime) -> None:
    taken = 0

    async def feed() -> AsyncIterator[int]:
        nonlocal taken
        for number in range(100):
            taken += 1
            yield number

    @pipeline
    async def some(ctx: PipelineContext) -> tuple[int, int]:
        results = ctx.map(feed(), Double, limit=4).__aiter__()
        first = await anext(results)
        await results.aclose()
        return first, taken

    first, read = await world.until(runtime.run(some()))
    assert first == 0
    assert read <= 9, "twice the limit, and the one being read"


async def test_map_outcomes_go_on_after_a_failure(world: Any, runtime: Runtime) -> None:
    @pipeline
    async def tolerant(ctx: PipelineContext) -> list[Any]:
        outcomes = ctx.map([1, 2, 3], lambda n: Fail() if n == 2 else Double(n)).outcomes()
        return [(o.index, o.item, type(o.error).__name__ if o.error else o.result) async for o in outcomes]

    assert await world.until(runtime.run(tolerant())) == [(0, 1, 2), (1, 2, "QuotaExhaustedError"), (2, 3, 6)]


async def test_an_awaited_map_stops_at_the_first_failure(world: Any, runtime: Runtime) -> None:
    @pipeline
    async def strict(ctx: PipelineContext) -> list[int]:
        return await ctx.map([1, 2, 3], lambda n: Fail() if n == 2 else Forever() if n == 3 else Double(n))

    with pytest.raises(QuotaExhaustedError):
        await world.until(runtime.run(strict()))
    assert runtime.statistics().live == 0


async def test_what_a_pipeline_leaves_behind_is_cancelled(world: Any, runtime: Runtime) -> None:
    left: list[JobHandle[int]] = []

    @pipeline
    async def careless(ctx: PipelineContext) -> int:
        left.append(ctx.submit(Forever()))
        await asyncio.sleep(0)
        return 1

    assert await world.until(runtime.run(careless())) == 1
    assert left[0].state is JobState.CANCELLED


async def test_cancelling_a_pipeline_stops_its_jobs(world: Any, runtime: Runtime, Step: Any) -> None:
    world.provider.always = lambda seen: Step(latency_s=1_000)

    @pipeline
    async def slow(ctx: PipelineContext) -> None:
        await ctx.gather(LLMCall("a"), LLMCall("b"))

    handle = runtime.submit(slow(), run_id="r1")
    await world.run_until(lambda: world.provider.in_flight == 2)
    assert handle.cancel()
    with pytest.raises(JobCancelledError):
        await world.until(handle, within_s=10)
    assert world.provider.in_flight == 0
    rows = await runtime.calls(run_id="r1")
    assert [row.record.outcome for row in rows] == ["cancelled", "cancelled"]
    assert (await runtime.runs())[0].status == "cancelled"


async def test_cancelling_the_awaiting_task_stops_the_run(world: Any, runtime: Runtime, Step: Any) -> None:
    world.provider.always = lambda seen: Step(latency_s=1_000)
    task = asyncio.create_task(runtime.run(LLMCall("x")))
    await world.run_until(lambda: world.provider.in_flight == 1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert world.provider.in_flight == 0
    assert runtime.statistics().live == 0


async def test_cancelling_an_awaiter_of_a_handle_leaves_the_job(world: Any, runtime: Runtime) -> None:
    handle = runtime.submit(LLMCall("x"))

    async def wait() -> Any:
        return await handle

    task = asyncio.create_task(wait())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (await world.until(handle)).text == "ok"


async def test_a_pipeline_sees_its_childs_failure_and_may_go_on(world: Any, runtime: Runtime) -> None:
    @pipeline
    async def brave(ctx: PipelineContext) -> int:
        try:
            return await ctx.run(Fail())
        except QuotaExhaustedError:
            return await ctx.run(Double(21))

    handle = runtime.submit(brave())
    assert await world.until(handle) == 42
    (run,) = await runtime.runs()
    assert (run.status, run.error) == ("succeeded", None)


async def test_a_failed_run_says_why(world: Any, runtime: Runtime) -> None:
    @pipeline(name="ticket triage", version="3")
    async def failing(ctx: PipelineContext) -> None:
        await ctx.run(Fail("out of money"))

    with pytest.raises(QuotaExhaustedError):
        await world.until(runtime.run(failing(), run_id="r9", cost_cap="1"))
    (run,) = await runtime.runs(run_id="r9")
    assert (run.pipeline, run.version, run.status, run.error_code) == (
        "ticket triage",
        "3",
        "failed",
        "quota_exhausted",
    )
    assert (run.error, run.cost_cap) == ("out of money", "1")
    assert run.ended_at is not None


async def test_a_run_id_is_used_by_one_run_at_a_time(world: Any, runtime: Runtime) -> None:
    handle = runtime.submit(inner(), run_id="same")
    with pytest.raises(InterlockError, match="'same' is under way"):
        runtime.submit(inner(), run_id="same")
    await world.until(handle)
    await world.until(runtime.run(inner(), run_id="same"))


async def test_after_waits_for_the_jobs_it_names(world: Any, runtime: Runtime, Step: Any) -> None:
    first = runtime.submit(LLMCall("first"))
    second = runtime.submit(LLMCall("second"), after=[first])
    assert second.state is JobState.BLOCKED
    await world.until(second)
    assert [seen.body["turns"][0][1][0] for seen in world.provider.seen] == ["first", "second"]
    assert world.provider.seen[1].at_s >= world.provider.seen[0].at_s + 1


async def test_after_a_failed_job_nothing_runs_unless_tolerated(world: Any, runtime: Runtime) -> None:
    failed = runtime.submit(Fail("cause"))
    strict = runtime.submit(Double(1), after=[failed])
    tolerant = runtime.submit(Double(2), after=[failed], tolerate_failures=True)
    with pytest.raises(DependencyFailedError, match="Fail"):
        await world.until(strict)
    assert isinstance(strict.exception().__cause__, QuotaExhaustedError)  # type: ignore[union-attr]
    assert await world.until(tolerant) == 4


@dataclass(frozen=True)
class Nested(Job[int]):
    runtime: Runtime
    how: str
    held: bool = True

    def requirements(self, needs: JobRequirements) -> None:
        if self.held:
            needs.require("gpu")

    async def run(self, resources: JobResources) -> int:
        if self.how == "run":
            return await self.runtime.run(Double(4))
        if self.how == "await":
            return await self.runtime.submit(Double(4))
        if self.how == "llm":
            return len((await self.runtime.llm().single_response("x")).text)
        if self.how == "task":
            return await asyncio.create_task(self.runtime.run(Double(4)))
        async with self.runtime.llm().stream_response("x") as pieces:
            return len([piece async for piece in pieces])


@pytest.mark.parametrize("how", ["run", "await", "llm", "task", "stream"])
async def test_a_job_that_holds_something_cannot_wait_for_another(world: Any, how: str) -> None:
    async with world.runtime(accounts=(CountingGate("gpu", 1),)) as runtime:
        with pytest.raises(JobDeadlockError, match="Nested"):
            await world.until(runtime.run(Nested(runtime, how)))
        assert runtime.statistics().admission.account("gpu").level == 1
        if how == "run":
            assert await world.until(runtime.run(Nested(runtime, how, held=False))) == 8


async def test_a_job_may_submit_another_without_waiting(world: Any, runtime: Runtime) -> None:
    started: list[JobHandle[int]] = []

    @dataclass(frozen=True)
    class Starter(Job[None]):
        async def run(self, resources: JobResources) -> None:
            started.append(runtime.submit(Double(5)))

    await world.until(runtime.run(Starter()))
    assert await world.until(started[0]) == 10


async def test_steps_that_are_no_jobs(world: Any, runtime: Runtime) -> None:
    async def slow_square(n: int) -> int:
        return n * n

    @pipeline
    async def others(ctx: PipelineContext) -> tuple[Any, ...]:
        return (await ctx.step(slow_square, 3), await ctx.step(len, "four"), ctx.now(), ctx.uuid(), ctx.random(),
                await ctx.run(Where()))  # fmt: skip

    squared, length, now, identity, number, where = await world.until(runtime.run(others()))
    assert (squared, length, where) == (9, 4, "5")
    assert now.tzinfo is not None
    assert identity.version == 4
    assert 0 <= number < 1


async def test_a_pipeline_streams(world: Any, runtime: Runtime, Step: Any) -> None:
    world.provider.script(Step(pieces=["Hel", "lo"], latency_s=1))

    @pipeline
    async def reader(ctx: PipelineContext) -> tuple[list[str], str]:
        async with ctx.stream(LLMCall("x")) as pieces:
            got = [piece.text async for piece in pieces if piece.response is None]
        return got, pieces.response.text

    assert await world.until(runtime.run(reader(), run_id="s")) == (["Hel", "lo"], "Hello")
    (row,) = await runtime.calls(run_id="s")
    assert row.step_id == "0"


async def test_a_slow_reader_holds_no_connection(world: Any, runtime: Runtime, Step: Any) -> None:
    world.provider.script(Step(pieces=list("abcdefgh"), latency_s=1))
    in_flight: list[int] = []

    @pipeline
    async def slow_reader(ctx: PipelineContext) -> str:
        text = ""
        async with ctx.stream(LLMCall("x")) as pieces:
            async for piece in pieces:
                text += piece.text
                await world.clock.sleep(100)
                in_flight.append(world.provider.in_flight)
        return text

    assert await world.until(runtime.run(slow_reader())) == "abcdefgh"
    assert in_flight[0] == 0, "the provider was done long before the reader"


async def test_a_stream_begins_again_only_before_its_first_piece(world: Any, runtime: Runtime, Step: Any) -> None:
    from interlock.errors import StreamInterruptedError, TransientUpstreamError

    world.provider.script(
        Step(error=lambda: TransientUpstreamError("early")),
        Step(pieces=["a", "b", "c"], break_after=2, error=lambda: TransientUpstreamError("late")),
    )

    async def read() -> None:
        async with runtime.llm().stream_response("x") as pieces:
            async for piece in pieces:
                got.append(piece.text)

    got: list[str] = []
    with pytest.raises(StreamInterruptedError) as caught:
        await world.until(read())
    assert got == ["a", "b"]
    assert caught.value.partial == "ab"
    assert world.provider.count == 2


@pytest.mark.parametrize(("mode", "requests"), [(StreamingMode.LIVE, 1), (StreamingMode.SAFE, 2)])
async def test_a_cut_off_stream_is_begun_again_only_where_nobody_saw_it(
    world: Any, runtime: Runtime, Step: Any, mode: StreamingMode, requests: int
) -> None:
    world.provider.script(Step(pieces=["cut", " off"], stop=StopReason.MAX_TOKENS), Step(pieces=["whole"]))

    async def read() -> str:
        async with runtime.llm(max_output_tokens=100).stream_response("x", mode=mode) as pieces:
            return "".join([piece.text async for piece in pieces])

    if mode is StreamingMode.SAFE:
        assert await world.until(read()) == "whole"
    else:
        with pytest.raises(OutputTruncatedError) as caught:
            await world.until(read())
        assert caught.value.partial == "cut off"
    assert world.provider.count == requests


async def test_an_error_in_the_pipelines_own_code_is_raised_as_it_is(world: Any, runtime: Runtime) -> None:
    @pipeline
    async def broken(ctx: PipelineContext) -> None:
        raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError, match="mine"):
        await world.until(runtime.run(broken()))


async def test_a_function_that_was_not_called_is_named(runtime: Runtime) -> None:
    with pytest.raises(TypeError, match="called first"):
        runtime.submit(inner)  # type: ignore[arg-type]


async def test_a_run_inside_of_gather_is_told_to_be_given_as_the_job_it_is(runtime: Runtime) -> None:
    @pipeline
    async def wrapped(ctx: PipelineContext) -> Any:
        given: Any = ctx.run(Double(1))
        return await ctx.gather(given)

    with pytest.raises(TypeError, match=r"not coroutine: give the job itself, .* without ctx.run around it"):
        await runtime.run(wrapped())
