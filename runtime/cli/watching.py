"""The progress bar of `interlock run` and `interlock embed`: rate, tokens, cost, waits, failures and the time left."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

if TYPE_CHECKING:
    from ..runtime import Runtime

EVERY_S = 0.25


class Watched(Protocol):
    """Work on the lines of a file. `already` were done before it began."""

    @property
    def total(self) -> int: ...
    @property
    def already(self) -> int: ...
    @property
    def succeeded(self) -> int: ...
    @property
    def failed(self) -> int: ...


@asynccontextmanager
async def watched(work: Watched, runtime: Runtime) -> AsyncIterator[None]:
    """Draw the bar on standard error while the block runs; nothing where that is no terminal."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield
        return
    columns = (BarColumn(bar_width=24), MofNCompleteColumn(), TextColumn("{task.fields[words]}"), TextColumn("left"))
    with Progress(*columns, TimeRemainingColumn(compact=True), console=console) as bar:
        task, begun = bar.add_task("", total=work.total - work.already, words=""), time.monotonic()

        def draw() -> None:
            ended = work.succeeded + work.failed
            bar.update(task, completed=ended, words=words(work, runtime, ended / (time.monotonic() - begun)))

        async def keep_drawing() -> None:
            while True:
                draw()
                await asyncio.sleep(EVERY_S)

        drawing = asyncio.create_task(keep_drawing())
        try:
            yield
        finally:
            drawing.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await drawing
            draw()


def words(work: Watched, runtime: Runtime, rate_per_s: float) -> str:
    """`3.1/s  42k tokens  0.13 USD  12 waiting (3.1 s)  1 failed`"""
    statistics = runtime.statistics()
    usage, line = statistics.usage, statistics.admission
    tokens = (usage.total_input_tokens or 0) + (usage.output_tokens or 0)
    parts = [f"{rate_per_s:.1f}/s", f"{tokens / 1_000:.0f}k tokens"]
    parts += [f"{amount:.3f} {currency}" for currency, amount in statistics.cost.items()]
    parts += [f"{line.waiting} waiting ({line.oldest_wait_s:.1f} s)"]
    parts += [f"{work.failed} failed"] if work.failed else []
    return "  ".join(parts)
