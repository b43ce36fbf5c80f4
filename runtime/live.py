"""The jobs that have not ended, as a list linked through the executions themselves: 16 bytes a job, where a set takes a
hundred."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .execution import Execution


class Live:
    """Adding and discarding cost the same however many there are."""

    __slots__ = ("_count", "_last")

    def __init__(self) -> None:
        self._last: Execution[Any] | None = None
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Execution[Any]]:
        """The latest first. What is added meanwhile is not seen; the one just given may be discarded."""
        execution = self._last
        while execution is not None:
            before = execution.before
            yield execution
            execution = before

    def add(self, execution: Execution[Any]) -> None:
        execution.before = self._last
        if self._last is not None:
            self._last.after = execution
        self._last = execution
        self._count += 1

    def remove(self, execution: Execution[Any]) -> None:
        """Once per execution that was added."""
        before, after = execution.before, execution.after
        if before is not None:
            before.after = after
        if after is not None:
            after.before = before
        else:
            self._last = before
        execution.before = execution.after = None
        self._count -= 1
