"""What open streams take: resident memory of this process with that many streams half read, the provider elsewhere."""

from __future__ import annotations

import asyncio
import gc
import json
import subprocess
import sys

import psutil

from . import provider
from .seat import client
from .workload import PIECES

#: Slow enough that no stream has ended before the last has begun: 500 pieces are about 500 tokens.
TOKENS_PER_S = 12.0
WANTED_MB = 300.0
_MIB = 1024 * 1024


def show(streams: int) -> list[str]:
    """A process for each wire, so that the first leaves nothing to the second."""
    print()
    with provider.running(str(TOKENS_PER_S)) as url:
        wrong = []
        for wire in ("anthropic", "openai"):
            address = url if wire == "anthropic" else f"{url}/v1"
            told = subprocess.run([sys.executable, "-m", __name__, wire, address, str(streams)], check=True, text=True,
                                  stdout=subprocess.PIPE).stdout  # fmt: skip
            before, most, read = json.loads(told)
            each = (most - before) * 1024 / streams
            print(f"{wire}: {streams:,} streams open at once, {read:.0f} pieces of {PIECES} read of each: "
                  f"{most:.0f} MB resident, {before:.0f} MB before the first; {each:.0f} KB a stream")  # fmt: skip
            if most > WANTED_MB:
                wrong.append(f"{wire}: {most:.0f} MB with {streams:,} streams, wanted {WANTED_MB:.0f}")
    return wrong


async def _hold(wire: str, url: str, streams: int) -> tuple[float, float, float]:
    """Resident megabytes before and at the most, and how far the streams had been read then."""
    process, seen = psutil.Process(), 0.0
    template, bound = client(wire, url, max_connections=streams)
    assert (await bound.single_response("Hello.")).text
    gc.collect()
    before = process.memory_info().rss / _MIB
    read, most, everyone = [0] * streams, before, asyncio.Event()

    async def reader(number: int) -> None:
        async with bound.stream_response("Tell me a long story.") as pieces:
            async for _ in pieces:
                read[number] += 1
                if read[number] == 2 and min(read) >= 2:
                    everyone.set()
                if everyone.is_set() and read[number] > PIECES // 10:
                    return

    readers = [asyncio.create_task(reader(number)) for number in range(streams)]
    while not all(task.done() for task in readers):
        if min(read) >= 2 and not any(task.done() for task in readers):
            most = max(most, process.memory_info().rss / _MIB)
            seen = sum(read) / streams
        await asyncio.sleep(0.05)
    for task in readers:
        task.result()
    await template.aclose()
    return before, most, seen


if __name__ == "__main__":
    provider.allow_files()
    print(json.dumps(asyncio.run(_hold(sys.argv[1], sys.argv[2], int(sys.argv[3])))))
