"""How large calls will be: from recorded calls, resampled; or from assumptions."""

from __future__ import annotations

from datetime import UTC, datetime
from statistics import mean

import pytest
from hypothesis import given, strategies as st

from interlock.catalog.usage import Usage
from interlock.catalog.words import Kind
from interlock.clients.record import CallRecord
from interlock.runtime.plan.sizes import Draws, Sizes, fitted, recorded_shares
from interlock.runtime.plan.workload import PlannedJob
from interlock.runtime.store.rows import CallRow

from .conftest import MakeCatalog, call_of


def row(
    output: int,
    *,
    into: int = 50,
    job: str = "LLMCall",
    workflow: str = "triage",
    outcome: str = "ok",
    took_s: float = 1.0,
) -> CallRow:
    record = CallRecord(
        kind=Kind.CHAT, model="small", provider="simulated", wire_model_id="small", served_model=None, request_id=None,
        usage=Usage(input_tokens=into, output_tokens=output), cost=None, currency=None, price_as_of=None,
        started_at=datetime(2026, 1, 1, tzinfo=UTC), latency_s=took_s, first_piece_s=None, outcome=outcome, error=None,
        stop_reason=None, unmetered=False, undeclared=False, request_hash=f"{output}-{job}-{workflow}",
    )  # fmt: skip
    return CallRow(record=record, job=job, workflow=workflow)


def planned(catalog: object, *, job: str = "LLMCall", workflow: str = "triage") -> PlannedJob:
    call = call_of(catalog, into=100, out=400, expected_tokens=None, latency_s=None)  # type: ignore[arg-type]
    return PlannedJob(name=job, workflow=workflow, calls=(call,))


def test_recorded_calls_of_the_same_job_come_first(make_catalog: MakeCatalog) -> None:
    job = planned(make_catalog())
    rows = [row(10) for _ in range(5)] + [row(300, job="Other") for _ in range(50)] + [row(1, outcome="llm_overloaded")]
    sizes = Sizes.of(rows)
    assert sizes.expected(job, job.calls[0]).output_tokens == 10
    other = planned(make_catalog(), job="New", workflow="new")
    assert sizes.expected(other, other.calls[0]).output_tokens == pytest.approx(mean([10] * 5 + [300] * 50), abs=1)
    elsewhere = planned(make_catalog(), workflow="another pipeline")
    assert sizes.expected(elsewhere, elsewhere.calls[0]).output_tokens == 10


def test_too_few_of_a_job_are_not_enough(make_catalog: MakeCatalog) -> None:
    job = planned(make_catalog())
    sizes = Sizes.of([row(10)] + [row(300, job="Other") for _ in range(50)])
    assert sizes.expected(job, job.calls[0]).output_tokens > 250


def test_draws_come_from_what_was_recorded_and_repeat_by_seed(make_catalog: MakeCatalog) -> None:
    job = planned(make_catalog())
    sizes = Sizes.of([row(tokens, took_s=tokens / 10) for tokens in (10, 20, 30, 40, 1_000)])
    first, again, other = (
        [Draws(sizes, {}, seed)(job, job.calls[0]) for _ in range(1)] + [draws(job, job.calls[0]) for _ in range(40)]
        for seed in (3, 3, 4)
        for draws in [Draws(sizes, {}, seed)]
    )
    assert first == again
    assert first != other
    assert {each.output_tokens for each in first} <= {10, 20, 30, 40, 400}  # never above its limit
    assert all(each.latency_s in (1, 2, 3, 4, 100) for each in first)


def test_few_recorded_calls_make_runs_differ_more_than_many(make_catalog: MakeCatalog) -> None:
    job = planned(make_catalog())

    def spread(count: int) -> float:
        sizes = Sizes.of([row(10 + 380 * (number % 2)) for number in range(count)])
        means = []
        for seed in range(12):
            draws = Draws(sizes, {}, seed)
            means.append(mean(draws(job, job.calls[0]).output_tokens for _ in range(400)))
        return max(means) - min(means)

    assert spread(6) > 2 * spread(600)


def test_an_estimates_surplus_is_found_from_the_very_same_calls(make_catalog: MakeCatalog) -> None:
    """A schema of 200 tokens is estimated and not counted; the text is estimated a tenth too high."""
    pairs = tuple((200 + int(1.1 * text), text) for text in range(50, 450, 10))
    fit = fitted(pairs)
    assert fit.of(200 + 1_100) == pytest.approx(1_000, rel=0.01)
    job = planned(make_catalog())
    draws = Draws(Sizes(pairs={"small": pairs}), {}, 0)
    assert draws(job, job.calls[0]).input_tokens == 1  # 100 is less than the schema alone
    assert draws.reserved(job, job.calls[0]) == 2


@given(
    st.lists(st.tuples(st.integers(1, 10_000), st.integers(0, 10_000)), min_size=1, max_size=30), st.integers(0, 10**6)
)
def test_a_fit_never_gives_less_than_one_token(pairs: list[tuple[int, int]], estimated: int) -> None:
    assert 1.0 <= fitted(pairs).of(estimated) < 10**12


def test_other_calls_of_the_same_job_move_the_estimate_within_bounds(make_catalog: MakeCatalog) -> None:
    job = planned(make_catalog())
    key = ("small", "triage", "LLMCall")
    for into, share in ((70, 0.7), (5, 0.5), (900, 1.25)):
        sizes = Sizes.of([row(10, into=into) for _ in range(9)])
        assert recorded_shares(sizes, [[job]]) == {key: pytest.approx(share)}
    assert recorded_shares(Sizes.of([row(10)]), [[job]]) == {}
