"""A contender's provider, in a process of its own: `python -m benchmarks.admission.peers.provider ORDERS`.

It prints its address, reads the instant to begin at, serves what its row says, and when its input ends writes what it
saw: a line a request, with the charge of each at the instants it was made.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
from pathlib import Path
from typing import Any

from interlock.clients.simulator import PublishedLimits, SeenRequest, SimulatedProvider, Step
from interlock.clients.simulator.exchange import NOTHING_ASKED

from .workload import Call, calls, index_of

_TIDY_S = 1.0
_STORM_STEPS = 20_000


class Served:
    """What the calls are answered with."""

    def __init__(self, seed: int) -> None:
        self._more, self._known = calls(seed), list[Call]()

    def call(self, request: SeenRequest) -> Call:
        index = index_of(request.text)
        while len(self._known) <= index:
            self._known.append(next(self._more))
        return self._known[index]

    def latency_s(self, request: SeenRequest) -> float:
        return self.call(request).latency_s

    def answer(self, request: SeenRequest) -> str:
        return "a b " * self.call(request).output_tokens


class Log:
    """Requests as rows. What has ended is stripped of its text, so a storm of large refusals fits in memory."""

    def __init__(self, provider: SimulatedProvider) -> None:
        self._provider, self._read, self._open = provider, 0, list[SeenRequest]()
        self.rows: list[list[Any]] = []

    def tidy(self) -> None:
        seen = self._provider.requests
        self._open += seen[self._read :]
        self._read = len(seen)
        still = []
        for entry in self._open:
            if entry.finished_at_s is None:
                still.append(entry)
                continue
            self.rows.append(self._row(entry))
            entry.body, entry.ask = {}, NOTHING_ASKED
        self._open = still

    def restart(self) -> None:
        """The provider's own log begins anew."""
        self._read = 0

    def close(self) -> None:
        self.tidy()
        self.rows += [self._row(entry) for entry in self._open if entry.text]

    @staticmethod
    def _row(entry: SeenRequest) -> list[Any]:
        """call, came at, ended at, status, input tokens, output tokens"""
        index = index_of(entry.text) if entry.text else None
        return [index, entry.at_s, entry.finished_at_s, entry.status, entry.input_tokens, entry.output_tokens]


async def play(provider: SimulatedProvider, log: Log, orders: dict[str, Any], begins_s: float) -> None:
    """What changes on the way: the share that is served, and a storm."""
    changes = [(at_s, share) for at_s, share in orders["shares"][1:]]
    storm = orders["storm"]
    for at_s, change in sorted([*changes, *([(storm[0], "storm"), (storm[1], "calm")] if storm else [])]):
        await asyncio.sleep(max(0.0, begins_s + at_s - time.monotonic()))
        if change == "storm":
            drawn = random.Random(orders["seed"])
            plain, refused = Step(name="plain"), Step.overloaded()
            provider.script(*(refused if drawn.random() < storm[2] else plain for _ in range(_STORM_STEPS)))
        elif change == "calm":
            log.tidy()
            provider.clear()  # the steps that are left, and the log
            log.restart()
        else:
            provider.serves = change


async def serve(orders: dict[str, Any]) -> dict[str, Any]:
    served = Served(orders["seed"])
    limits = PublishedLimits(rpm=orders["rpm"], tpm=orders["tpm"], burst_s=orders["burst_s"])
    cpu_s = 0.0
    async with SimulatedProvider(
        limits=limits, serves=orders["shares"][0][1], latency_s=served.latency_s, answer=served.answer
    ) as provider:
        print(provider.base_url, flush=True)
        begins_s = float(await asyncio.to_thread(sys.stdin.readline))
        cpu_s, log = time.process_time(), Log(provider)
        playing = asyncio.create_task(play(provider, log, orders, begins_s))
        ended = asyncio.create_task(asyncio.to_thread(sys.stdin.read))
        while not ended.done():
            await asyncio.wait([ended], timeout=_TIDY_S)
            log.tidy()
        playing.cancel()
        log.close()
    rows = [[row[0], row[1] - begins_s, row[2] and row[2] - begins_s, *row[3:]] for row in log.rows]
    return {"cpu_s": time.process_time() - cpu_s, "requests": rows}


if __name__ == "__main__":
    told = json.loads(sys.argv[1])
    Path(told["report"]).write_text(json.dumps(asyncio.run(serve(told))), encoding="utf-8")
