"""What every way's program does: be ready, wait for the word, let its callers reserve and settle, say what it saw.

It stands alone: it runs in the peers' environment too.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable

#: A caller reserves so many tokens, and uses others.
RESERVED, USED = 1_000, 900
#: Seconds before the measurement.
WARM_S = 0.5

Once = Callable[[], Awaitable[None]]


async def callers(once: Once, count: int, seconds: float) -> None:
    """`once` reserves; it settles behind the measured time or is told to by the way itself."""
    print("ready", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
    spent = time.process_time()
    begin = time.perf_counter() + WARM_S
    end = begin + seconds
    waits: list[float] = []

    async def caller() -> None:
        while True:
            since = time.perf_counter()
            if since >= end:
                return
            await once()
            now = time.perf_counter()
            if begin <= since and now <= end:
                waits.append(now - since)

    await asyncio.gather(*[caller() for _ in range(count)])
    spent = (time.process_time() - spent) * seconds / (seconds + WARM_S)
    waits.sort()
    said = {"count": len(waits), "waits_ms": [round(1e3 * wait, 4) for wait in waits[:: max(len(waits) // 20_000, 1)]]}
    print(json.dumps({**said, "cpu_s": spent}), flush=True)
