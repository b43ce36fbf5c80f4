"""One of several processes that call one model through one ledger. It says `ready` when it has made one call, begins
when it is told to, and ends with its figures, or with the error that ended it.

A server that has imported the runtime and the SDK forks them all: to import costs each more than all its calls.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import time
import traceback
from multiprocessing.connection import Connection
from typing import Any

FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["interlock.runtime", "interlock.runtime.calls", "interlock.clients.providers.simulated"])


class CallingProcess:
    """`ask`: `catalog`, `ledger`, `callers`, `seconds`, `words` and `output` of each call, `lease_s`."""

    def __init__(self, ask: dict[str, Any]) -> None:
        self._ours, theirs = FORKS.Pipe()
        self._process = FORKS.Process(target=_work, args=(ask, theirs), daemon=True)
        self._process.start()
        theirs.close()

    def hear(self, timeout_s: float = 120.0) -> Any:
        """What it says next. EOFError: it has ended."""
        assert self._ours.poll(timeout_s), "it says nothing"
        return self._ours.recv()

    def go(self) -> None:
        self._ours.send("go")

    def send_signal(self, number: signal.Signals) -> None:
        assert self._process.pid is not None
        os.kill(self._process.pid, number)

    def ended(self, timeout_s: float = 60.0) -> int:
        """Its exit code."""
        self._process.join(timeout_s)
        assert self._process.exitcode is not None, "it does not end"
        return self._process.exitcode


def _work(ask: dict[str, Any], pipe: Connection) -> None:
    try:
        figures = asyncio.run(_calls(ask, pipe))
    except BaseException:
        pipe.send({"error": traceback.format_exc()})
        raise
    pipe.send(figures)


async def _calls(ask: dict[str, Any], pipe: Connection) -> dict[str, Any]:
    from interlock import LLMCall, Runtime, RuntimeSettings

    ended_at: list[float] = []
    answered, until = 0, 0.0
    settings = RuntimeSettings(catalog=ask["catalog"], store=None, ledger=ask["ledger"], lease_s=ask.get("lease_s", 15))
    async with Runtime(settings) as runtime:

        async def caller(number: int) -> None:
            nonlocal answered
            while time.monotonic() < until:
                text = f"Caller {number} says {'hello ' * ask['words']}"
                await runtime.run(LLMCall(text, max_output_tokens=ask["output"], upstream_retries=0))
                ended_at.append(time.monotonic())
                answered += 1

        await runtime.run(LLMCall("Warm up.", max_output_tokens=16))
        pipe.send("ready")
        await asyncio.to_thread(pipe.recv)
        until = time.monotonic() + ask["seconds"]
        await asyncio.gather(*[caller(n) for n in range(ask["callers"])])
    return {"answered": answered, "ended_at": ended_at}
