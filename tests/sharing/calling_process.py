"""One of several processes that call one model through one ledger. Run as a script: its figures go to stdout as JSON.

    python calling_process.py '{"catalog": "...", "ledger": "...", "callers": 16, "seconds": 8, ...}'

It says `ready` when it has made one call, and begins when a line comes in.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import Any

from interlock import LLMCall, Runtime, RuntimeSettings


async def main(ask: dict[str, Any]) -> dict[str, Any]:
    waits: list[float] = []
    ended_at: list[float] = []
    answered, until = 0, 0.0
    settings = RuntimeSettings(catalog=ask["catalog"], store=None, ledger=ask["ledger"], lease_s=ask.get("lease_s", 15))
    async with Runtime(settings) as runtime:

        async def caller(number: int) -> None:
            nonlocal answered
            while time.monotonic() < until:
                text = f"Caller {number} says {'hello ' * ask['words']}"
                since = time.monotonic()
                await runtime.run(LLMCall(text, max_output_tokens=ask["output"], upstream_retries=0))
                ended_at.append(time.monotonic())
                waits.append(ended_at[-1] - since)
                answered += 1

        await runtime.run(LLMCall("Warm up.", max_output_tokens=16))
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        until = time.monotonic() + ask["seconds"]
        await asyncio.gather(*[caller(n) for n in range(ask["callers"])])
        counts = runtime.statistics()
    return {"answered": answered, "waits": waits, "ended_at": ended_at, "requests": counts.requests}


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main(json.loads(sys.argv[1])))))
