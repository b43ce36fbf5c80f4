"""What every ledger does with a message: the same tests for memory, SQLite and PostgreSQL."""

from __future__ import annotations

import asyncio
from math import inf

import pytest
from ledger.houses import House, ask, charge, over, part

from interlock.admission.charges import Charge
from interlock.admission.ledger import LevelState, PoolTerms, Settle, Signal, SignalKind
from interlock.admission.ledger.cold import created
from interlock.admission.ledger.rules import UnknownPoolError
from interlock.admission.outcome import Dimension, ReportedLimit
from interlock.catalog.entry import Limits


async def test_grants_what_fits_in_order_and_says_when_the_next_does(house: House) -> None:
    owner = await house.with_pool(tpm=600)
    waiting = ask(part(100))
    reply = await owner.say(ask(part(350)), ask(part(250)), waiting, ask(part(1)))
    assert reply.granted == (0, 1)
    # All of it is on its way, so nothing refills: 100 tokens at 10 a second from when it has left.
    assert reply.pools["p"].fit_in_s == pytest.approx(10.0)
    await owner.say(waiting, settles=[over(600, n=2)])
    await house.advance(10.9)
    assert (await owner.say(waiting)).granted == ()
    await house.advance(0.1)  # ten seconds, and one of transit
    assert (await owner.say(waiting)).granted == (0,)


async def test_b07_a_limit_holds_over_all_owners(house: House) -> None:
    first = await house.with_pool(tpm=100)
    owners = [first, await house.enter(), await house.enter()]
    replies = await asyncio.gather(
        owners[0].say(ask(part(40)), ask(part(40))),
        owners[1].say(ask(part(40)), ask(part(40))),
        owners[2].say(ask(part(40))),
    )
    assert sum(len(reply.granted) for reply in replies) == 2
    assert await first.free() == pytest.approx(20)


async def test_b72_what_is_refused_takes_nothing(house: House) -> None:
    owner = await house.with_pool(tpm=100)
    await owner.say(ask(part(95)))
    for _ in range(50):
        assert (await owner.say(ask(part(10)))).granted == ()
    assert (await owner.say(ask(part(5)))).granted == (0,)
    await owner.say(settles=[over(100, n=2)])
    await house.advance(61.1)
    assert await owner.free() == pytest.approx(100)


async def test_a_settlement_gives_back_and_may_leave_a_debt_that_refills(house: House) -> None:
    owner = await house.with_pool(tpm=600)
    await owner.say(ask(part(400)))
    await owner.say(settles=[over(400, used=100)])
    # A tenth of what is on its way at most: 1 s of transit in which nothing refills.
    assert await owner.free() == pytest.approx(490)
    await owner.say(settles=[Settle(pool="p", back=Charge(0, -800, 0, 0))])
    assert await owner.free() == pytest.approx(-310)
    await house.advance(10)
    assert await owner.free() == pytest.approx(-210)


async def test_what_was_refused_eases_a_debt_and_no_more(house: House) -> None:
    owner = await house.with_pool(tpm=600, rpm=60)
    await owner.say(ask(part(500)))
    eased = Settle(pool="p", sent=charge(500), eased=Charge(0, 500, 0, 0), slots=1)
    await owner.say(settles=[eased])
    assert await owner.free() == pytest.approx(90)
    await owner.say(settles=[Settle(pool="p", back=Charge(0, -190, 0, 0))])
    await owner.say(settles=[Settle(pool="p", eased=Charge(0, 500, 0, 0))])
    assert await owner.free() == pytest.approx(0)


async def test_a_resent_message_gets_its_reply_and_changes_nothing_twice(house: House) -> None:
    owner = await house.with_pool(tpm=600, max_concurrent=5)
    await owner.say(ask(part(200)))
    first = await owner.say(ask(part(100)), ask(part(900)), ask(part(100)), settles=[over(200, used=150)])
    message = owner.last
    assert message is not None
    await house.advance(3)
    assert await owner.ledger.exchange(message) == first
    assert await owner.ledger.exchange(message) == first
    assert (await owner.state()).slots == (5, 2)
    with pytest.raises(ValueError, match="comes after"):
        await owner.ledger.exchange(message)


async def test_a_pool_that_nobody_registered_is_named_and_nothing_changes(house: House) -> None:
    owner = await house.with_pool(tpm=600)
    with pytest.raises(UnknownPoolError, match="q"):
        await owner.say(ask(part(10)), ask(part(10, "q")))
    owner.seq -= 1
    assert await owner.free() == 600


async def test_nothing_refills_above_what_is_still_to_be_sent(house: House) -> None:
    """A burst granted and sent late meets a provider that is full and no more: not the burst and an hour's refill."""
    owner = await house.with_pool(tpm=600)
    await owner.say(ask(part(500)))
    await house.advance(3600)
    assert await owner.free() == pytest.approx(100)
    other = await house.enter()
    assert (await other.say(ask(part(101)))).granted == ()
    await owner.say(settles=[over(500)])
    await house.advance(1.0)
    assert await other.free() == pytest.approx(100)  # it has just arrived
    await house.advance(10)
    assert await other.free() == pytest.approx(200)


async def test_one_that_can_never_fit_is_refused_and_stops_nobody(house: House) -> None:
    owner, other = await house.with_pool(tpm=600, max_concurrent=3), await house.enter()
    reply = await owner.say(ask(part(601)), ask(part(10, slots=4)), ask(part(10)))
    assert reply.granted == (2,)
    assert reply.pools["p"].fit_in_s is None
    assert (await other.say(ask(part(590)))).granted == (0,)


async def test_a_large_ask_is_not_starved_by_the_small_ones_of_others(house: House) -> None:
    large, small = await house.with_pool(tpm=600), await house.enter()
    await large.say(ask(part(600)))
    await large.say(settles=[over(600)])
    await house.advance(11)
    big = ask(part(300))
    assert (await large.say(big)).granted == ()
    for _ in range(19):
        await house.advance(1)
        assert (await small.say(ask(part(5)))).granted == ()
        assert (await large.say(big)).granted == ()
    await house.advance(1)
    assert (await large.say(big)).granted == (0,)
    # The small ones' turn: their claim was there before any later one of the large.
    assert (await large.say(ask(part(300)))).granted == ()
    await large.say(settles=[over(300, used=0)])
    assert (await small.say(ask(part(5)))).granted == (0,)


async def test_a_claim_that_fits_leaves_what_it_does_not_need(house: House) -> None:
    first, second = await house.with_pool(tpm=600), await house.enter()
    await first.say(ask(part(550)))
    waiting = ask(part(100))
    await first.say(waiting, settles=[over(550)])
    await house.advance(7)
    # 110 are there and 100 are claimed.
    assert (await second.say(ask(part(11)))).granted == ()
    assert (await second.say(ask(part(10)))).granted == (0,)
    assert (await first.say(waiting)).granted == (0,)


async def test_a_claim_that_is_not_asked_again_lapses_2_s_after_its_fit(house: House) -> None:
    first, second = await house.with_pool(tpm=600), await house.enter()
    await first.say(ask(part(600)))
    await first.say(settles=[over(600)])
    await house.advance(1)
    assert (await first.say(ask(part(100)))).pools["p"].fit_in_s == pytest.approx(10)
    small = ask(part(60))
    await house.advance(11.9)
    assert (await second.say(small)).granted == ()  # 119 are there, 100 of them claimed
    await house.advance(0.2)
    assert (await second.say(small)).granted == (0,)


async def test_a_claim_ends_when_its_owner_no_longer_wants_it(house: House) -> None:
    first, second = await house.with_pool(tpm=600), await house.enter()
    await first.say(ask(part(600)))
    await first.say(ask(part(600)), settles=[over(600)])
    await house.advance(11)
    assert (await second.say(ask(part(50)))).granted == ()
    await first.state()
    assert (await second.say(ask(part(50)))).granted == (0,)


async def test_the_higher_priority_goes_first_and_age_decides_among_equals(house: House) -> None:
    low, high, late = await house.with_pool(tpm=600), await house.enter(), await house.enter()
    await low.say(ask(part(600)))
    await low.say(settles=[over(600)])
    await house.advance(1)
    asks = [ask(part(50)), ask(part(50), priority=5), ask(part(50))]
    fits = [(await who.say(one)).pools["p"].fit_in_s for who, one in zip([low, high, late], asks, strict=True)]
    assert fits == pytest.approx([5, 5, 15])  # the low one was told before the high one came
    assert (await low.say(asks[0])).pools["p"].fit_in_s == pytest.approx(10)
    await house.advance(5)
    assert (await late.say(asks[2])).granted == ()
    assert (await low.say(asks[0])).granted == ()
    assert (await high.say(asks[1])).granted == (0,)
    await house.advance(5)
    assert (await late.say(asks[2])).granted == ()
    assert (await low.say(asks[0])).granted == (0,)


async def test_who_speaks_first_takes_its_share_and_not_all(house: House) -> None:
    owners = [await house.with_pool(tpm=600), await house.enter(), await house.enter(), await house.enter()]
    await owners[0].say(ask(part(600)))
    mine = [[ask(part(10)) for _ in range(60)] for _ in owners]
    for owner, asks in zip(owners, mine, strict=True):
        assert (await owner.say(*asks)).granted == ()
    back = [over(600, used=190)]  # and 10 for the second in which it arrives
    granted = [len((await owners[0].say(*mine[0], settles=back)).granted)]
    granted += [len((await owner.say(*asks)).granted) for owner, asks in zip(owners[1:], mine[1:], strict=True)]
    # A quarter of what is there, each time.
    assert granted == [10, 7, 5, 4]


async def test_its_first_ask_may_be_larger_than_its_share(house: House) -> None:
    first, second = await house.with_pool(tpm=600), await house.enter()
    await first.say(ask(part(600)))
    await first.say(settles=[over(600)])
    await house.advance(1)
    large, little = ask(part(400)), ask(part(10))
    await first.say(large)
    await second.say(little)
    await house.advance(41)
    assert (await first.say(large, ask(part(5)))).granted == (0,)
    assert (await second.say(little)).granted == (0,)


async def test_max_concurrent_is_the_sum_over_all_owners(house: House) -> None:
    first, second = await house.with_pool(max_concurrent=3), await house.enter()
    assert (await first.say(ask(part(1)), ask(part(1)))).granted == (0, 1)
    waiting = ask(part(1))
    reply = await second.say(ask(part(1)), waiting)
    assert reply.granted == (0,)
    assert reply.pools["p"].slots == (3, 3)
    assert reply.pools["p"].fit_in_s == inf
    await first.say(settles=[over(1)])
    assert (await second.say(waiting)).granted == (0,)
    assert (await first.say(settles=[over(9, n=9)])).pools["p"].slots == (3, 2)  # it had one out, not nine


async def test_several_pools_are_granted_together_or_not_at_all(house: House) -> None:
    owner, other = await house.with_pool("a", tpm=600), await house.with_pool("b", tpm=600)
    await owner.say(ask(part(550, "a")), watch=())
    both = ask(part(100, "a"), part(100, "b"))
    reply = await owner.say(both, ask(part(10, "b")), ask(part(10, "a")), ask(part(500, "b")), watch=())
    # What it needs of the pool that has enough is set aside; the other pool is closed behind it.
    assert reply.granted == (1,)
    assert await owner.free("b") == 590
    await owner.say(both, watch=())
    assert (await other.say(ask(part(495, "b")), watch=())).granted == ()
    assert (await other.say(ask(part(490, "b")), watch=())).granted == (0,)
    await owner.say(both, settles=[over(550, pool="a")], watch=())
    await house.advance(6)
    assert (await owner.say(both, watch=())).granted == (0,)
    assert await owner.free("a") == pytest.approx(0, abs=0.01)
    assert await owner.free("b") == pytest.approx(0, abs=0.01)


async def test_b47_pools_named_in_any_order_do_not_wait_for_each_other(house: House) -> None:
    one, two = await house.with_pool("a", tpm=60_000), await house.with_pool("b", tpm=60_000)

    async def reserve(owner: object, first: str, second: str) -> int:
        granted = 0
        for _ in range(60):
            reply = await owner.say(ask(part(1, first), part(2, second)), watch=("b", "a"))  # type: ignore[attr-defined]
            granted += len(reply.granted)
        return granted

    assert sum(await asyncio.gather(reserve(one, "a", "b"), reserve(two, "b", "a"))) == 120
    assert await one.free("a") == pytest.approx(60_000 - 180)
    assert await one.free("b") == pytest.approx(60_000 - 180)


async def test_edited_limits_hold_for_everyone_and_levels_are_kept(house: House) -> None:
    first, second = await house.with_pool(tpm=600, rpm=60), await house.enter()
    await first.say(ask(part(500)))
    await first.say(settles=[over(500)])
    (state,) = await second.ledger.register([PoolTerms(name="p", limits=Limits(tpm=1200, max_concurrent=2))])
    assert state.levels == (
        LevelState(dimension="tokens", capacity=1200, published_rate_per_s=20, free=pytest.approx(90), full_ago_s=0.0),
    )
    assert state.slots == (2, 0)
    version = state.version
    await house.advance(2)
    assert await first.free() == pytest.approx(90 + 2 * 20, abs=0.01)
    await first.ledger.register([PoolTerms(name="p", limits=Limits(tpm=1200, max_concurrent=2))])
    assert (await first.state()).version == version  # nothing had changed


async def test_an_edited_burst_and_limits_that_are_fixed_from_now_on_hold_for_everyone(house: House) -> None:
    first, second = await house.with_pool(tpm=600), await house.enter()
    await first.ledger.register([PoolTerms(name="p", limits=Limits(tpm=600, burst_s=30, fixed=True))])
    assert (await second.state()).levels[0].capacity == 300
    more = {Dimension.TOKENS: ReportedLimit(limit=6_000, remaining=6_000)}
    await second.say(signals=[Signal(pool="p", kind=SignalKind.REPORTED, reported=more)])
    assert (await first.state()).levels[0].published_rate_per_s == 10


async def test_terms_with_other_dimensions_take_asks_that_are_under_way(house: House) -> None:
    owner = await house.with_pool(tpm=600)
    await owner.say(ask(part(100)))
    await owner.ledger.register([PoolTerms(name="p", limits=Limits(input_tpm=300, rpm=60))])
    await owner.say(ask(part(200)), settles=[over(100, used=50)])
    names = [level.dimension for level in (await owner.state()).levels]
    assert names == ["input_tokens", "requests"]


async def test_time_never_goes_back_for_a_pool(house: House) -> None:
    owner = await house.with_pool(tpm=600)
    await owner.say(ask(part(300)))
    await owner.say(settles=[over(300)])
    await house.advance(11)
    assert await owner.free() == pytest.approx(400)
    await house.advance(-5)
    assert await owner.free() == pytest.approx(400)
    await house.advance(6)
    assert await owner.free() == pytest.approx(410)


async def test_more_slots_than_an_integer_holds_are_as_many_as_it_holds(house: House) -> None:
    owner = await house.with_pool(max_concurrent=10**12)
    assert (await owner.say(ask(part(1)))).granted == (0,)
    assert (await owner.state()).slots == (2**31 - 1, 1)


def test_a_row_holds_the_limits_that_were_stated_and_no_others() -> None:
    """So another release, which knows other fields, reads it."""
    assert created(PoolTerms(name="p", limits=Limits(tpm=600, source="a page")), 0.0).limits == '{"tpm":600.0}'
