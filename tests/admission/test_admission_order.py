"""The asyncio shell of admission: who goes first, who may pass, and who comes back to their place."""

from __future__ import annotations

import pytest

from interlock.admission import (
    DatabaseGate,
)


async def test_a_large_call_is_not_starved_by_small_ones(house) -> None:
    house.sends = True
    pool = house.pool(tpm=600)
    house.ask(house.call(pool, 600))
    house.ask(house.call(pool, 500), label="large", workflow="a")
    for i in range(200):
        house.ask(house.call(pool, 5), label=f"s{i}", workflow="b")
    await house.clock.advance(50.001)
    assert house.granted_labels()[1] == "large"
    assert house.answers["large"].waited_s == pytest.approx(50.0)


async def test_what_the_head_cannot_use_passes_it(house) -> None:
    house.sends = True
    pool, other = house.pool(tpm=600), house.pool("q", tpm=600)
    db = house.admission.account(DatabaseGate("d", 1, hold_s=1.0))
    house.ask(house.call(pool, 600))
    house.ask(house.call(pool, 600), held=((db, 1),), label="waits a minute for tokens")
    house.ask(house.call(other, 10), label="another pool")
    house.ask(held=((db, 1),), label="database only")
    await house.clock.settle()
    assert house.granted_labels()[1:] == ["another pool", "database only"]
    house.answers["database only"].release()
    await house.clock.advance(59.5)  # now the head needs it within the time it is typically held
    house.ask(held=((db, 1),), label="too late")
    await house.clock.advance(0.4)
    assert "too late" not in house.answers
    await house.clock.advance(0.2)
    assert house.granted_labels()[-1] == "waits a minute for tokens"


async def test_priority_goes_first_and_is_explained(house) -> None:
    house.sends = True
    pool = house.pool(tpm=600)
    house.ask(house.call(pool, 600))
    low = house.ask(house.call(pool, 100), label="low")
    house.ask(house.call(pool, 100), label="high", priority=5)
    explanation = house.admission.explain(low)
    assert explanation.ahead == 1
    assert explanation.estimate
    assert "priority" in explanation.reason
    await house.clock.advance(30)
    assert house.granted_labels()[1:] == ["high", "low"]


async def test_workflows_share_a_pool_whatever_each_has_waiting(house) -> None:
    house.sends = True
    pool = house.pool(rpm=60, burst_s=1)
    for i in range(200):
        house.ask(house.call(pool), label=f"many{i}", workflow="many")
    await house.clock.advance(10)
    for i in range(10):
        house.ask(house.call(pool), label=f"few{i}", workflow="few")
    await house.clock.advance(25)
    waits = [house.answers[f"few{i}"].waited_s for i in range(10)]
    assert max(waits) <= 22.0


async def test_ever_new_workflows_do_not_starve_one_that_waits(house) -> None:
    """Each newcomer starts where the pool stands, not at nothing: who has waited longer is not passed for ever."""
    house.sends = True
    pool = house.pool(rpm=60, burst_s=1)
    house.ask(house.call(pool), label="burst")
    for i in range(30):
        house.ask(house.call(pool), label=f"old{i}", workflow="old")
    for i in range(120):
        house.ask(house.call(pool), label=f"new{i}a", workflow=f"new{i}")
        house.ask(house.call(pool), label=f"new{i}b", workflow=f"new{i}")
        await house.clock.advance(1.0)
    served = sum(label.startswith("old") for label in house.granted_labels())
    assert served >= 4, "it has its turn again and again"
    first = [label for label in house.granted_labels() if label.startswith("new") and label.endswith("a")]
    assert len(first) >= 60


async def test_a_share_pays_for_what_was_used(house) -> None:
    """Two workflows reserve alike; one uses a tenth of it. In the end both have had the same."""
    pool = house.pool(tpm=6_000, burst_s=10)
    for i in range(400):
        house.ask(house.call(pool, 1_000), label=f"thrifty{i}", workflow="thrifty")
        house.ask(house.call(pool, 1_000), label=f"full{i}", workflow="full")
    done, used = 0, {"thrifty": 0, "full": 0}
    for _ in range(600):
        await house.clock.advance(5.0)
        for reservation in house.granted[done:]:
            workflow = reservation.demand.workflow
            tokens = 100 if workflow == "thrifty" else 1_000
            used[workflow] += tokens
            house.finish(reservation, used=(tokens, 0))
            done += 1
        if done > 300:
            break
    assert used["thrifty"] == pytest.approx(used["full"], rel=0.25)


async def test_a_job_that_comes_back_keeps_its_place(house) -> None:
    pool = house.pool(tpm=600)
    house.ask(house.call(pool, 600), label="first")
    await house.clock.settle()
    for i in range(3):
        house.ask(house.call(pool, 100), label=f"w{i}")
    first = house.granted[0]
    house.finish(first, used=(600, 0))
    again = house.ask(house.call(pool, 100), label="again", ticket=first.ticket)
    assert not house.admission.explain(again).estimate, "it is the head"
    await house.clock.advance(60)
    assert house.granted_labels() == ["first", "again", "w0", "w1", "w2"]
    assert house.answers["again"].ticket == first.ticket


async def test_a_job_that_leaves_and_comes_back_again_and_again_keeps_its_place(house) -> None:
    """A paused job leaves the line and returns with its ticket: one ticket may be several times in the line."""
    pool = house.pool(tpm=600)
    for label in ("first", "second"):
        house.ask(house.call(pool, 300), label=label)
    await house.clock.settle()
    first, second = house.granted
    house.finish(first, used=(300, 0))
    house.finish(second, used=(300, 0))
    house.ask(house.call(pool, 100), label="head", ticket=first.ticket)
    for i in range(5):
        assert house.ask(house.call(pool, 100), label=f"paused{i}", ticket=second.ticket).cancel()
    for label in ("one", "two"):
        house.ask(house.call(pool, 100), label=label, ticket=second.ticket)
    house.ask(house.call(pool, 100), label="new")
    await house.clock.advance(60)
    assert house.granted_labels()[2:] == ["head", "one", "two", "new"]


async def test_cancelling_the_head_lets_the_next_go(house) -> None:
    pool = house.pool(tpm=600)
    house.ask(house.call(pool, 500), label="first")
    head = house.ask(house.call(pool, 300), label="head")
    house.ask(house.call(pool, 50), label="next")
    await house.clock.settle()
    assert house.granted_labels() == ["first"]
    assert head.cancel()
    await house.clock.settle()
    assert house.granted_labels() == ["first", "next"]
