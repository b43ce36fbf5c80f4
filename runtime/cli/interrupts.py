"""Ctrl-C while lines are under way: the first stops beginning, the second cancels, the third is Python's own."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

#: Seconds that what is in flight has to give back what it holds, after the second.
GIVING_BACK_S = 2.0


class Interrupts:
    """`stop` is called at the first. At the second the work is cancelled, and waited for: what it holds is given back
    and what it cost is known. Code that does not end by then is cancelled where it stands."""

    def __init__(self, stop: Callable[[], None]) -> None:
        self.pressed = False
        self._stop = stop
        self._cut = False

    @contextmanager
    def heard(self, work: asyncio.Future[None]) -> Iterator[None]:
        loop, own = asyncio.get_running_loop(), asyncio.current_task()

        def cancel_hard() -> None:
            for task in asyncio.all_tasks(loop) - {own, work}:
                task.cancel()

        def hear() -> None:
            if not self.pressed:
                self.pressed = True
                print("Finishing what has been sent. Ctrl-C again cancels it.", file=sys.stderr)
                self._stop()
                return
            self._cut = True
            loop.remove_signal_handler(signal.SIGINT)
            print("Cancelling what is in flight.", file=sys.stderr)
            work.cancel()
            loop.call_later(GIVING_BACK_S, cancel_hard)

        try:
            loop.add_signal_handler(signal.SIGINT, hear)
        except (NotImplementedError, RuntimeError, ValueError):  # not the main thread, or no such signals here
            yield
            return
        try:
            yield
        finally:
            loop.remove_signal_handler(signal.SIGINT)

    async def until_done(self, work: asyncio.Future[None]) -> None:
        try:
            await work
        except asyncio.CancelledError:
            if not (self._cut and work.done()):
                raise
