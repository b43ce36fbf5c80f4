"""Ctrl-C, or a SIGTERM, while lines are under way: the first stops beginning, the second cancels, the third is the
system's own."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

#: Seconds that what is in flight has to give back what it holds, after the second.
GIVING_BACK_S = 2.0
#: How a process is asked to stop: by a person, and by a supervisor.
ASKED = (signal.SIGINT, signal.SIGTERM)


class Interrupts:
    """`stop` is called at the first. At the second the work is cancelled, and waited for: what it holds is given back
    and what it cost is known. Code that does not end by then is cancelled where it stands."""

    def __init__(self, stop: Callable[[], None]) -> None:
        #: The first signal, once there was one.
        self.asked: signal.Signals | None = None
        self._stop = stop
        self._cut = False

    @property
    def pressed(self) -> bool:
        return self.asked is not None

    @contextmanager
    def heard(self, work: asyncio.Future[None]) -> Iterator[None]:
        loop, own = asyncio.get_running_loop(), asyncio.current_task()

        def cancel_hard() -> None:
            for task in asyncio.all_tasks(loop) - {own, work}:
                task.cancel()

        def hear(asked: signal.Signals) -> None:
            if self.asked is None:
                self.asked = asked
                print("Finishing what has been sent. Ctrl-C again cancels it.", file=sys.stderr)
                self._stop()
                return
            self._cut = True
            unheard()
            print("Cancelling what is in flight.", file=sys.stderr)
            work.cancel()
            loop.call_later(GIVING_BACK_S, cancel_hard)

        def unheard() -> None:
            for asked in ASKED:
                loop.remove_signal_handler(asked)

        try:
            for asked in ASKED:
                loop.add_signal_handler(asked, hear, asked)
        except (NotImplementedError, RuntimeError, ValueError):  # not the main thread, or no such signals here
            yield
            return
        try:
            yield
        finally:
            unheard()

    async def until_done(self, work: asyncio.Future[None]) -> None:
        try:
            await work
        except asyncio.CancelledError:
            if not (self._cut and work.done()):
                raise
