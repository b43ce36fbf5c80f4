"""A function of the user's in a thread, with the caller's context variables."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from contextvars import copy_context
from typing import Any


async def in_thread(threads: Executor | None, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """Call `fn` in one of `threads` (None: the event loop's own).

    A StopIteration it raises becomes a RuntimeError, as in a coroutine: a future cannot carry one, and whoever waited
    for it (Python 3.11) would wait forever.
    """
    context = copy_context()

    def call() -> Any:
        try:
            return context.run(fn, *args, **kwargs)
        except StopIteration as error:
            raise RuntimeError(f"{getattr(fn, '__qualname__', fn)} raised StopIteration") from error

    return await asyncio.get_running_loop().run_in_executor(threads, call)
