"""Interlock's ledger: one message in flight a process, which carries all that wait."""

from __future__ import annotations

import asyncio
import sys

from benchmarks.ledger.asking import Asking
from loop import RESERVED, USED, callers

from interlock.admission.charges import Charge
from interlock.admission.ledger import Ledger, PoolTerms
from interlock.catalog.entry import Limits


def ledger_of(url: str) -> Ledger:
    if url.startswith("postgresql"):
        from interlock.admission.ledger.postgres import PostgresLedger

        return PostgresLedger(url)
    from interlock.admission.ledger.sqlite import SQLiteLedger

    return SQLiteLedger(url)


async def main(url: str, count: int, seconds: float) -> None:
    ledger = ledger_of(url)
    await ledger.open()
    limits = Limits(rpm=60_000_000, tpm=60_000_000_000, max_concurrent=100_000)
    await ledger.register([PoolTerms(name="pool", limits=limits)])
    asking = Asking(ledger, "pool")
    carrying = asyncio.create_task(asking.run())
    reserved, used = Charge(1, RESERVED, RESERVED, 0), Charge(1, USED, USED, 0)

    async def once() -> None:
        await asking.reserve(reserved)
        asking.settle(reserved, used)

    await callers(once, count, seconds)
    carrying.cancel()
    await ledger.leave()
    await ledger.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[3]), float(sys.argv[4])))
