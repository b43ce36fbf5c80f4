"""One simulated run against times worked out by hand."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from interlock.admission.controller import TRANSIT_S
from interlock.runtime.plan.limits import situation_of
from interlock.runtime.plan.simulate import Simulated, simulate
from interlock.runtime.plan.sizes import Draws, Sizes
from interlock.runtime.plan.workload import PlannedJob, PlannedLine, Workload

from .conftest import MakeCatalog, call_of, lines_of

DRAWS = Sizes()


def run(workload: Workload, catalog: Any, **settings: Any) -> Simulated:
    situation = replace(situation_of(workload, catalog), **settings)
    return simulate(workload.sample(10**9), situation, Draws(DRAWS, {}, 0), levels=True)


def of_jobs(*jobs: PlannedJob, count: int = 1, **settings: Any) -> Workload:
    return Workload(lines=[PlannedLine(jobs=jobs)], counts=[count], **settings)


def test_burst_then_rate(make_catalog: MakeCatalog) -> None:
    """100 tokens a second, 6,000 at once: 60 calls of 100 tokens go at once, the other 140 one a second, once the first
    have had their way to the provider."""
    catalog = make_catalog("tpm: 6000")
    found = run(lines_of(call_of(catalog), 200), catalog)
    assert found.finish_s == pytest.approx(140.0 + TRANSIT_S + 2.0, abs=0.1)
    assert found.short_s["model:small:tokens"] == pytest.approx(140.0, abs=2.0)
    used = found.used["small"]
    assert (used.calls, used.input_tokens, used.output_tokens) == (200, 16_000, 4_000)
    assert used.cost == Decimal("0.056")


def test_what_is_not_used_of_a_reservation_comes_back(make_catalog: MakeCatalog) -> None:
    """Half of each reservation comes back 2 s later: in the long run two calls go a second, not one."""
    catalog = make_catalog("tpm: 6000")
    found = run(lines_of(call_of(catalog, into=20, out=80, expected_tokens=30), 1_000), catalog)
    assert found.finish_s == pytest.approx((1_000 * 50 - 6_000) / 100 + 2, rel=0.02)


def test_without_limits_calls_take_their_own_time(make_catalog: MakeCatalog) -> None:
    catalog = make_catalog()
    assert run(lines_of(call_of(catalog), 50), catalog).finish_s == 2.0


def test_lines_under_way_are_bounded(make_catalog: MakeCatalog) -> None:
    catalog = make_catalog()
    assert run(lines_of(call_of(catalog), 10, concurrency=2), catalog).finish_s == pytest.approx(10.0)


def test_calls_of_one_job_follow_each_other(make_catalog: MakeCatalog) -> None:
    catalog = make_catalog()
    assert run(lines_of(call_of(catalog, count=4), 3), catalog).finish_s == pytest.approx(8.0)


def test_a_job_starts_when_those_before_it_have_ended(make_catalog: MakeCatalog) -> None:
    catalog = make_catalog()
    short, long = call_of(catalog, latency_s=1.0), call_of(catalog, latency_s=5.0)
    jobs = (
        PlannedJob(name="a", calls=(short,)),
        PlannedJob(name="b", calls=(long,)),
        PlannedJob(name="after a", calls=(short,), after=(0,)),
        PlannedJob(name="after all", calls=(short,), after=(1, 2), delay_s=0.5),
    )
    found = run(of_jobs(*jobs, count=3), catalog)
    assert found.finish_s == pytest.approx(5.0 + 0.5 + 1.0)
    assert found.used["small"].calls == 12


def test_held_accounts_are_held_while_a_job_runs(make_catalog: MakeCatalog) -> None:
    catalog = make_catalog()
    job = PlannedJob(name="save", calls=(call_of(catalog),), held=(("db:tickets", 1),))
    found = run(of_jobs(job, count=9, gates={"db:tickets": 3}), catalog)
    assert found.finish_s == pytest.approx(6.0)
    assert found.short_s["db:tickets"] == pytest.approx(4.0)


def test_a_job_that_can_never_fit_fails_its_line_alone(make_catalog: MakeCatalog) -> None:
    catalog = make_catalog("tpm: 60, burst_s: 60")
    large, small = call_of(catalog, into=100), call_of(catalog, into=5, out=5)
    lines = [
        PlannedLine(
            jobs=(PlannedJob(name="large", calls=(large,)), PlannedJob(name="then", after=(0,), calls=(small,)))
        ),
        PlannedLine(jobs=(PlannedJob(name="small", calls=(small,)),)),
    ]
    found = run(Workload(lines=lines, counts=[2, 3], concurrency=1), catalog)
    assert (found.lines, found.failed) == (5, 2)
    ((words, count),) = found.refused.items()
    assert "can never be admitted" in words
    assert count == 2
    assert found.used["small"].calls == 3


def test_waiting_too_long_is_refused_as_a_run_would(make_catalog: MakeCatalog) -> None:
    catalog = make_catalog("tpm: 6000")
    job = PlannedJob(name="hurried", calls=(call_of(catalog),), max_wait_s=10.0)
    found = run(of_jobs(job, count=100), catalog)
    assert found.failed == pytest.approx(30, abs=1)  # 60 at once and 10 in ten seconds
    assert all("not admitted within 10 s" in words for words in found.refused)


def test_later_arrivals_and_priorities(make_catalog: MakeCatalog) -> None:
    catalog = make_catalog("rpm: 60, burst_s: 1")
    call = call_of(catalog, latency_s=0.0)
    low = PlannedLine(jobs=(PlannedJob(name="low", calls=(call,)),))
    late = PlannedLine(jobs=(PlannedJob(name="late", calls=(call,)),), arrival_s=100.0)
    found = run(Workload(lines=[low, late], counts=[10, 1]), catalog)
    assert found.finish_s == pytest.approx(100.0)


def test_a_days_limit_is_there_again_at_its_time_of_day(make_catalog: MakeCatalog) -> None:
    catalog = make_catalog('rpd: 100, day_resets: "00:00 UTC"')
    noon = datetime(2026, 3, 1, 12, tzinfo=UTC)
    found = run(lines_of(call_of(catalog), 150), catalog, begins_at=noon)
    assert found.finish_s == pytest.approx(12 * 3_600.0 + 2.0, abs=61.0)


def test_the_same_seed_gives_the_same_run(make_catalog: MakeCatalog) -> None:
    catalog = make_catalog("output_tpm: 6000, max_concurrent: 7", output="expected")
    workload = lines_of(call_of(catalog, out=200, expected_tokens=None, latency_s=None), 300)
    situation = situation_of(workload, catalog)
    first, again, other = (
        simulate(workload.sample(300), situation, Draws(DRAWS, {}, seed), seed=seed, levels=True) for seed in (1, 1, 2)
    )
    assert first == again
    assert first.finish_s != other.finish_s


def test_levels_are_sampled_in_a_bounded_number(make_catalog: MakeCatalog) -> None:
    catalog = make_catalog("tpm: 6000")
    found = run(lines_of(call_of(catalog), 5_000), catalog)
    assert 100 < len(found.samples) <= 801
    assert found.samples[0].levels["model:small:tokens"] == 6_000
    assert found.samples[-1].at_s == found.finish_s
    assert [sample.at_s for sample in found.samples] == sorted(sample.at_s for sample in found.samples)


def test_thousands_of_calls_are_simulated_in_a_second(make_catalog: MakeCatalog) -> None:
    """No figure is asserted on a busy machine but a gross one; `benchmarks/plan.py` prints the real one."""
    catalog = make_catalog("tpm: 6000")
    before = time.process_time()
    run(lines_of(call_of(catalog), 5_000), catalog)
    assert time.process_time() - before < 5.0
