"""Waiting for what sockets and threads do: for the event, and never for a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


async def until(condition: Callable[[], object], *, turns: int = 2_000) -> None:
    """Let the loop run until something is so: sockets cannot be told to hurry, and nothing here sleeps by the clock."""
    for _ in range(turns):
        if condition():
            return
        await asyncio.sleep(0.001)
    raise AssertionError("it never came to be")
