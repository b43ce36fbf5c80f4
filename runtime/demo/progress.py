"""What is on the screen while the demo runs: a bar with rate, tokens, cost, waits and the time left."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

EVERY_S = 0.25


def bar(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TextColumn("{task.fields[words]}"),
        TextColumn("left"),
        TimeRemainingColumn(compact=True, elapsed_when_finished=True),
        console=console,
        disable=not console.is_terminal,  # a file or a pipe gets no half-drawn bars
    )


@asynccontextmanager
async def watched(
    console: Console, title: str, total: int, done: Callable[[], int], words: Callable[[], str]
) -> AsyncIterator[None]:
    """Draw the bar while the block runs. `words` are the figures beside it."""
    with bar(console) as shown:
        task = shown.add_task(title, total=total, words="")
        drawing = asyncio.create_task(_draw(shown, task, done, words))
        try:
            yield
        finally:
            drawing.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await drawing
            shown.update(task, completed=done(), words=words())


async def _draw(shown: Progress, task: Any, done: Callable[[], int], words: Callable[[], str]) -> None:
    while True:
        shown.update(task, completed=done(), words=words())
        await asyncio.sleep(EVERY_S)


def figures(*, rate_per_s: float, tokens: int, cost: str, waiting: int, oldest_wait_s: float) -> str:
    """`11.8/s  104k tokens  0.13 USD  42 waiting (3.1 s)`"""
    return f"{rate_per_s:.1f}/s  {tokens / 1_000:.0f}k tokens  {cost}  {waiting} waiting ({oldest_wait_s:.1f} s)"
