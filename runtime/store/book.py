"""Book: what the runtime writes its rows into. Queued at once, committed soon, and whoever must know awaits it."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from .rows import CallRow, RunRow

if TYPE_CHECKING:
    from interlock.admission.memory import PoolMemory

    from .levels import Kept
    from .run_changes import Wanted

#: Rows that are kept where there is no store: enough for a look back, bounded for a long life.
KEPT_WITHOUT_STORE = 10_000


class Book(Protocol):
    """Rows are queued when the method is called, not when its answer is awaited; awaiting tells they are committed."""

    def room(self) -> Awaitable[None] | None:
        """What is to be awaited before something new is begun that will be written: None, where nothing is."""
        ...

    def write_call(self, row: CallRow) -> Awaitable[None]: ...

    def write_run(self, row: RunRow) -> Awaitable[None]: ...

    async def read_calls(
        self, *, since: datetime | None = None, run_id: str | None = None, limit: int = 1000
    ) -> Sequence[CallRow]:
        """The latest calls, oldest first."""
        ...

    async def read_runs(self, *, run_id: str | None = None, limit: int = 1000) -> Sequence[RunRow]: ...

    def write_levels(self, owner: str, memories: Mapping[str, PoolMemory], at: datetime, closed: bool) -> None:
        """Queue what the process named `owner` remembers of its pools; `closed` says that it is its last word."""
        ...

    async def read_levels(self) -> Mapping[str, Sequence[Kept]]:
        """What earlier processes have left, by the pool's name."""
        ...

    async def close(self) -> None:
        """Commit what is queued and let go."""
        ...


@runtime_checkable
class Shared(Protocol):
    """A book that other processes see too."""

    def on_wanted(self, heed: Callable[[Mapping[str, Wanted]], None]) -> None:
        """Call `heed`, from another thread, when what others ask of this process's runs has changed: with all of it."""
        ...

    async def others(self) -> int:
        """How many other processes have it open."""
        ...


class _Done:
    """An awaitable that is over: nothing to wait for, no future made."""

    __slots__ = ()

    def __await__(self):  # type: ignore[no-untyped-def]
        return
        yield


DONE: Awaitable[None] = _Done()


class MemoryBook:
    """The latest rows, in this process only. It keeps no journal: there is nothing to come back to."""

    journal = None

    def __init__(self, kept: int = KEPT_WITHOUT_STORE) -> None:
        self._calls: deque[CallRow] = deque(maxlen=kept)
        self._runs: dict[str, RunRow] = {}
        self._kept = kept

    def room(self) -> None:
        return None

    def write_call(self, row: CallRow) -> Awaitable[None]:
        self._calls.append(row)
        return DONE

    def write_run(self, row: RunRow) -> Awaitable[None]:
        self._runs.pop(row.run_id, None)
        self._runs[row.run_id] = row
        while len(self._runs) > self._kept:
            del self._runs[next(iter(self._runs))]
        return DONE

    async def read_calls(
        self, *, since: datetime | None = None, run_id: str | None = None, limit: int = 1000
    ) -> Sequence[CallRow]:
        found = [
            row
            for row in self._calls
            if (since is None or row.record.started_at >= since) and (run_id is None or row.run_id == run_id)
        ]
        return found[-limit:]

    async def read_runs(self, *, run_id: str | None = None, limit: int = 1000) -> Sequence[RunRow]:
        return [row for row in self._runs.values() if run_id is None or row.run_id == run_id][-limit:]

    def write_levels(self, owner: str, memories: Mapping[str, PoolMemory], at: datetime, closed: bool) -> None:
        return None

    async def read_levels(self) -> Mapping[str, Sequence[Kept]]:
        return {}

    async def close(self) -> None:
        return None
