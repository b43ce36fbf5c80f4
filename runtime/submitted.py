"""What a submitted job is to whoever looks at it: its fields, and the half of its life that only tells."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from interlock.admission import Waiting

from .current import check_may_wait_for
from .handle import JobHandle
from .job import Job, job_name
from .prepared import described
from .routing import Caller
from .running import History, Outcome, Running
from .spent import Spent
from .state import JobState

if TYPE_CHECKING:
    from interlock.admission import Explanation, SpendHold, Timer
    from interlock.catalog import ModelBinding

    from .counting import Count
    from .database import DatabaseNeed
    from .dispatcher import Dispatcher
    from .execution import Execution
    from .runs import Run

R = TypeVar("R")

#: Seconds that a job which was cancelled waits for a store that is away.
STORE_PATIENCE_S = 2.0


class Submitted(JobHandle[R]):
    """The part of an `Execution` that changes nothing. A million may wait, so it is small until it runs."""

    __slots__ = (
        "_bindings", "_context", "_databases", "_dispatcher", "_history", "_hold", "_listeners", "_outcome",
        "_stage", "after", "before", "job", "priority", "run", "state", "step_id", "workflow",
    )  # fmt: skip

    def __init__(
        self, dispatcher: Dispatcher, job: Job[R], run: Run, *, step_id: str | None, priority: int, workflow: str
    ) -> None:
        self._dispatcher, self.job, self.run = dispatcher, job, run
        self.before: Execution[Any] | None = None  # its neighbours among the live ones
        self.after: Execution[Any] | None = None
        self.step_id, self.priority, self.workflow = step_id, priority, workflow
        self._context = dispatcher.context()  # what its code sees is its submitter's, whoever's turn brings the grant
        self.state = JobState.CREATED
        self._outcome: Outcome[R] | None = None
        self._listeners: list[Callable[[], None]] | None = None
        self._bindings: tuple[ModelBinding, ...] = ()
        self._databases: tuple[DatabaseNeed, ...] = ()
        self._hold: SpendHold | None = None
        #: Where it stands: its count, its place in the line, the end of its backing off, or the attempt that runs.
        self._stage: Waiting | Timer | Count | Running[R] | None = None
        self._history: History | None = None

    # Looked at from outside.

    @property
    def id(self) -> str:
        return self.history.id

    @property
    def name(self) -> str:
        return job_name(self.job)

    @property
    def attempt(self) -> int:
        """Attempts begun so far."""
        return self._history.attempts if self._history is not None else 0

    @property
    def spent(self) -> Spent:
        """What its requests have used so far."""
        return self.history.spent

    @property
    def history(self) -> History:
        if self._history is None:
            self._history = History(self._dispatcher.new_id())
        return self._history

    @property
    def caller(self) -> Caller:
        """For whom its models are bound."""
        history = self._history
        return Caller(self) if history is None else Caller(self, history.strikes, history.kept)

    @property
    def _running(self) -> Running[R] | None:
        return self._stage if isinstance(self._stage, Running) else None

    @property
    def holds(self) -> str:
        """What it holds, in words; empty for nothing."""
        running = self._running
        if running is None or running.reservation is None:
            return ""
        return described(running.reservation.demand, self._bindings)

    @property
    def _execution(self) -> Execution[R]:
        return self  # type: ignore[return-value]

    def explain(self) -> Explanation | None:
        stage = self._stage
        return self._dispatcher.admission.explain(stage) if isinstance(stage, Waiting) else None

    def result(self) -> R:
        if self._outcome is None:
            raise RuntimeError(f"job {self.name} is not done: it is {self.state}")
        if self._outcome.error is not None:
            raise self._outcome.error
        return self._outcome.value  # type: ignore[return-value]

    def exception(self) -> BaseException | None:
        if self._outcome is None:
            raise RuntimeError(f"job {self.name} is not done: it is {self.state}")
        return self._outcome.error

    def on_done(self, listener: Callable[[], None]) -> None:
        """Call `listener` at the end; at once if that has been."""
        if self._outcome is not None:
            listener()
            return
        self._listeners = self._listeners or []
        self._listeners.append(listener)

    async def wait(self) -> R:
        """The result. A job that holds something must not wait for another: JobDeadlockError."""
        if self._outcome is None:
            check_may_wait_for(self.name)
            await self.settled()
        return self.result()

    async def settled(self) -> None:
        """Until the end, however it ends."""
        if self._outcome is not None:
            return
        self._dispatcher.check_loop()
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def wake() -> None:
            if not future.done():
                future.set_result(None)

        self.on_done(wake)
        try:
            await future
        except asyncio.CancelledError:
            if self._listeners is not None:
                self._listeners.remove(wake)
            raise
