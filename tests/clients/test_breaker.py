"""The breaker: its table, what counts, and a probe's slot that every exit gives back."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from interlock.clients.breaker import (
    FAILURE_CODES,
    FAILURES,
    FIRST_OPEN_S,
    LONGEST_OPEN_S,
    PROBE_EXPIRES_S,
    QUOTA_OPEN_S,
    Breaker,
    BreakerState,
)

CALLERS_OWN = ("invalid_request", "provider_refusal", "output_truncated", "context_window_exceeded", "cancelled",
               "response_shape", "credential", "unclassified", "admission_timeout", "stream_buffer")  # fmt: skip
#: Written out, so that one that is left out of the code's own list is missed.
THE_PROVIDERS = ("llm_rate_limited", "llm_overloaded", "llm_transient", "malformed_response", "empty_response",
                 "stream_interrupted")  # fmt: skip


def tripped(now: float = 0.0) -> Breaker:
    breaker = Breaker()
    for _ in range(FAILURES):
        breaker.heard(now, "llm_transient")
    assert breaker.state(now) is BreakerState.OPEN
    return breaker


@pytest.mark.parametrize("code", THE_PROVIDERS)
def test_the_third_failure_in_a_row_trips_it(code: str) -> None:
    breaker = Breaker()
    assert [breaker.heard(0.0, code) for _ in range(3)] == [False, False, True]
    assert not breaker.passes(FIRST_OPEN_S - 0.001)
    assert breaker.passes(FIRST_OPEN_S)


def test_a_success_between_forgets_the_failures() -> None:
    breaker = Breaker()
    for code in ["llm_overloaded", "llm_overloaded", "ok"] * 5:
        breaker.heard(0.0, code)
    assert breaker.state(0.0) is BreakerState.CLOSED


@pytest.mark.parametrize("code", CALLERS_OWN)
def test_b45_what_the_caller_did_counts_as_neither(code: str) -> None:
    breaker = Breaker()
    for _ in range(20):
        breaker.heard(0.0, code)
    assert breaker.state(0.0) is BreakerState.CLOSED
    breaker.heard(0.0, "llm_transient")
    breaker.heard(0.0, "llm_transient")
    breaker.heard(0.0, code)  # nor does it heal
    assert breaker.heard(0.0, "llm_transient")


def test_b45_one_failure_of_one_is_no_reason() -> None:
    breaker = Breaker()
    assert not breaker.heard(0.0, "llm_transient")
    assert breaker.passes(0.0)


def test_b11_an_account_without_money_opens_it_at_once() -> None:
    breaker = Breaker()
    assert breaker.heard(0.0, "quota_exhausted")
    assert not breaker.passes(QUOTA_OPEN_S - 1)


def test_it_takes_two_successes_to_close() -> None:
    breaker, now = tripped(), FIRST_OPEN_S
    assert breaker.take_probe(now, "a")
    assert not breaker.heard(now, "ok")
    breaker.give_back("a")
    assert breaker.state(now) is BreakerState.HALF_OPEN
    assert breaker.take_probe(now, "b")
    assert breaker.heard(now, "ok")
    assert breaker.state(now) is BreakerState.CLOSED


def test_a_probe_that_fails_opens_it_for_twice_as_long_up_to_the_longest() -> None:
    breaker, now, opens = tripped(), 0.0, []
    for _ in range(10):
        opens.append(breaker.opens_at - now)
        now = breaker.opens_at
        assert breaker.take_probe(now, "a")
        assert breaker.heard(now, "llm_transient")
        breaker.give_back("a")
    assert opens[:3] == [FIRST_OPEN_S, 2 * FIRST_OPEN_S, 4 * FIRST_OPEN_S]
    assert opens[-1] == LONGEST_OPEN_S


def test_a_success_before_a_failed_probe_counts_for_nothing_afterwards() -> None:
    breaker, now = tripped(), FIRST_OPEN_S
    breaker.heard(now, "ok")
    breaker.heard(now, "llm_transient")
    now = breaker.opens_at
    assert not breaker.heard(now, "ok")
    assert breaker.state(now) is BreakerState.HALF_OPEN
    assert breaker.heard(now, "ok")


def test_one_that_has_closed_begins_anew() -> None:
    breaker, now = tripped(), FIRST_OPEN_S
    breaker.heard(now, "llm_transient")
    now = breaker.opens_at
    assert [breaker.heard(now, "ok") for _ in range(2)] == [False, True]
    assert [breaker.heard(now, "llm_transient") for _ in range(3)] == [False, False, True], "three failures again"
    assert breaker.opens_at == now + FIRST_OPEN_S


def test_b11_news_that_there_is_no_money_shortens_no_longer_wait() -> None:
    breaker, now = tripped(), 0.0
    while breaker.opens_at - now < LONGEST_OPEN_S:
        now = breaker.opens_at
        breaker.heard(now, "llm_transient")
    until = breaker.opens_at
    breaker.heard(now, "quota_exhausted")
    assert breaker.opens_at == until
    assert until > now + QUOTA_OPEN_S


def test_b18_fifty_callers_at_the_half_open_instant_are_one_probe() -> None:
    breaker, now = tripped(), FIRST_OPEN_S
    assert [breaker.take_probe(now, owner) for owner in range(50)].count(True) == 1
    assert [breaker.passes(now, owner) for owner in range(50)].count(True) == 1


@pytest.mark.parametrize("code", [*CALLERS_OWN, None])
def test_b18_every_exit_of_a_probe_frees_the_slot(code: str | None) -> None:
    breaker, now = tripped(), FIRST_OPEN_S
    assert breaker.take_probe(now, "a")
    if code is not None:
        breaker.heard(now, code)
    breaker.give_back("a")
    assert breaker.state(now) is BreakerState.HALF_OPEN
    assert breaker.take_probe(now, "b")


def test_b18_a_lost_probe_expires() -> None:
    breaker, now = tripped(), FIRST_OPEN_S
    assert breaker.take_probe(now, "lost")
    assert not breaker.passes(now + PROBE_EXPIRES_S, "other")
    assert breaker.take_probe(now + PROBE_EXPIRES_S + 1, "other")
    breaker.give_back("lost")  # late, and no longer its own
    assert not breaker.passes(now + PROBE_EXPIRES_S + 2, "third")


def test_a_straggler_of_before_neither_heals_nor_prolongs() -> None:
    breaker = tripped()
    until = breaker.opens_at
    assert not breaker.heard(1.0, "llm_transient")
    assert not breaker.heard(1.0, "ok")
    assert (breaker.opens_at, breaker.state(1.0)) == (until, BreakerState.OPEN)


@given(
    st.lists(
        st.tuples(
            st.sampled_from([*sorted(FAILURE_CODES), *CALLERS_OWN, "ok", "quota_exhausted", "take", "give"]),
            st.integers(0, 3),
            st.floats(0, 400),
        )
    )
)
def test_whatever_happens_it_opens_again_and_has_one_probe(steps: list[tuple[str, int, float]]) -> None:
    breaker, now, taken_at = Breaker(), 0.0, 0.0
    for what, owner, passed in steps:
        now += passed
        if what == "take":
            taken_at = now if breaker.take_probe(now, owner) else taken_at
        elif what == "give":
            breaker.give_back(owner)
        else:
            breaker.heard(now, what)
        if breaker.state(now) is BreakerState.HALF_OPEN and breaker.statistics("m", now).probing:
            assert sum(breaker.passes(now, each) for each in range(5)) == (
                1 if now - taken_at <= PROBE_EXPIRES_S else 5
            )
    for owner in range(4):
        breaker.give_back(owner)
    assert breaker.passes(now + max(LONGEST_OPEN_S, QUOTA_OPEN_S), "anyone")
