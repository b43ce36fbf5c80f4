"""LevelKeeper: a provider goes on counting while a program restarts, so the store remembers how low its levels were.

Written by the thread of the store: at once when something moves after a rest or a level has dropped by a tenth, else
once a second while something moves, and at the end. Nothing runs while nothing moves.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any

from interlock.admission.memory import CRASH_SHARE, PoolMemory
from interlock.errors import StoreError

if TYPE_CHECKING:
    from interlock.admission import Admission, Clock, Demand, Timer

    from .store.book import Book

log = logging.getLogger("interlock.runtime")

SAVE_EVERY_S = 1.0


class LevelKeeper:
    """One per Runtime. `keeps` says of a pool's name whether its provider outlives this process."""

    def __init__(
        self,
        admission: Admission,
        book: Book,
        *,
        clock: Clock,
        wall: Callable[[], datetime],
        owner: str,
        keeps: Callable[[str], bool],
    ) -> None:
        self._admission, self._book, self._clock, self._wall = admission, book, clock, wall
        self._owner, self._keeps = owner, keeps
        self._timer: Timer | None = None
        self._moved = False
        self._saved: dict[str, PoolMemory] = {}
        self._low: dict[Any, float] = {}  # each level as it was last written

    async def open(self) -> None:
        """Take over what earlier processes have left."""
        now = self._wall()
        for name, remembered in (await self._book.read_levels()).items():
            for kept in remembered:
                elapsed_s = (now - kept.saved_at).total_seconds()
                self._admission.recall({name: kept.memory}, elapsed_s, crashed=not kept.closed)

    def moved(self, demand: Demand | None = None) -> None:
        """Something was granted (with its `demand`), or has ended."""
        self._moved = True
        if self._timer is None:
            self._save()
            self._timer = self._clock.call_at(self._clock.now() + SAVE_EVERY_S, self._tick)
        elif demand is not None and self._dropped(demand):
            self._save()

    def _dropped(self, demand: Demand) -> bool:
        now, low = self._clock.now(), self._low
        for call in demand.calls:
            for level in call.pool.limiter.accounts:
                if level.level(now) < low.get(level, level.capacity) - level.capacity * CRASH_SHARE:
                    return True
        return False

    def _tick(self) -> None:
        self._timer = None
        if self._moved:
            self._save()
            self._timer = self._clock.call_at(self._clock.now() + SAVE_EVERY_S, self._tick)

    def _save(self, *, closed: bool = False) -> None:
        now, self._moved = self._clock.now(), False
        for level in self._admission.levels():
            self._low[level] = level.level(now)
        memories = {name: memory for name, memory in self._admission.remember().items() if self._keeps(name)}
        # A pool that is full again says so once.
        gone = {name: PoolMemory() for name in self._saved.keys() - memories.keys() if not self._saved[name].empty}
        self._saved = {**gone, **memories}
        if self._saved or closed:
            self._book.write_levels(self._owner, self._saved, self._wall(), closed)

    async def close(self) -> None:
        """The last word."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        try:
            self._save(closed=True)
        except StoreError as error:
            log.warning("the levels of this process could not be kept: %s", error)
