"""Which models are passed over: what is a strike, whose breaker hears of what, and what a probe's call gives back."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from interlock.admission.clock import ManualClock
from interlock.catalog import Grade, ModelEntry
from interlock.clients.breaker import FIRST_OPEN_S, QUOTA_OPEN_S
from interlock.runtime.routing import STRIKES, Caller, Routing, Strikes

#: Ends of a call that say nothing of its provider: a re-run after one of them stays where it is.
NO_STRIKES = ("invalid_request", "provider_refusal", "output_truncated", "response_shape", "context_window_exceeded",
              "credential", "cancelled", "ok")  # fmt: skip


def model(name: str, **changes: Any) -> ModelEntry:
    return ModelEntry(id=name, **{"grade": Grade.SMALL, "provider": "p", "wire_model_id": name, **changes})


class Pool:
    """An open pool, until it is closed."""

    name = "pool"

    def __init__(self, until_s: float = 0.0) -> None:
        self.throttle = SimpleNamespace(closed=lambda now: now < until_s, closed_until=until_s)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(0.0)


@pytest.fixture
def routing(clock: ManualClock) -> Routing:
    return Routing(clock)


def failed(routing: Routing, entry: ModelEntry, code: str = "llm_transient", times: int = 3) -> None:
    for _ in range(times):
        routing.heard(entry, code, Pool())  # type: ignore[arg-type]


def test_a_strike_is_a_failure_of_the_providers_own() -> None:
    strikes = Strikes()
    for code in NO_STRIKES:
        strikes.add("a", code)
    assert strikes == {}
    strikes.add("a", "llm_transient")
    strikes.add("a", "llm_rate_limited")
    strikes.add("b", "empty_response")
    assert strikes == {"a": 2, "b": 1}


def test_b11_an_account_without_money_is_out_for_the_job_at_once() -> None:
    strikes = Strikes()
    strikes.add("a", "quota_exhausted")
    assert strikes == {"a": STRIKES}


def test_only_the_last_of_several_models_ends_the_chain() -> None:
    strikes = Strikes(a=2)
    assert not strikes.end("a"), "its only model may be asked again"
    strikes.add("b", "llm_transient")
    assert not strikes.end("b")
    strikes.add("b", "llm_transient")
    assert strikes.end("b")


def test_a_model_that_has_failed_a_job_twice_is_passed_over_by_that_job_alone(routing: Routing) -> None:
    assert routing.why(model("a"), Caller(strikes={"a": 1})) is None
    assert routing.why(model("a"), Caller(strikes={"a": 2})) is not None
    assert routing.why(model("a")) is None


def test_a_failing_model_says_nothing_of_its_neighbours(routing: Routing) -> None:
    failed(routing, model("a"))
    assert routing.why(model("a")) is not None
    assert routing.why(model("b")) is None


@pytest.mark.parametrize("apart", [{"credential": "other"}, {"base_url": "http://other.test"}, {"provider": "q"}])
def test_b11_without_money_are_all_models_of_the_account_and_no_others(routing: Routing, apart: dict[str, Any]) -> None:
    failed(routing, model("a"), "quota_exhausted", times=1)
    assert routing.why(model("a")) is not None
    assert "account" in str(routing.why(model("b")))
    assert routing.why(model("c", **apart)) is None


def test_two_successes_of_any_of_its_models_bring_an_account_back(routing: Routing, clock: ManualClock) -> None:
    failed(routing, model("a"), "quota_exhausted", times=1)
    clock.run_due(QUOTA_OPEN_S)
    for name in ("a", "b"):
        assert routing.why(model(name), Caller(owner=name)) is None
        routing.take_probes(name, model(name))
        assert routing.why(model("c"), Caller(owner="c")) is not None, "one probe at a time, of whichever model"
        failed(routing, model(name), "ok", times=1)
        routing.give_back(name)
    assert routing.statistics() == ()
    assert not routing.troubled


def test_whoever_is_the_probe_gives_back_all_that_it_took(routing: Routing, clock: ManualClock) -> None:
    """Its model and its account may both be on trial."""
    failed(routing, model("a"))
    failed(routing, model("a"), "quota_exhausted", times=1)
    clock.run_due(QUOTA_OPEN_S)
    routing.take_probes("job", model("a"))
    assert all(known.probing for known in routing.statistics())
    assert routing.why(model("a"), Caller(owner="other")) is not None
    assert routing.why(model("a"), Caller(owner="job")) is None
    routing.give_back("somebody else")
    assert all(known.probing for known in routing.statistics())
    routing.give_back("job")
    assert not any(known.probing for known in routing.statistics())


def test_a_pool_that_is_closed_is_news_once_and_is_forgotten_when_it_opens(
    routing: Routing, clock: ManualClock
) -> None:
    closed = Pool(until_s=90.0)
    entry = model("a", limits={"pool": closed.name})
    assert routing.heard(entry, "llm_rate_limited", closed)  # type: ignore[arg-type]
    assert not routing.heard(entry, "llm_rate_limited", closed)  # type: ignore[arg-type]
    assert "90 s more" in str(routing.why(entry))
    failed(routing, model("b"), "ok", times=1)
    clock.run_due(FIRST_OPEN_S)
    assert routing.why(entry) is not None
    clock.run_due(90.0 - FIRST_OPEN_S)
    assert routing.why(entry) is None
    assert routing.heard(entry, "llm_rate_limited", Pool(until_s=200.0)), "news again"  # type: ignore[arg-type]
