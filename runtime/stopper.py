"""The first step of stopping a job: what it was given is closed, and what it waits for in it is interrupted.

Every call and every statement of a job goes through `run`. When the job is asked to stop, the tasks inside are
interrupted and see the reason as an ordinary error at that await, so the job's own `except` and `finally` run; a later
use raises it at once. A task that waits for something else is left alone until the grace period has passed.

The end of `run` is such a stop as well, for what it left behind: a call in a task nobody awaited, a stream that was not
closed. Nothing of a job is under way once its reservation is given back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any, Protocol, TypeVar

from interlock.errors import InterlockError

T = TypeVar("T")


class Closable(Protocol):
    async def aclose(self) -> None: ...


class Stopper:
    """One per attempt."""

    __slots__ = ("_emptied", "_inside", "_interrupted", "_open", "reason")

    def __init__(self) -> None:
        self.reason: InterlockError | None = None
        self._inside: dict[asyncio.Task[Any], int] = {}
        self._interrupted: set[asyncio.Task[Any]] = set()
        self._open: dict[Closable, None] = {}
        self._emptied: asyncio.Future[None] | None = None

    def check(self) -> None:
        """Raise the reason once the job was asked to stop."""
        if self.reason is not None:
            raise self.reason

    def stop(self, reason: InterlockError) -> None:
        if self.reason is not None:
            return
        self.reason = reason
        for task in self._inside:
            self._interrupted.add(task)
            task.cancel()

    @property
    def idle(self) -> bool:
        """Whether nothing is under way and nothing open."""
        return not self._inside and not self._open

    async def over(self, reason: InterlockError) -> None:
        """`run` has ended: stop what it left under way, wait until that has ended, and close what it left open."""
        self.stop(reason)
        if self._inside:
            self._emptied = asyncio.get_running_loop().create_future()
            await self._emptied
        while self._open:
            await next(iter(self._open)).aclose()

    def opened(self, thing: Closable) -> None:
        """Something that must be closed by the end of `run`. `closed` before that, by its own `aclose`."""
        self._open[thing] = None

    def closed(self, thing: Closable) -> None:
        self._open.pop(thing, None)

    async def run(self, work: Awaitable[T]) -> T:
        """Await `work`, interruptibly."""
        if self.reason is not None:
            close = getattr(work, "close", None)
            if close is not None:
                close()
            raise self.reason
        task = asyncio.current_task()
        assert task is not None
        before = task.cancelling()  # a TaskGroup that failed leaves its own request standing (Python 3.11 and 3.12)
        self._inside[task] = self._inside.get(task, 0) + 1
        try:
            return await work
        except asyncio.CancelledError:
            if self.reason is None or task not in self._interrupted:
                raise
            self._interrupted.discard(task)
            if task.uncancel() > before:
                raise  # cancelled hard as well, or by somebody else
            raise self.reason from None
        finally:
            left = self._inside[task] - 1
            if left:
                self._inside[task] = left
            else:
                del self._inside[task]
                if not self._inside and self._emptied is not None and not self._emptied.done():
                    self._emptied.set_result(None)
