"""The levels of the accounts over the time of a simulated run, in a bounded number of samples."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from interlock.admission import Admission

#: Samples are taken every `FIRST_S` seconds; when there are `MOST`, every second one is dropped and the time doubles.
FIRST_S, MOST = 0.05, 800


@dataclass(frozen=True, slots=True)
class Sample:
    """`levels` by account, in its own unit; `waiting` jobs in the line; at `at_s` seconds from the beginning."""

    at_s: float
    levels: Mapping[str, float]
    waiting: int


class Levels:
    """Takes samples on the running loop until it is closed."""

    def __init__(self, loop: asyncio.AbstractEventLoop, admission: Admission) -> None:
        self._loop, self._admission = loop, admission
        self._every_s, self._samples = FIRST_S, [self._sample()]
        self._timer = loop.call_later(self._every_s, self._take)

    def _take(self) -> None:
        self._samples.append(self._sample())
        if len(self._samples) >= MOST:
            del self._samples[1::2]
            self._every_s *= 2
        self._timer = self._loop.call_later(self._every_s, self._take)

    def _sample(self) -> Sample:
        found = self._admission.statistics()
        return Sample(self._loop.time(), {each.name: each.level for each in found.accounts}, found.waiting)

    def close(self) -> tuple[Sample, ...]:
        """All of them, the end included."""
        self._timer.cancel()
        return (*self._samples, self._sample())
