"""`interlock.run(job)` for synchronous code: a script, a REPL, a cell of plain Python."""

from __future__ import annotations

import asyncio
from typing import TypeVar

from interlock.errors import InterlockError

from .job import Job
from .runtime import Runtime
from .settings import RuntimeSettings

R = TypeVar("R")


def run(job: Job[R], *, settings: RuntimeSettings | None = None, cost_cap: str | None = None) -> R:
    """Run one job (a pipeline called is one) in a Runtime of its own and give its result.

    InterlockError inside a running event loop, such as a notebook's: await it there instead. Its limits are its own
    for as long as it runs: a program that runs many jobs opens one Runtime for all of them.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(_run(job, settings, cost_cap))
    raise InterlockError(
        "interlock.run is for synchronous code, and an event loop runs here (a notebook has one): write"
        " `async with Runtime() as runtime: await runtime.run(job)`"
    )


async def _run(job: Job[R], settings: RuntimeSettings | None, cost_cap: str | None) -> R:
    async with Runtime(settings) as runtime:
        return await runtime.run(job, cost_cap=cost_cap)
