"""The loop of virtual time: exact, in order, and honest about waiting for nothing."""

from __future__ import annotations

import asyncio
import time

import pytest

from interlock.admission.virtual import LoopClock, NothingWillHappen, run_virtual


def test_an_hour_passes_in_no_time_and_timers_fire_at_their_exact_instant() -> None:
    async def main() -> list[float]:
        clock, seen = LoopClock(asyncio.get_running_loop()), []
        start = clock.now()
        for when in (3_600.0, 0.1, 0.3):
            clock.call_at(start + when, lambda: seen.append(clock.now() - start))
        clock.call_at(start + 5.0, lambda: seen.append(-1.0)).cancel()
        await clock.sleep(3_600.0)
        return seen

    before = time.monotonic()
    assert run_virtual(main(), start_s=0.0) == [0.1, 0.3, 3_600.0]
    assert time.monotonic() - before < 60.0


def test_a_timeout_is_virtual_too() -> None:
    async def main() -> float:
        loop = asyncio.get_running_loop()
        start = loop.time()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(500.0):
                await asyncio.sleep(501.0)
        return loop.time() - start

    assert run_virtual(main()) == 500.0


def test_time_stands_still_while_a_thread_is_at_work() -> None:
    async def main() -> list[str]:
        said: list[str] = []
        asyncio.get_running_loop().call_later(1.0, said.append, "timer")
        said.append(await asyncio.to_thread(lambda: "thread"))
        await asyncio.sleep(2.0)
        return said

    assert run_virtual(main()) == ["thread", "timer"]


def test_waiting_for_nothing_is_said_instead_of_done() -> None:
    async def main() -> None:
        await asyncio.get_running_loop().create_future()

    with pytest.raises(NothingWillHappen):
        run_virtual(main())
