"""The first step of stopping a job: what it was given is closed, and what it waits for in it is interrupted.

Every call and every statement of a job goes through `run`. When the job is asked to stop, the tasks inside are
interrupted and see the reason as an ordinary error at that await, so the job's own `except` and `finally` run; a later
use raises it at once. A task that waits for something else is left alone until the grace period has passed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any, TypeVar

from interlock.errors import InterlockError

T = TypeVar("T")


class Stopper:
    """One per attempt."""

    __slots__ = ("_inside", "_interrupted", "reason")

    def __init__(self) -> None:
        self.reason: InterlockError | None = None
        self._inside: dict[asyncio.Task[Any], int] = {}
        self._interrupted: set[asyncio.Task[Any]] = set()

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

    async def run(self, work: Awaitable[T]) -> T:
        """Await `work`, interruptibly."""
        if self.reason is not None:
            close = getattr(work, "close", None)
            if close is not None:
                close()
            raise self.reason
        task = asyncio.current_task()
        assert task is not None
        self._inside[task] = self._inside.get(task, 0) + 1
        try:
            return await work
        except asyncio.CancelledError:
            if self.reason is None or task not in self._interrupted:
                raise
            self._interrupted.discard(task)
            if task.uncancel() > 0:
                raise  # cancelled hard as well, or by somebody else
            raise self.reason from None
        finally:
            left = self._inside[task] - 1
            if left:
                self._inside[task] = left
            else:
                del self._inside[task]
