"""Opening a Runtime: what cannot be opened leaves nothing open, and one that is open is used where it is."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from interlock.admission import CountingGate
from interlock.errors import ConfigurationError, InterlockError, JobCancelledError
from interlock.runtime import LLMCall, Runtime, RuntimeSettings
from interlock.runtime.journal import starting
from interlock.runtime.uncancelled import uncancelled


def store_threads() -> int:
    return sum(thread.name == "interlock-store" for thread in threading.enumerate())


@pytest.fixture
def settings(world: Any, tmp_path: Path) -> Any:
    return lambda **changes: world.settings(store=f"sqlite:///{tmp_path}/s.db", **changes)


@pytest.mark.parametrize("wrong", [{"threads": 0}, {"accounts": (CountingGate("db:x", 1),)}])
async def test_settings_that_prove_wrong_late_leave_no_store_open(settings: Any, wrong: dict[str, Any]) -> None:
    from sqlalchemy.ext.asyncio import create_async_engine

    from interlock.runtime import DatabaseProvider

    engine = create_async_engine("sqlite+aiosqlite:///:memory:")
    given: RuntimeSettings = settings(databases=(DatabaseProvider("x", engine),), **wrong)
    before = store_threads()
    with pytest.raises(ValueError, match=r"max_workers|another held account"):
        async with Runtime(given):
            pass
    assert store_threads() == before
    await engine.dispose()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ambiguous", "Fail"),
        ("store_durability", "full"),
        *[("lease_s", value) for value in (0, -5, float("nan"), float("inf"), "5")],
        ("grace_min_s", -1),
        ("grace_max_s", "30"),
        ("grace_fraction", float("nan")),
    ],
)
async def test_a_setting_that_means_nothing_is_refused_by_name(settings: Any, name: str, value: Any) -> None:
    with pytest.raises(ConfigurationError, match=f"^{name}= is"):
        await Runtime(settings(**{name: value})).__aenter__()


async def test_a_word_for_ambiguous_steps_that_means_nothing_is_refused(runtime: Runtime) -> None:
    word: Any = "Fail"
    with pytest.raises(ConfigurationError, match="ambiguous= is"):
        await runtime.run(LLMCall("x"), run_id="r", ambiguous=word)
    with pytest.raises(ConfigurationError, match="ambiguous= is"):
        runtime.submit(LLMCall("x"), run_id="r", ambiguous=word)


@pytest.mark.parametrize("turns", range(6))
async def test_cancelled_while_it_opens_it_leaves_no_store_open(settings: Any, turns: int) -> None:
    before = store_threads()

    async def use() -> None:
        async with Runtime(settings()):
            await asyncio.get_running_loop().create_future()

    task = asyncio.create_task(use())
    for _ in range(turns):
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert store_threads() == before


async def test_a_cancellation_that_comes_last_while_it_opens_leaves_nothing_open(
    settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `asyncio.wait_for(runtime.__aenter__(), ...)` does it: a task that was cancelled gives nobody a Runtime."""
    before, runtime, keeping_of = store_threads(), Runtime(settings()), starting.keeping_of

    async def cancelled_meanwhile(*given: Any) -> Any:
        opening.cancel()
        return await uncancelled(keeping_of(*given))

    monkeypatch.setattr(starting, "keeping_of", cancelled_meanwhile)
    opening = asyncio.create_task(runtime.__aenter__())
    with pytest.raises(asyncio.CancelledError):
        await opening
    assert store_threads() == before
    monkeypatch.undo()
    async with runtime:
        pass


async def test_opened_twice_at_once_it_opens_once(settings: Any) -> None:
    runtime = Runtime(settings())
    first, second = await asyncio.gather(runtime.__aenter__(), runtime.__aenter__(), return_exceptions=True)
    assert first is runtime
    assert isinstance(second, InterlockError)
    await runtime.__aexit__(None, None, None)
    async with runtime:  # a closed one may be opened again
        pass


async def test_a_handle_is_refused_in_another_thread(world: Any, runtime: Runtime, Step: Any) -> None:
    world.provider.script(Step(latency_s=100))
    handle = runtime.submit(LLMCall("x"), run_id="r")
    await world.clock.settle()

    async def waits() -> None:
        await handle

    uses: tuple[Callable[[], Any], ...] = (
        lambda: asyncio.run(waits()),
        handle.cancel,
        handle.pause,
        handle.unpause,
        lambda: runtime.submit(LLMCall("y")),
        lambda: runtime.changed("gpu"),
        lambda: asyncio.run(runtime.__aexit__(None, None, None)),
        lambda: asyncio.run(runtime.__aexit__(KeyError, KeyError(), None)),
    )
    for use in uses:
        with pytest.raises(InterlockError, match="another event loop"):
            await asyncio.to_thread(use)
    assert (await world.until(runtime.run(LLMCall("z")))).text == "ok"  # it is as open as it was
    assert handle.cancel()
    with pytest.raises(JobCancelledError):
        await world.until(handle)
    assert await asyncio.to_thread(handle.cancel) is False  # over: there is nothing to touch


async def test_closed_twice_at_once_it_closes_once(
    world: Any, settings: Any, caplog: pytest.LogCaptureFixture, Step: Any
) -> None:
    runtime = await Runtime(settings()).__aenter__()
    world.provider.script(Step(latency_s=1_000))
    handle = runtime.submit(LLMCall("x"))
    await world.run_until(lambda: world.provider.in_flight == 1)
    assert runtime._dispatcher is not None
    closed, close = [], runtime._dispatcher.book.close

    async def closing() -> None:
        closed.append(True)
        await close()

    runtime._dispatcher.book.close = closing  # type: ignore[method-assign]
    ends = [runtime.__aexit__(None, None, None), runtime.__aexit__(KeyError, KeyError(), None)]
    assert await world.until(asyncio.gather(*ends)) == [None, None]
    assert closed == [True]
    assert handle.done
    async with runtime:  # and what is opened next is not what they close
        pass
    assert not caplog.records


async def test_a_timeout_while_it_closes_is_a_timeout_and_hits_nobody_else(world: Any) -> None:
    async def use() -> None:
        async with asyncio.timeout(None) as limit, world.runtime() as runtime:
            book = runtime._dispatcher.book
            close = book.close

            async def slow() -> None:
                limit.reschedule(0)
                await asyncio.sleep(0.02)
                await close()

            book.close = slow

    with pytest.raises(TimeoutError):
        await use()
    await asyncio.sleep(0)


async def test_a_second_cancellation_while_a_run_is_stopped_does_not_reach_the_callers_cleanup(
    world: Any, runtime: Runtime, Step: Any
) -> None:
    world.provider.script(Step(latency_s=1_000))
    cleaned: list[bool] = []

    async def use() -> None:
        try:
            await runtime.run(LLMCall("x"))
        finally:
            await asyncio.sleep(0)
            cleaned.append(True)

    task = asyncio.create_task(use())
    await world.run_until(lambda: world.provider.in_flight == 1)
    task.cancel()
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await world.until(task)
    assert cleaned == [True]
    assert world.provider.in_flight == 0
