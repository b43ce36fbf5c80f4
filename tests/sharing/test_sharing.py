"""Pools that several processes share: the limits hold, nobody starves, nothing is lost. In virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from sharing.shared_world import CountingProvider, Process, hub, processes

from interlock.admission import CallCharge, CallOutcome, CountingGate, Demand, OutcomeKind
from interlock.admission.outcome import Dimension, ReportedLimit
from interlock.admission.sharing.courier import ASK_AGAIN_S
from interlock.admission.virtual import run_virtual
from interlock.catalog.entry import Accounting, Limits
from interlock.catalog.usage import Usage
from interlock.errors import (
    AdmissionTimeoutError,
    ConfigurationError,
    LeaseLostError,
    LedgerUnavailableError,
    NeverFitsError,
)

Main = Callable[[], Coroutine[Any, Any, None]]


def virtual(main: Main) -> Callable[[], None]:
    def test() -> None:
        run_virtual(main())

    test.__name__, test.__doc__ = main.__name__, main.__doc__
    return test


async def close(*all_: Process) -> None:
    for process in all_:
        await process.close()


@virtual
async def test_one_process_is_granted_what_the_ledger_has() -> None:
    (one,) = await processes(1, Limits(rpm=60, tpm=6_000))
    reservation = await one.admit(100)
    reservation.release()
    assert one.ledger.said[0].asks[0].parts[0].charge.tokens == 100
    await close(one)
    assert one.ledger.hub.books["p"].pool.levels[0].free(asyncio.get_running_loop().time()) == pytest.approx(6_000)


@virtual
async def test_four_processes_stay_within_the_limit_and_use_it() -> None:
    limits, provider = Limits(rpm=600, tpm=60_000, burst_s=10), CountingProvider(rpm=600, tpm=60_000, burst_s=10)
    all_ = await processes(4, limits)
    until = asyncio.get_running_loop().time() + 120
    await asyncio.gather(*[p.caller(provider, 100, until) for p in all_ for _ in range(16)])
    assert provider.refused == 0
    assert provider.tokens >= 0.97 * 1_000 * (120 + 10)
    counts = [p.done for p in all_]
    assert max(counts) - min(counts) <= 0.25 * sum(counts) / 4
    await close(*all_)


@virtual
async def test_a_large_call_of_one_process_is_not_starved_by_small_ones_of_others() -> None:
    limits, provider = Limits(tpm=60_000, burst_s=10), CountingProvider(tpm=60_000, burst_s=10)
    all_ = await processes(4, limits)
    large, *small = all_
    start = asyncio.get_running_loop().time()
    others = [asyncio.ensure_future(p.caller(provider, 100, start + 120)) for p in small for _ in range(16)]
    await asyncio.sleep(30)
    since = asyncio.get_running_loop().time()
    assert await large.call(provider, 8_000)
    waited = large.waits[-1]
    assert since + waited < start + 120
    assert waited <= 1.5 * 8_000 / 1_000, waited  # what it asks takes so long to refill
    await asyncio.gather(*others)
    assert provider.refused == 0
    await close(*all_)


@virtual
async def test_what_was_not_used_is_there_for_the_others() -> None:
    a, b = await processes(2, Limits(tpm=6_000, burst_s=60))
    held = await a.admit(6_000)
    waiting = asyncio.ensure_future(b.admit(5_000))
    await asyncio.sleep(1)
    assert not waiting.done()
    permit = held.permit("k", input_tokens=6_000, output_tokens=0)
    permit.close(CallOutcome(kind=OutcomeKind.UNSENT))
    held.release()
    since = asyncio.get_running_loop().time()
    (await waiting).release()
    assert asyncio.get_running_loop().time() - since < 0.3
    await close(a, b)


@virtual
async def test_a_429_of_one_process_holds_all_of_them() -> None:
    a, b = await processes(2, Limits(rpm=600, burst_s=60))
    first = await a.admit(1)
    permit = first.permit("k", input_tokens=1, output_tokens=0)
    permit.sent()
    permit.close(CallOutcome(kind=OutcomeKind.RATE_LIMITED, retry_after_s=7.0))
    first.release()
    await asyncio.sleep(0.1)
    since = asyncio.get_running_loop().time()
    (await b.admit(1)).release()
    assert 6.5 <= asyncio.get_running_loop().time() - since <= 7.5
    assert b.pool.throttle.slowdown(0) > 1.0
    await close(a, b)


@virtual
async def test_what_one_process_hears_of_a_closed_pool_and_of_limits_all_of_them_know() -> None:
    a, b = await processes(2, Limits(rpm=600, tpm=60_000))
    permits = [(await a.admit(1)).permit("k", input_tokens=1, output_tokens=0) for _ in range(2)]
    for permit in permits:
        permit.sent()
    more = {Dimension.TOKENS: ReportedLimit(limit=120_000, remaining=50_000)}
    permits[0].close(CallOutcome(kind=OutcomeKind.COMPLETED, usage=Usage(input_tokens=1), reported=more))
    await asyncio.sleep(1)
    permits[1].close(CallOutcome(kind=OutcomeKind.RATE_LIMITED, retry_after_s=3_600.0))
    await asyncio.sleep(0.1)
    with pytest.raises(AdmissionTimeoutError):
        await b.admit(1, max_wait_s=5)
    now, throttle = asyncio.get_running_loop().time(), b.pool.throttle
    assert throttle.closed_until - now > 3_500
    assert 50 < throttle.held_until - now <= 60  # a probe may pass then
    assert b.pool.limiter.levels["tokens"].published_rate == 2_000.0
    await close(a, b)


@virtual
async def test_concurrency_is_one_number_for_all() -> None:
    all_ = await processes(3, Limits(max_concurrent=4))
    taken = [await all_[i % 3].admit(1) for i in range(4)]
    waiting = asyncio.ensure_future(all_[0].admit(1))
    await asyncio.sleep(5)
    assert not waiting.done()
    taken[1].release()
    (await waiting).release()
    for reservation in taken:
        reservation.release()
    await close(*all_)
    assert not all_[0].ledger.hub.books["p"].totals


@virtual
async def test_who_waits_for_the_ledger_holds_nothing_else() -> None:
    (one,) = await processes(1, Limits(tpm=600, burst_s=60))
    gate = CountingGate("db", 1)
    one.admission.account(gate)
    (await one.admit(600)).release()  # granted and given back unsent: the level is full again
    spent = await one.admit(600)
    permit = spent.permit("k", input_tokens=600, output_tokens=0)
    permit.sent()
    waiting = asyncio.ensure_future(one.admit(300, held=((gate, 1),)))
    await asyncio.sleep(10)
    assert not waiting.done()
    assert gate.used == 0
    (await waiting).release()
    await close(one)


@virtual
async def test_nothing_is_asked_for_while_something_local_is_missing() -> None:
    (one,) = await processes(1, Limits(tpm=6_000))
    gate = CountingGate("db", 1)
    one.admission.account(gate)
    first = await one.admit(100, held=((gate, 1),))
    asked = len([m for m in one.ledger.said if m.asks])
    waiting = asyncio.ensure_future(one.admit(100, held=((gate, 1),)))
    await asyncio.sleep(5)
    assert len([m for m in one.ledger.said if m.asks]) == asked
    first.release()
    (await waiting).release()
    await close(one)


@virtual
async def test_a_demand_that_left_gives_its_grant_back() -> None:
    a, b = await processes(2, Limits(tpm=6_000, burst_s=60))
    leaving = asyncio.ensure_future(a.admit(6_000))
    await asyncio.sleep(1.5 * a.ledger.round_trip_s)  # the pool is registered first
    assert [len(message.asks) for message in a.ledger.said] == [1]  # it is under way
    leaving.cancel()
    await asyncio.gather(leaving, return_exceptions=True)
    since = asyncio.get_running_loop().time()
    (await b.admit(6_000)).release()
    assert asyncio.get_running_loop().time() - since < 0.5
    await close(a, b)


@virtual
async def test_nothing_goes_unmetered_while_the_ledger_is_away() -> None:
    (one,) = await processes(1, Limits(tpm=6_000))
    (await one.admit(1)).release()
    one.ledger.failures = [LedgerUnavailableError("the ledger is away") for _ in range(5)]
    since = asyncio.get_running_loop().time()
    (await one.admit(1)).release()
    assert asyncio.get_running_loop().time() - since > 1.0
    assert one.admission.statistics().unmetered == 0
    await close(one)


@virtual
async def test_whoever_waits_is_refused_when_the_process_was_given_up() -> None:
    shared = hub()
    one = await Process(shared, Limits(tpm=600), ttl_s=15).open()
    spent = await one.admit(600)
    spent.permit("k", input_tokens=600, output_tokens=0).sent()
    waiting = asyncio.ensure_future(one.admit(600))
    await asyncio.sleep(1)
    one.ledger.failures = [LeaseLostError("given up")]
    with pytest.raises(LeaseLostError):
        await waiting
    with pytest.raises(LeaseLostError):
        await one.admit(1)
    spent.release()
    await close(one)


@virtual
async def test_whoever_waits_hears_of_a_ledger_that_fails_in_a_way_nobody_knows() -> None:
    (one,) = await processes(1, Limits(tpm=6_000))
    (await one.admit(1)).release()
    one.ledger.failures = [RuntimeError("a row is not what it was")]
    with pytest.raises(LeaseLostError, match="RuntimeError") as told:
        await one.admit(1)
    assert str(told.value.__cause__) == "a row is not what it was"
    with pytest.raises(LeaseLostError, match="RuntimeError"):
        await one.admit(1)
    await close(one)


@virtual
async def test_a_ledger_that_lets_nobody_in_for_a_while_is_waited_for() -> None:
    (one,) = await processes(1, Limits(tpm=6_000))
    (await one.admit(1)).release()
    one.ledger.failures = [ConfigurationError("the password is being changed") for _ in range(3)]
    (await one.admit(1)).release()
    assert one.admission.statistics().unmetered == 0
    await close(one)


@virtual
async def test_never_fits_and_max_wait_are_told_as_in_one_process() -> None:
    (one,) = await processes(1, Limits(tpm=600, burst_s=60))
    with pytest.raises(NeverFitsError):
        await one.admit(601)
    spent = await one.admit(600)
    spent.permit("k", input_tokens=600, output_tokens=0).sent()
    await asyncio.sleep(0.1)
    with pytest.raises(AdmissionTimeoutError):
        await one.admit(600, max_wait_s=5)
    spent.release()
    await close(one)


@virtual
async def test_who_would_wait_next_to_nothing_is_granted_what_is_there() -> None:
    (one,) = await processes(1, Limits(tpm=6_000, burst_s=60))
    (await one.admit(10, max_wait_s=0.01)).release()
    reservation = await one.admit(10, max_wait_s=0.01, overflow="proceed")
    assert not reservation.unmetered
    reservation.release()
    await close(one)


@virtual
async def test_an_edited_limit_reaches_every_process() -> None:
    a, b = await processes(2, Limits(tpm=600, burst_s=60))
    (await a.admit(10)).release()
    (await b.admit(10)).release()
    a.limits = Limits(tpm=60_000, burst_s=60)
    assert a.pool.limits.tpm == 60_000
    await asyncio.sleep(0.1)
    (await a.admit(50_000)).release()
    await asyncio.sleep(0.1)
    (await b.admit(10)).release()  # whose own catalog still says 600, and who hears of it so
    (await b.admit(50_000)).release()
    await close(a, b)


@virtual
async def test_a_provider_that_serves_less_is_followed_by_all() -> None:
    limits, provider = Limits(tpm=60_000, burst_s=10), CountingProvider(tpm=30_000, burst_s=10)
    all_ = await processes(4, limits)
    until = asyncio.get_running_loop().time() + 300
    await asyncio.gather(*[p.caller(provider, 100, until) for p in all_ for _ in range(8)])
    assert provider.tokens >= 0.9 * 500 * 310
    assert provider.refused / (provider.refused + provider.served) < 0.02
    await close(*all_)


@virtual
async def test_nothing_runs_while_nothing_happens() -> None:
    (one,) = await processes(1, Limits(tpm=6_000))
    reservation = await one.admit(100)
    permit = reservation.permit("k", input_tokens=100, output_tokens=0)
    permit.sent()
    permit.close(CallOutcome(kind=OutcomeKind.UNKNOWN))
    reservation.release()
    await asyncio.sleep(1)
    said = len(one.ledger.said)
    await asyncio.sleep(3_600)
    assert len(one.ledger.said) == said
    await close(one)


@virtual
async def test_who_lacks_one_of_two_pools_does_not_ask_all_the_time() -> None:
    (one,) = await processes(1, Limits(tpm=6_000))
    pools = [one.admission.pool(name, limits) for name, limits in (("p", Limits(max_concurrent=1)), ("q", Limits()))]
    calls = [
        CallCharge(key=pool.name, pool=pool, accounting=Accounting(), input_tokens=1, output_tokens=0) for pool in pools
    ]
    held = await one.admission.admit(Demand(calls=(calls[0],)))
    waiting = asyncio.ensure_future(one.admission.admit(Demand(calls=tuple(calls))))
    await asyncio.sleep(1)
    said = len(one.ledger.said)
    await asyncio.sleep(10)
    assert len(one.ledger.said) - said <= 10 / ASK_AGAIN_S
    held.release()
    (await waiting).release()
    await close(one)


@virtual
async def test_a_pool_that_comes_while_others_are_being_registered_is_registered_too() -> None:
    (one,) = await processes(1, Limits(tpm=6_000), round_trip_s=0.02)
    first = asyncio.ensure_future(one.admit(1))
    await asyncio.sleep(0.01)  # p is on its way
    pool = one.admission.pool("q", Limits(tpm=600))
    call = CallCharge(key="q", pool=pool, accounting=Accounting(), input_tokens=1, output_tokens=0)
    (await one.admission.admit(Demand(calls=(call,)))).release()
    (await first).release()
    await close(one)


@virtual
async def test_a_ledger_that_was_emptied_is_told_of_the_pools_again() -> None:
    (one,) = await processes(1, Limits(tpm=6_000))
    (await one.admit(1)).release()
    await asyncio.sleep(1)
    one.ledger.hub.books.clear()
    (await one.admit(1)).release()
    await close(one)


@virtual
async def test_a_priority_beyond_what_a_ledger_can_hold_is_the_highest() -> None:
    (one,) = await processes(1, Limits(tpm=6_000))
    (await one.admit(1, priority=10**12)).release()
    (await one.admit(1, priority=-(10**12))).release()
    assert [ask.priority for said in one.ledger.said for ask in said.asks] == [2**31 - 1, 1 - 2**31]
    await close(one)
