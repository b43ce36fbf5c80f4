"""The deadlines of whoever waits with a `max_wait_s`, the earliest first. Pure.

Most are never met: their demand is granted long before. Such entries are dropped when they come to the front, and where
they are most of what is kept they are swept out, a few with each new one: to go through a million at once would stop
the loop. A heap may lose its last place and stays a heap, so the old one is emptied from there into a new one.
"""

from __future__ import annotations

from heapq import heappop, heappush
from math import inf
from typing import TYPE_CHECKING

from .queues import WAITING

if TYPE_CHECKING:
    from .waiting import Waiting

#: Places swept with each new deadline: a millisecond's worth.
SWEPT_AT_ONCE = 4_000
Entry = tuple[float, int, "Waiting"]


class Deadlines:
    """`living` is how many wait at all: no more than these can still meet a deadline."""

    __slots__ = ("_heap", "_number", "_old")

    def __init__(self) -> None:
        self._heap: list[Entry] = []
        self._old: list[Entry] = []
        self._number = 0

    def __len__(self) -> int:
        return len(self._heap) + len(self._old)

    def add(self, instant: float, waiting: Waiting, living: int) -> None:
        if not self._old and len(self._heap) > 64 + 2 * living:
            self._old, self._heap = self._heap, []
        self._number += 1
        heappush(self._heap, (instant, self._number, waiting))
        for _ in range(min(SWEPT_AT_ONCE, len(self._old))):
            entry = self._old.pop()
            if entry[2].state == WAITING:
                heappush(self._heap, entry)

    def earliest(self) -> float:
        """The instant of the first that somebody still waits for; inf where there is none."""
        return min(_earliest(self._heap), _earliest(self._old))

    def due(self, now: float) -> Waiting | None:
        """Take out one whose time has come, the earliest first."""
        at = self.earliest()
        if at > now or at == inf:
            return None
        heap = self._heap if self._heap and (not self._old or self._heap[0] < self._old[0]) else self._old
        return heappop(heap)[2]


def _earliest(heap: list[Entry]) -> float:
    while heap and heap[0][2].state != WAITING:
        heappop(heap)
    return heap[0][0] if heap else inf
