"""A thread that does one piece of work after the other for an event loop, and that nobody has to wait for.

What waits for a file that another process has locked cannot be interrupted. So whoever asks waits for so long and no
longer, and the thread is a daemon: it holds up neither a close nor the end of the process.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from queue import SimpleQueue
from typing import Any, TypeVar

T = TypeVar("T")

Work = tuple["Future[Any]", Callable[[], Any]]


class LedgerThread:
    """It starts with the first piece of work."""

    def __init__(self, name: str) -> None:
        self._queue: SimpleQueue[Work | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._started = False

    async def do(self, work: Callable[..., T], *args: Any, wait_s: float) -> T:
        """`work(*args)`, on the thread. TimeoutError after `wait_s` seconds: what has begun by then goes on, what has
        not is dropped."""
        async with asyncio.timeout(wait_s):
            return await asyncio.wrap_future(self._put(partial(work, *args)))

    async def end(self, work: Callable[[], Any], *, wait_s: float) -> None:
        """The last piece of work, waited for no longer than that: it is done all the same, and the thread ends."""
        if self._started:
            last = asyncio.wrap_future(self._put(work))
            self._queue.put(None)
            await asyncio.wait([last], timeout=wait_s)

    def _put(self, work: Callable[[], T]) -> Future[T]:
        if not self._started:
            self._started = True
            self._thread.start()
        future: Future[T] = Future()
        self._queue.put((future, work))
        return future

    def _run(self) -> None:
        while (given := self._queue.get()) is not None:
            future, work = given
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(work())
                except BaseException as error:
                    future.set_exception(error)
            del given, future, work  # nothing is kept while it waits for the next
