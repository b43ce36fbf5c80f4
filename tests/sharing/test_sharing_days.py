"""Limits per day of pools that several processes share: what a call did not use goes back to its own day, and to no
other. In virtual time."""

from __future__ import annotations

import asyncio

import pytest
from sharing.shared_world import Process, hub, processes
from sharing.test_sharing import close, virtual

from interlock.admission import CallOutcome, CallPermit, OutcomeKind
from interlock.admission.ledger import LevelState
from interlock.catalog.entry import Limits
from interlock.catalog.usage import Usage

DAY_S = 86_400.0


async def sent(process: Process, tokens: int) -> CallPermit:
    reservation = await process.admit(tokens)
    permit = reservation.permit("k", input_tokens=tokens, output_tokens=0)
    permit.sent()
    reservation.release()
    return permit


def completed(used: int) -> CallOutcome:
    return CallOutcome(kind=OutcomeKind.COMPLETED, usage=Usage(input_tokens=used, output_tokens=0))


async def day(process: Process) -> LevelState:
    """As the ledger has it when everything has been told."""
    await asyncio.sleep(1)
    await process.admit(1)
    levels = process.ledger.heard[process.name].levels
    (found,) = [level for level in levels if level.dimension == "tokens_per_day"]
    return found


@virtual
async def test_a_minute_that_was_full_since_takes_nothing_from_the_day() -> None:
    a, b = await processes(2, Limits(tpm=6_000, burst_s=60, tpd=100_000))
    permit = await sent(a, 1_000)
    await asyncio.sleep(100)
    (await sent(b, 10)).close(completed(10))  # of a minute that is full again
    await asyncio.sleep(1)
    (await sent(a, 10)).close(completed(10))  # and a hears of it
    await asyncio.sleep(1)
    permit.close(completed(100))
    used = 100_000 - (await day(a)).free
    assert used == pytest.approx(121 - 104 * 100_000 / DAY_S, abs=5)
    await close(a, b)


@virtual
async def test_a_day_that_has_begun_since_gets_nothing_back_of_the_last() -> None:
    shared = hub()
    limits = Limits(tpm=60_000, tpd=100_000, day_resets="00:00 UTC")
    one = await Process(shared, limits).open()
    await asyncio.sleep(DAY_S - asyncio.get_running_loop().time() - 30)
    permit = await sent(one, 5_000)
    await asyncio.sleep(60)
    (await sent(one, 2_000)).close(completed(2_000))
    await asyncio.sleep(1)
    permit.close(completed(10))
    assert (await day(one)).used == pytest.approx(2_001)
    await close(one)


@virtual
async def test_a_refusal_of_the_minute_gives_the_day_its_tokens_back() -> None:
    (one,) = await processes(1, Limits(tpm=60_000, tpd=100_000, day_resets="00:00 UTC"))
    permit = await sent(one, 5_000)
    permit.close(CallOutcome(kind=OutcomeKind.RATE_LIMITED, retry_after_s=1.0))
    await asyncio.sleep(5)
    assert (await day(one)).used == pytest.approx(1)
    await close(one)
