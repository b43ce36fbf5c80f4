"""What one process hears from the provider holds for all: refusals, reports, days. The same tests for every ledger."""

from __future__ import annotations

from math import inf

import pytest
from ledger.houses import START, House, Owner, ask, over, part

from interlock.admission.charges import Charge
from interlock.admission.ledger import PoolState, Settle, Signal, SignalKind
from interlock.admission.outcome import Dimension, ReportedLimit


async def tell(owner: Owner, kind: SignalKind, **more: object) -> PoolState:
    return (await owner.say(signals=[Signal(pool="p", kind=kind, **more)])).pools["p"]  # type: ignore[arg-type]


async def test_a_429_holds_everybody_and_one_restarts_the_pool(house: House) -> None:
    first, second = await house.with_pool(tpm=600), await house.enter()
    await first.say(ask(part(100)))
    state = await tell(first, SignalKind.RATE_LIMITED, retry_after_s=4.0, epoch=0, asked=Charge(1, 100, 100, 0))
    assert (state.epoch, state.hold_in_s, state.calm) == (1, pytest.approx(4.0), False)
    assert state.slowdown > 1
    waiting = [ask(part(50)), ask(part(50))]
    held = await second.say(*waiting)
    assert held.granted == ()
    assert held.pools["p"].hold_in_s == pytest.approx(4.0)
    await house.advance(4.0)
    # The head is owed: it goes at once, and whoever follows waits for the refill.
    assert (await second.say(*waiting)).granted == (0,)
    assert (await first.say(ask(part(50)))).granted == ()


async def test_a_straggler_cuts_nothing_twice(house: House) -> None:
    first, second = await house.with_pool(tpm=600), await house.enter()
    once = await tell(first, SignalKind.RATE_LIMITED, retry_after_s=1.0, epoch=0)
    again = await tell(second, SignalKind.RATE_LIMITED, retry_after_s=1.0, epoch=0)
    assert (again.slowdown, again.epoch) == (once.slowdown, once.epoch)


async def test_successes_of_anyone_speed_the_pool_up_again(house: House) -> None:
    first, second = await house.with_pool(rpm=600), await house.enter()
    state = await tell(first, SignalKind.RATE_LIMITED, epoch=0)
    slow = state.slowdown
    for _ in range(40):
        await house.advance(3)
        state = await tell(second, SignalKind.SUCCEEDED, epoch=state.epoch)
    assert slow > state.slowdown == 1.0
    assert state.calm


async def test_a_success_of_a_call_that_was_sent_before_the_refusal_says_nothing(house: House) -> None:
    first, second = await house.with_pool(rpm=600), await house.enter()
    slow = (await tell(first, SignalKind.RATE_LIMITED, epoch=0)).slowdown
    for _ in range(40):
        await house.advance(3)
        state = await tell(second, SignalKind.SUCCEEDED, epoch=0)
    assert (state.slowdown, state.calm) == (slow, False)


async def test_an_overload_slows_down_and_holds_nothing(house: House) -> None:
    first, second = await house.with_pool(rpm=600), await house.enter()
    await tell(first, SignalKind.OVERLOADED)
    state = await tell(second, SignalKind.OVERLOADED)
    assert (state.slowdown, state.hold_in_s) == (1.6, 0.0)


async def test_a_long_hint_closes_the_pool_but_for_a_probe_a_minute(house: House) -> None:
    first, second = await house.with_pool(rpm=600), await house.enter()
    state = await tell(first, SignalKind.RATE_LIMITED, retry_after_s=3600.0, epoch=0)
    assert (state.hold_in_s, state.closed_in_s) == (60.0, 3600.0)
    probes = 0
    for _ in range(10):
        await house.advance(20)
        for owner in (first, second):
            probes += len((await owner.say(ask(part(1)), ask(part(1)))).granted)
    assert probes == 3
    state = await tell(second, SignalKind.SUCCEEDED, epoch=state.epoch)
    assert (state.hold_in_s, state.closed_in_s) == (0.0, 0.0)


async def test_reported_limits_are_adopted_for_all(house: House) -> None:
    first, second = await house.with_pool(tpm=600, rpm=60), await house.enter()
    reported = {Dimension.TOKENS: ReportedLimit(limit=1200.0, remaining=300.0)}
    await tell(first, SignalKind.REPORTED, reported=reported, sent_ago_s=1.0)
    tokens, requests = (await second.state()).levels
    assert (tokens.capacity, tokens.published_rate_per_s, requests.capacity) == (1200.0, 20.0, 60.0)
    assert tokens.free == pytest.approx(320.0)


async def test_a_spent_day_is_spent_for_all_until_its_reset(house: House) -> None:
    first, second = await house.with_pool(rpd=100, rpm=600, day_resets="06:00 UTC"), await house.enter()
    assert START % 86_400 == 0
    await first.say(ask(part(1)))
    state = await tell(first, SignalKind.DAY_SPENT, epoch=0)
    assert state.levels[1].used == 100
    assert state.levels[1].opened_ago_s == pytest.approx(18 * 3600)
    waiting = ask(part(1))
    refused = await second.say(waiting)
    assert refused.granted == ()
    assert refused.pools["p"].fit_in_s == pytest.approx(6 * 3600)
    await house.advance(6 * 3600 + 1)
    assert (await second.say(waiting)).granted == (0,)
    assert (await first.state()).levels[1].used == 2  # and the one that was never sent


async def test_a_pool_without_limits_is_open_until_it_is_refused(house: House) -> None:
    first, second = await house.with_pool(), await house.enter()
    assert len((await first.say(*[ask(part(10_000)) for _ in range(50)])).granted) == 50
    assert (await first.state()).levels[0].free == inf
    await tell(first, SignalKind.RATE_LIMITED, retry_after_s=2.0, epoch=0)
    await house.advance(2.0)
    assert len((await second.say(*[ask(part(1)) for _ in range(5)])).granted) == 1
    state = await tell(second, SignalKind.SUCCEEDED, epoch=1)
    assert len((await first.say(*[ask(part(1)) for _ in range(5)])).granted) == 2
    assert state.calm is False


async def test_what_a_full_level_gets_back_is_told_by_when_it_was_full(house: House) -> None:
    owner = await house.with_pool(tpm=600)
    assert (await owner.state()).levels[0].full_ago_s == inf
    await owner.say(ask(part(100)))
    await house.advance(2)
    assert (await owner.state()).levels[0].full_ago_s == pytest.approx(2.0)
    await owner.say(settles=[over(100)])
    await house.advance(20)
    await owner.say(ask(part(10)))
    assert (await owner.state()).levels[0].full_ago_s == 0.0


async def test_signals_settles_and_asks_of_one_message_count_in_this_order(house: House) -> None:
    owner = await house.with_pool(tpm=600)
    await owner.say(ask(part(600)))
    refusal = Signal(pool="p", kind=SignalKind.RATE_LIMITED, retry_after_s=3.0, epoch=0, asked=Charge(1, 600, 600, 0))
    eased = Settle(pool="p", sent=Charge(1, 600, 600, 0), eased=Charge(0, 600, 0, 0), slots=1)
    reply = await owner.say(ask(part(1)), settles=[eased], signals=[refusal])
    assert reply.granted == ()
    assert reply.pools["p"].levels[0].free <= 0
    message = owner.last
    assert message is not None
    assert await owner.ledger.exchange(message) == reply
