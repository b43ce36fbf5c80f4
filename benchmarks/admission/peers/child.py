"""A contender's process: `python -m peers.child`, with its orders on standard input.

The first line is a JSON object of orders; it answers "ready" when it could begin; the second line is the instant to
begin at, on the monotonic clock, which all processes of a machine share. At the end it writes what its callers saw.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NoReturn

from .workload import Call, calls

Ask = Callable[[Call], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What a contender is told: where the provider is and what it publishes, a minute; `burst_s` seconds at once."""

    base_url: str
    rpm: float
    tpm: float
    burst_s: float
    callers: int
    folder: str


async def caller(ask: Ask, more: Iterator[Call], starts_s: float, seen: dict[int, list[Any]]) -> None:
    """One call after the other, each as soon as the one before it has ended."""
    await asyncio.sleep(starts_s)
    for call in more:
        record: list[Any] = [call.index, time.monotonic(), None, None]
        seen[call.index] = record
        try:
            await ask(call)
        except Exception as error:
            record[3] = type(error).__name__
        record[2] = time.monotonic()


async def run(orders: dict[str, Any]) -> None:
    terms = Terms(**orders["terms"])
    adapter = import_module(f".adapters.{orders['adapter']}", __package__)
    more, seen = calls(orders["seed"]), dict[int, list[Any]]()
    async with adapter.opened(terms, **orders["options"]) as ask:
        print("ready", flush=True)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # nobody reads what a library prints
        begins_s = float(await asyncio.to_thread(sys.stdin.readline))
        await asyncio.sleep(max(0.0, begins_s - time.monotonic()))
        cpu_s, apart_s = time.process_time(), orders["arriving_s"] / terms.callers
        tasks = [asyncio.create_task(caller(ask, more, n * apart_s, seen)) for n in range(terms.callers)]
        await asyncio.wait(tasks, timeout=begins_s + orders["lasts_s"] - time.monotonic())
        report = {
            "cpu_s": time.process_time() - cpu_s,
            "python": sys.version.split()[0],
            "versions": {name: _version(name) for name in orders["packages"]},
            # index, asked at, ended at, error
            "calls": [[i, at - begins_s, end and end - begins_s, error] for i, at, end, error in seen.values()],
        }
        _leave(orders["report"], report)


def _leave(file: str, report: dict[str, Any]) -> NoReturn:
    """Write and be gone: whatever still waits was not served in time."""
    Path(file).write_text(json.dumps(report), encoding="utf-8")
    os._exit(0)


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "-"


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    asyncio.run(run(json.loads(sys.stdin.readline())))
