"""Jobs that misbehave: whatever they raise or say of themselves ends them alone, and nobody waits for ever."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from interlock.errors import ConfigurationError, JobCancelledError
from interlock.runtime import (
    BlockingResources,
    Job,
    JobRequirements,
    JobResources,
    JobState,
    LLMCall,
    PipelineContext,
    Runtime,
    pipeline,
)


class Odd(BaseException):
    """Not an Exception."""


@dataclass(frozen=True)
class Asking(Job[int]):
    """Raises while it declares."""

    error: BaseException

    def requirements(self, needs: JobRequirements) -> None:
        raise self.error

    async def run(self, resources: JobResources) -> int:
        return 1


@dataclass(frozen=True)
class Running(Job[int]):
    error: BaseException

    async def run(self, resources: JobResources) -> int:
        raise self.error


@dataclass(frozen=True)
class InThread(Job[int]):
    error: BaseException

    def run(self, resources: BlockingResources) -> int:
        raise self.error


KINDS: tuple[Callable[[BaseException], Job[int]], ...] = (Asking, Running, InThread)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("error", "seen"),
    [
        (ValueError("no"), ValueError),
        (StopIteration(1), RuntimeError),
        (asyncio.CancelledError(), JobCancelledError),
        (GeneratorExit(), GeneratorExit),
        (Odd(), Odd),
    ],
)
async def test_whatever_a_job_raises_ends_it(
    world: Any, runtime: Runtime, kind: Any, error: BaseException, seen: type[BaseException]
) -> None:
    handle = runtime.submit(kind(error))
    with pytest.raises(seen):
        await world.until(handle)
    assert handle.state is (JobState.CANCELLED if seen is JobCancelledError else JobState.FAILED)
    assert runtime.statistics().live == 0


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(3)])
async def test_an_interrupt_while_a_job_declares_ends_the_job_and_goes_on_its_way(
    runtime: Runtime, error: BaseException
) -> None:
    with pytest.raises(type(error)):
        runtime.submit(Asking(error))
    assert runtime.statistics().live == 0


@pytest.mark.parametrize("kind", KINDS)
async def test_a_stop_iteration_among_gathered_jobs_ends_the_gather(world: Any, runtime: Runtime, kind: Any) -> None:
    @pipeline
    async def both(ctx: PipelineContext) -> tuple[int, object]:
        return await ctx.gather(kind(StopIteration(1)), LLMCall("x"))

    with pytest.raises(RuntimeError, match="StopIteration"):
        await world.until(runtime.run(both()))


async def test_a_step_in_a_thread_that_raises_stop_iteration_ends(world: Any, runtime: Runtime) -> None:
    @pipeline
    async def first(ctx: PipelineContext) -> int:
        nothing: list[int] = []
        return await ctx.step(lambda: next(iter(nothing)))

    with pytest.raises(RuntimeError, match="StopIteration"):
        await world.until(runtime.run(first()))


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


async def test_an_error_that_cannot_be_told_is_recorded_by_its_name(world: Any, runtime: Runtime) -> None:
    @pipeline
    async def fails(ctx: PipelineContext) -> None:
        raise Mute

    with pytest.raises(Mute):
        await world.until(runtime.run(fails(), run_id="mute"))
    [row] = await runtime.runs(run_id="mute")
    assert (row.status, row.error) == ("failed", "Mute")


@pytest.mark.parametrize(
    "said",
    [
        {"timeout_s": float("nan")},
        {"timeout_s": "5"},
        {"timeout_s": -1},
        {"max_wait_s": float("nan")},
        {"max_wait_s": "5"},
        {"upstream_retries": -1},
        {"upstream_retries": float("nan")},
        {"priority": "x"},
        {"priority": 1.5},
        {"workflow": 5},
        {"overflow": "wait"},
    ],
)
async def test_settings_no_timer_and_no_line_could_be_given_fail_the_job(
    world: Any, runtime: Runtime, said: dict[str, Any]
) -> None:
    [name] = said
    with pytest.raises(ConfigurationError, match=name):
        await world.until(runtime.run(LLMCall("x", **said)))
    assert runtime.statistics().live == 0
    assert world.provider.count == 0


async def test_a_timeout_beyond_what_a_clock_can_count_fails_the_job(world: Any, runtime: Runtime) -> None:
    with pytest.raises(ConfigurationError, match="timeout_s"):
        await world.until(runtime.run(LLMCall("x", timeout_s=10**400)))
    assert runtime.statistics().live == 0


@pytest.mark.parametrize("after", [[None], [3], ["x"]])
async def test_what_cannot_be_waited_for_is_refused_at_once(world: Any, runtime: Runtime, after: Any) -> None:
    with pytest.raises(TypeError, match="after="):
        runtime.submit(LLMCall("x"), after=after, run_id="once")
    assert runtime.statistics().live == 0
    assert (await world.until(runtime.run(LLMCall("x"), run_id="once"))).text == "ok"


async def test_an_async_declaration_is_told_so(world: Any, runtime: Runtime) -> None:
    @dataclass(frozen=True)
    class Late(Job[int]):
        async def requirements(self, needs: JobRequirements) -> None:  # type: ignore[override]
            needs.require_model("fake-small", input=1, max_output_tokens=1)

        async def run(self, resources: JobResources) -> int:
            return 1

    with pytest.raises(ConfigurationError, match="async def"):
        await world.until(runtime.run(Late()))
