"""Who is alive: leases, fences, and what the dead held. The same tests for every ledger; nobody sleeps."""

from __future__ import annotations

import asyncio
import threading

import pytest
from ledger.houses import TTL_S, House, Owner, ask, over, part

from interlock.admission.ledger.owners import Heart, LapsedError
from interlock.errors import LeaseLostError, LedgerUnavailableError

LEASE_S, BEAT_S = 0.75 * TTL_S, TTL_S / 4


async def pass_time(house: House, seconds: float, *alive: Owner) -> None:
    """Let it pass while these owners' hearts beat."""
    while seconds > 0:
        step = min(BEAT_S, seconds)
        await house.advance(step)
        for owner in alive:
            await owner.ledger.heartbeat()
        seconds -= step


async def test_b34_the_slots_of_the_dead_come_back_when_their_lease_is_over_and_not_before(house: House) -> None:
    alive = await house.with_pool(max_concurrent=2)
    dead = [await house.enter(), await house.enter()]
    await pass_time(house, TTL_S, alive, *dead)
    for owner in dead:
        assert (await owner.say(ask(part(1)))).granted == (0,)
    waiting = ask(part(1))
    await pass_time(house, LEASE_S - 0.01, alive)
    assert (await alive.say(waiting)).granted == ()
    await pass_time(house, TTL_S - LEASE_S, alive)
    reply = await alive.say(waiting)
    assert reply.granted == (0,)
    assert reply.pools["p"].slots == (2, 1)


async def test_b34_who_was_given_up_settles_nothing_and_frees_nobodys_slot(house: House) -> None:
    alive, dead = await house.with_pool(tpm=600, max_concurrent=1), await house.enter()
    await pass_time(house, TTL_S, alive, dead)
    await dead.say(ask(part(100)))
    await pass_time(house, TTL_S + BEAT_S, alive)
    assert (await alive.say(ask(part(100)))).granted == (0,)
    before = await alive.state()
    with pytest.raises(LeaseLostError, match="its work stops"):
        await dead.say(settles=[over(100, used=0)])
    with pytest.raises(LeaseLostError):
        await dead.ledger.heartbeat()
    after = await alive.state()
    assert after.slots == before.slots == (1, 1)
    assert after.levels[0].free == before.levels[0].free


class Asleep:
    """The heart of a process that did not run while its lease ran out."""

    awake = False

    def stop(self) -> None: ...


async def test_b34_who_slept_through_its_lease_is_refused_although_nobody_has_given_it_up(house: House) -> None:
    other, sleeper = await house.with_pool(tpm=600, max_concurrent=2), await house.enter()
    await sleeper.say(ask(part(100)))
    await house.advance(LEASE_S + 0.01)
    sleeper.ledger._heart = Asleep()  # type: ignore[attr-defined]
    with pytest.raises(LeaseLostError, match="did not run"):
        await sleeper.say(ask(part(100)), settles=[over(100, used=0)])
    await other.ledger.heartbeat()
    assert (await other.state()).slots == (2, 1)  # as it was: nobody has judged it yet


async def test_who_was_awake_and_only_unheard_is_heard_again_and_may_not_judge_at_once(house: House) -> None:
    first, second = await house.with_pool(max_concurrent=2), await house.enter()
    await second.say(ask(part(1)))
    await pass_time(house, TTL_S, first, second)
    await house.advance(LEASE_S + 0.01)
    assert (await first.say(ask(part(1)))).granted == (0,)
    await first.ledger.heartbeat()
    assert (await second.state()).slots == (2, 2)


async def test_what_the_dead_had_spent_only_refills(house: House) -> None:
    alive, dead = await house.with_pool(tpm=600), await house.enter()
    await pass_time(house, TTL_S, alive, dead)
    await dead.say(ask(part(400)))
    await pass_time(house, TTL_S, alive)
    assert await alive.free() == pytest.approx(200)  # it may have been sent at the last moment
    await pass_time(house, 10, alive)
    assert await alive.free() == pytest.approx(300, abs=21)


async def test_the_claim_of_the_dead_dies_with_them(house: House) -> None:
    alive, dead = await house.with_pool(tpm=600), await house.enter()
    await pass_time(house, TTL_S, alive, dead)
    await alive.say(ask(part(600)))
    await alive.say(settles=[over(600)])
    assert (await dead.say(ask(part(500)))).granted == ()  # it would fit in 51 s
    await pass_time(house, LEASE_S, alive)
    assert (await alive.say(ask(part(10)))).granted == ()
    await pass_time(house, TTL_S - LEASE_S, alive)
    assert (await alive.say(ask(part(10)))).granted == (0,)


async def test_a_lease_is_renewed_by_the_heart_alone(house: House) -> None:
    owner, other = await house.with_pool(max_concurrent=1), await house.enter()
    await owner.say(ask(part(1)))
    await pass_time(house, 3 * TTL_S, owner, other)
    assert (await other.say(ask(part(1)))).granted == ()
    assert (await owner.say(settles=[over(1)])).pools["p"].slots == (1, 0)


async def test_after_an_outage_nobody_is_given_up_at_once(house: House) -> None:
    first, second = await house.with_pool(max_concurrent=4), await house.enter()
    await first.say(ask(part(1)))
    await pass_time(house, TTL_S, first, second)
    await house.advance(10 * TTL_S)  # nobody was heard
    await second.ledger.heartbeat()
    assert (await first.say(ask(part(1)))).granted == (0,)
    assert (await second.state()).slots == (4, 2)
    # But whoever does not come back within a TTL is gone.
    await pass_time(house, TTL_S + BEAT_S, second)
    with pytest.raises(LeaseLostError):
        await first.state()
    assert (await second.state()).slots == (4, 0)


async def test_one_that_leaves_gives_everything_back_at_once(house: House) -> None:
    owner, other = await house.with_pool(tpm=600, max_concurrent=1), await house.enter()
    await owner.say(ask(part(100)), ask(part(500)))
    assert (await other.say(ask(part(10)))).granted == ()
    await owner.ledger.leave()
    assert (await other.say(ask(part(10)))).granted == (0,)
    with pytest.raises(LeaseLostError, match="left"):
        await owner.state()


async def test_the_loss_is_told_once(house: House) -> None:
    told: list[LeaseLostError] = []
    alive, dead = await house.with_pool(tpm=600), await house.enter(on_lost=told.append)
    await pass_time(house, TTL_S, alive)
    for _ in range(3):
        with pytest.raises(LeaseLostError):
            await dead.state()
    assert len(told) == 1


async def test_fences_grow(house: House) -> None:
    owners = [await house.enter() for _ in range(3)]
    for gone in owners[1:]:  # the newest too: what it still says must be nobody else's word
        await gone.ledger.leave()
    fences = [owner.ledger.fence for owner in [*owners, await house.enter()]]
    assert fences == sorted(set(fences))


async def test_one_that_is_not_open_says_so(house: House) -> None:
    owner = Owner(house._make())
    with pytest.raises(RuntimeError, match="open"):
        await owner.state()
    await owner.ledger.close()


async def test_the_heart_beats_while_the_loop_is_blocked(house: House) -> None:
    owner, other = await house.enter(beats=True, ttl_s=0.2), await house.enter(ttl_s=0.2)
    heart: Heart = owner.ledger._heart  # type: ignore[attr-defined]
    beat, beaten = heart._beat, threading.Semaphore(0)

    def counted(revive: bool) -> None:
        beat(revive)
        beaten.release()

    heart._beat = counted
    for _ in range(3):  # 0.14 of a lease of 0.15, each time
        await house.advance(0.14)
        await other.ledger.heartbeat()
        for _ in range(2):  # the second one began after the clock had moved
            assert beaten.acquire(timeout=10)  # and the loop is blocked
    assert (await owner.say(watch=())).granted == ()


async def test_a_heart_that_cannot_be_heard_goes_on_and_one_that_is_lost_stops(
    caplog: pytest.LogCaptureFixture,
) -> None:
    away, odd, late, gone = (
        LedgerUnavailableError("away"),
        ValueError("odd"),
        LapsedError("late"),
        LeaseLostError("gone"),
    )
    answers: list[tuple[bool, Exception | None]] = [
        (False, away), (False, odd), (False, None), (False, late), (True, None), (False, gone)
    ]  # fmt: skip
    done, lost = threading.Event(), list[LeaseLostError]()

    def beat(revive: bool) -> None:
        revived, answer = answers.pop(0)
        assert revive is revived
        if answer is not None:
            raise answer

    heart = Heart("someone", 0.8, beat, done.set, lost.append)
    heart.start()
    assert await asyncio.to_thread(done.wait, 10)
    heart.stop()
    assert not answers
    assert [str(error) for error in lost] == ["gone"]
    assert "a heartbeat of someone failed" in caplog.text


async def test_a_heart_that_did_not_run_is_lost_even_if_it_was_stopped_on_its_way() -> None:
    done, lost = threading.Event(), list[LeaseLostError]()

    def beat(revive: bool) -> None:
        assert not revive
        heart._pulse.at -= 10  # as if the process had been stopped here
        raise LapsedError("late")

    heart = Heart("someone", 0.4, beat, done.set, lost.append)
    heart.start()
    assert await asyncio.to_thread(done.wait, 10)
    assert ["did not run" in str(error) for error in lost] == [True]
