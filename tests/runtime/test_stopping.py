"""Stopping in two steps, leaving a runtime, and jobs in threads."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass
from typing import Any

import pytest

from interlock.admission import CountingGate
from interlock.catalog import Grade, ModelSpec
from interlock.errors import (
    InterlockError,
    JobCancelledError,
    JobTimeoutError,
)
from interlock.runtime import (
    BlockingResources,
    Job,
    JobRequirements,
    JobResources,
    JobState,
    LLMCall,
    Runtime,
)

SPEC = ModelSpec(Grade.SMALL, max_output_tokens=100)


@dataclass(frozen=True)
class Stubborn(Job[str]):
    """Notes how it is stopped."""

    notes: list[str]
    await_what: str = "call"
    timeout_s = 20.0

    def requirements(self, needs: JobRequirements) -> None:
        needs.require_model(SPEC, input=10)
        needs.require("gpu")

    async def run(self, resources: JobResources) -> str:
        client = resources.get_llm_client(SPEC)
        try:
            if self.await_what == "call":
                await client.single_response("x")
            else:
                await asyncio.get_running_loop().create_future()
        except InterlockError as error:
            self.notes.append(error.code)
            with pytest.raises(InterlockError):
                await client.single_response("once more")
            raise
        except asyncio.CancelledError:
            self.notes.append("hard")
            raise
        return "done"


@pytest.fixture
def slow(world: Any) -> Any:
    world.provider.always = lambda seen: world.step(latency_s=1_000)
    return world


@pytest.mark.parametrize(("await_what", "noted", "after_s"), [("call", ["job_cancelled"], 0), ("other", ["hard"], 2)])
async def test_cancel_is_a_closed_resource_first_and_hard_after_the_grace(
    slow: Any, await_what: str, noted: list[str], after_s: float
) -> None:
    notes: list[str] = []
    async with slow.runtime(accounts=(CountingGate("gpu", 1),)) as runtime:
        handle = runtime.submit(Stubborn(notes, await_what))
        await slow.run_until(lambda: handle.state is JobState.RUNNING)
        await slow.clock.settle()
        started = slow.clock.now()
        handle.cancel()
        with pytest.raises(JobCancelledError):
            await slow.until(handle)
        assert slow.clock.now() - started == pytest.approx(after_s)
        assert notes == noted
        assert runtime.statistics().admission.account("gpu").level == 1
        assert [row.record.outcome for row in await runtime.calls()] == ["cancelled"] * (await_what == "call")


async def test_a_job_whose_task_group_failed_is_still_stopped_gently(slow: Any) -> None:
    notes: list[str] = []

    async def wrong() -> None:
        raise KeyError("x")

    async def grouped() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(asyncio.sleep(100))
            group.create_task(wrong())

    @dataclass(frozen=True)
    class Grouped(Stubborn):
        async def run(self, resources: JobResources) -> str:
            with pytest.raises(ExceptionGroup):
                await grouped()
            return await Stubborn.run(self, resources)

    async with slow.runtime(accounts=(CountingGate("gpu", 1),)) as runtime:
        handle = runtime.submit(Grouped(notes))
        await slow.run_until(lambda: slow.provider.in_flight == 1)
        handle.cancel()
        with pytest.raises(JobCancelledError):
            await slow.until(handle)
    assert notes == ["job_cancelled"]


@pytest.mark.parametrize(("await_what", "noted", "after_s"), [("call", ["job_timeout"], 20), ("other", ["hard"], 22)])
async def test_a_timeout_goes_the_same_two_steps(slow: Any, await_what: str, noted: list[str], after_s: float) -> None:
    notes: list[str] = []
    async with slow.runtime(accounts=(CountingGate("gpu", 1),)) as runtime:
        started = slow.clock.now()
        handle = runtime.submit(Stubborn(notes, await_what))
        with pytest.raises(JobTimeoutError):
            await slow.until(handle)
        assert slow.clock.now() - started == pytest.approx(after_s)
        assert notes == noted
        assert runtime.statistics().admission.account("gpu").level == 1


async def test_a_cancelled_job_that_returns_anyway_is_cancelled(world: Any, runtime: Runtime) -> None:
    going = asyncio.Event()

    @dataclass(frozen=True)
    class Deaf(Job[str]):
        async def run(self, resources: JobResources) -> str:
            await going.wait()
            return "too late"

    handle = runtime.submit(Deaf())
    await world.clock.settle()
    handle.cancel()
    going.set()
    with pytest.raises(JobCancelledError):
        await world.until(handle)


async def test_leaving_the_runtime_waits_for_what_was_submitted(world: Any) -> None:
    async def leave() -> Any:
        async with world.runtime() as runtime:
            return runtime.submit(LLMCall("x"))

    handle = await world.until(leave())
    assert handle.state is JobState.SUCCEEDED
    assert world.provider.closed == 1


async def test_leaving_it_with_an_error_stops_everything(slow: Any) -> None:
    handles: list[Any] = []

    async def leave() -> None:
        async with slow.runtime() as runtime:
            handles.extend(runtime.submit(LLMCall(f"{n}")) for n in range(3))
            await slow.run_until(lambda: slow.provider.in_flight == 3)
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        await slow.until(leave(), within_s=100)
    assert [handle.state for handle in handles] == [JobState.CANCELLED] * 3
    assert slow.provider.in_flight == 0


# Threads.


@dataclass(frozen=True)
class Blocking(Job[str]):
    def requirements(self, needs: JobRequirements) -> None:
        needs.require_model(SPEC, input=10)

    def run(self, resources: BlockingResources) -> str:
        assert threading.current_thread() is not threading.main_thread()
        return resources.get_llm_client(SPEC).single_response("x").text


async def test_a_synchronous_run_goes_to_a_thread_with_blocking_clients(world: Any, runtime: Runtime) -> None:
    assert await world.until(runtime.run(Blocking())) == "ok"
    assert (await runtime.calls())[0].job == "Blocking"


async def test_a_synchronous_run_is_interrupted_in_its_call(slow: Any) -> None:
    async with slow.runtime() as runtime:
        handle = runtime.submit(Blocking())
        await slow.run_until(lambda: slow.provider.in_flight == 1)
        handle.cancel()
        with pytest.raises(JobCancelledError):
            await slow.until(handle, within_s=100)
        assert slow.provider.in_flight == 0
