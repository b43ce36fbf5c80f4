"""One owner in a process of its own: it does what it reads, line by line, and prints what came of it.

python owner_process.py URL TTL_S WALL_OFFSET_S: `ask TOKENS TIMES`, `end TOKENS`, `many MESSAGES ASKS TOKENS`, `leave`.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import Any

from interlock.admission.charges import Charge
from interlock.admission.ledger import Ask, Ledger, Message, Part, Settle
from interlock.errors import InterlockError


def ledger_of(url: str, ttl_s: float) -> Ledger:
    if url.startswith("postgresql"):
        from interlock.admission.ledger.postgres import PostgresLedger

        return PostgresLedger(url, ttl_s=ttl_s)
    from interlock.admission.ledger.sqlite import SQLiteLedger

    return SQLiteLedger(url, ttl_s=ttl_s)


async def main(url: str, ttl_s: float) -> None:
    ledger = ledger_of(url, ttl_s)
    await ledger.open()
    print("ready", flush=True)
    seq = key = 0
    loop = asyncio.get_running_loop()

    async def say(asks: int, tokens: int, settles: tuple[Settle, ...] = ()) -> Any:
        nonlocal seq, key
        seq, key = seq + 1, key + asks
        part = Part(pool="p", charge=Charge(1, tokens, tokens, 0), slots=1)
        message = Message(
            owner=ledger.owner,
            fence=ledger.fence,
            seq=seq,
            settles=settles,
            asks=tuple([Ask(key=key - n, parts=(part,)) for n in range(asks)]),
            watch=("p",),
        )
        return await ledger.exchange(message)

    while line := await loop.run_in_executor(None, sys.stdin.readline):
        word, *numbers = line.split()
        told: dict[str, Any] = {}
        try:
            if word == "ask":
                reply = await say(int(numbers[1]), int(numbers[0]))
                told = {"granted": len(reply.granted), "fit_in_s": reply.pools["p"].fit_in_s}
            elif word == "end":
                n = int(numbers[0])
                settle = Settle(pool="p", sent=Charge(1, n, n, 0), back=Charge(0, n, n, 0), slots=1)
                await say(0, 0, (settle,))
            elif word == "many":
                messages, asks, tokens = map(int, numbers)
                told = {"granted": sum([len((await say(asks, tokens)).granted) for _ in range(messages)])}
            elif word == "leave":
                await ledger.leave()
        except InterlockError as error:
            told = {"error": type(error).__name__}
        print(json.dumps(told), flush=True)
    await ledger.close()


if __name__ == "__main__":
    offset_s, wall = float(sys.argv[3]), time.time
    time.time = lambda: wall() + offset_s  # this process's clock is wrong
    asyncio.run(main(sys.argv[1], float(sys.argv[2])))
