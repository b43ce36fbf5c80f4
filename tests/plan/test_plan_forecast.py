"""The forecast of many runs: spread, money, the binding limit, what a double of each is worth, large workloads."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pytest

from interlock.runtime.plan import forecast as forecasting
from interlock.runtime.plan.forecast import Forecast, LimitForecast, forecast
from interlock.runtime.plan.report import answer, as_json, capped, duration, money
from interlock.runtime.plan.sizes import Assumptions, Sizes
from interlock.runtime.plan.workload import PlannedJob, PlannedLine, Workload

from .conftest import MakeCatalog, call_of, lines_of


def limit(found: Forecast, account: str) -> LimitForecast:
    return next(each for each in found.limits if each.limit.account == account)


def test_twice_a_limit_saves_what_arithmetic_says(make_catalog: MakeCatalog) -> None:
    """200 calls of 100 tokens at 100 a second with a burst of 6,000: 143 s, a second of it the way
    of the first ones; twice that: 120 at once, the rest in 40."""
    catalog = make_catalog("tpm: 6000, rpm: 6000")
    found = forecast(lines_of(call_of(catalog), 200, concurrency=500), catalog, Sizes(), runs=3)
    assert found.finish_s.p50 == pytest.approx(143, abs=0.6)
    assert found.binding is limit(found, "model:small:tokens")
    assert found.binding.saved_s == pytest.approx(100, abs=1)
    assert found.binding.short == pytest.approx(140 / 143, abs=0.02)
    assert limit(found, "model:small:requests").saved_s is None
    assert limit(found, "concurrency").saved_s == pytest.approx(0, abs=0.5)
    assert "held by tpm of small for 99% of the time: twice as much saves 1 min 40 s" in answer(found)


def test_lines_under_way_can_be_what_holds_it(make_catalog: MakeCatalog) -> None:
    catalog = make_catalog("tpm: 6000000")
    found = forecast(lines_of(call_of(catalog), 20, concurrency=2), catalog, Sizes(), runs=2)
    assert found.finish_s.p50 == pytest.approx(20)
    assert found.binding is limit(found, "concurrency")
    assert found.binding.saved_s == pytest.approx(10)
    assert "held by the 2 lines under way at a time: twice as much saves 10 s" in answer(found)


def test_nothing_holds_what_is_not_held(make_catalog: MakeCatalog) -> None:
    found = forecast(lines_of(call_of(make_catalog()), 20), make_catalog(), Sizes(), runs=2)
    assert found.binding is None
    assert "no limit holds it" in answer(found)


def test_money_is_exact_where_sizes_are_known_and_never_above_the_worst(make_catalog: MakeCatalog) -> None:
    catalog = make_catalog()
    known = forecast(lines_of(call_of(catalog), 1_000), catalog, Sizes(), runs=3)
    assert known.worst == {"USD": Decimal("0.28")}
    assert known.cost["USD"].p10 == known.cost["USD"].p90 == pytest.approx(0.28)
    guessed = lines_of(call_of(catalog, out=1_000, expected_tokens=None, latency_s=None), 1_000)
    found = forecast(guessed, catalog, Sizes(), runs=20)
    assert 0 < found.cost["USD"].p10 < found.cost["USD"].p50 < found.cost["USD"].p90 < float(found.worst["USD"])
    assert found.cost["USD"].p50 == pytest.approx((80 + 0.25 * 1_000 * 10) / 1e3, rel=0.15)


def test_a_wider_spread_of_answers_gives_a_wider_forecast(make_catalog: MakeCatalog) -> None:
    catalog = make_catalog("output_tpm: 60000", output="expected")
    workload = lines_of(call_of(catalog, out=1_000, expected_tokens=None, latency_s=None), 400)
    guessed = forecast(workload, catalog, Sizes(), runs=10)
    line = replace(workload.lines[0].jobs[0], calls=(call_of(catalog, out=1_000, expected_tokens=250),))
    stated = forecast(replace(workload, lines=[PlannedLine(jobs=(line,))]), catalog, Sizes(), runs=10)
    assert guessed.finish_s.p10 < guessed.finish_s.p50 < guessed.finish_s.p90
    wide, narrow = (each.finish_s.p90 - each.finish_s.p10 for each in (guessed, stated))
    assert wide > 5 * narrow


def test_the_same_seed_gives_the_same_forecast(make_catalog: MakeCatalog) -> None:
    catalog = make_catalog("output_tpm: 60000", output="expected")
    workload = lines_of(call_of(catalog, out=1_000, expected_tokens=None), 200, concurrency=16)
    first, again, other = (forecast(workload, catalog, Sizes(), runs=4, seed=seed) for seed in (7, 7, 8))
    assert as_json(first) == as_json(again)
    assert first.samples == again.samples
    assert as_json(first) != as_json(other)


def test_a_large_workload_goes_on_at_its_pace(make_catalog: MakeCatalog, monkeypatch: pytest.MonkeyPatch) -> None:
    """50,000 calls, of which a part is simulated, against the arithmetic of all."""
    monkeypatch.setattr(forecasting, "BUDGET_JOBS", 20_000)
    catalog = make_catalog("tpm: 600000")
    found = forecast(lines_of(call_of(catalog), 50_000), catalog, Sizes(), runs=2)
    assert found.simulated < 2_000
    assert found.finish_s.p50 == pytest.approx((50_000 * 100 - 600_000) / 10_000 + 2, rel=0.01)
    assert found.models[0].calls == pytest.approx(50_000)
    assert found.cost["USD"].p50 == pytest.approx(50_000 * 0.00028)
    assert "of which the rest" not in answer(found)


def test_a_days_limit_is_not_missed_by_a_short_look(make_catalog: MakeCatalog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forecasting, "BUDGET_JOBS", 1)
    catalog = make_catalog("rpd: 10000")
    found = forecast(lines_of(call_of(catalog), 25_000), catalog, Sizes(), runs=1)
    assert found.simulated == pytest.approx(200, abs=2)
    assert found.finish_s.p50 == pytest.approx(1.5 * 86_400, rel=0.01)


def test_a_provider_that_serves_half_takes_twice_as_long_after_the_burst(make_catalog: MakeCatalog) -> None:
    catalog = make_catalog("tpm: 6000")
    found = forecast(lines_of(call_of(catalog), 200), catalog, Sizes(), runs=1, serves=0.5)
    assert found.finish_s.p50 == pytest.approx(280 + 2, abs=1)


def test_what_can_never_fit_is_said_as_a_run_would(make_catalog: MakeCatalog) -> None:
    catalog = make_catalog("tpm: 60")
    found = forecast(lines_of(call_of(catalog), 12), catalog, Sizes(), runs=2)
    ((words, count),) = found.refused.items()
    assert "it can never be admitted" in words
    assert count == 12
    assert found.failed == 12


def test_a_cap_is_told_where_it_is_reached(make_catalog: MakeCatalog) -> None:
    catalog = make_catalog()
    found = forecast(lines_of(call_of(catalog), 1_000, concurrency=1), catalog, Sizes(), runs=2)
    assert capped(found, Decimal("0.14"), "USD") == (
        "the cap of 0.1400 USD is reached after about 500 of 1,000 lines, in about 16 min 40 s: no line is begun after "
        "that"
    )
    assert capped(found, Decimal("0.30"), "USD") is None
    assert capped(found, Decimal("0.01"), "EUR") is None


def test_an_unpriced_model_is_said(make_catalog: MakeCatalog) -> None:
    catalog = make_catalog()
    call = call_of(catalog)
    call = replace(call, entry=call.entry.model_copy(update={"prices": None}))
    found = forecast(lines_of(call, 3), catalog, Sizes(), runs=1)
    assert found.unpriced == 3
    assert found.models[0].cost is None
    assert "what it costs is not known" in answer(found)


def test_sampling_takes_from_every_part() -> None:
    lines = [PlannedLine(jobs=(PlannedJob(name=str(number)),)) for number in range(10)]
    workload = Workload(lines=lines, counts=[1_000, 10, *[100] * 8])
    taken = [line.jobs[0].name for line in workload.sample(181)]
    assert len(taken) == 181
    assert taken == sorted(taken)
    assert taken.count("0") == 100
    assert taken.count("5") == 10


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.04, "0.0 s"), (9.94, "9.9 s"), (59.6, "1 min"), (250, "4 min 10 s"), (3_600, "1 h"), (100_000, "1 d 3 h")],
)
def test_durations_in_words(seconds: float, words: str) -> None:
    assert duration(seconds) == words


def test_money_in_words() -> None:
    assert money(1_234.5, "USD") == "1,234.50 USD"
    assert money(Decimal("0.01234"), "EUR") == "0.0123 EUR"


def test_assumptions_are_used(make_catalog: MakeCatalog) -> None:
    catalog = make_catalog()
    sizes = Sizes(assumptions=Assumptions(output_share=1.0, latency_s=10.0, tokens_per_s=1.0))
    workload = lines_of(call_of(catalog, out=20, expected_tokens=None, latency_s=None), 1)
    assert 10 < forecast(workload, catalog, sizes, runs=3).finish_s.p50 <= 30
