"""The shell: what is asked, granted, refused, cancelled, and in which order people are told."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest

from interlock.admission import (
    Admission,
    CallCharge,
    CallOutcome,
    CountingGate,
    DatabaseGate,
    Demand,
    OutcomeKind,
    Reservation,
    SystemClock,
)
from interlock.catalog.entry import Accounting, Limits
from interlock.catalog.usage import Usage
from interlock.errors import AdmissionError, AdmissionTimeoutError, NeverFitsError

# Granting.


async def test_the_caller_has_its_waiting_before_any_callback_runs(house) -> None:
    waiting = house.ask(house.call(house.pool(tpm=600), 10))
    assert waiting.status == "granted"
    assert house.granted == []
    await house.clock.settle()
    assert [r.demand for r in house.granted] == [waiting.demand]


async def test_a_demand_that_names_nothing_is_granted(house) -> None:
    house.ask()
    house.ask(house.call(house.pool("open"), 10**9))
    await house.clock.settle()
    assert len(house.granted) == 2
    for reservation in house.granted:
        reservation.release()


async def test_the_instant_of_a_grant_is_exact(house) -> None:
    house.sends = True
    pool = house.pool(tpm=600)  # 10 a second, 600 at once
    for size in (600, 55, 17):
        house.ask(house.call(pool, size))
    await house.clock.advance(5.499)
    assert len(house.granted) == 1
    await house.clock.advance(0.002)
    assert [round(r.waited_s, 6) for r in house.granted] == [0.0, 5.5]
    await house.clock.advance(10)
    assert round(house.granted[2].waited_s, 6) == 7.2
    assert house.granted[2].waited_by_account == pytest.approx({"p:tokens": 7.2})


async def test_waits_are_told_by_the_account_they_were_for(house) -> None:
    house.sends = True
    pool, db = house.pool(tpm=600), house.admission.account(DatabaseGate("d", 1))
    house.ask(house.call(pool, 600), held=((db, 1),))
    house.ask(house.call(pool, 60), held=((db, 1),))
    await house.clock.advance(6.0)  # the tokens are there, the database is not
    await house.clock.advance(4.0)
    house.granted[0].release()  # 600 come back unsent
    await house.clock.settle()
    assert house.granted[1].waited_s == 10.0
    assert house.granted[1].waited_by_account == pytest.approx({"p:tokens": 6.0, "db:d": 4.0})


async def test_b04_oversize_is_refused_at_once_and_blocks_nobody(house) -> None:
    house.sends = True
    pool = house.pool(tpm=100)
    with pytest.raises(NeverFitsError) as refused:
        house.ask(house.call(pool, 101), label="import")
    assert (refused.value.account, refused.value.ask, refused.value.limit) == ("p:tokens", 101, 100)
    assert "import" in str(refused.value)
    house.ask(house.call(pool, 100), label="exactly")
    await house.clock.settle()
    house.ask(house.call(pool, 100), label="head")
    with pytest.raises(NeverFitsError):
        house.ask(house.call(pool, 101), label="impossible")
    house.ask(house.call(pool, 1), label="next")
    await house.clock.advance(61)
    assert house.granted_labels() == ["exactly", "head", "next"]


async def test_b04_a_limit_that_shrinks_refuses_those_it_can_no_longer_hold(house) -> None:
    house.sends = True
    pool = house.pool(tpm=600)
    for label, size in (("first", 600), ("large", 600), ("small", 50)):
        house.ask(house.call(pool, size), label=label)
    await house.clock.settle()
    assert house.pool(tpm=120) is pool
    await house.clock.advance(60)
    assert house.granted_labels() == ["first", "small"]
    assert isinstance(house.answers["large"], NeverFitsError)


async def test_b05_all_or_nothing_and_nothing_lost_in_five_refusals(house) -> None:
    house.sends = True
    pool, db = house.pool(rpm=5, tpm=1000), house.admission.account(DatabaseGate("d", 1))
    house.ask(house.call(pool, 1000), held=((db, 1),), label="holder")
    await house.clock.settle()
    requests = house.level("p:requests")
    for i in range(5):
        waiting = house.ask(house.call(pool, 100), held=((db, 1),), label=f"w{i}", max_wait_s=7.0 if i % 2 else None)
        if i % 2:
            await house.clock.advance(7.0)
            assert isinstance(house.answers[f"w{i}"], AdmissionTimeoutError)
        else:
            assert waiting.cancel()
    await house.clock.advance(60)
    assert requests == 4.0
    assert house.level("p:requests") == 5.0
    house.granted[0].release()
    assert house.level("db:d") == 1
    house.ask(house.call(pool, 1000), held=((db, 1),), label="after")
    await house.clock.settle()
    assert house.granted_labels() == ["holder", "after"]


async def test_b05_inverted_pairs_do_not_deadlock(house) -> None:
    a, b = (house.admission.account(CountingGate(name, 1)) for name in "ab")
    for i in range(20):
        house.ask(held=((a, 1), (b, 1)) if i % 2 else ((b, 1), (a, 1)), label=str(i))
    for i in range(20):
        await house.clock.settle()
        assert len(house.granted) == i + 1
        house.granted[-1].release()
    assert (house.level("a"), house.level("b")) == (1, 1)


async def test_b07_five_calls_in_one_tick_never_pass_the_limit(house) -> None:
    pool = house.pool(tpm=100)
    for i in range(5):
        house.ask(house.call(pool, 30, 10), label=str(i))
    await house.clock.settle()
    assert len(house.granted) == 2
    assert house.level("p:tokens") == pytest.approx(20.0)


async def test_b72_a_refused_ask_changes_nothing(house) -> None:
    house.sends = True
    pool = house.pool(tpm=100, burst_s=60)
    house.ask(house.call(pool, 95))
    await house.clock.settle()
    for _ in range(50):
        with pytest.raises(AdmissionTimeoutError):
            house.ask(house.call(pool, 100), max_wait_s=0.0)
    house.ask(house.call(pool, 5), label="passes at once")
    await house.clock.settle()
    assert house.granted_labels()[-1] == "passes at once"
    await house.clock.advance(60)
    assert house.level("p:tokens") == pytest.approx(100.0)


async def test_b74_the_burst_is_a_number_of_its_own(house) -> None:
    """A greedy caller after ten idle minutes: at most the burst and the refill, in any minute."""
    pool = house.pool(rpm=15, burst_s=4)
    await house.clock.advance(600)
    sent: list[float] = []

    def granted(reservation: Reservation) -> None:
        sent.append(house.clock.now())
        house.admission.submit(reservation.demand, granted, house.refused.append)

    house.admission.submit(Demand(calls=(house.call(pool),)), granted, house.refused.append)
    for _ in range(300):
        await house.clock.advance(1.0)
    worst = max(sum(1 for t in sent if start <= t < start + 60) for start in sent)
    assert worst <= 15 + 1
    assert all(b - a >= 3.99 for a, b in pairwise(sent))


async def test_b66_admission_is_paced_and_execution_is_not() -> None:
    """Fifty calls are granted in one tick: none waits for another's call, and nothing blocks the loop."""
    admission = Admission(SystemClock())
    pool = admission.pool("p", Limits(rpm=6000))
    call = CallCharge(key="k", pool=pool, accounting=Accounting(), input_tokens=1, output_tokens=1)
    ticks, flying = 0, 0
    all_flying, stop = asyncio.Event(), asyncio.Event()

    async def heart() -> None:
        nonlocal ticks
        while not stop.is_set():
            ticks += 1
            await asyncio.sleep(0)

    async def one() -> None:
        nonlocal flying
        reservation = await admission.admit(Demand(calls=(call,)))
        flying += 1
        if flying == 50:
            all_flying.set()
        await all_flying.wait()
        reservation.release()

    beating = asyncio.ensure_future(heart())
    await asyncio.gather(*(one() for _ in range(50)))
    stop.set()
    await beating
    assert flying == 50
    assert ticks > 3


# What no demand may ask.


@pytest.mark.parametrize(("into", "out"), [(float("nan"), 0), (0, float("nan")), (-5_000, 0), (0, -1)])
async def test_tokens_that_are_no_amount_are_refused_and_leave_the_level_alone(house, into: float, out: float) -> None:
    pool = house.pool(tpm=600)
    with pytest.raises(ValueError, match="declares"):
        house.ask(house.call(pool, into, out))
    house.ask(house.call(pool, 0), label="none at all")
    house.ask(house.call(pool, 600), label="all of it")
    await house.clock.settle()
    assert house.granted_labels() == ["none at all", "all of it"]
    assert house.level("p:tokens") == pytest.approx(0.0)


@pytest.mark.parametrize("amount", [float("nan"), 0, -1, 0.5])
async def test_held_amounts_are_at_least_one(house, amount: float) -> None:
    gate = house.admission.account(CountingGate("g", 2))
    with pytest.raises(ValueError, match="at least 1"):
        house.ask(held=((gate, amount),))
    assert gate.used == 0


@pytest.mark.parametrize("max_wait_s", [float("nan"), -1.0, 0.0])
async def test_a_wait_that_is_no_time_is_over_at_once(house, max_wait_s: float) -> None:
    pool = house.pool(tpm=600)
    house.ask(house.call(pool, 600), label="fits", max_wait_s=max_wait_s)
    with pytest.raises(AdmissionTimeoutError):
        house.ask(house.call(pool, 60), max_wait_s=max_wait_s)
    await house.clock.settle()
    assert house.granted_labels() == ["fits"]


# Deadlines.


async def test_b58_waiting_stops_at_the_deadline_with_nothing_sent(house) -> None:
    house.sends = True
    pool = house.pool(tpm=600)
    house.ask(house.call(pool, 600))
    with pytest.raises(AdmissionTimeoutError) as at_once:
        house.ask(house.call(pool, 50), max_wait_s=1.0)  # fits in 5 s
    assert at_once.value.account == "p:tokens"
    for way_out in ("max_wait_s", "fewer", "raise the limit", "overflow"):
        assert way_out in str(at_once.value)
    house.ask(house.call(pool, 500), label="before")
    house.ask(house.call(pool, 5), label="in vain", max_wait_s=1.0)  # its own fit is in time; its turn is not
    await house.clock.advance(0.9)
    assert "in vain" not in house.answers
    await house.clock.advance(0.1)
    error = house.answers["in vain"]
    assert isinstance(error, AdmissionTimeoutError)
    assert error.waited_s == pytest.approx(1.0)
    await house.clock.advance(100)
    assert house.granted_labels() == ["", "before"]


async def test_b58_a_grant_at_the_very_deadline_counts(house) -> None:
    house.sends = True
    pool = house.pool(tpm=600)
    house.ask(house.call(pool, 600))
    house.ask(house.call(pool, 50), label="just", max_wait_s=5.0)
    await house.clock.advance(5.0)
    assert house.granted_labels() == ["", "just"]


async def test_overflow_proceeds_without_a_reservation_and_owes_what_it_used(house) -> None:
    pool = house.pool(tpm=600, max_concurrent=1)
    house.ask(house.call(pool, 600))
    house.ask(house.call(pool, 50), label="over", max_wait_s=2.0, overflow="proceed")
    await house.clock.settle()
    over = house.answers["over"]
    assert over.unmetered
    permit = over.permit("k", input_tokens=50, output_tokens=0)
    assert permit.unmetered
    permit.sent()
    permit.close(CallOutcome(kind=OutcomeKind.COMPLETED, usage=Usage(input_tokens=50, output_tokens=0)))
    over.release()
    assert house.level("p:tokens") == pytest.approx(-50.0)
    assert house.admission.statistics().unmetered == 1


async def test_overflow_at_the_deadline_needs_what_it_holds(house) -> None:
    house.sends = True
    pool, db = house.pool(tpm=600), house.admission.account(DatabaseGate("d", 1))
    house.ask(house.call(pool, 500), held=((db, 1),))
    house.ask(house.call(pool, 300), held=((db, 1),), label="no", max_wait_s=30.0, overflow="proceed")
    house.ask(house.call(pool, 300), label="yes", max_wait_s=30.0, overflow="proceed")
    await house.clock.advance(30.0)
    assert isinstance(house.answers["no"], AdmissionTimeoutError)
    assert house.answers["yes"].unmetered is False, "the head left at its deadline and made room"
    assert house.level("db:d") == 0


# Loops.


def test_b52_one_admission_serves_two_event_loops(new_house) -> None:
    admission = Admission(SystemClock())
    pool = admission.pool("p", Limits(rpm=60_000, burst_s=0.001))
    gate = admission.account(CountingGate("g", 1))
    call = CallCharge(key="k", pool=pool, accounting=Accounting(), input_tokens=1, output_tokens=1)

    async def contended() -> int:
        async def one() -> None:
            reservation = await admission.admit(Demand(calls=(call,), held=((gate, 1),)))
            await asyncio.sleep(0)
            reservation.release()

        await asyncio.gather(*(one() for _ in range(5)))
        # And leave somebody waiting, with a timer armed, when the loop is closed.
        holder = await admission.admit(Demand(held=((gate, 1),)))
        late = asyncio.ensure_future(admission.admit(Demand(held=((gate, 1),), max_wait_s=50.0)))
        await asyncio.sleep(0)
        late.cancel()
        with pytest.raises(asyncio.CancelledError):
            await late
        holder.release()
        return 5

    assert asyncio.run(contended()) == 5
    assert asyncio.run(contended()) == 5
    statistics = admission.statistics()
    assert statistics.waiting == 0
    assert statistics.account("g").level == 1


def test_b52_what_a_closed_loop_left_waiting_goes_on_in_the_next(new_house) -> None:
    house = new_house()
    gate = house.admission.account(CountingGate("g", 1))

    async def first() -> None:
        house.ask(held=((gate, 1),), label="one")
        house.ask(held=((gate, 1),), label="two", max_wait_s=100.0)
        await house.clock.settle()

    async def second() -> None:
        house.answers["one"].release()
        await house.clock.settle()
        house.answers["two"].release()

    asyncio.run(first())
    asyncio.run(second())
    assert house.granted_labels() == ["one", "two"]


def test_b52_giving_back_outside_any_loop_is_kept_for_the_next(new_house) -> None:
    house = new_house()
    gate, pool = house.admission.account(CountingGate("g", 1)), house.pool(tpm=600)

    async def first() -> None:
        house.ask(house.call(pool, 600), held=((gate, 1),), label="one")
        house.ask(held=((gate, 1),), label="two")
        house.ask(house.call(pool, 60), label="three")
        await house.clock.settle()

    async def second() -> None:
        house.ask(label="four")
        await house.clock.advance(6.0)

    asyncio.run(first())
    house.answers["one"].permit("k", input_tokens=600, output_tokens=0).sent()
    house.answers["one"].release()
    asyncio.run(second())
    assert sorted(house.granted_labels()) == ["four", "one", "three", "two"]


async def test_a_callback_that_raises_keeps_no_permit_and_stops_nobody(house) -> None:
    gate = house.admission.account(CountingGate("g", 1))
    seen: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: seen.append(context["exception"]))

    def broken(reservation: Reservation) -> None:
        raise RuntimeError("mine")

    def refused(error: AdmissionError) -> None:
        raise AssertionError("not refused")

    house.admission.submit(Demand(held=((gate, 1),)), broken, refused)
    house.ask(held=((gate, 1),), label="next")
    await house.clock.settle()
    assert house.granted_labels() == ["next"]
    assert [str(error) for error in seen] == ["mine"]


async def test_a_callback_that_is_cancelled_stops_nobody_either(house) -> None:
    told: list[dict] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
    gate = house.admission.account(CountingGate("g", 2))

    def cancelled(_: object) -> None:
        raise asyncio.CancelledError

    house.admission.submit(Demand(held=((gate, 1),)), cancelled, cancelled)
    house.ask(held=((gate, 1),), label="next")
    await house.clock.settle()
    assert house.granted_labels() == ["next"]
    assert len(told) == 1
