"""What is granted and has not been sent stands before its pool's refill, as it does at the provider."""

from __future__ import annotations

import random

import pytest

from interlock.admission import CallOutcome, CountingGate, OutcomeKind
from interlock.catalog.usage import Usage


async def test_nothing_refills_over_what_was_granted_and_has_not_left(house) -> None:
    """A provider charges a call when it arrives: until then its bucket is full, and what is on its way will take it."""
    pool = house.pool(tpm=600)  # 10 a second, 600 at once
    for i in range(6):
        house.ask(house.call(pool, 100), label=str(i))
    await house.clock.advance(30)  # the loop was busy, or the SDK was loading
    assert house.level("p:tokens") == 0.0
    house.ask(house.call(pool, 100), label="next")
    await house.clock.advance(0)
    assert "next" not in house.answers
    for i in range(6):
        house._send(house.answers[str(i)], house.answers[str(i)].demand.calls[0])
    await house.clock.advance(9.999)
    assert "next" not in house.answers
    await house.clock.advance(0.002)
    assert "next" in house.answers


async def test_what_never_leaves_comes_back_whole(house) -> None:
    pool = house.pool(tpm=600)
    house.ask(house.call(pool, 600), label="idle")
    await house.clock.advance(30)
    house.ask(house.call(pool, 600), label="next", max_wait_s=1.0 + 60.0)
    house.answers["idle"].release()
    await house.clock.advance(0)
    assert "next" in house.answers
    assert house.level("p:tokens") == 0.0


async def test_a_head_that_what_is_unsent_stands_before_goes_once_that_has_left(house) -> None:
    pool = house.pool(tpm=600)
    house.ask(house.call(pool, 300), label="slow")
    await house.clock.advance(60)
    waiting = house.ask(house.call(pool, 400), label="head")
    await house.clock.advance(60)
    assert "head" not in house.answers
    assert house.admission.explain(waiting).account == "p:tokens"
    house._send(house.answers["slow"], house.answers["slow"].demand.calls[0])
    await house.clock.advance(10.001)
    assert "head" in house.answers


@pytest.mark.parametrize("seed", range(20))
async def test_a_provider_that_charges_on_arrival_never_refuses(house, seed) -> None:
    """Our level against its bucket, with calls that leave late by any time, or never, under pressure."""
    chance = random.Random(seed)
    pool = house.pool(tpm=600)
    bucket, at = 600.0, house.clock.now()
    ready: list = []
    for step in range(400):
        house.ask(house.call(pool, chance.choice((20, 60, 150))), label=str(step))
        await house.clock.advance(chance.choice((0.0, 0.5, 3.0, 12.0)))
        ready = [*ready, *house.granted]
        house.granted.clear()
        chance.shuffle(ready)
        for _ in range(chance.randint(0, len(ready))):
            reservation = ready.pop()
            if chance.random() < 0.1:
                reservation.release()
                continue
            now, size = house.clock.now(), reservation.demand.calls[0].input_tokens
            bucket, at = min(600.0, bucket + (now - at) * 10.0), now
            assert bucket >= size - 1e-3, "the provider would refuse it"
            bucket -= size
            house.finish(reservation)
    assert bucket < 600.0


async def test_two_granted_in_one_step_do_not_share_what_is_unsent(house) -> None:
    """What one of them takes is on its way before the next is looked at."""
    pool = house.pool(tpm=600)
    gate = house.admission.account(CountingGate("g", 2))
    house.ask(house.call(pool, 300), label="slow")
    house.ask(held=((gate, 2),), label="holds the gate")
    await house.clock.advance(60)  # the level is full, but for the 300 that have not left yet
    house.ask(house.call(pool, 200), held=((gate, 1),), label="a")
    house.ask(house.call(pool, 200), held=((gate, 1),), label="b")
    house.answers["holds the gate"].release()
    await house.clock.settle()
    assert "a" in house.answers
    assert "b" not in house.answers, "300 + 200 + 200 would arrive at a bucket of 600"


async def test_a_debt_stands_beside_what_is_unsent(house) -> None:
    pool = house.pool(tpm=600)
    house.ask(house.call(pool, 300), label="slow")
    house.ask(house.call(pool, 10), label="grows")
    await house.clock.settle()
    grows = house.answers["grows"]
    house.sent[grows] = [house._send(grows, grows.demand.calls[0])]
    await house.clock.advance(60)  # full, but for the 300 that have not left
    house.finish(grows, used=(310, 0))
    house.ask(house.call(pool, 200), label="next")
    await house.clock.settle()
    assert "next" not in house.answers, "300 are owed, 300 are on their way: nothing is left of 600"


async def test_a_refund_gives_nothing_to_a_level_that_has_been_full_since(house) -> None:
    """The provider charged less than we reserved; then both were full, and what we had too little of was gone."""
    pool = house.pool(tpm=600, burst_s=60)
    house.ask(house.call(pool, 300), label="slow")
    await house.clock.settle()
    slow = house.answers["slow"].permit("k", input_tokens=300, output_tokens=0)
    slow.sent()
    await house.clock.advance(60)  # ours is full again, and so is theirs
    house.ask(house.call(pool, 600), label="all of it")
    await house.clock.settle()
    slow.close(CallOutcome(kind=OutcomeKind.COMPLETED, usage=Usage(input_tokens=100, output_tokens=0)))
    house.finish(house.answers["all of it"], used=(600, 0))
    assert house.level("p:tokens") == pytest.approx(0.0)


async def test_a_refund_counts_where_the_level_has_not_been_full(house) -> None:
    pool = house.pool(tpm=600, burst_s=60)
    for label in ("first", "second"):
        house.ask(house.call(pool, 300), label=label)
    await house.clock.settle()
    permits = [house.answers[label].permit("k", input_tokens=300, output_tokens=0) for label in ("first", "second")]
    for permit in permits:
        permit.sent()
    await house.clock.advance(10)
    permits[0].close(CallOutcome(kind=OutcomeKind.COMPLETED, usage=Usage(input_tokens=100, output_tokens=0)))
    assert house.level("p:tokens") == pytest.approx(300.0)
