"""A contender's process: `python -m clients.child WAY WIRE URL`. Each line it reads, "whole 50" or "streamed 5", is a
round; it answers with the milliseconds of CPU a call (`process_time`)."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import sys
from importlib import import_module
from time import process_time

from .workload import PIECES, Ways


async def rounds(ways: Ways) -> None:
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        kind, calls = line.split()
        gc.collect()
        began = process_time()
        for _ in range(int(calls)):
            if kind == "whole":
                assert await ways.whole()
            else:
                seen = await ways.streamed()
                assert seen >= PIECES, f"{seen} pieces of {PIECES}"
        print(json.dumps((process_time() - began) / int(calls) * 1_000), flush=True)


async def main(way: str, wire: str, url: str) -> None:
    async with import_module(f".ways.{way}", __package__).opened(wire, url) as ways:
        print(json.dumps("ready"), flush=True)
        await rounds(ways)


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    asyncio.run(main(*sys.argv[1:]))
