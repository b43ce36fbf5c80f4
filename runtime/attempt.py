"""One attempt of a job: its code is run, what it did is committed or undone, and how it ended is noted."""

from __future__ import annotations

import asyncio
import inspect
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from interlock.errors import InterlockError

from .job import Job
from .running import Outcome, Running
from .threads import in_thread
from .uncancelled import uncancelled

if TYPE_CHECKING:
    from .spent import Spent
    from .stopper import Stopper

R = TypeVar("R")


class Belongings(Protocol):
    """What an attempt has and must account for: a job's resources, a pipeline's context."""

    settling: bool  # its end has begun: too late to stop it

    @property
    def stopper(self) -> Stopper: ...

    @property
    def spent(self) -> Spent: ...

    def stop(self, reason: InterlockError) -> None:
        """The first step of stopping."""
        ...

    def written(self, value: Any) -> None:
        """`run` returned `value`: write it down for the journal, before anything is committed. UnencodableError."""
        ...

    def finish_now(self) -> bool:
        """`run` returned: make it last, where nothing has to be awaited for that. False: `finish` is needed."""
        ...

    async def finish(self) -> None:
        """`run` returned: make it last."""
        ...

    async def abandon(self) -> None:
        """`run` failed or was stopped: undo."""
        ...


async def run_attempt(job: Job[R], running: Running[R], threads: ThreadPoolExecutor) -> None:
    """Never raises an ordinary error: how it ended is in `running.outcome` once the Task is over."""
    belongings: Belongings = running.resources
    try:
        if running.intended is not None:
            await belongings.stopper.run(running.intended)
        value = await _invoke(job, belongings, threads)
        belongings.stopper.check()
        belongings.written(value)
        # A cancellation that comes during the commit is too late, and arrives at no further await.
        if not belongings.finish_now():
            await uncancelled(belongings.finish())
        running.outcome = Outcome(value=value)
    except BaseException as error:
        running.outcome = Outcome(error=error)
        await uncancelled(belongings.abandon())
        if isinstance(error, (KeyboardInterrupt, SystemExit)):
            raise


async def _invoke(job: Job[R], belongings: Any, threads: ThreadPoolExecutor) -> R:
    if inspect.iscoroutinefunction(job.run):
        result: R = await job.run(belongings)
        return result
    from .blocking import BlockingResources

    blocking = BlockingResources(belongings, asyncio.get_running_loop())
    returned: Any = await in_thread(threads, job.run, blocking)
    value: R = await returned if inspect.isawaitable(returned) else returned
    return value
