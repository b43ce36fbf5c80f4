"""From a pipeline's call to a row of the queue: names and JSON, so that any process with the code can run it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from interlock.catalog.pricing import parse_cap
from interlock.errors import ConfigurationError

from ..journal.calling import head_of
from ..journal.protocol import RunHead
from ..pipeline_job import PipelineJob
from ..runs import LONGEST_ID, check_run_id
from .fitting import check_fits

if TYPE_CHECKING:
    from ..dispatcher import Dispatcher
    from ..store.queue import SqlQueue


def queue_of(dispatcher: Dispatcher) -> SqlQueue:
    """Raises ConfigurationError where there is no store, and so no queue."""
    queue: SqlQueue | None = getattr(dispatcher.book, "queue", None)
    if queue is None:
        raise ConfigurationError("there is no queue without a store: give RuntimeSettings(store=...) a URL")
    return queue


async def enqueue_all(
    dispatcher: Dispatcher,
    jobs: Sequence[tuple[object, str | None]],
    *,
    cost_cap: str | None,
    priority: int | None,
    workflow: str | None,
) -> dict[str, bool]:
    """See `Runtime.enqueue_all`."""
    queue, at = queue_of(dispatcher), dispatcher.wall()
    heads = [
        queued_head(
            job,
            run_id=run_id or dispatcher.new_id(),
            at=at,
            cost_cap=cost_cap,
            priority=priority,
            workflow=workflow,
        )
        for job, run_id in jobs
    ]
    known = await queue.put(heads, at)
    return {head.run_id: head.run_id not in known for head in heads}


def queued_head(
    job: object,
    *,
    run_id: str,
    at: datetime,
    cost_cap: str | None = None,
    priority: int | None = None,
    workflow: str | None = None,
) -> RunHead:
    """Raises ConfigurationError for what no other process could call: a pipeline that is not at the top of a module,
    arguments that are not data or do not fit it, an id that is no name, a cap that is no money."""
    if not isinstance(job, PipelineJob):
        raise ConfigurationError(f"only a pipeline's call can be put into the queue, not {type(job).__name__}")
    check_run_id(run_id)
    if not run_id or not run_id.isprintable():
        raise ConfigurationError(f"a run's id is a name of 1 to {LONGEST_ID} printable characters, not {run_id[:60]!r}")
    if cost_cap is not None:
        parse_cap(cost_cap)
    head = head_of(
        job,
        run_id=run_id,
        started_at=at,
        cost_cap=None if cost_cap is None else str(cost_cap),
        priority=job.priority if priority is None else priority,
        workflow=workflow or job.workflow,
    )
    if head.target is not None and head.target.startswith("__main__:"):
        raise ConfigurationError(
            f"pipeline {head.pipeline} stands in the script that is being run, which workers know by another name: move"
            " it to a module of its own and import it from there"
        )
    if head.target is None:
        raise ConfigurationError(
            f"pipeline {head.pipeline} cannot be found by its name in another process: put it at the top of a module"
            " that workers can import"
        )
    if head.arguments is None:
        raise ConfigurationError(
            f"the arguments of {head.pipeline} are not data: give it text, numbers, lists, dataclasses at the top of"
            " a module, or pydantic models"
        )
    check_fits(job)
    return head
