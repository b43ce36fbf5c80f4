"""A few awaits must end once they have begun: a commit, a rollback, a connection on its way to its owner."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


async def uncancelled(work: Coroutine[Any, Any, T], *, arrives: bool = False) -> T:
    """Await `work` to its end whatever happens to the caller. A cancellation that came meanwhile is asked for again
    once it is over, so it is delayed and never lost: it arrives at the caller's next await.

    `arrives`: it arrives right here instead, in place of the result. For where this await is the last: an
    `asyncio.timeout` around it would take its request back, and the cancellation would hit a bystander.
    """
    task = asyncio.ensure_future(work)
    cancelled = False
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            if not task.cancelled():
                cancelled = True
        except BaseException:
            break
    if cancelled:
        caller = asyncio.current_task()
        if caller is not None:
            # uncancel() first keeps the count of requests as the one who asked knows it.
            caller.uncancel()
            caller.cancel()
            if arrives:
                await asyncio.sleep(0)
    return task.result()
