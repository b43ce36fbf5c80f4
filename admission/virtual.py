"""Virtual time: an event loop on which nobody waits for real, for tests, simulations and forecasts.

    run_virtual(main())                          # `asyncio.run`, with time that leaps to the next timer

Everything that runs on the loop and asks it for the time lives in virtual seconds: `asyncio.sleep`, `call_at`,
timeouts, and a `LoopClock`. When nothing is ready the loop's time becomes the instant of the next timer, exactly. So an
hour of waiting costs what its events cost, and the same program takes the same steps in the same order every time.

What is outside cannot be hurried. Work in the loop's threads (`to_thread`) is waited for before time leaps; sockets and
threads of others are not, so a program that speaks to a server keeps to a real loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from heapq import heappop
from typing import Any, TypeVar

T = TypeVar("T")


class NothingWillHappen(RuntimeError):
    """Everything on the loop waits for something that nobody is going to do."""


class VirtualLoop(asyncio.SelectorEventLoop):
    """A loop that starts at `start_s` and whose time moves only when nothing is ready."""

    def __init__(self, start_s: float = 1_000.0) -> None:
        self._now_s, self._in_threads = start_s, 0
        super().__init__()

    def time(self) -> float:
        """Virtual seconds."""
        return self._now_s

    def run_in_executor(self, executor: Any, func: Callable[..., T], *args: Any) -> asyncio.Future[T]:  # type: ignore[override]
        """As ever; time stands still until the thread has answered."""
        future: asyncio.Future[T] = super().run_in_executor(executor, func, *args)
        self._in_threads += 1
        future.add_done_callback(self._answered)
        return future

    def _answered(self, _: Any) -> None:
        self._in_threads -= 1

    async def shutdown_default_executor(self, *args: Any) -> None:
        self._in_threads += 1  # a thread waits for the threads
        try:
            await super().shutdown_default_executor(*args)
        finally:
            self._in_threads -= 1

    def _run_once(self) -> None:
        if not self._ready and not self._in_threads and not self._stopping:  # type: ignore[attr-defined]
            self._leap()
        super()._run_once()  # type: ignore[misc]

    def _leap(self) -> None:
        timers = self._scheduled  # type: ignore[attr-defined]
        while timers and timers[0]._cancelled:
            heappop(timers)._scheduled = False
            self._timer_cancelled_count -= 1  # type: ignore[attr-defined]
        if timers:
            self._now_s = max(self._now_s, timers[0]._when)
        else:
            raise NothingWillHappen("nothing is ready, no timer is set, and nobody is at work")


class LoopClock:
    """The time of a loop, as admission reads it: a `Clock`."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.now, self._loop = loop.time, loop

    def call_at(self, when_s: float, callback: Callable[[], None]) -> asyncio.TimerHandle:
        return self._loop.call_at(when_s, callback)

    async def sleep(self, delay_s: float) -> None:
        await asyncio.sleep(delay_s)


def run_virtual(main: Coroutine[Any, Any, T], *, start_s: float = 1_000.0) -> T:
    """Run `main` to its end on a VirtualLoop of its own. Raises `NothingWillHappen` where it would wait for ever."""
    with asyncio.Runner(loop_factory=lambda: VirtualLoop(start_s)) as runner:
        return runner.run(main)
