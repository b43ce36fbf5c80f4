"""The store is away for a while: nothing new is sent, nothing piles up, and whoever stops waiting is let go."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from interlock.errors import JobCancelledError
from interlock.runtime import LLMCall, PipelineContext, execution, pipeline, resources
from interlock.runtime.store import link, sure


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that is locked is noticed at once, and tried again at once."""
    monkeypatch.setattr(link, "LOCK_TIMEOUT_S", 0.001)
    monkeypatch.setattr(sure, "LAST_DELAY_S", 0.01)
    monkeypatch.setattr(execution, "STORE_PATIENCE_S", 0.01)
    monkeypatch.setattr(resources, "STORE_PATIENCE_S", 0.01)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "s.db"


@contextmanager
def locked(file: Path) -> Iterator[None]:
    other = sqlite3.connect(file, isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        other.execute("ROLLBACK")
        other.close()


def ask(text: str) -> LLMCall[Any]:
    return LLMCall(text, max_output_tokens=20)


@pipeline
async def two(ctx: PipelineContext) -> list[str]:
    return [(await ctx.run(ask(text))).text for text in ("one", "two")]


def writer_of(runtime: Any) -> Any:
    return runtime._dispatcher.book._writer


async def until_away(world: Any, runtime: Any) -> None:
    await world.run_until(lambda: writer_of(runtime)._sure.away)


async def test_calls_that_belong_to_no_run_wait_with_those_that_do(world: Any, file: Path) -> None:
    async with world.runtime(store=f"sqlite:///{file}", lease_s=100) as runtime:
        await world.until(runtime.run(ask("first")))
        with locked(file):
            begun = runtime.submit(ask("on its way"))
            await until_away(world, runtime)
            sent = world.provider.count
            later = [runtime.submit(ask("later")) for _ in range(50)]
            later += [runtime.submit(two()) for _ in range(50)]
            queued = writer_of(runtime)._queue.qsize()
            for _ in range(20):
                await world.clock.advance(1.0)
                await asyncio.sleep(0.001)
            assert world.provider.count == sent, "nobody pays for what nobody could write down"
            assert writer_of(runtime)._queue.qsize() <= queued + 5, "what waits is not in the queue"
            assert not any(handle.done for handle in later)
        for handle in (begun, *later):
            await world.until(handle)
        assert len(await world.until(runtime.calls())) == 2 + 50 + 100


async def test_nothing_is_sent_before_its_intent_is_written_and_who_waits_for_that_can_be_stopped(
    world: Any, file: Path
) -> None:
    gate = asyncio.Event()

    @pipeline
    async def gated(ctx: PipelineContext) -> None:
        await gate.wait()
        await ctx.run(ask("one"))

    async with world.runtime(store=f"sqlite:///{file}", lease_s=100) as runtime:
        handle = runtime.submit(gated(), run_id="r")
        await world.until(writer_of(runtime).put(()))
        with locked(file):
            gate.set()
            await until_away(world, runtime)
            assert (world.provider.count, len(runtime._dispatcher.live)) == (0, 2)
            at_s = world.clock.now()
            handle.cancel()
            with pytest.raises(JobCancelledError):
                await asyncio.wait_for(handle.wait(), 20)
            assert world.clock.now() == at_s, "no grace has to pass"
        assert world.provider.count == 0


async def test_whoever_stops_waiting_is_let_go_and_what_it_did_is_written_all_the_same(world: Any, file: Path) -> None:
    world.provider.always = lambda seen: world.step(latency_s=1_000.0)
    async with world.runtime(store=f"sqlite:///{file}", lease_s=100) as runtime:
        answered = runtime.submit(two(), run_id="answered")
        direct = runtime.submit(ask("direct"))
        await world.run_until(lambda: world.provider.in_flight == 2, within_s=100)
        with locked(file):
            waits = runtime.submit(two(), run_id="waits")  # for its intent
            await until_away(world, runtime)
            sent = world.provider.count
            for handle in (answered, direct, waits):
                handle.cancel()
                with pytest.raises(JobCancelledError):
                    await world.until(handle)
            assert writer_of(runtime)._sure.away
            assert world.provider.count == sent
        for _ in range(3):  # the last row is queued once its run is known to have begun
            await world.until(writer_of(runtime).put(()))
        rows = {row.run_id: row.status for row in await world.until(runtime.runs())}
        assert rows == {"answered": "cancelled", "waits": "cancelled"}
        calls = await world.until(runtime.calls())
        assert len(calls) == sent


async def test_a_runtime_that_is_left_by_an_error_ends_although_the_store_stays_away(
    world: Any, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sure, "CLOSING_PATIENCE_S", 0.05)
    world.provider.always = lambda seen: world.step(latency_s=1_000.0)

    async def work() -> None:
        async with world.runtime(store=f"sqlite:///{file}", lease_s=100) as runtime:
            runtime.submit(two(), run_id="r")
            await world.run_until(lambda: world.provider.in_flight == 1, within_s=100)
            lock.execute("BEGIN IMMEDIATE")
            runtime.submit(two(), run_id="s")
            await until_away(world, runtime)
            raise KeyError("Ctrl-C")

    lock = sqlite3.connect(file, isolation_level=None)
    with pytest.raises(KeyError):
        await world.until(work())
    lock.close()
