"""Some work at a time, its results in the order of the work."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


async def gathered(items: Iterable[T], work: Callable[[T], Awaitable[R]], *, limit: int) -> list[R]:
    """`work` of every item, at most `limit` at a time; items are taken as there is room for them. The first failure
    cancels the rest, waits for it, and is raised."""
    if type(limit) is not int or limit < 1:
        raise ValueError(f"at least one at a time, not {limit!r}")
    if limit == 1:
        return [await work(item) for item in items]
    results: dict[int, R] = {}
    running: dict[asyncio.Future[R], int] = {}
    source = enumerate(items)
    try:
        while True:
            while len(running) < limit and (following := next(source, None)) is not None:
                index, item = following
                running[asyncio.ensure_future(work(item))] = index
            if not running:
                return [results[index] for index in range(len(results))]
            done, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                results[running.pop(task)] = task.result()
    finally:
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running)
        for task in running:
            if not task.cancelled():
                task.exception()  # the first failure is the one that is told
