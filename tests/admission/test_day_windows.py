"""Limits per day with the provider's reset: used since the last one, all back at the next, whatever the clocks do."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings, strategies as st

from interlock.admission import Admission, CallOutcome, ManualClock, OutcomeKind, WindowLevel
from interlock.catalog.days import DayReset, day_reset
from interlock.errors import NeverFitsError

PACIFIC = "00:00 America/Los_Angeles"


class Wall:
    """A wall clock that runs with the manual one, and can be set."""

    def __init__(self, clock: ManualClock, at: datetime) -> None:
        self.clock, self.start, self.began = clock, at, clock.now()

    def __call__(self) -> datetime:
        return self.start + timedelta(seconds=self.clock.now() - self.began)


def open_house(house, at: str):
    """The house anew, with a wall that says `at` (UTC)."""
    house.wall = Wall(house.clock, datetime.fromisoformat(at).replace(tzinfo=UTC))
    house.admission = Admission(house.clock, jitter=lambda: 0.0, wall=house.wall)
    house.sends = True
    return house


@pytest.mark.parametrize(
    ("reset", "at", "last", "next_"),
    [
        (PACIFIC, "2026-01-15T07:59:59", "2026-01-14T08:00:00", "2026-01-15T08:00:00"),
        (PACIFIC, "2026-01-15T08:00:00", "2026-01-15T08:00:00", "2026-01-16T08:00:00"),
        (PACIFIC, "2026-03-08T12:00:00", "2026-03-08T08:00:00", "2026-03-09T07:00:00"),  # a day of 23 hours
        (PACIFIC, "2026-11-01T12:00:00", "2026-11-01T07:00:00", "2026-11-02T08:00:00"),  # and one of 25
        ("02:30 America/Los_Angeles", "2026-03-08T10:29:59", "2026-03-07T10:30:00", "2026-03-08T10:30:00"),  # skipped
        ("01:30 America/Los_Angeles", "2026-11-01T09:45:00", "2026-11-01T08:30:00", "2026-11-02T09:30:00"),  # twice
        ("23:30 Pacific/Apia", "2011-12-30T12:00:00", "2011-12-30T09:30:00", "2011-12-31T09:30:00"),  # a day left out
        ("12:00 UTC", "2026-06-01T12:00:01", "2026-06-01T12:00:00", "2026-06-02T12:00:00"),
    ],
)
def test_the_reset_is_an_exact_instant(reset: str, at: str, last: str, next_: str) -> None:
    moment = datetime.fromisoformat(at).replace(tzinfo=UTC)
    found = day_reset(reset)
    assert isinstance(found, DayReset)
    assert found.last(moment).replace(tzinfo=None).isoformat() == last
    assert found.next(moment).replace(tzinfo=None).isoformat() == next_


@given(
    st.datetimes(datetime(2020, 1, 1), datetime(2030, 1, 1)),
    st.sampled_from(["America/Los_Angeles", "Europe/Berlin", "Australia/Lord_Howe", "Asia/Kathmandu", "UTC"]),
    st.integers(0, 23),
    st.integers(0, 59),
)
@settings(deadline=None)
def test_each_moment_lies_between_two_resets_a_day_apart(at: datetime, zone: str, hour: int, minute: int) -> None:
    moment, reset = at.replace(tzinfo=UTC), DayReset(hour, minute, ZoneInfo(zone))
    last, next_ = reset.last(moment), reset.next(moment)
    assert last <= moment < next_
    assert reset.last(next_) == next_
    assert timedelta(hours=22) < next_ - last < timedelta(hours=26)


async def test_a_spent_day_is_there_again_at_the_reset_and_not_before(house) -> None:
    house = open_house(house, "2026-11-30T06:00:00")  # two hours before
    pool = house.pool(rpd=2, day_resets=PACIFIC)
    for i in range(5):
        waiting = house.ask(house.call(pool), label=str(i))
    await house.clock.settle()
    assert house.granted_labels() == ["0", "1"]
    said = house.admission.explain(waiting)
    assert said.account == "p:requests_per_day"
    await house.clock.advance(7_199.9)
    assert house.granted_labels() == ["0", "1"]
    await house.clock.advance(0.2)
    assert house.granted_labels() == ["0", "1", "2", "3"]
    await house.clock.advance(86_400)
    assert house.granted_labels() == ["0", "1", "2", "3", "4"]


async def test_the_head_of_a_spent_day_knows_its_instant_over_a_change_of_the_clocks(house) -> None:
    house = open_house(house, "2026-03-08T08:00:00")  # the day of 23 hours has just begun
    pool = house.pool(tpd=1_000, tpm=9_000, day_resets=PACIFIC)
    house.ask(house.call(pool, 1_000))
    head = house.ask(house.call(pool, 1_000), label="head")
    assert house.admission.explain(head).earliest_s == pytest.approx(23 * 3600)


async def test_a_reset_gives_nothing_back_twice(house) -> None:
    house = open_house(house, "2026-11-30T07:59:00")
    pool = house.pool(tpm=10_000, tpd=10_000, day_resets=PACIFIC)
    house.ask(house.call(pool, 6_000), label="before")
    await house.clock.advance(61)
    assert house.level("p:tokens_per_day") == 10_000
    house.ask(house.call(pool, 9_000), label="after")
    await house.clock.settle()
    house.finish(house.answers["before"], used=(100, 0))
    assert house.level("p:tokens_per_day") == 1_000, "the new day never gave those 5,900"
    house.finish(house.answers["after"], used=(4_000, 0))
    assert house.level("p:tokens_per_day") == 6_000


async def test_a_debt_dies_at_the_reset_and_a_late_one_is_the_new_days(house) -> None:
    house = open_house(house, "2026-11-30T07:58:00")
    pool = house.pool(tpd=1_000, day_resets=PACIFIC)
    for label in ("early", "late"):
        house.ask(house.call(pool, 500), label=label)
    await house.clock.settle()
    house.finish(house.answers["early"], used=(2_500, 0))
    assert house.level("p:tokens_per_day") == -2_000
    await house.clock.advance(120)
    assert house.level("p:tokens_per_day") == 1_000
    house.finish(house.answers["late"], used=(800, 0))
    assert house.level("p:tokens_per_day") == 700


async def test_what_was_granted_and_not_sent_arrives_in_the_new_day(house) -> None:
    house = open_house(house, "2026-11-30T07:59:00")
    house.sends = False
    pool = house.pool(tpd=1_000, day_resets=PACIFIC)
    house.ask(house.call(pool, 800), label="slow")
    await house.clock.advance(120)
    assert house.level("p:tokens_per_day") == 200
    house.finish(house.answers["slow"], used=(100, 0))
    assert house.level("p:tokens_per_day") == 900


async def test_a_refusal_of_the_minute_leaves_the_rest_of_the_day(house) -> None:
    for resets in ("rolling", PACIFIC):
        house = open_house(house, "2026-11-30T10:00:00")
        pool = house.pool(resets, tpm=600, rpd=1_000, day_resets=resets)
        house.ask(house.call(pool, 60), label=resets)
        await house.clock.settle()
        house.finish(house.answers[resets], OutcomeKind.RATE_LIMITED, retry_after_s=5.0)
        assert house.level(f"{resets}:tokens") == pytest.approx(0, abs=1e-6)
        assert house.level(f"{resets}:requests_per_day") == pytest.approx(999, abs=0.1)


async def test_a_pool_with_limits_per_day_alone_is_slowed_by_a_429_like_an_open_one(house) -> None:
    house = open_house(house, "2026-11-30T10:00:00")
    pool = house.pool(rpd=1_000, day_resets=PACIFIC)
    house.ask(house.call(pool), label="first")
    await house.clock.settle()
    house.finish(house.answers["first"], OutcomeKind.RATE_LIMITED, retry_after_s=5.0)
    for i in range(50):
        house.ask(house.call(pool), label=str(i))
    await house.clock.advance(6)
    assert len(house.granted) == 2, "one after the hold, and no herd"


def spend(house, label: str, **more) -> None:
    permit = house.sent[house.answers[label]][0]
    permit.close(CallOutcome(kind=OutcomeKind.REJECTED, day_spent=True, **more))
    house.answers[label].release()


async def test_a_429_that_names_the_day_closes_until_the_reset_without_a_probe(house) -> None:
    for more in ({"rpd": 1_000}, {}, {"tpm": 100_000}):
        house = open_house(house, "2026-11-30T10:00:00")
        name = str(more)
        pool = house.pool(name, day_resets=PACIFIC, **more)
        for i in range(3):
            house.ask(house.call(pool, 10), label=f"{name}{i}")
        await house.clock.settle()
        spend(house, f"{name}0", retry_after_s=12.0)
        before = len(house.granted)
        for i in range(20):
            house.ask(house.call(pool, 10), label=f"{name} waits {i}")
        house.finish(house.answers[f"{name}1"], used=(1, 0))  # served before the day was spent
        await house.clock.advance(22 * 3600 - 1)
        assert len(house.granted) == before
        house.finish(house.answers[f"{name}2"], used=(1, 0))
        await house.clock.advance(2)
        assert len(house.granted) == before + 20


async def test_a_spent_day_whose_reset_is_unknown_is_probed_some_thirty_times_a_day_and_not_1440(house) -> None:
    house = open_house(house, "2026-11-30T10:00:00")
    pool = house.pool(rpm=100)
    for i in range(200):
        house.ask(house.call(pool), label=str(i))
    await house.clock.settle()
    sent = len(house.granted)
    done = 0
    for _ in range(24 * 60 - 1):
        while done < len(house.granted):
            spend(house, house.granted[done].demand.label)
            done += 1
        await house.clock.advance(60)
    assert 20 <= len(house.granted) - sent <= 32
    assert pool.throttle.closed(house.clock.now())


async def test_a_probe_that_is_served_opens_a_spent_day(house) -> None:
    house = open_house(house, "2026-11-30T10:00:00")
    pool = house.pool(rpm=60, burst_s=1)
    house.ask(house.call(pool), label="0")
    await house.clock.settle()
    spend(house, "0")
    for i in range(1, 6):
        house.ask(house.call(pool), label=str(i))
    await house.clock.advance(61)
    assert house.granted_labels() == ["0", "1"]
    house.finish(house.answers["1"], used=(1, 0))
    await house.clock.advance(10)
    assert len(house.granted) == 6


async def test_raising_a_spent_limit_leaves_what_it_grew_by(house) -> None:
    house = open_house(house, "2026-11-30T10:00:00")
    pool = house.pool(rpd=2, day_resets=PACIFIC)
    for i in range(5):
        house.ask(house.call(pool), label=str(i))
    await house.clock.settle()
    house.pool(rpd=4, day_resets=PACIFIC)
    await house.clock.settle()
    assert house.granted_labels() == ["0", "1", "2", "3"]


async def test_a_limit_that_gets_a_reset_keeps_what_is_used(house) -> None:
    house = open_house(house, "2026-11-30T10:00:00")
    pool = house.pool(rpd=10)
    for i in range(4):
        house.ask(house.call(pool), label=str(i))
    await house.clock.settle()
    house.pool(rpd=10, day_resets=PACIFIC)
    assert house.level("p:requests_per_day") == pytest.approx(6, abs=0.01)
    assert any(isinstance(level, WindowLevel) for level in pool.limiter.accounts)


async def test_a_wall_clock_set_back_over_the_reset_refills_nothing_twice(house) -> None:
    house = open_house(house, "2026-11-30T07:59:00")
    pool = house.pool(rpd=2, day_resets=PACIFIC)
    for i in range(5):
        house.ask(house.call(pool), label=str(i))
    await house.clock.advance(61)
    assert len(house.granted) == 4
    house.wall.start -= timedelta(minutes=30)
    await house.clock.advance(3600)
    assert len(house.granted) == 4
    house.wall.start += timedelta(hours=25)
    await house.clock.advance(61)
    assert len(house.granted) == 4, "the waiting head has its timer; the next look at the level finds the new day"
    assert house.level("p:requests_per_day") == 2


async def test_more_than_a_day_holds_is_refused_at_once(house) -> None:
    house = open_house(house, "2026-11-30T10:00:00")
    with pytest.raises(NeverFitsError, match="p:tokens_per_day, which holds at most 1,000:"):
        house.ask(house.call(house.pool(tpd=1_000, day_resets=PACIFIC), 1_001))


async def test_what_was_never_sent_gives_a_spent_day_nothing_back(house) -> None:
    house = open_house(house, "2026-11-30T10:00:00")
    house.sends = False
    pool = house.pool(rpm=600, rpd=100, day_resets="00:00 UTC")
    for i in range(5):
        house.ask(house.call(pool), label=str(i))
    await house.clock.settle()
    house.finish(house.answers["0"], OutcomeKind.REJECTED, day_spent=True)
    for i in range(1, 5):
        house.answers[str(i)].release()
    house.ask(house.call(pool), label="next")
    await house.clock.settle()
    assert "next" not in house.answers
    await house.clock.advance(86_400.0)
    assert "next" in house.answers
