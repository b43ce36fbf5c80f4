"""JobHandle[R]: a submitted job, to await, to look at, to stop."""

from __future__ import annotations

from collections.abc import Generator
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from interlock.catalog.usage import Usage

from .state import JobState

if TYPE_CHECKING:
    from interlock.admission import Explanation

    from .execution import Execution

R_co = TypeVar("R_co", covariant=True)


class JobHandle(Generic[R_co]):
    """`await handle` gives the job's result or raises what it failed with; as often as one likes, from any task.

    Cancelling a task that awaits it leaves the job running; `cancel()` stops the job. `usage` and `cost` add up every
    request made for it, failed ones and corrections included; `cost` is None while a request without a price is among
    them, and in `currency`.
    """

    __slots__ = ()

    @property
    def _execution(self) -> Execution[R_co]:
        """The job's life behind the handle: one object, since a million of them may wait."""
        raise NotImplementedError

    def __await__(self) -> Generator[Any, None, R_co]:
        return self._execution.wait().__await__()

    def __repr__(self) -> str:
        return f"<JobHandle {self.name} {self.state}>"

    if TYPE_CHECKING:  # the execution's own; the docstrings are the contract
        step_id: str | None
        state: JobState

        @property
        def id(self) -> str: ...

        @property
        def name(self) -> str:
            """The job's type, or its pipeline's name."""
            ...

        @property
        def attempt(self) -> int:
            """Attempts begun so far."""
            ...

        def result(self) -> R_co:
            """The result of a job that is done; raises what it failed with, or RuntimeError before its end."""
            ...

        def exception(self) -> BaseException | None:
            """What a job that is done failed with."""
            ...

        def cancel(self, reason: str = "") -> bool:
            """Ask the job to stop; False where it is over. A waiting one is gone at once, and costs nothing. A running
            one has its resources closed and, after its grace period, is cancelled hard and rolled back."""
            ...

        def pause(self) -> None:
            """Pause its run: jobs of it that wait leave the line and hold nothing, those that run go on to their end,
            and nothing starts until `unpause`. InterlockError for a job that belongs to no run."""
            ...

        def unpause(self) -> None:
            """Let its run go on. Whoever left the line enters it anew."""
            ...

        def explain(self) -> Explanation | None:
            """What holds it back in the line: the account, what it lacks, when it will go. None where it does not
            wait."""
            ...

    @property
    def run_id(self) -> str | None:
        return self._execution.run.run_id

    @property
    def done(self) -> bool:
        return self.state.done

    @property
    def requests(self) -> int:
        """Wire requests recorded so far."""
        return self._execution.spent.requests

    @property
    def usage(self) -> Usage:
        return self._execution.spent.usage

    @property
    def cost(self) -> Decimal | None:
        return self._execution.spent.cost

    @property
    def currency(self) -> str | None:
        return self._execution.spent.currency
