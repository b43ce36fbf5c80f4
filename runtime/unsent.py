"""Which runs can still be dropped for nothing: all their jobs wait, and none of them has cost anything yet."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from .pipeline_job import PipelineJob
from .state import JobState

if TYPE_CHECKING:
    from .handle import JobHandle

#: Nothing is held and nothing was sent in these.
_WAITING = frozenset({JobState.BLOCKED, JobState.PREPARING, JobState.COUNTING, JobState.SPENDING, JobState.WAITING})


def unsent_runs(live: Iterable[JobHandle[Any]]) -> frozenset[str]:
    """The ids of runs with a job that waits, and with none that runs or has cost something (a free model's answer has
    not). A pipeline itself holds nothing; one whose own code is at work has no waiting job, and is not among them."""
    waiting: set[str] = set()
    begun: set[str] = set()
    for handle in live:
        if handle.run_id is None:
            continue
        if handle.requests and handle.cost != 0:  # None: of unknown cost
            begun.add(handle.run_id)
        elif handle.state in _WAITING:
            waiting.add(handle.run_id)
        elif not isinstance(handle._execution.job, PipelineJob):
            begun.add(handle.run_id)
    return frozenset(waiting - begun)
