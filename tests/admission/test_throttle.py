"""The throttle's rules, one by one. Its whole behaviour is in test_throttle_simulation.py."""

from __future__ import annotations

from itertools import pairwise
from math import inf

import pytest
from hypothesis import given, strategies as st

from interlock.admission import Dimension, Rate, ReportedLimit, Throttle, TokenBucketRateLimiter


def limiter(**more: object) -> TokenBucketRateLimiter:
    return TokenBucketRateLimiter(
        "p", {Dimension.TOKENS: Rate(600.0, 10.0), Dimension.REQUESTS: Rate(60.0, 1.0)}, **more
    )  # type: ignore[arg-type]


def test_a_429_holds_everyone_for_the_hint_and_jitter_only_adds() -> None:
    for jitter in (0.0, 0.5, 0.999):
        throttle = Throttle()
        assert throttle.on_rate_limited(100.0, 10.0, 0, jitter)
        assert 110.0 <= throttle.held_until <= 111.0
    assert Throttle().held_until == -inf


def test_the_slowdown_grows_once_an_epoch() -> None:
    throttle = Throttle()
    assert throttle.on_rate_limited(0.0, 1.0, 0)
    once = throttle.slowdown(0.0)
    assert once > 1.0
    for _ in range(30):  # everyone else who was in flight
        assert not throttle.on_rate_limited(0.1, 1.0, 0)
    assert throttle.slowdown(0.1) == once
    assert throttle.rate_limited == 31
    throttle.on_success(5.0, throttle.epoch)
    assert throttle.on_rate_limited(5.0, 1.0, throttle.epoch)
    assert throttle.slowdown(5.0) > once


def test_a_stragglers_hint_prolongs_the_hold_and_without_one_it_does_nothing() -> None:
    throttle = Throttle()
    throttle.on_rate_limited(0.0, 1.0, 0)
    throttle.on_rate_limited(0.1, 7.0, 0)
    assert throttle.held_until == pytest.approx(7.1)
    throttle.on_rate_limited(20.0, None, 0)
    assert throttle.held_until == pytest.approx(7.1)


def test_without_a_hint_the_hold_doubles_within_an_episode_and_is_capped() -> None:
    throttle, now, holds = Throttle(), 0.0, []
    for _ in range(9):
        throttle.on_rate_limited(now, None, throttle.epoch)
        holds.append(throttle.held_until - now)
        now = throttle.held_until
    assert holds == [1, 2, 4, 8, 16, 32, 60, 60, 60]
    throttle.on_success(now, throttle.epoch)
    throttle.on_rate_limited(now, None, throttle.epoch)
    assert throttle.held_until - now == 1


def test_a_hint_that_proves_too_short_is_lengthened_until_something_succeeds() -> None:
    throttle, now, holds = Throttle(), 0.0, []
    for _ in range(8):
        throttle.on_rate_limited(now, 0.1, throttle.epoch)
        holds.append(round(throttle.held_until - now, 9))
        now = throttle.held_until
    assert holds == [0.1, 1, 2, 4, 8, 16, 30, 30]
    throttle.on_rate_limited(now, 45.0, throttle.epoch)
    assert throttle.held_until - now == 45.0, "never shorter than what the provider says"
    now = throttle.held_until
    throttle.on_success(now, throttle.epoch)
    throttle.on_rate_limited(now, 3.0, throttle.epoch)
    assert throttle.held_until - now == 3.0


@pytest.mark.parametrize("hint", [float("nan"), -5.0, 0.0])
def test_a_hint_that_is_no_time_is_none(hint: float) -> None:
    throttle = Throttle()
    throttle.on_rate_limited(0.0, hint, 0)
    assert throttle.held_until == 1.0


def test_a_529_slows_harder_holds_nobody_and_counts_once_in_five_seconds() -> None:
    once = Throttle()
    once.on_rate_limited(0.0, 1.0, 0)
    throttle = Throttle()
    assert throttle.on_overloaded(0.0)
    assert throttle.slowdown(0.0) > once.slowdown(0.0)
    assert throttle.held_until == -inf
    assert not throttle.on_overloaded(4.9)
    assert throttle.on_overloaded(5.0)


def refused(throttle: Throttle, now: float, *, kept_s: float | None = 0.0, asked_s: float = 0.1) -> float:
    """A 429 that counts, without a hint; the slowdown after it."""
    throttle.on_rate_limited(now, None, throttle.epoch, kept_s=kept_s, asked_s=asked_s)
    return throttle.slowdown(now)


def test_the_rate_after_a_refusal_is_what_was_served_since_the_last_one() -> None:
    throttle = Throttle()
    refused(throttle, 0.0)
    throttle.on_success(1.0, throttle.epoch)
    share = 1 / throttle.slowdown(1.0)
    # 101 s later, the first of them a hold: what was refilled, less 40 s of it that were never sent.
    served = ((100.0 * share) - 40.0) / 101.0
    assert 1 / refused(throttle, 101.0, kept_s=40.0) == pytest.approx(served * 0.99)


def test_a_hint_makes_the_measurement_more_exact() -> None:
    """A call of 6 s was refused, and would fit in 10 s: after those the provider has served it, too."""
    throttle = Throttle()
    refused(throttle, 0.0)
    throttle.on_success(1.0, throttle.epoch)
    share = 1 / throttle.slowdown(1.0)
    sent = 100.0 * share - 30.0 - 0.05  # 0.05: half of the first refused call may have been there at the start
    throttle.on_rate_limited(101.0, 10.0, throttle.epoch, kept_s=30.0, asked_s=6.0)
    assert 1 / throttle.slowdown(101.0) == pytest.approx((sent + 6.0) / 111.0 * 0.99, rel=0.01)


def test_a_hint_that_contradicts_what_was_served_is_not_measured_with() -> None:
    throttle = Throttle()
    refused(throttle, 0.0)
    throttle.on_success(1.0, throttle.epoch)
    share = 1 / throttle.slowdown(1.0)
    throttle.on_rate_limited(11.0, 60.0, throttle.epoch, kept_s=0.0, asked_s=0.1)
    assert 1 / throttle.slowdown(11.0) == pytest.approx(10.0 * share / 11.0 * 0.99, rel=0.02)


def test_a_rough_measurement_cuts_no_deeper_than_to_two_fifths_and_every_one_cuts_a_little() -> None:
    for kept_s, part in ((1e9, 0.4), (-1e9, 0.97)):
        throttle = Throttle()
        refused(throttle, 0.0)
        throttle.on_success(1.0, throttle.epoch)
        share = 1 / throttle.slowdown(1.0)
        assert 1 / refused(throttle, 3.0, kept_s=kept_s) == pytest.approx(share * part)


def test_a_second_refusal_before_any_success_says_nothing_about_the_rate() -> None:
    throttle = Throttle()
    once = refused(throttle, 0.0)
    for now in range(1, 5):
        assert refused(throttle, float(now)) == once


def test_a_probe_is_paid_for_with_served_calls_or_with_time() -> None:
    """The provider serves exactly a half, and refuses within a second whatever is faster."""

    def gaps_with(calls_per_s: int) -> list[float]:
        throttle, failures, refilled, last = Throttle(), [], 0.0, 0.0
        for now in range(1, 4_000):
            refilled += 0.0 if now < throttle.held_until else 1 / throttle.slowdown(now)
            if 1 / throttle.slowdown(now) > 0.51:
                throttle.on_rate_limited(float(now), 1.0, throttle.epoch, kept_s=refilled - (now - last) / 2)
                failures.append(now)
                refilled, last = 0.0, float(now)
            else:
                for _ in range(calls_per_s):
                    throttle.on_success(float(now), throttle.epoch)
        assert 1 / throttle.slowdown(4_000.0) > 0.45
        return [after - before for before, after in pairwise(failures)]

    busy, quiet = gaps_with(10), gaps_with(1)
    assert 25 <= min(busy[3:]) <= max(busy[3:]) <= 45, "250 calls, and a climb"
    assert 250 <= min(quiet[5:]) <= max(quiet[5:]) <= 280


def test_recovery_needs_a_success_of_a_call_sent_since() -> None:
    throttle = Throttle()
    throttle.on_rate_limited(0.0, 1.0, 0)
    slow = throttle.slowdown(0.0)
    assert not throttle.on_success(500.0, 0), "a call from before the change proves nothing"
    assert throttle.slowdown(1000.0) == slow, "time alone changes nothing"
    assert throttle.on_success(1000.0, throttle.epoch)
    assert throttle.slowdown(1000.0) < slow


def test_it_climbs_in_doubling_steps_to_the_published_rate() -> None:
    throttle, now = Throttle(), 0.0
    for _ in range(6):
        refused(throttle, now, kept_s=None)
        throttle.on_success(now, throttle.epoch)
    seen = [throttle.slowdown(now)]
    while seen[-1] > 1.0:
        now += 1.0
        throttle.on_success(now, throttle.epoch)
        if throttle.slowdown(now) != seen[-1]:
            seen.append(throttle.slowdown(now))
    assert seen[0] > 3.3
    assert now <= 40.0
    steps = [before / after - 1 for before, after in pairwise(seen)]
    assert steps[:5] == pytest.approx([0.04, 0.08, 0.16, 0.32, 0.64])
    assert throttle.calm


def test_a_trickle_of_529s_costs_little_and_nothing_else_costs_nearly_everything() -> None:
    trickle, flood = Throttle(), Throttle()
    slow = []
    for second in range(120):
        for _ in range(10):
            trickle.on_success(float(second), trickle.epoch)
        trickle.on_overloaded(float(second))
        flood.on_overloaded(float(second))
        slow.append(trickle.slowdown(second))
    assert sum(slow) / len(slow) < 1.7
    assert flood.slowdown(120.0) == 10.0
    for second in range(121, 160):
        flood.on_success(float(second), flood.epoch)
    assert flood.slowdown(160.0) == 1.0


@given(st.lists(st.tuples(st.sampled_from(["429", "529", "ok"]), st.floats(0, 400), st.floats(0, 200)), max_size=60))
def test_the_slowdown_stays_within_its_bounds(events: list[tuple[str, float, float]]) -> None:
    throttle, now, epoch = Throttle(), 0.0, 0
    for what, passes, hint in events:
        now += passes
        if what == "429":
            throttle.on_rate_limited(now, hint, throttle.epoch, 0.5)
            assert throttle.held_until >= now + min(hint, 60.0)
        elif what == "529":
            throttle.on_overloaded(now)
        else:
            before = throttle.slowdown(now)
            throttle.on_success(now, throttle.epoch)
            assert throttle.slowdown(now) <= before
        assert 1.0 <= throttle.slowdown(now) <= 10.0
        assert throttle.epoch >= epoch
        epoch = throttle.epoch


def test_a_429_drains_every_level_to_at_most_zero_and_nothing_refills_during_the_hold() -> None:
    limits = limiter()
    tokens, requests = limits.levels["tokens"], limits.levels["requests"]
    tokens.take(0.0, 700.0)
    assert limits.rate_limited(0.0, 20.0, 0)
    assert tokens.level(0.0) == pytest.approx(-100.0), "a debt stays a debt"
    assert requests.level(0.0) == pytest.approx(0.0)
    assert tokens.free(19.9) == requests.free(19.9) == -inf
    assert requests.level(20.0) == pytest.approx(0.0)
    assert requests.level(30.0) == pytest.approx(10.0 / limits.throttle.slowdown(30.0))


def test_the_refill_follows_the_slowdown_and_the_capacity_does_not() -> None:
    limits = limiter()
    tokens = limits.levels["tokens"]
    limits.overloaded(0.0)
    slowdown = limits.throttle.slowdown(0.0)
    tokens.take(0.0, 600.0)
    assert tokens.level(10.0) == pytest.approx(100.0 / slowdown)
    assert tokens.capacity == 600.0
    assert limits.earliest_fit(0.0, (300.0, 1.0)) == pytest.approx(30.0 * slowdown)


def test_a_reported_limit_is_adopted_up_and_down_unless_fixed() -> None:
    limits = limiter()
    report = {Dimension.TOKENS: ReportedLimit(limit=1200.0), Dimension.OUTPUT_TOKENS: ReportedLimit(limit=5.0)}
    assert limits.reported(0.0, 0.0, report) == {"tokens": (600.0, 1200.0)}
    assert limits.levels["tokens"].capacity == 1200.0
    assert limits.levels["tokens"].level(0.0) == pytest.approx(600.0), "the level is carried over"
    assert limits.levels["tokens"].level(10.0) == pytest.approx(800.0)
    assert limits.reported(10.0, 10.0, report) == {}, "once"
    assert limits.reported(10.0, 10.0, {Dimension.TOKENS: ReportedLimit(limit=60.0)}) == {"tokens": (1200.0, 60.0)}
    assert limits.levels["tokens"].level(10.0) == 60.0
    kept = limiter(fixed=True)
    assert kept.reported(0.0, 0.0, report) == {}
    assert kept.levels["tokens"].capacity == 600.0


def test_remaining_only_lowers_and_counts_the_refill_since_the_request_left() -> None:
    limits = limiter()
    tokens = limits.levels["tokens"]
    limits.reported(100.0, 100.0, {Dimension.TOKENS: ReportedLimit(remaining=251.0)})
    assert tokens.level(100.0) == pytest.approx(251.0)
    limits.reported(110.0, 105.0, {Dimension.TOKENS: ReportedLimit(remaining=500.0)})
    assert tokens.level(110.0) == pytest.approx(351.0), "never raised"
    limits.reported(130.0, 110.0, {Dimension.TOKENS: ReportedLimit(remaining=100.0)})
    assert tokens.level(130.0) == pytest.approx(300.0), "what was left then, and 20 s of refill"
    limits.reported(130.0, 130.0, {Dimension.REQUESTS: ReportedLimit(remaining=0.0)})
    assert limits.levels["requests"].level(130.0) == pytest.approx(0.0)


def test_b48_a_long_hint_closes_the_pool_but_for_a_probe_a_minute() -> None:
    limits = limiter()
    tokens, throttle = limits.levels["tokens"], limits.throttle
    limits.rate_limited(0.0, 600.0, 0)
    assert throttle.closed(1.0)
    assert tokens.free(59.9) == -inf
    probes = []
    now = 60.0
    while throttle.closed(now):
        assert tokens.owed
        probes.append(now)
        tokens.take(now, 1.0)
        assert limits.passed(now) == throttle.closed(now)
        limits.rate_limited(now + 0.1, 600.0 - now, throttle.epoch)
        assert tokens.free(now + 1.0) == -inf
        now = throttle.held_until
    assert 9 <= len(probes) <= 10
    assert all(59.9 <= b - a <= 61 for a, b in pairwise(probes))


def test_b48_sixty_seconds_itself_are_waited_out_and_no_probe_is_sent() -> None:
    limits = limiter()
    limits.rate_limited(0.0, 60.0, 0)
    assert not limits.throttle.closed(1.0)
    assert limits.throttle.held_until == 60.0


def test_b48_a_probe_that_succeeds_opens_the_pool() -> None:
    limits = limiter()
    limits.rate_limited(0.0, 133_107.0, 0)
    limits.levels["tokens"].take(60.0, 1.0)
    limits.passed(60.0)
    assert limits.levels["tokens"].free(61.0) == -inf
    assert not limits.succeeded(61.0, 0), "a call of before says nothing"
    assert limits.succeeded(62.0, limits.throttle.epoch)
    assert not limits.throttle.closed(62.0)
    tokens = limits.levels["tokens"]
    assert tokens.free(62.0) == pytest.approx(-1.0), "open again, with what the probe owes"
    slowdown = limits.throttle.slowdown(62.0)
    assert tokens.free(63.0) == pytest.approx(-1.0 + 10.0 / slowdown)
