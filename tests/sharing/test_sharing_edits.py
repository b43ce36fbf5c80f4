"""Limits that one process's catalog has and another's has not yet: the ledger's count for both. In virtual time."""

from __future__ import annotations

import asyncio

import pytest
from sharing.shared_world import Process, processes
from sharing.test_sharing import close, virtual

from interlock.admission import CallOutcome, OutcomeKind
from interlock.catalog.entry import Limits
from interlock.catalog.usage import Usage
from interlock.errors import LeaseLostError, LedgerUnavailableError, NeverFitsError


async def call(process: Process, tokens: int) -> None:
    reservation = await process.admit(tokens)
    permit = reservation.permit("k", input_tokens=tokens, output_tokens=0)
    permit.sent()
    permit.close(CallOutcome(kind=OutcomeKind.COMPLETED, usage=Usage(input_tokens=tokens, output_tokens=0)))
    reservation.release()


async def edited(limits: Limits) -> tuple[Process, Process]:
    """Two processes that began alike; the first one's catalog has been edited, and the second is idle since before."""
    first, second = await processes(2, Limits(tpm=600))
    for process in (second, first):
        await call(process, 10)
    await asyncio.sleep(1)
    first.limits = limits
    assert first.pool.limits == limits
    await asyncio.sleep(1)
    return first, second


@virtual
async def test_a_limit_that_only_another_catalog_has_holds_here_too() -> None:
    first, second = await edited(Limits(tpm=600_000, rpm=60))
    done = 0

    async def calls() -> None:
        nonlocal done
        while True:
            await call(second, 10)
            done += 1

    calling = asyncio.ensure_future(calls())
    await asyncio.sleep(30)
    calling.cancel()
    await asyncio.gather(calling, return_exceptions=True)
    assert 80 <= done <= 90  # a minute's at once, and half a minute's refill
    await asyncio.sleep(1)
    assert second.pool.link is not None
    assert second.pool.link.credit == pytest.approx([0] * 4)
    await close(first, second)


@virtual
async def test_max_concurrent_that_only_another_catalog_has_holds_here_too() -> None:
    first, second = await edited(Limits(tpm=600_000, max_concurrent=2))
    await call(second, 10)  # and it hears of it
    waiting = [asyncio.ensure_future(second.admit(10)) for _ in range(5)]
    await asyncio.sleep(5)
    held = [each.result() for each in waiting if each.done()]
    assert len(held) == 2
    theirs = asyncio.ensure_future(first.admit(10))
    await asyncio.sleep(1)
    assert not theirs.done()
    for each in asyncio.as_completed([*waiting, theirs]):
        (await each).release()
    await close(first, second)
    assert not first.ledger.hub.books["p"].totals


@virtual
async def test_max_concurrent_ends_where_the_catalog_that_counted_it_drops_it() -> None:
    first, second = await edited(Limits(tpm=600_000, max_concurrent=1))
    await call(second, 10)
    second.limits = Limits(tpm=500_000)  # its own catalog is edited, and has none: the latest counts
    assert second.pool.gate is None
    held = await asyncio.gather(*[second.admit(10) for _ in range(3)])
    for each in held:
        each.release()
    await close(first, second)


@virtual
async def test_one_who_asks_for_the_first_time_is_not_refused_by_limits_that_have_grown() -> None:
    first, second = await edited(Limits(tpm=60_000))
    assert second.pool.accounts[0].capacity == 600
    (await second.admit(50_000)).release()
    await close(first, second)


@virtual
async def test_what_never_fits_is_refused_when_the_ledger_has_said_so() -> None:
    first, second = await edited(Limits(tpm=60_000))
    since = asyncio.get_running_loop().time()
    with pytest.raises(NeverFitsError, match="60,000"):
        await second.admit(60_001)
    assert asyncio.get_running_loop().time() - since < 0.1
    assert second.admission.statistics().refused == 1
    await close(first, second)


@virtual
async def test_while_the_ledger_is_asked_whether_it_ever_fits_one_may_leave_or_be_lost() -> None:
    first, second = await edited(Limits(tpm=60_000))
    leaving = asyncio.ensure_future(second.admit(50_000))
    await asyncio.sleep(0.001)
    leaving.cancel()
    await asyncio.gather(leaving, return_exceptions=True)
    await asyncio.sleep(1)
    assert (second.admission.statistics().granted, second.admission.statistics().waiting) == (1, 0)
    first.ledger.failures = [LeaseLostError("given up")]
    with pytest.raises(LeaseLostError):
        await first.admit(60_001)
    await close(second)


@virtual
async def test_what_seems_never_to_fit_is_refused_at_once_while_the_ledger_is_away() -> None:
    (one,) = await processes(1, Limits(tpm=600))
    await call(one, 1)
    one.ledger.failures = [LedgerUnavailableError("away") for _ in range(5)]
    waiting = asyncio.ensure_future(one.admit(1))
    await asyncio.sleep(0.1)
    with pytest.raises(NeverFitsError):
        one.admission.submit(one.demand(601), lambda _: None, lambda _: None)
    (await waiting).release()
    await close(one)


@virtual
async def test_a_grant_of_which_nothing_is_left_over_is_one_message() -> None:
    (one,) = await processes(1, Limits(tpm=6_000))
    await call(one, 1)
    await asyncio.sleep(1)
    said = len(one.ledger.said)
    held = await one.admit(10)
    await asyncio.sleep(1)
    assert len(one.ledger.said) == said + 1
    held.release()
    await close(one)


@virtual
async def test_a_call_that_no_float_holds_is_refused_and_ends_nobody_else() -> None:
    (one,) = await processes(1, Limits())
    await call(one, 1)
    for tokens in (10**400, float("inf"), float("nan"), -1):
        with pytest.raises(ValueError, match="tokens"):
            await one.admit(tokens)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="1,000,000"):
        await one.admit(1, count=10**12)
    await call(one, 1)
    await close(one)
