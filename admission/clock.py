"""Time, as everything here reads it: one monotonic clock with timers, real or by hand."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from heapq import heappop, heappush
from time import monotonic
from typing import Protocol


class Timer(Protocol):
    def cancel(self) -> None: ...


class Clock(Protocol):
    """Seconds on a monotonic scale. Timers run on the event loop that set them."""

    def now(self) -> float: ...

    def call_at(self, when_s: float, callback: Callable[[], None]) -> Timer: ...

    async def sleep(self, delay_s: float) -> None: ...


class SystemClock:
    """`time.monotonic`, which every event loop of this process shares; timers run on the loop that is running."""

    now = staticmethod(monotonic)

    def call_at(self, when_s: float, callback: Callable[[], None]) -> Timer:
        return asyncio.get_running_loop().call_later(max(when_s - monotonic(), 0.0), callback)

    async def sleep(self, delay_s: float) -> None:
        await asyncio.sleep(delay_s)


class _ManualTimer:
    __slots__ = ("callback", "sequence", "when_s")

    def __init__(self, when_s: float, sequence: int, callback: Callable[[], None]) -> None:
        self.when_s, self.sequence = when_s, sequence
        self.callback: Callable[[], None] | None = callback

    def __lt__(self, other: _ManualTimer) -> bool:
        return (self.when_s, self.sequence) < (other.when_s, other.sequence)

    def cancel(self) -> None:
        self.callback = None


class ManualClock:
    """A clock that moves only when told: no test sleeps.

    `advance(s)` moves it, running every timer that falls due in order, each at its own instant, and lets the event
    loop settle in between. `run_due` is the same without a loop, for pure code.
    """

    def __init__(self, start_s: float = 1_000.0) -> None:
        self._now = start_s
        self._timers: list[_ManualTimer] = []
        self._sequence = 0

    def now(self) -> float:
        return self._now

    def call_at(self, when_s: float, callback: Callable[[], None]) -> Timer:
        self._sequence += 1
        timer = _ManualTimer(when_s, self._sequence, callback)
        heappush(self._timers, timer)
        return timer

    async def sleep(self, delay_s: float) -> None:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def wake() -> None:
            if not done.done():
                done.set_result(None)

        timer = self.call_at(self._now + max(delay_s, 0.0), wake)
        try:
            await done
        finally:
            timer.cancel()

    @property
    def next_instant(self) -> float | None:
        """When the next live timer is due, or None."""
        while self._timers and self._timers[0].callback is None:
            heappop(self._timers)
        return self._timers[0].when_s if self._timers else None

    def _fire_next(self, until_s: float) -> bool:
        due = self.next_instant
        if due is None or due > until_s:
            return False
        timer = heappop(self._timers)
        self._now = max(self._now, timer.when_s)
        if timer.callback is not None:
            timer.callback()
        return True

    def run_due(self, delay_s: float) -> None:
        """Move by `delay_s` seconds, running timers without an event loop."""
        until = self._now + delay_s
        while self._fire_next(until):
            pass
        self._now = until

    async def advance(self, delay_s: float = 0.0) -> None:
        """Move by `delay_s` seconds. Ready callbacks of the event loop run before, between and after."""
        until = self._now + delay_s
        await self.settle()
        while self._fire_next(until):
            await self.settle()
        self._now = until
        await self.settle()

    @staticmethod
    async def settle(turns: int = 50) -> None:
        """Let the event loop run what is ready. It cannot wait for sockets or threads: poll those with a condition."""
        for _ in range(turns):
            await asyncio.sleep(0)
