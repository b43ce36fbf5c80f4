"""Random work of several processes on two pools: jobs that need both, priorities, patience, work that goes unmetered,
limits that are edited, days, answers that are lost. Nothing leaks, everybody is answered."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest
from sharing.shared_world import Process, hub
from sharing.test_sharing_seeds import lossy

from interlock.admission import CallCharge, CallOutcome, Demand, OutcomeKind, Pool
from interlock.admission.virtual import run_virtual
from interlock.catalog.entry import Accounting, Limits
from interlock.catalog.usage import Usage
from interlock.errors import AdmissionTimeoutError, NeverFitsError

LIMITS = (
    Limits(rpm=1_200, tpm=120_000, burst_s=6),
    Limits(rpm=1_200, tpm=120_000, burst_s=6, max_concurrent=6),
    Limits(input_tpm=90_000, output_tpm=40_000, burst_s=6, max_concurrent=9),
    Limits(tpm=120_000, burst_s=6, tpd=2_000_000),
    Limits(rpm=900, burst_s=6, rpd=20_000, tpd=3_000_000, day_resets="00:00 UTC"),
    Limits(),
    Limits(max_concurrent=5),
)
KINDS = [OutcomeKind.COMPLETED] * 40 + [
    OutcomeKind.UNKNOWN, OutcomeKind.ABANDONED, OutcomeKind.REJECTED, OutcomeKind.OVERLOADED, OutcomeKind.UNSENT,
    OutcomeKind.RATE_LIMITED, OutcomeKind.UNKNOWN, OutcomeKind.ABANDONED, OutcomeKind.UNSENT,
]  # fmt: skip


class World:
    def __init__(self, seed: int) -> None:
        self.rng, self.hub = random.Random(seed), hub()
        self.limits = dict(zip("pq", self.rng.choices(LIMITS, k=2), strict=True))
        self.processes: list[Process] = []

    async def enter(self) -> None:
        process = await Process(self.hub, self.limits["p"], round_trip_s=self.rng.choice([0.001, 0.02])).open()
        if self.rng.random() < 0.4:
            lossy(process, self.rng)
        self.processes.append(process)

    def pool(self, process: Process, name: str) -> Pool:
        return process.admission.pool(name, self.limits[name])

    def demand(self, process: Process) -> Demand:
        r = self.rng
        accounting = Accounting(output=r.choice(["limit", "limit", "expected"]))
        calls = tuple(
            CallCharge(
                key=f"k{name}", pool=self.pool(process, name), accounting=accounting,
                input_tokens=r.choice([10, 200, 900, 3_000]), output_tokens=r.choice([0, 50, 400]),
                count=r.choice([1, 1, 1, 2]),
            )
            for name in r.choice(["p", "p", "q", "pq"])
        )  # fmt: skip
        patience: dict[str, Any] = {}
        if r.random() < 0.3:
            patience = {"max_wait_s": r.choice([0.0, 0.5, 5.0]), "overflow": r.choice(["wait", "proceed"])}
        return Demand(calls=calls, priority=r.choice([0, 0, 0, 2, -1]), workflow=r.choice("ab"), **patience)

    async def job(self, process: Process) -> str:
        r, demand = self.rng, self.demand(process)
        try:
            reservation = await process.admission.admit(demand)
        except (AdmissionTimeoutError, NeverFitsError) as error:
            return type(error).__name__
        try:
            for call in demand.calls:
                for _ in range(r.choice([0, call.count, call.count + (r.random() < 0.2)])):
                    permit = reservation.permit(
                        call.key, input_tokens=call.input_tokens, output_tokens=call.output_tokens
                    )
                    try:
                        await asyncio.sleep(r.choice([0.0, 0.3]))
                        permit.sent()
                        await asyncio.sleep(r.choice([0.1, 2.0]))
                    finally:
                        usage = Usage(input_tokens=call.input_tokens, output_tokens=r.choice([0, call.output_tokens]))
                        permit.close(CallOutcome(kind=r.choice(KINDS), usage=usage, retry_after_s=0.5))
        finally:
            reservation.release()
        return "done"

    async def run(self, jobs: int) -> None:
        r = self.rng
        for _ in range(3):
            await self.enter()
        under_way: list[tuple[Process, asyncio.Task[str]]] = []
        for number in range(jobs):
            process = r.choice(self.processes)
            under_way.append((process, asyncio.ensure_future(self.job(process))))
            if r.random() < 0.2:
                r.choice(under_way)[1].cancel()
            if number % 40 == 39:
                name = r.choice("pq")
                self.limits[name] = r.choice(LIMITS)
                for each in self.processes:
                    self.pool(each, name)
            await asyncio.sleep(r.choice([0.0, 0.0, 0.05, 0.3]))
        told = await asyncio.gather(*[task for _, task in under_way], return_exceptions=True)
        bad = [each for each in told if not isinstance(each, str | asyncio.CancelledError)]
        assert not bad, bad
        await asyncio.sleep(60)
        self.check()
        for process in self.processes:
            await process.close()
        for name, book in self.hub.books.items():
            assert not book.totals, name

    def check(self) -> None:
        for process in self.processes:
            assert process.admission.statistics().waiting == 0
            for name in "pq":
                pool = process.admission._registry.pools.get(name)
                if pool is None:
                    continue
                assert pool.link is not None
                assert pool.link.credit == pytest.approx([0] * 4, abs=1e-2)
                own = self.hub.books[name].totals.get(process.ledger.fence)
                if own is not None:
                    assert own.slots == 0, f"slots of {name} were lost"
                    assert own.unsent == pytest.approx([0] * 4, abs=1e-2), f"{name}: granted and never told of"
                if pool.gate is not None:
                    assert pool.gate.used == 0


@pytest.mark.parametrize("seed", range(8))
def test_nothing_leaks_from_two_pools_whatever_happens(seed: int) -> None:
    async def main() -> None:
        await World(seed).run(120)

    run_virtual(main())
