"""Virtual time for the asyncio shell of admission: an event loop that runs callbacks only, and whose clock jumps.

An hour of a busy pool passes in about a second: there are no Tasks, no selector and no waiting, just a heap of timers
and a queue of ready callbacks. It is both the loop that `asyncio.get_running_loop()` gives and the `Clock` that
`Admission` is made with.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any


class VirtualTimer:
    __slots__ = ("callback",)

    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        self.callback = None


class VirtualTime:
    """`run(until_s)` from outside; `now`, `call_at`, `call_soon` for those who live in it."""

    def __init__(self) -> None:
        self._now = 0.0
        self._number = 0
        self._timers: list[tuple[float, int, VirtualTimer]] = []
        self._ready: deque[tuple[Callable[..., Any], tuple[Any, ...]]] = deque()

    def now(self) -> float:
        return self._now

    def call_at(self, when_s: float, callback: Callable[[], None]) -> VirtualTimer:
        timer = VirtualTimer(callback)
        self._number += 1
        heappush(self._timers, (when_s, self._number, timer))
        return timer

    def call_soon(self, callback: Callable[..., Any], *args: Any) -> None:
        self._ready.append((callback, args))

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        raise context["exception"]

    def is_running(self) -> bool:
        return asyncio._get_running_loop() is self  # type: ignore[comparison-overlap]

    async def sleep(self, delay_s: float) -> None:
        raise NotImplementedError("nothing sleeps here")

    def run(self, until_s: float) -> None:
        """Let everything happen that is due by `until_s`."""
        before = asyncio._get_running_loop()
        asyncio._set_running_loop(self)  # type: ignore[arg-type]
        try:
            timers, ready = self._timers, self._ready
            while True:
                while ready:
                    callback, args = ready.popleft()
                    callback(*args)
                if not timers or timers[0][0] > until_s:
                    break
                when_s, _, timer = heappop(timers)
                if timer.callback is not None:
                    self._now = max(self._now, when_s)
                    timer.callback()
            self._now = until_s
        finally:
            asyncio._set_running_loop(before)
