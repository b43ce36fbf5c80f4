"""Random work of several processes on one ledger, with cancels, lost answers and outages: nothing leaks, nothing is
granted twice, everybody is answered."""

from __future__ import annotations

import asyncio
import random

import pytest
from sharing.shared_world import CountingProvider, Process, hub

from interlock.admission import CallOutcome, CountingGate, OutcomeKind
from interlock.admission.ledger import Message, Reply
from interlock.admission.virtual import run_virtual
from interlock.catalog.entry import Limits
from interlock.catalog.usage import Usage
from interlock.errors import LedgerUnavailableError


def lossy(process: Process, rng: random.Random) -> None:
    """One message in eight is not heard, or its answer is lost."""
    exchange = process.ledger.exchange

    async def unreliable(message: Message) -> Reply:
        fate = rng.random()
        if fate < 0.06:
            raise LedgerUnavailableError("not heard")
        reply = await exchange(message)
        if fate < 0.12:
            raise LedgerUnavailableError("the answer was lost")
        return reply

    process.ledger.exchange = unreliable  # type: ignore[method-assign]


async def one_job(process: Process, gate: CountingGate, provider: CountingProvider, rng: random.Random) -> str:
    loop = asyncio.get_running_loop()
    tokens, count = rng.choice([10, 100, 400]), rng.choice([1, 1, 1, 2])
    held = ((gate, 1),) if rng.random() < 0.4 else ()
    demand = process.demand(tokens, rng.choice([0, 50]), held=held, count=count, priority=rng.choice([0, 0, 0, 1]))
    reservation = await process.admission.admit(demand)
    try:
        for _ in range(rng.choice([0, count, count, count + 1])):
            output = demand.calls[0].output_tokens
            permit = reservation.permit("k", input_tokens=tokens, output_tokens=output)
            await asyncio.sleep(rng.choice([0.0, 0.2]))
            permit.sent()
            used = rng.choice([0, output])
            lack = None if permit.undeclared else provider.arrives(loop.time(), tokens + output)
            try:
                await asyncio.sleep(rng.random())
            finally:
                if lack is not None:
                    permit.close(CallOutcome(kind=OutcomeKind.RATE_LIMITED, retry_after_s=lack))
                else:
                    usage = Usage(input_tokens=tokens, output_tokens=used)
                    kind = rng.choice([OutcomeKind.COMPLETED] * 4 + [OutcomeKind.UNKNOWN, OutcomeKind.ABANDONED])
                    permit.close(CallOutcome(kind=kind, usage=usage))
    finally:
        reservation.release()
    return "done"


async def world(seed: int) -> None:
    rng, shared = random.Random(seed), hub()
    limits = Limits(rpm=1_200, tpm=120_000, burst_s=6, max_concurrent=rng.choice([None, 8]))
    provider = CountingProvider()  # what it refuses is the other tests' affair: here nothing may be lost
    all_ = [await Process(shared, limits, round_trip_s=rng.choice([0.001, 0.02])).open() for _ in range(3)]
    gates = [CountingGate("db", 3) for _ in all_]
    jobs: list[asyncio.Task[str]] = []
    for process, gate in zip(all_, gates, strict=True):
        process.admission.account(gate)
        if rng.random() < 0.5:
            lossy(process, rng)
    for _ in range(150):
        i = rng.randrange(3)
        jobs.append(asyncio.ensure_future(one_job(all_[i], gates[i], provider, rng)))
        if rng.random() < 0.25:
            rng.choice(jobs).cancel()
        await asyncio.sleep(rng.choice([0.0, 0.0, 0.05, 0.3]))
    answers = await asyncio.gather(*jobs, return_exceptions=True)
    assert all(answer == "done" or isinstance(answer, asyncio.CancelledError) for answer in answers), answers
    await asyncio.sleep(30)  # what is left over here goes back by itself
    book, now = shared.books["p"], asyncio.get_running_loop().time()
    for process, gate in zip(all_, gates, strict=True):
        own = book.totals[process.ledger.fence]
        assert own.slots == 0, "slots were lost"
        assert own.unsent == pytest.approx([0, 0, 0, 0], abs=1e-2), "something granted was never told of"
        assert gate.used == 0
        assert process.pool.link is not None
        assert process.pool.link.credit == pytest.approx([0, 0, 0, 0], abs=1e-2)
        assert process.admission.statistics().waiting == 0
    for level in book.pool.levels:
        assert level.free(now) == pytest.approx(level.capacity), "a level that did not fill again"
    for process in all_:
        await process.close()
    assert not book.totals


@pytest.mark.parametrize("seed", range(12))
def test_nothing_leaks_whatever_happens(seed: int) -> None:
    run_virtual(world(seed))
