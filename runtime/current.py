"""Which job's code is running here: read where one job is about to wait for another."""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from interlock.errors import JobDeadlockError

if TYPE_CHECKING:
    from .execution import Execution

CURRENT: ContextVar[Execution[Any] | None] = ContextVar("interlock_current_job", default=None)


def check_may_wait_for(name: str) -> None:
    """Raise JobDeadlockError where the waiting code belongs to a job that holds something."""
    waiting = CURRENT.get()
    if waiting is not None and waiting.holds:
        raise JobDeadlockError(
            f"job {waiting.name} waits for job {name} while it holds {waiting.holds}; {name} may need the very same."
            f" Run {name} from the pipeline, before or after {waiting.name}, or submit it without awaiting it"
        )
