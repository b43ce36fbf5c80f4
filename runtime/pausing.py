"""Pausing a run: its waiting jobs leave the line, running ones finish, and nothing starts until it goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .state import JobState

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .execution import Execution

#: Where a job stands that holds nothing and waits for something.
_WAITING = frozenset({JobState.COUNTING, JobState.SPENDING, JobState.WAITING, JobState.BACKING_OFF})


class Pausing:
    """One per run. `paused` is looked at by each of its jobs before it enters the queues."""

    __slots__ = ("_parked", "paused")

    def __init__(self) -> None:
        self.paused = False
        self._parked: list[Execution[Any]] = []

    def park(self, execution: Execution[Any]) -> None:
        self._parked.append(execution)

    def pause(self, live: Iterable[Execution[Any]]) -> None:
        self.paused = True
        for execution in list(live):
            if execution.run.pausing is self and execution.state in _WAITING:
                execution.enter_again()

    def unpause(self) -> None:
        self.paused = False
        parked, self._parked = self._parked, []
        for execution in parked:
            if execution.state is JobState.PAUSED:
                execution.enter_again()
