"""How decisions reach those who asked: one `call_soon` for however many there are, never from inside `submit`."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Protocol

#: How many are told in one turn of the loop; the rest are told in the next.
AT_ONCE = 128


class Deliverable(Protocol):
    def deliver(self) -> None: ...


class Delivery:
    """A queue drained by the running loop. Bound to no loop: what a closed loop left undone, the next one does.

    So is what comes while no loop runs (a finaliser gives something back): the next `put` inside one takes it along.
    `after` is called when all have been told.
    """

    __slots__ = ("_after", "_loop", "_queue")

    def __init__(self, after: Callable[[], None] | None = None) -> None:
        self._queue: deque[Deliverable] = deque()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._after = after

    @property
    def due(self) -> bool:
        """Whether it will be drained in the next turn of the loop that runs."""
        return self._loop is not None and self._loop.is_running()

    def put(self, item: Deliverable) -> None:
        self._queue.append(item)
        loop = self._loop
        if loop is None or not loop.is_running():  # cheaper than to ask for the running one each time
            self._call_soon()

    def _call_soon(self) -> None:
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return
        if loop is not self._loop:
            self._loop = loop
            loop.call_soon(self._drain)

    def _drain(self) -> None:
        self._loop = None
        queue = self._queue
        try:
            for _ in range(min(len(queue), AT_ONCE)):
                try:
                    queue.popleft().deliver()
                except Exception as error:  # a callback's own error must not keep the others from theirs
                    asyncio.get_running_loop().call_exception_handler(
                        {"message": "a callback of admission raised", "exception": error}
                    )
        finally:  # nor may one that ends the turn: a cancellation, Ctrl-C
            if queue and not self.due:
                self._call_soon()
            if self._after is not None:
                self._after()
