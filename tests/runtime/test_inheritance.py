"""What a job has from whoever submitted it: context variables, priority, and who it shares fairly as."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import pytest

from interlock.catalog import Grade, Limits, ModelSpec
from interlock.runtime import BlockingResources, Job, JobRequirements, JobResources, PipelineContext, Runtime, pipeline

SPEC = ModelSpec(Grade.SMALL, max_output_tokens=100)
USER: ContextVar[str] = ContextVar("user", default="nobody")


@dataclass(frozen=True)
class Whose(Job[str]):
    """Who its code runs for, after a call (so that it waits for the one before it) and, scripted, after a re-run."""

    def requirements(self, needs: JobRequirements) -> None:
        needs.require_model(SPEC, input=10)

    async def run(self, resources: JobResources) -> str:
        await resources.get_llm_client(SPEC).single_response("x")
        return USER.get()


@dataclass(frozen=True)
class WhoseThread(Whose):
    def run(self, resources: BlockingResources) -> str:  # type: ignore[override]
        resources.get_llm_client(SPEC).single_response("x")
        return USER.get()


async def asked_by(runtime: Runtime, user: str, job: Job[str]) -> tuple[str, str]:
    USER.set(user)
    return user, await runtime.run(job)


@pytest.mark.parametrize("job", [Whose(), WhoseThread()])
async def test_a_job_sees_its_submitters_variables_whoever_made_room_for_it(
    world: Any, entry: Any, job: Job[str]
) -> None:
    world.entries[:] = [entry(limits=Limits(rpm=6_000, max_concurrent=1))]
    async with world.runtime() as runtime:
        tasks = [asyncio.create_task(asked_by(runtime, user, job)) for user in ("ann", "bob", "eve")]
        answers = [await world.until(task) for task in tasks]
    assert answers == [("ann", "ann"), ("bob", "bob"), ("eve", "eve")]


async def test_also_when_it_runs_again(world: Any, runtime: Runtime, Step: Any) -> None:
    from interlock.errors import RateLimitedError, TransientUpstreamError

    errors = (TransientUpstreamError("503", status=503), RateLimitedError("429", status=429, retry_after_s=2.0))
    world.provider.script(*[Step(latency_s=0, error=error) for error in errors])
    tasks = [asyncio.create_task(asked_by(runtime, user, Whose())) for user in ("ann", "bob")]
    assert [await world.until(task) for task in tasks] == [("ann", "ann"), ("bob", "bob")]
    assert world.provider.count == 4


async def test_a_variable_set_in_a_pipeline_reaches_its_jobs_and_nobody_else(world: Any, runtime: Runtime) -> None:
    @pipeline
    async def asks(ctx: PipelineContext, user: str) -> list[str]:
        before = await ctx.run(Whose())
        USER.set(user)
        return [before, *await ctx.gather(Whose(), Whose())]

    assert await world.until(runtime.run(asks("ann"))) == ["nobody", "ann", "ann"]
    assert await world.until(runtime.run(asks("bob"))) == ["nobody", "bob", "bob"]


async def test_jobs_submitted_alike_share_one_context(world: Any, runtime: Runtime) -> None:
    handles = [runtime.submit(Whose()) for _ in range(3)]
    assert len({id(handle._execution._context) for handle in handles}) == 1
    USER.set("ann")
    assert runtime.submit(Whose())._execution._context is not handles[0]._execution._context


@pipeline
async def child_of(ctx: PipelineContext) -> tuple[int, str]:
    handle = ctx.submit(Whose())
    await handle
    return handle._execution.priority, handle._execution.workflow


@pipeline(priority=9)
async def urgent(ctx: PipelineContext) -> tuple[int, str]:
    return await ctx.run(child_of())


@pipeline
async def outer(ctx: PipelineContext) -> tuple[int, str]:
    return await ctx.run(urgent())


async def test_what_a_run_is_given_holds_for_its_jobs(world: Any, runtime: Runtime) -> None:
    assert await world.until(runtime.run(child_of())) == (0, "child_of")
    assert await world.until(runtime.run(child_of(), priority=5, workflow="night")) == (5, "night")
    assert await world.until(runtime.run(urgent())) == (9, "urgent")
    assert await world.until(runtime.run(urgent(), priority=0)) == (0, "urgent")


async def test_a_pipeline_within_a_pipeline_keeps_its_priority_and_shares_as_the_whole(
    world: Any, runtime: Runtime
) -> None:
    assert await world.until(runtime.run(outer())) == (9, "outer")
