"""A reservation's life: every charge settles exactly once, by outcome, whatever happens in between."""

from __future__ import annotations

import asyncio
import itertools
import logging

import pytest
from hypothesis import given, strategies as st

from interlock.admission import (
    Admission,
    CallCharge,
    CallOutcome,
    CountingGate,
    DatabaseGate,
    Demand,
    Dimension,
    ManualClock,
    OutcomeKind,
    ReportedLimit,
)
from interlock.admission.expected import ENOUGH
from interlock.catalog.entry import Accounting, Limits
from interlock.catalog.usage import Usage
from interlock.errors import AdmissionTimeoutError, UndeclaredResourceError

REPORTED = Usage(input_tokens=90, output_tokens=20)


@pytest.mark.parametrize(
    ("kind", "usage", "tokens", "requests"),
    [
        (OutcomeKind.COMPLETED, REPORTED, 110, 1),
        (OutcomeKind.COMPLETED, None, 300, 1),
        (OutcomeKind.COMPLETED, Usage(input_tokens=90, output_tokens=500), 590, 1),
        (OutcomeKind.OVERLOADED, None, 0, 1),
        (OutcomeKind.REJECTED, None, 0, 1),
        (OutcomeKind.UNKNOWN, None, 300, 1),
        (OutcomeKind.ABANDONED, REPORTED, 110, 1),
        (OutcomeKind.ABANDONED, None, 300, 1),
        (OutcomeKind.UNSENT, None, 0, 0),
    ],
)
async def test_each_outcome_settles_as_the_table_says(house, kind, usage, tokens, requests) -> None:
    pool = house.pool(tpm=1000, rpm=10)
    house.ask(house.call(pool, 100, 200))
    await house.clock.settle()
    reservation = house.granted[0]
    permit = reservation.permit("k", input_tokens=100, output_tokens=200)
    permit.sent()
    permit.close(CallOutcome(kind=kind, usage=usage))
    assert house.level("p:tokens") == pytest.approx(1000 - tokens)
    assert house.level("p:requests") == pytest.approx(10 - requests)
    permit.close(CallOutcome(kind=OutcomeKind.UNSENT))
    reservation.release()
    reservation.release()
    assert house.level("p:tokens") == pytest.approx(1000 - tokens), "only the first close counts"


async def test_a_429_gives_nothing_back_to_a_drained_pool(house) -> None:
    pool = house.pool(tpm=1000, rpm=10)
    for i in range(5):
        house.ask(house.call(pool, 200), label=str(i))
    await house.clock.settle()
    for reservation in house.granted:
        house.finish(reservation, OutcomeKind.RATE_LIMITED, retry_after_s=5.0)
    assert house.level("p:tokens") == pytest.approx(0.0)
    assert house.level("p:requests") == pytest.approx(0.0)


async def test_a_429_eases_a_debt(house) -> None:
    pool = house.pool(tpm=1000)
    house.ask(house.call(pool, 300))
    await house.clock.settle()
    reservation = house.granted[0]
    large = reservation.permit("k", input_tokens=1500, output_tokens=0)
    large.sent()
    assert house.level("p:tokens") == pytest.approx(-500.0)
    large.close(CallOutcome(kind=OutcomeKind.RATE_LIMITED, retry_after_s=5.0))
    assert house.level("p:tokens") == pytest.approx(0.0)


async def test_nobody_is_granted_what_a_429_gives_back(house) -> None:
    """The hold stands before the refund: a waiting job must not slip out between the two."""
    pool = house.pool(tpm=1000)
    house.ask(house.call(pool, 600), label="a")
    house.ask(house.call(pool, 600), label="b")
    await house.clock.settle()
    house.finish(house.granted[0], OutcomeKind.RATE_LIMITED, retry_after_s=5.0)
    await house.clock.advance(4.9)
    assert house.granted_labels() == ["a"]
    await house.clock.advance(0.2)
    assert house.granted_labels() == ["a", "b"]


async def test_granted_and_nothing_sent_gives_everything_back(house) -> None:
    pool, db = house.pool(tpm=1000, rpm=10, max_concurrent=2), house.admission.account(DatabaseGate("d", 1))
    house.ask(house.call(pool, 100, 200, count=2), held=((db, 1),))
    await house.clock.settle()
    assert house.level("p:tokens") == pytest.approx(400.0)
    assert house.level("p:concurrent") == 0
    house.granted[0].permit("k", input_tokens=100, output_tokens=200)
    house.granted[0].release()
    assert house.level("p:tokens") == pytest.approx(1000.0)
    assert house.level("p:requests") == pytest.approx(10.0)
    assert house.level("p:concurrent") == 2
    assert house.level("db:d") == 1


async def test_what_was_sent_and_not_closed_stays_reserved_after_the_job(house) -> None:
    pool = house.pool(tpm=1000)
    house.ask(house.call(pool, 300))
    await house.clock.settle()
    reservation = house.granted[0]
    permit = reservation.permit("k", input_tokens=300, output_tokens=0)
    permit.sent()
    reservation.release()
    assert house.level("p:tokens") == pytest.approx(700.0)
    permit.close(CallOutcome(kind=OutcomeKind.ABANDONED, usage=Usage(input_tokens=50, output_tokens=0)))
    assert house.level("p:tokens") == pytest.approx(950.0)


async def test_b53_several_calls_are_reserved_together_and_settle_apart(house) -> None:
    pool = house.pool(tpm=1000)
    house.ask(house.call(pool, 100, 100, count=4))
    await house.clock.settle()
    assert house.level("p:tokens") == pytest.approx(200.0)
    reservation = house.granted[0]
    for _ in range(3):
        permit = reservation.permit("k", input_tokens=100, output_tokens=100)
        assert not permit.undeclared
        permit.sent()
        permit.close(CallOutcome(kind=OutcomeKind.COMPLETED, usage=Usage(input_tokens=100, output_tokens=0)))
    assert house.level("p:tokens") == pytest.approx(500.0)
    reservation.release()
    assert house.level("p:tokens") == pytest.approx(700.0), "the fourth was never sent"


async def test_b53_separate_limits_take_their_own_part(house) -> None:
    pool = house.pool(input_tpm=1000, output_tpm=500)
    house.ask(house.call(pool, 300, 200))
    await house.clock.settle()
    assert house.level("p:input_tokens") == pytest.approx(700.0)
    assert house.level("p:output_tokens") == pytest.approx(300.0)
    house.finish(house.granted[0], used=(310, 20))
    assert house.level("p:input_tokens") == pytest.approx(690.0)
    assert house.level("p:output_tokens") == pytest.approx(480.0)


async def test_b53_an_idle_pool_never_refuses_an_expected_output(house) -> None:
    """The output limit is larger than the pool's whole minute: the provider would serve it, so it is admitted."""
    house.sends = True
    pool = house.pool(input_tpm=1000, output_tpm=500)
    accounting = Accounting(output="expected")
    for i in range(ENOUGH):
        house.ask(house.call(pool, 10, 64_000, accounting=accounting), label=str(i))
        await house.clock.advance(120)
        house.finish(house.answers[str(i)], used=(10, 40))
    await house.clock.advance(120)
    house.ask(house.call(pool, 10, 64_000, accounting=accounting), label="last")
    assert house.level("p:output_tokens") == pytest.approx(460.0), "by now it is known what to expect"


async def test_an_undeclared_call_is_a_debt_and_says_so(house) -> None:
    pool = house.pool(tpm=1000, rpm=10)
    house.ask(house.call(pool, 100, 100), label="job")
    await house.clock.settle()
    reservation = house.granted[0]
    assert not reservation.permit("k", input_tokens=100, output_tokens=50).undeclared
    beyond = reservation.permit("k", input_tokens=900, output_tokens=400)
    assert beyond.undeclared
    assert house.level("p:tokens") == pytest.approx(-500.0)
    with pytest.raises(UndeclaredResourceError, match="job"):
        reservation.permit("never", input_tokens=1, output_tokens=1)
    reservation.release()
    assert house.level("p:tokens") == pytest.approx(1000.0), "neither was sent"


async def test_a_call_larger_than_declared_owes_the_difference(house) -> None:
    pool = house.pool(tpm=1000, rpm=10)
    house.ask(house.call(pool, 100, 100))
    await house.clock.settle()
    permit = house.granted[0].permit("k", input_tokens=150, output_tokens=100)
    assert permit.undeclared
    assert house.level("p:tokens") == pytest.approx(750.0)
    assert house.level("p:requests") == pytest.approx(9.0)
    permit.sent()
    permit.close(CallOutcome(kind=OutcomeKind.UNKNOWN))
    house.granted[0].release()
    assert house.level("p:tokens") == pytest.approx(750.0)


STEPS = ("permit", "sent", "completed", "rejected", "unknown", "unsent", "abandoned", "release")


@given(st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 3)), max_size=25), st.integers(1, 3))
def test_whatever_a_job_does_its_charges_settle_exactly_once(steps: list[tuple[str, int]], count: int) -> None:
    async def scenario() -> None:
        admission = Admission(ManualClock(), jitter=lambda: 0.0, transit_s=0.0)
        pool = admission.pool("p", Limits(tpm=10_000, rpm=100))
        gate = admission.account(CountingGate("g", 1))
        call = CallCharge(key="k", pool=pool, accounting=Accounting(), input_tokens=100, output_tokens=100, count=count)
        reservation = await admission.admit(Demand(calls=(call,), held=((gate, 1),)))
        permits, spent, requests = [], {}, {}
        for what, which in steps:
            if what == "permit":
                permits.append(reservation.permit("k", input_tokens=100, output_tokens=100))
                if reservation.released or len(permits) > count:
                    assert permits[-1].undeclared
                continue
            if what == "release":
                reservation.release()
                assert gate.used == 0
                continue
            if which >= len(permits):
                continue
            permit = permits[which]
            if what == "sent":
                permit.sent()
                continue
            was_closed, was_sent = permit.closed, permit._state == 1
            permit.close(CallOutcome(kind=OutcomeKind(what), usage=Usage(input_tokens=100, output_tokens=30)))
            if not was_closed:
                lasting = was_sent and what != "unsent"
                tokens = {"completed": 130, "abandoned": 130, "unknown": 200}.get(what, 0)
                spent[which], requests[which] = (tokens if lasting else 0), int(lasting)
        reservation.release()
        still = [p for p in permits if not p.closed]  # sent, and kept
        levels = pool.limiter.levels
        assert levels["tokens"].level(1_000.0) == pytest.approx(10_000 - sum(spent.values()) - 200 * len(still))
        assert levels["requests"].level(1_000.0) == pytest.approx(100 - sum(requests.values()) - len(still))
        assert gate.used == 0

    asyncio.run(scenario())


# Feedback.


async def test_reported_limits_are_adopted_and_said_once(house, caplog) -> None:
    pool = house.pool(tpm=1000)
    with caplog.at_level(logging.WARNING, logger="interlock.admission"):
        for _ in range(3):
            house.ask(house.call(pool, 10))
            await house.clock.settle()
            house.finish(house.granted[-1], used=(10, 0), reported={Dimension.TOKENS: ReportedLimit(limit=6000.0)})
    assert house.admission.statistics().account("p:tokens").capacity == 6000.0
    assert len(caplog.records) == 1
    assert "pool p: the provider reports tokens = 6000 a minute, the catalog says 1000" in caplog.text
    assert house.pool(tpm=1000) is pool
    assert house.admission.statistics().account("p:tokens").capacity == 6000.0, "an unchanged catalog changes nothing"


async def test_a_limit_that_grows_lets_the_waiting_go(house) -> None:
    pool = house.pool(tpm=600)
    house.ask(house.call(pool, 600))
    await house.clock.settle()
    house.ask(house.call(pool, 300), label="waits")
    await house.clock.advance(1.0)
    house.finish(house.granted[0], used=(600, 0), reported={Dimension.TOKENS: ReportedLimit(limit=60_000.0)})
    await house.clock.advance(0.4)
    assert house.granted_labels()[-1] == "waits"


async def test_a_grant_of_before_a_429_is_a_straggler_though_it_was_not_delivered_yet(house) -> None:
    """Its epoch is that of the moment it was granted, not of the moment it heard of it."""
    pool = house.pool(rpm=60)
    house.ask(house.call(pool), label="refused")
    await house.clock.settle()
    house.ask(house.call(pool), label="in between")
    house.finish(house.answers["refused"], OutcomeKind.RATE_LIMITED, retry_after_s=5.0)
    once = pool.throttle.slowdown(house.clock.now())
    await house.clock.advance(0.1)
    house.finish(house.answers["in between"], OutcomeKind.RATE_LIMITED, retry_after_s=5.0)
    assert pool.throttle.slowdown(house.clock.now()) == once


@pytest.mark.parametrize("number", [float("inf"), float("-inf"), float("nan")])
async def test_a_reported_limit_that_is_no_number_changes_nothing(house, number: float) -> None:
    pool = house.pool(tpm=600)
    house.ask(house.call(pool, 100))
    await house.clock.settle()
    reported = {Dimension.TOKENS: ReportedLimit(limit=number, remaining=number)}
    house.finish(house.granted[0], used=(100, 0), reported=reported)
    tokens = house.admission.statistics().account("p:tokens")
    assert (tokens.level, tokens.capacity) == pytest.approx((500.0, 600.0))


async def test_b55_thirty_429s_resume_after_the_hint_and_one_by_one(house) -> None:
    pool = house.pool(rpm=60)  # one a second
    start = house.clock.now()
    for i in range(30):
        house.ask(house.call(pool), label=str(i))
    await house.clock.settle()
    first = list(house.granted)
    assert len(first) == 30
    for reservation in first:
        house.finish(reservation, OutcomeKind.RATE_LIMITED, retry_after_s=10.0)
        house.ask(house.call(pool), ticket=reservation.ticket)
    await house.clock.advance(9.999)
    assert len(house.granted) == 30, "nobody before the provider's time"
    await house.clock.advance(200)
    resumed = [r.granted_at - start for r in house.granted[30:]]
    assert len(resumed) == 30
    assert resumed[0] == pytest.approx(10.0)
    slowdown = pool.throttle.slowdown(house.clock.now())
    gaps = [b - a for a, b in itertools.pairwise(resumed)]
    assert min(gaps) >= slowdown * 0.999, "no herd: they follow the refill"
    assert [r.ticket for r in house.granted[30:]] == [r.ticket for r in first], "in their old order"


@pytest.mark.parametrize("hint", [0.0, 0.02, 1.0, None])
async def test_b55_a_provider_that_refuses_for_a_minute_is_not_stormed_whatever_it_hints(house, hint) -> None:
    pool, done = house.pool(rpm=600), 0
    for _ in range(30):
        house.ask(house.call(pool))
    await house.clock.settle()
    for _ in range(600):
        while done < len(house.granted):
            reservation = house.granted[done]
            house.finish(reservation, OutcomeKind.RATE_LIMITED, retry_after_s=hint)
            house.ask(house.call(pool), ticket=reservation.ticket)
            done += 1
        await house.clock.advance(0.1)
    assert done <= 30 + 8, "the burst of before, and a few that looked whether it is over"


async def test_b55_a_pool_without_limits_starts_slowly_after_a_429(house) -> None:
    """There is no rate to follow: one call, then two for each that succeeds."""
    pool = house.pool("open")
    for i in range(30):
        house.ask(house.call(pool), label=str(i))
    await house.clock.settle()
    first = list(house.granted)
    assert len(first) == 30
    for reservation in first:
        house.finish(reservation, OutcomeKind.RATE_LIMITED, retry_after_s=10.0)
        house.ask(house.call(pool), ticket=reservation.ticket)
    await house.clock.advance(9.9)
    assert len(house.granted) == 30
    await house.clock.advance(0.2)
    assert len(house.granted) == 31
    slow = house.admission.explain(house.ask(house.call(pool)))
    assert "429" in slow.reason
    sizes = []
    for _ in range(3):
        going = house.granted[sum(sizes) + 30 :]
        for reservation in going:
            house.finish(reservation, used=(1, 0))
        sizes.append(len(going))
        await house.clock.advance(0.1)
    assert sizes == [1, 2, 4]
    assert len(house.granted) == 30 + 1 + 2 + 4 + 8
    for _ in range(3):  # and where nothing succeeds, one now and then
        await house.clock.advance(5.0)
    assert len(house.granted) == 45 + 3


async def test_b48_a_deadline_before_the_provider_s_time_fails_at_once(house) -> None:
    pool = house.pool(tpm=600)
    house.ask(house.call(pool, 100))
    await house.clock.settle()
    house.finish(house.granted[0], OutcomeKind.RATE_LIMITED, retry_after_s=600.0)
    with pytest.raises(AdmissionTimeoutError):
        house.ask(house.call(pool, 100), ticket=house.granted[0].ticket, max_wait_s=30.0)
    probe = house.ask(house.call(pool, 100), ticket=house.granted[0].ticket, label="probe")
    house.ask(house.call(pool, 100), label="other")
    assert "429" in house.admission.explain(probe).reason
    await house.clock.advance(60.0)
    assert house.granted_labels() == ["", "probe"]
    await house.clock.advance(30.0)
    assert house.granted_labels() == ["", "probe"], "one probe, and everybody else waits for it"
    house.finish(house.answers["probe"], used=(100, 0))
    await house.clock.advance(60.0)
    assert house.granted_labels() == ["", "probe", "other"]


async def test_b61_elapsed_time_is_never_negative_and_never_more_than_full(house) -> None:
    """A level read at an earlier instant, or an hour later, is neither negative nor over its capacity."""
    pool = house.pool(tpm=600)
    level = pool.limiter.levels["tokens"]
    level.take(1_000.0, 600.0)
    assert level.level(989.0) <= level.level(1_000.0) + 1e-9
    assert level.level(1_030.0) == pytest.approx(300.0)
    assert level.level(1_000.0 + 3_600.0) == 600.0
    assert level.free(1_000.0 + 86_400.0) == 600.0


# Cancelling, at each point.


async def take_and_leave(house, gate, where: str) -> None:
    """One job that is cancelled at `where`."""
    pool = house.pool(tpm=600_000)
    demand = Demand(calls=(house.call(pool, 10, 10),), held=((gate, 1),))

    async def job() -> None:
        reservation = await house.admission.admit(demand)
        try:
            permit = reservation.permit("k", input_tokens=10, output_tokens=10)
            try:
                if where == "before the send":
                    await asyncio.sleep(3600)
                permit.sent()
                await asyncio.sleep(3600)
            finally:
                permit.close(CallOutcome(kind=OutcomeKind.ABANDONED, usage=Usage(input_tokens=10, output_tokens=0)))
        finally:
            reservation.release()

    if where == "queued":
        holder = await house.admission.admit(Demand(held=((gate, gate.capacity),)))
        task = asyncio.ensure_future(job())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        holder.release()
        return
    coroutine = job()
    task = asyncio.ensure_future(asyncio.wait_for(coroutine, None) if where == "inside wait_for" else coroutine)
    turns = {"in the tick after the grant": 1, "as the grant is delivered": 2}.get(where, 10)
    for _ in range(turns):
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.parametrize(
    "where",
    [
        "queued",
        "in the tick after the grant",
        "as the grant is delivered",
        "before the send",
        "after the send",
        "inside wait_for",
    ],
)
async def test_b06_cancelling_anywhere_gives_the_permit_back(house, where: str) -> None:
    gate = house.admission.account(CountingGate("g", 3))
    for _ in range(gate.capacity + 1):
        await take_and_leave(house, gate, where)
        assert gate.used == 0
    for i in range(3):
        house.ask(held=((gate, 1),), label=str(i))
    await house.clock.settle()
    assert house.granted_labels() == ["0", "1", "2"]
    expected = 600_000 - (10 * 4 if where in ("after the send", "inside wait_for") else 0)
    assert house.level("p:tokens") == pytest.approx(expected)


async def test_b06_cancelling_a_grant_that_was_not_delivered_wakes_the_next(house) -> None:
    gate = house.admission.account(CountingGate("g", 1))
    first = house.ask(held=((gate, 1),), label="first")
    house.ask(held=((gate, 1),), label="second")
    assert first.cancel()
    assert not first.cancel()
    await house.clock.settle()
    assert house.granted_labels() == ["second"]
    assert first.status == "cancelled"
    statistics = house.admission.statistics()
    assert (statistics.granted, statistics.cancelled) == (1, 1), "told once, as what it became"


async def test_b06_cancelling_after_delivery_is_the_owner_s_business(house) -> None:
    gate = house.admission.account(CountingGate("g", 1))
    waiting = house.ask(held=((gate, 1),))
    await house.clock.settle()
    assert not waiting.cancel()
    assert gate.used == 1
    house.granted[0].release()
    assert gate.used == 0


async def test_a_cancelled_demand_hears_nothing_more(house) -> None:
    pool = house.pool(tpm=600)
    house.ask(house.call(pool, 600))
    waiting = house.ask(house.call(pool, 10), label="gone", max_wait_s=5.0)
    await house.clock.advance(0.5)
    assert waiting.cancel()
    await house.clock.advance(10)
    assert "gone" not in house.answers
    assert house.admission.statistics().cancelled == 1
