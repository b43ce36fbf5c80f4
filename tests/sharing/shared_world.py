"""Several admissions on one ledger in memory, and a provider that counts, all in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from interlock.admission import Admission, CallCharge, CallOutcome, Demand, OutcomeKind, Pool, Reservation
from interlock.admission.ledger import MemoryHub, MemoryLedger, Message, PoolState, PoolTerms, Reply
from interlock.admission.virtual import LoopClock
from interlock.catalog.entry import Accounting, Limits
from interlock.catalog.usage import Usage


class SlowLedger(MemoryLedger):
    """With a round trip, and a way to be unreachable."""

    def __init__(self, hub: MemoryHub, *, round_trip_s: float = 0.003, **settings: Any) -> None:
        super().__init__(hub, beats=False, transit_s=settings.pop("transit_s", 0.0), **settings)
        self.round_trip_s, self.failures = round_trip_s, list[Exception]()
        self.said: list[Message] = []
        self.heard: dict[str, PoolState] = {}  # each pool, as the ledger told it last

    async def register(self, terms: Sequence[PoolTerms]) -> Sequence[PoolState]:
        await asyncio.sleep(self.round_trip_s)
        return await super().register(terms)

    async def exchange(self, message: Message) -> Reply:
        self.said.append(message)
        await asyncio.sleep(self.round_trip_s)
        if self.failures:
            raise self.failures.pop(0)
        reply = await super().exchange(message)
        self.heard.update(reply.pools)
        return reply


@dataclass
class CountingProvider:
    """What a provider counts: a bucket of requests and one of tokens, taken from on arrival, refilled continuously."""

    rpm: float = 1e9
    tpm: float = 1e9
    burst_s: float = 60.0
    served: int = 0
    refused: int = 0
    tokens: float = 0.0
    _levels: list[float] = field(default_factory=list)
    _at: float = 0.0

    def arrives(self, now: float, tokens: float) -> float | None:
        """None: served. Else the seconds after which it would have been."""
        capacity = [self.rpm * self.burst_s / 60, self.tpm * self.burst_s / 60]
        rate = [self.rpm / 60, self.tpm / 60]
        if not self._levels:
            self._levels, self._at = list(capacity), now
        self._levels = [min(c, n + r * (now - self._at)) for c, n, r in zip(capacity, self._levels, rate, strict=True)]
        self._at = now
        need = [1.0, tokens]
        lack = max((n - level) / r for n, level, r in zip(need, self._levels, rate, strict=True))
        if lack > 1e-6:
            self.refused += 1
            return lack
        self._levels = [level - n for level, n in zip(self._levels, need, strict=True)]
        self.served += 1
        self.tokens += tokens
        return None


class Process:
    """One process: its admission, its ledger, and callers that do one call after the other."""

    def __init__(self, hub: MemoryHub, limits: Limits, *, name: str = "p", **ledger: Any) -> None:
        loop = asyncio.get_running_loop()
        self.ledger = SlowLedger(hub, **ledger)
        self.admission = Admission(LoopClock(loop), jitter=lambda: 0.0, transit_s=0.0, freeze=False, ledger=self.ledger)
        self.name, self.limits = name, limits
        self.waits: list[float] = []
        self.done = 0

    async def open(self) -> Process:
        await self.ledger.open()
        return self

    @property
    def pool(self) -> Pool:
        return self.admission.pool(self.name, self.limits)

    def demand(self, tokens: int, output: int = 0, *, held: tuple[Any, ...] = (), **more: Any) -> Demand:
        accounting = more.pop("accounting", Accounting())
        call = CallCharge(
            key="k", pool=self.pool, accounting=accounting, input_tokens=tokens, output_tokens=output,
            count=more.pop("count", 1),
        )  # fmt: skip
        return Demand(calls=(call,), held=held, **more)

    async def admit(self, tokens: int, output: int = 0, **more: Any) -> Reservation:
        return await self.admission.admit(self.demand(tokens, output, **more))

    async def call(
        self, provider: CountingProvider, tokens: int, *, seconds: float = 1.0, used: int | None = None, **more: Any
    ) -> bool:
        """One call from its demand to its end. Whether it was served."""
        loop = asyncio.get_running_loop()
        since = loop.time()
        reservation = await self.admit(tokens, **more)
        self.waits.append(loop.time() - since)
        permit = reservation.permit("k", input_tokens=tokens, output_tokens=more.get("output", 0))
        permit.sent()
        lack = provider.arrives(loop.time(), tokens if used is None else used)
        try:
            if lack is not None:
                await asyncio.sleep(0.01)
                permit.close(CallOutcome(kind=OutcomeKind.RATE_LIMITED, retry_after_s=lack))
                return False
            await asyncio.sleep(seconds)
            usage = Usage(input_tokens=tokens if used is None else used, output_tokens=0)
            permit.close(CallOutcome(kind=OutcomeKind.COMPLETED, usage=usage))
            self.done += 1
            return True
        finally:
            reservation.release()

    async def caller(self, provider: CountingProvider, tokens: int, until: float, **more: Any) -> None:
        while asyncio.get_running_loop().time() < until:
            await self.call(provider, tokens, **more)

    async def close(self) -> None:
        await self.admission.close()
        await self.ledger.leave()
        await self.ledger.close()


def hub() -> MemoryHub:
    return MemoryHub(asyncio.get_running_loop().time)


async def processes(n: int, limits: Limits, **ledger: Any) -> list[Process]:
    shared = hub()
    return [await Process(shared, limits, **ledger).open() for _ in range(n)]
