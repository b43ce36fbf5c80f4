"""The whole runtime under seeded faults and cancels, on virtual time; and a cancel at every step of the event loop.

A failing seed is a failing test: add it to `KNOWN`.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import pytest
from pydantic import BaseModel

from interlock.admission import CountingGate
from interlock.catalog import Grade, Limits, ModelSpec
from interlock.clients.response import StopReason
from interlock.errors import (
    InterlockError,
    InvalidRequestError,
    OverloadedError,
    QuotaExhaustedError,
    RateLimitedError,
    TransientUpstreamError,
)
from interlock.runtime import (
    DatabaseProvider,
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

SEEDS = range(60)
KNOWN: tuple[int, ...] = ()
SPEC = ModelSpec(Grade.SMALL, max_output_tokens=150)


class Shape(BaseModel):
    n: int


# A database in this process, so that nothing but the loop and the clock decides what happens when.


@dataclass
class FakeEngine:
    """Speaks as much of an async engine as a job's transaction needs, and counts."""

    clock: Any
    out: int = 0
    most_out: int = 0
    begun: int = 0
    committed: list[str] = field(default_factory=list)
    rolled_back: int = 0
    fail: Callable[[], bool] = lambda: False

    async def connect(self) -> FakeConnection:
        await asyncio.sleep(0)
        self.out += 1
        self.most_out = max(self.most_out, self.out)
        return FakeConnection(self)


class FakeConnection:
    def __init__(self, engine: FakeEngine) -> None:
        self.engine, self.written, self.open, self.begun = engine, list[str](), True, False

    async def begin(self) -> None:
        self.begun = True
        self.engine.begun += 1
        await asyncio.sleep(0)

    async def execute(self, statement: Any, parameters: Any = None) -> Any:
        await self.engine.clock.sleep(0.01)
        if self.engine.fail():
            raise OSError("the database said no")
        self.written.append(str(statement))

    async def commit(self) -> None:
        await asyncio.sleep(0)
        assert self.begun
        self.begun = False
        self.engine.committed += self.written

    async def rollback(self) -> None:
        await asyncio.sleep(0)
        if self.begun:
            self.begun = False
            self.engine.rolled_back += 1

    async def invalidate(self) -> None:
        await self.rollback()

    async def close(self) -> None:
        assert self.open, "closed twice"
        assert not self.begun, "returned inside a transaction"
        self.open = False
        self.engine.out -= 1
        await asyncio.sleep(0)


@dataclass(frozen=True)
class Save(Job[str]):
    name: str
    timeout_s = 40.0

    def requirements(self, needs: JobRequirements) -> None:
        needs.require_database("db")
        needs.require("gpu")
        needs.require_model(SPEC, input=50)

    async def run(self, resources: JobResources) -> str:
        answer = await resources.get_llm_client(SPEC).single_response(self.name)
        await resources.database("db").execute(self.name)  # type: ignore[arg-type]
        return answer.text


@pipeline
async def work(ctx: PipelineContext, name: str) -> int:
    draft, plain = await ctx.gather(LLMCall(name, response_model=Shape, max_output_tokens=200), LLMCall(name))
    await ctx.run(Save(name))
    async with ctx.stream(LLMCall(name)) as pieces:
        text = "".join([piece.text async for piece in pieces])
    mapped = await ctx.map(range(3), lambda n: LLMCall(f"{name}.{n}", max_wait_s=200), limit=2)
    return draft.n + len(plain.text) + len(text) + len(mapped)


@dataclass
class Simulation:
    world: Any
    seed: int
    trace: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        self.engine = FakeEngine(self.world.clock)
        self.engine.fail = lambda: self.rng.random() < 0.03
        self.world.entries[0] = self.world.entry(limits=Limits(rpm=300, tpm=40_000, burst_s=20, max_concurrent=6))
        self.world.provider.always = self.step

    def step(self, seen: Any) -> Any:
        rng, make = self.rng, self.world.step
        latency_s = rng.choice([0.0, 0.2, 1.0, 5.0, 30.0])
        errors: list[Callable[[], Exception]] = [
            lambda: RateLimitedError("429", status=429, retry_after_s=rng.choice([None, 0, 1, 7, 90])),
            lambda: OverloadedError("529", status=529),
            lambda: TransientUpstreamError("503", status=503),
            lambda: TransientUpstreamError("lost"),
            lambda: QuotaExhaustedError("402", status=402),
            lambda: InvalidRequestError("400", status=400),
        ]
        dice = rng.random()
        if dice < 0.2:
            after = rng.choice([None, 0, 1]) if seen.streamed else None
            return make(latency_s=latency_s, error=rng.choice(errors), pieces=["1", "2"], break_after=after)
        if dice < 0.25:
            return make(latency_s=latency_s, stop=StopReason.MAX_TOKENS, text='{"n')
        if dice < 0.28:
            return make(latency_s=latency_s, stop=StopReason.REFUSAL, text="")
        if dice < 0.33:
            return make(latency_s=latency_s, text="no json")
        usage = rng.choice([(60, 20), (500, 900), (1, 1), None])
        return make(latency_s=latency_s, text='{"n": 1}', usage=usage)

    async def run(self) -> None:
        provider = DatabaseProvider("db", self.engine, max_concurrent=2)  # type: ignore[arg-type]
        gate = CountingGate("gpu", 2)
        async with self.world.runtime(
            databases=(provider,), accounts=(gate,), seed=self.seed, cost_cap="100"
        ) as runtime:
            handles = self.submit(runtime)
            await self.drive(handles)
            await self.check(runtime, handles)

    def submit(self, runtime: Runtime) -> list[JobHandle[Any]]:
        handles: list[JobHandle[Any]] = []
        for number in range(self.rng.randint(3, 8)):
            kind = self.rng.random()
            after = [self.rng.choice(handles)] if handles and kind > 0.8 else []
            job: Job[Any] = work(f"w{number}") if kind < 0.6 else Save(f"s{number}")
            cap = self.rng.choice([None, "0.004", "1"])
            handles.append(
                runtime.submit(job, after=after, tolerate_failures=kind > 0.9, cost_cap=cap, priority=number % 2)
            )
        return handles

    async def drive(self, handles: list[JobHandle[Any]]) -> None:
        """Advance from timer to timer, and now and then cancel somebody."""
        clock = self.world.clock
        for _ in range(20_000):
            await clock.settle(self.rng.randint(1, 60))
            if all(handle.done for handle in handles):
                return
            if self.rng.random() < 0.01:
                victim = self.rng.choice(handles)
                self.trace.append(("cancel", round(clock.now(), 6), handles.index(victim), victim.cancel()))
                continue
            due = clock.next_instant
            if due is not None and self.rng.random() < 0.5:
                await clock.advance(due - clock.now())
        raise AssertionError(f"seed {self.seed}: {[str(handle.state) for handle in handles]} never ended")

    async def check(self, runtime: Runtime, handles: list[JobHandle[Any]]) -> None:
        world = self.world
        await world.clock.settle()
        assert all(handle.state.done for handle in handles)
        rows = await runtime.calls(limit=100_000)
        assert len(rows) == world.provider.count, "one record for each wire request"
        assert world.provider.in_flight == 0
        statistics = runtime.statistics()
        assert statistics.live == 0
        assert statistics.requests == len(rows)
        ended = statistics.succeeded + statistics.failed + statistics.cancelled
        assert ended == statistics.submitted
        assert (self.engine.out, statistics.admission.waiting) == (0, 0)
        assert self.engine.begun == self.engine.rolled_back + len(self.engine.committed)
        assert self.engine.most_out <= 2
        succeeded = {handle._execution.job.name for handle in handles
                     if isinstance(handle._execution.job, Save) and handle.state is JobState.SUCCEEDED}  # fmt: skip
        assert succeeded <= set(self.engine.committed)
        await world.clock.advance(100_000)
        for account in runtime.statistics().admission.accounts:
            assert account.level == pytest.approx(account.capacity), f"seed {self.seed}: {account}"
        spending = runtime._dispatcher.spending  # type: ignore[union-attr]
        assert [(cap.held, cap.waiting) for cap in spending.statistics()] == [(Decimal(0), 0)]
        for handle in handles:
            error = handle.exception()
            assert error is None or isinstance(error, (InterlockError, OSError)), error
            self.trace.append((str(handle.state), type(error).__name__, handle.attempt, handle.requests))
        self.trace += [(row.job, row.step_id, row.attempt, row.record.outcome, row.record.started_at) for row in rows]


@pytest.mark.parametrize("seed", [*KNOWN, *SEEDS])
async def test_nothing_is_lost_leaked_or_done_twice(world: Any, entry: Any, seed: int) -> None:
    world.entry = entry
    await Simulation(world, seed).run()


async def test_the_same_seed_gives_the_same_trace(world: Any, entry: Any) -> None:
    world.entry = entry
    traces = []
    for _ in range(2):
        world.clock.__init__()
        world.provider.seen.clear()
        simulation = Simulation(world, 11)
        await simulation.run()
        traces.append(simulation.trace)
    assert traces[0] == traces[1]
    assert len(traces[0]) > 10


async def test_the_faults_do_happen(world: Any, entry: Any) -> None:
    """A simulation that never meets a fault proves nothing."""
    world.entry = entry
    seen: set[Any] = set()
    for seed in range(12):
        world.provider.seen.clear()
        simulation = Simulation(world, seed)
        await simulation.run()
        seen |= {part for item in simulation.trace for part in item if isinstance(part, str)}
    assert {"llm_rate_limited", "llm_overloaded", "llm_transient", "response_shape", "output_truncated"} <= seen
    assert {"succeeded", "failed", "cancelled", "provider_refusal", "quota_exhausted", "cancel"} <= seen


# Cancel at every await.


@pipeline
async def everything(ctx: PipelineContext) -> str:
    await ctx.gather(Save("a"), LLMCall("b"))
    async with ctx.stream(LLMCall("c")) as pieces:
        async for piece in pieces:
            assert piece
    return await ctx.run(Save("d"))


async def _cancel_after(world: Any, turns: int, how: str) -> bool:
    """Run it, cancel after so many turns of the loop, and check that all is as before. False: it was over by then."""
    engine = FakeEngine(world.clock)
    provider = DatabaseProvider("db", engine, max_concurrent=1)  # type: ignore[arg-type]
    world.provider.seen.clear()
    async with world.runtime(databases=(provider,), accounts=(CountingGate("gpu", 1),), cost_cap="1") as runtime:
        handle = runtime.submit(everything())

        async def wait() -> str:
            return await handle

        task = asyncio.create_task(runtime.run(everything()) if how == "task" else wait())
        if how == "task":
            handle.cancel()
        for _ in range(turns):
            await asyncio.sleep(0)
            due = world.clock.next_instant
            if due is not None and due - world.clock.now() < 2.0:  # an answer, a statement: never a timeout
                world.clock._fire_next(due)
        over = task.done()
        if how == "task":
            task.cancel()
        elif how == "handle":
            handle.cancel()
        else:
            for execution in list(runtime._dispatcher.live):  # type: ignore[union-attr]
                execution.stop_hard()
        with_result = await asyncio.gather(world.until(_quiet(task)), return_exceptions=True)
        assert not isinstance(with_result[0], AssertionError)
        await world.run_until(lambda: runtime.statistics().live == 0)
        await world.clock.settle()
        assert (engine.out, world.provider.in_flight) == (0, 0)
        assert engine.begun == engine.rolled_back + len(engine.committed)
        assert len(await runtime.calls()) == world.provider.count
        assert runtime.statistics().admission.waiting == 0
        await world.clock.advance(100_000)
        for account in runtime.statistics().admission.accounts:
            assert account.level == pytest.approx(account.capacity), account
        (cap,) = runtime._dispatcher.spending.statistics()  # type: ignore[union-attr]
        assert cap.held == 0
    return not over


async def _quiet(task: asyncio.Task[Any]) -> None:
    await asyncio.wait((task,))
    if not task.cancelled():
        task.exception()


@pytest.mark.parametrize("how", ["task", "handle", "hard"])
async def test_b06_cancel_at_every_step_of_the_loop_leaks_nothing(world: Any, how: str) -> None:
    turns = 0
    while await _cancel_after(world, turns, how):
        turns += 1
        assert turns < 2_000
    assert turns > 30, "it has many awaits"
