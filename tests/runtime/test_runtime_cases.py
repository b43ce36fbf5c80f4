"""Field cases that meet the runtime as a whole, each by its id."""

from __future__ import annotations

import asyncio
import copy
import gc
import pickle
import subprocess
import sys
import threading
import warnings
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest

import interlock.errors
import interlock.runtime
from interlock.admission import CountingGate
from interlock.catalog import Catalog, Grade, Limits, ModelSpec
from interlock.clients.simulator import PublishedLimits, SimulatedProvider, Step
from interlock.credentials import Chain, EnvironmentStore
from interlock.errors import (
    AdmissionTimeoutError,
    InterlockError,
    JobCancelledError,
    RateLimitedError,
    TransientUpstreamError,
)
from interlock.runtime import (
    Job,
    JobRequirements,
    JobResources,
    JobState,
    LLMCall,
    PipelineContext,
    Runtime,
    RuntimeSettings,
    pipeline,
    run,
)

SPEC = ModelSpec(Grade.SMALL, max_output_tokens=100)


@dataclass(frozen=True)
class Needs(Job[str]):
    """A model and two accounts, in the order given."""

    order: tuple[str, ...] = ("r1", "r2")
    max_wait_s: float | None = None

    def requirements(self, needs: JobRequirements) -> None:
        for account in self.order:
            needs.require(account)
        needs.require_model(SPEC, input=100)

    async def run(self, resources: JobResources) -> str:
        return (await resources.get_llm_client(SPEC).single_response("x")).text


async def test_b05_a_refused_demand_took_nothing(world: Any, entry: Any) -> None:
    world.entries[:] = [entry(limits=Limits(rpm=5, tpm=1_000))]
    gates = (CountingGate("r1", 1), CountingGate("r2", 1))
    async with world.runtime(accounts=gates) as runtime:
        blocker = runtime.submit(Needs())  # holds both accounts for a second
        await world.run_until(lambda: world.provider.in_flight == 1)
        before = {account.name: account.level for account in runtime.statistics().admission.accounts}
        for how in ("refused", "cancelled") * 3:
            late = runtime.submit(Needs(max_wait_s=0.0 if how == "refused" else None))
            await world.clock.settle()
            if how == "cancelled":
                late.cancel()
            with pytest.raises((AdmissionTimeoutError, JobCancelledError)):
                await world.until(late, within_s=0)
        after = {account.name: account.level for account in runtime.statistics().admission.accounts}
        assert after == before
        await world.until(blocker)
        levels = {account.name: account.level for account in runtime.statistics().admission.accounts}
        assert (levels["r1"], levels["r2"]) == (1, 1)
        assert world.provider.count == 1


async def test_b05_opposite_orders_do_not_deadlock(world: Any) -> None:
    gates = (CountingGate("r1", 1), CountingGate("r2", 1))
    async with world.runtime(accounts=gates) as runtime:
        handles = [runtime.submit(Needs(("r1", "r2") if n % 2 else ("r2", "r1"))) for n in range(10)]
        for handle in handles:
            assert await world.until(handle, within_s=100) == "ok"


@pytest.mark.parametrize("when", ["queued", "granted", "sent"])
async def test_b06_more_cancels_than_there_is_capacity(world: Any, entry: Any, when: str) -> None:
    world.entries[:] = [entry(limits=Limits(rpm=60, max_concurrent=2))]
    async with world.runtime(accounts=(CountingGate("r1", 2), CountingGate("r2", 2))) as runtime:
        for _ in range(5):
            handles = [runtime.submit(Needs()) for _ in range(4)]
            if when == "granted":
                await asyncio.sleep(0)
            elif when == "sent":
                count = world.provider.in_flight
                await world.run_until(lambda count=count: world.provider.in_flight > count)
            for handle in handles:
                handle.cancel()
            for handle in handles:
                with pytest.raises(JobCancelledError):
                    await world.until(handle)
        assert await world.until(runtime.run(Needs())) == "ok"
        await world.clock.advance(1_000)
        assert all(account.level == account.capacity for account in runtime.statistics().admission.accounts)


async def test_b06_a_cancel_under_shield_and_wait_for(world: Any, runtime: Runtime) -> None:
    world.provider.always = lambda seen: world.step(latency_s=50)
    task = asyncio.create_task(asyncio.wait_for(asyncio.shield(runtime.run(LLMCall("x"))), None))
    await world.run_until(lambda: world.provider.in_flight == 1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert world.provider.in_flight == 1, "the shield kept it"
    await world.run_until(lambda: runtime.statistics().live == 0)
    assert runtime.statistics().succeeded == 1


# B21: what a provider may have served is counted, kept and said; what never left is given back.


def loopback(
    provider: SimulatedProvider, *, timeout_s: float = 5.0, tpm: int = 600_000, base_url: str | None = None
) -> RuntimeSettings:
    catalog = f"""
providers:
  anthropic-direct: {{credential: anthropic-api-key, base_url: "{base_url or provider.anthropic_url}"}}
models:
  - {{id: small, grade: SMALL, provider: anthropic-direct, wire_model_id: claude-x, context_window: 200000,
      timeout_s: {timeout_s}, max_output_tokens: 8000, limits: {{rpm: 6000, tpm: {tpm}}},
      prices: {{input: 1, output: 5}}}}
"""
    keys = EnvironmentStore({"ANTHROPIC_API_KEY": "sk-ant-0000000000"})
    return RuntimeSettings(catalog=Catalog.load(catalog), store=None, credentials=Chain(keys))


@pytest.mark.parametrize("step", ["stall", "reset"])
async def test_b21_a_request_of_unknown_outcome_is_recorded_and_its_reservation_kept(step: str) -> None:
    async with SimulatedProvider(limits=PublishedLimits(rpm=6_000, tpm=600_000)) as provider:
        provider.always(Step.stall() if step == "stall" else Step.cut(after_pieces=0, how="reset"))
        async with Runtime(loopback(provider, timeout_s=0.2, tpm=6_000)) as runtime:
            with pytest.raises(TransientUpstreamError):
                await runtime.run(LLMCall("x", upstream_retries=0, max_output_tokens=5_000))
            (row,) = await runtime.calls()
            level = runtime.statistics().admission.account("model:small:tokens").level
        assert provider.count == 1
        assert row.record.usage.estimated
        assert row.record.usage.output_tokens == 5_000
        assert row.record.cost is not None
        assert row.record.cost > 0
        assert level <= 1_900, "the reservation stays"


async def test_b21_it_is_sent_again_and_every_request_is_on_record() -> None:
    async with SimulatedProvider(limits=PublishedLimits(rpm=6_000, tpm=600_000)) as provider:
        provider.script(Step.cut(after_pieces=0, how="reset"))
        async with Runtime(loopback(provider)) as runtime:
            handle = runtime.submit(LLMCall("Say hello."))
            response = await handle
            rows = await runtime.calls()
        assert [row.record.outcome for row in rows] == ["llm_transient", "ok"]
        assert provider.count == handle.requests == 2
        assert response.usage.estimated, "the lost request is in the sum, and is an estimate"


async def test_b21_a_connection_never_made_costs_nothing(unused_port: int) -> None:
    async with SimulatedProvider() as provider:
        settings = loopback(provider, base_url=f"http://127.0.0.1:{unused_port}")
        async with Runtime(settings) as runtime:
            with pytest.raises(TransientUpstreamError) as caught:
                await runtime.run(LLMCall("x", upstream_retries=0))
            (row,) = await runtime.calls()
            accounts = runtime.statistics().admission.accounts
        assert caught.value.sent is False
        assert row.record.cost == 0
        assert all(account.level == pytest.approx(account.capacity, abs=1) for account in accounts)


# B48: a long Retry-After is neither slept through nor knocked at.


@pytest.mark.parametrize("hint_s", [59.0, 60.0])
async def test_b48_a_hint_of_up_to_a_minute_is_honoured(world: Any, runtime: Runtime, Step: Any, hint_s: float) -> None:
    world.provider.script(Step(latency_s=0, error=lambda: RateLimitedError("429", status=429, retry_after_s=hint_s)))
    assert (await world.until(runtime.run(LLMCall("x")))).text == "ok"
    assert world.provider.seen[1].at_s - world.provider.seen[0].at_s >= hint_s


async def test_b48_beyond_it_the_pool_is_probed_once_a_minute_and_no_retry_is_used(
    world: Any, runtime: Runtime, Step: Any
) -> None:
    left = [600.0]

    def step(seen: Any) -> Any:
        left[0] = 600.0 - (seen.at_s - 1_000.0)
        if left[0] > 0:
            return Step(latency_s=0, error=RateLimitedError("429", status=429, retry_after_s=left[0]))
        return Step(latency_s=0)

    world.provider.always = step
    handles = [runtime.submit(LLMCall(f"{n}", upstream_retries=0)) for n in range(3)]
    for handle in handles:
        assert (await world.until(handle)).text == "ok"
    times = [seen.at_s - 1_000.0 for seen in world.provider.seen]
    early = [at for at in times if at > 0]
    assert all(later - earlier >= 59 for earlier, later in zip([0, *early], early[: -len(handles)], strict=False))
    assert len(times) <= 3 + 12 + 3


async def test_b48_a_job_that_may_not_wait_so_long_fails_at_once_with_the_providers_time(
    world: Any, runtime: Runtime, Step: Any
) -> None:
    world.provider.always = lambda seen: Step(
        latency_s=0, error=RateLimitedError("429", status=429, retry_after_s=133_107)
    )
    started = world.clock.now()
    with pytest.raises(RateLimitedError) as caught:
        await world.until(runtime.run(LLMCall("x", max_wait_s=30)))
    assert caught.value.retry_after_s == 133_107
    assert isinstance(caught.value.__cause__, AdmissionTimeoutError)
    assert world.clock.now() - started <= 30
    assert world.provider.count == 1


async def test_b48_other_work_of_the_pool_pauses_too(world: Any, runtime: Runtime, Step: Any) -> None:
    world.provider.script(Step(latency_s=0, error=RateLimitedError("429", status=429, retry_after_s=40)))
    first = runtime.submit(LLMCall("first"))
    await world.run_until(lambda: world.provider.count == 1 and world.provider.in_flight == 0)
    await world.clock.settle()
    other = runtime.submit(LLMCall("other"))
    await world.until(first)
    await world.until(other)
    assert all(seen.at_s >= 1_040 for seen in world.provider.seen[1:])


# B52: event loops.


def test_b52_a_module_level_runtime_serves_one_loop_after_another(world: Any) -> None:
    runtime = Runtime(world.settings())
    gate = Limits(rpm=600, max_concurrent=1)
    world.entries[0] = world.entries[0].model_copy(update={"limits": gate})

    async def contend() -> list[str]:
        async with runtime:
            handles = [runtime.submit(LLMCall(f"{n}")) for n in range(5)]
            return [(await world.until(handle)).text for handle in handles]

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(2):
            assert asyncio.run(contend()) == ["ok"] * 5
        gc.collect()


async def test_b52_another_loop_is_one_clear_error(world: Any, runtime: Runtime) -> None:
    told: list[BaseException] = []

    def elsewhere() -> None:
        async def use() -> None:
            await runtime.run(LLMCall("x"))

        try:
            asyncio.run(use())
        except InterlockError as error:
            told.append(error)

    thread = threading.Thread(target=elsewhere)
    thread.start()
    await asyncio.to_thread(thread.join)
    assert "another event loop" in str(told[0])
    assert (await world.until(runtime.run(LLMCall("x")))).text == "ok"


async def test_b52_the_synchronous_facade_inside_a_loop_says_what_to_write() -> None:
    with pytest.raises(InterlockError, match=r"await runtime\.run\(job\)"):
        run(LLMCall("x"))


def test_b52_the_synchronous_facade_twice(world: Any) -> None:
    @pipeline
    async def small(ctx: PipelineContext) -> int:
        return await ctx.step(len, "four")

    settings = world.settings(clock=None)
    assert [run(small(), settings=settings) for _ in range(2)] == [4, 4]


def test_b52_a_runtime_dropped_without_closing_is_silent(world: Any) -> None:
    async def drop() -> None:
        runtime = await Runtime(world.settings()).__aenter__()
        await world.until(runtime.run(LLMCall("x")))

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        asyncio.run(drop())
        gc.collect()


# B60: errors cross processes.


def _public_errors() -> list[type[InterlockError]]:
    found: list[type[InterlockError]] = []
    queue: list[type[InterlockError]] = [InterlockError]
    while queue:
        class_ = queue.pop()
        found.append(class_)
        queue += [sub for sub in class_.__subclasses__() if sub.__module__.startswith("interlock.errors")]
    return found


def _raise_it(error: InterlockError) -> None:
    raise error


def _example(class_: type[InterlockError]) -> InterlockError:
    if issubclass(class_, interlock.errors.UpstreamError):
        return class_("said", model="m", status=429, retry_after_s=2.5, request_id="r", attempts=3)
    needed: dict[str, Any] = {
        "NeverFitsError": {"account": "a", "ask": 3.0, "limit": 2.0},
        "SpendCapExceededError": {"cap": "1", "spent": "1", "held": "0", "ask": "2", "currency": "USD"},
    }.get(class_.__name__, {})
    return class_("said", **needed)


@pytest.mark.parametrize("class_", _public_errors(), ids=lambda class_: class_.__name__)
def test_b60_an_error_survives_pickling_and_copying(class_: type[InterlockError]) -> None:
    error = _example(class_)
    error.__cause__ = OSError("cause")
    for twin in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):
        assert type(twin) is class_
        assert str(twin) == str(error)
        assert vars(twin) == vars(error)
        assert twin.code == error.code


def test_b60_an_error_crosses_a_process_pool() -> None:
    error = _example(RateLimitedError)
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        caught = pool.submit(pickle.loads, pickle.dumps(error)).result(30)
        assert vars(caught) == vars(error)


async def test_b60_what_a_job_failed_with_survives_too(world: Any, runtime: Runtime, Step: Any) -> None:
    world.provider.script(Step(error=lambda: TransientUpstreamError("gone", status=503, request_id="req")))
    handle = runtime.submit(LLMCall("x", upstream_retries=0))
    with pytest.raises(TransientUpstreamError):
        await world.until(handle)
    twin = pickle.loads(pickle.dumps(handle.exception()))
    assert (twin.status, twin.attempts, twin.model) == (503, 1, "fake-small")


# B66: admission is paced, execution is parallel, the loop stays free.


async def test_b66_fifty_calls_are_under_way_at_once(tmp_path: Path) -> None:
    """No answer is given before all fifty have come, to a provider on the very loop that sends them: neither a call
    waits for another's answer, nor does one keep the loop."""
    everybody = asyncio.Barrier(50)

    async def until_all_are_there(_seconds: float) -> None:
        await everybody.wait()

    limits = PublishedLimits(rpm=6_000, tpm=60_000_000)
    async with SimulatedProvider(limits=limits, latency_s=0.2, sleep=until_all_are_there) as provider:
        settings = replace(loopback(provider, timeout_s=60), store=f"sqlite:///{tmp_path}/s.db")
        async with Runtime(settings) as runtime:
            handles = [runtime.submit(LLMCall(f"call {n}", max_output_tokens=50)) for n in range(50)]
            for handle in handles:
                await handle
            assert len(await runtime.calls()) == 50
    assert provider.count == 50


# What importing costs.


def test_importing_the_runtime_loads_no_database_and_no_array_library() -> None:
    code = (
        "import sys, interlock.runtime as r; [getattr(r, name) for name in r.__all__];"
        "print(sorted(set(sys.modules) & {'sqlalchemy', 'numpy', 'anthropic', 'openai', 'httpx2', 'aiosqlite'}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


async def test_a_runtime_without_a_store_needs_no_database_library(world: Any) -> None:
    async with world.runtime() as runtime:
        handle = runtime.submit(LLMCall("x"))
        assert (await world.until(handle)).text == "ok"
        assert handle.state is JobState.SUCCEEDED
