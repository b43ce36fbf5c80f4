"""The figures: accuracy, log-loss, calibration error, thresholds, temperatures; on data whose truth is known."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from interlock.decisions.temperature import scaled
from interlock.runtime.decisions_eval.fitting import (
    COLDEST,
    HOTTEST,
    at_temperature,
    cross_fitted,
    fit_temperature,
)
from interlock.runtime.decisions_eval.metrics import (
    accuracy,
    calibration_error,
    log_loss,
    lower_bound,
    majority,
    reliability,
    sureness,
    threshold,
)


def honest(examples: int, options: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Distributions, and what was right: drawn from them, so they are as sure as they are right."""
    random = np.random.default_rng(seed)
    rows = random.dirichlet(np.full(options, 0.6), size=examples)
    rows = np.clip(rows, 1e-3, None)
    rows /= rows.sum(axis=1, keepdims=True)
    truths = (rows.cumsum(axis=1) < random.random((examples, 1))).sum(axis=1)
    return rows, np.minimum(truths, options - 1)


@settings(max_examples=15)
@given(st.integers(2, 6), st.integers(0, 10_000))
def test_an_honest_model_has_a_calibration_error_near_0(options: int, seed: int) -> None:
    rows, truths = honest(4_000, options, seed)
    for kind in ("choice", "noul"):
        sure, right = sureness(kind, rows, truths)  # type: ignore[arg-type]
        assert calibration_error(reliability(sure, right)) < 0.04


@settings(max_examples=15)
@given(st.integers(2, 6), st.floats(0.4, 3.0), st.integers(0, 10_000))
def test_the_temperature_that_a_model_is_off_by_is_found(options: int, off: float, seed: int) -> None:
    rows, truths = honest(3_000, options, seed)
    overdone = at_temperature(rows, 1 / off)
    found = fit_temperature(overdone, truths)
    assert found == pytest.approx(off, rel=0.2)
    mended = at_temperature(overdone, found)
    assert log_loss(mended, truths) <= log_loss(overdone, truths) + 1e-6
    if abs(math.log(off)) > 0.5:
        before, after = (
            calibration_error(reliability(*sureness("choice", each, truths))) for each in (overdone, mended)
        )
        assert after < before


@settings(max_examples=15)
@given(st.integers(2, 5), st.integers(0, 10_000), st.floats(0.2, 5))
def test_a_temperature_changes_no_winner_and_is_the_one_the_client_applies(
    options: int, seed: int, temperature: float
) -> None:
    rows, truths = honest(50, options, seed)
    made = at_temperature(rows, temperature)
    assert accuracy(made, truths) == accuracy(rows, truths)
    for row, scaled_row in zip(rows, made, strict=True):
        assert scaled(tuple(row), temperature) == pytest.approx(tuple(scaled_row))


def test_a_fit_is_judged_on_what_it_was_not_made_of() -> None:
    rows, truths = honest(500, 3, 1)
    overdone = at_temperature(rows, 0.4)
    judged, told = cross_fitted(overdone, truths), at_temperature(overdone, fit_temperature(overdone, truths))
    assert judged.sum(axis=1) == pytest.approx(np.ones(500))
    assert log_loss(told, truths) <= log_loss(judged, truths) < log_loss(overdone, truths)


@pytest.mark.parametrize(("right", "expected"), [(True, COLDEST), (False, HOTTEST)])
def test_all_right_is_as_cold_as_it_gets_and_all_wrong_as_hot(right: bool, expected: float) -> None:
    rows = np.tile([0.8, 0.2], (50, 1))
    truths = np.zeros(50, dtype=np.int64) if right else np.ones(50, dtype=np.int64)
    assert fit_temperature(rows, truths) == pytest.approx(expected, rel=0.01)


def test_the_plain_figures() -> None:
    rows = np.array([[0.9, 0.1], [0.6, 0.4], [0.2, 0.8], [0.0, 1.0]])
    truths = np.array([0, 1, 1, 0])
    assert accuracy(rows, truths) == 0.5
    assert majority(truths) == 0.5
    losses = [-math.log(0.9), -math.log(0.4), -math.log(0.8), -math.log(0.0001)]
    assert log_loss(rows, truths) == pytest.approx(sum(losses) / 4)
    sure, right = sureness("choice", rows, truths)
    assert list(sure) == [0.9, 0.6, 0.8, 1.0]
    assert list(right) == [True, False, True, False]
    sure, right = sureness("noul", rows, truths)
    assert list(sure) == [0.9, 0.6, 0.2, 0.0]
    assert list(right) == [True, False, False, True]


def test_bins_say_how_sure_and_how_often_right() -> None:
    sure = np.array([0.05, 0.91, 0.95, 1.0, 0.5])
    right = np.array([False, True, False, True, True])
    bins = reliability(sure, right)
    assert [(each.low, each.count, round(each.was, 3)) for each in bins] == [
        (0.0, 1, 0.0),
        (0.5, 1, 1.0),
        (0.9, 3, 0.667),
    ]
    assert bins[2].said == pytest.approx((0.91 + 0.95 + 1.0) / 3)
    expected = (0.05 + 0.5 + 3 * abs((0.91 + 0.95 + 1.0) / 3 - 2 / 3)) / 5
    assert calibration_error(bins) == pytest.approx(expected)
    assert calibration_error(()) == 0.0


ANSWERS = st.lists(st.tuples(st.floats(0, 1), st.booleans()), min_size=1, max_size=60)


@given(ANSWERS, st.floats(0.05, 1))
def test_a_threshold_keeps_its_promise_and_covers_the_most_it_can(
    answers: list[tuple[float, bool]], wanted: float
) -> None:
    sure, right = np.array([each for each, _ in answers]), np.array([each for _, each in answers])
    found = threshold(sure, right, wanted)

    def precision_from(value: float) -> float:
        return float(right[sure >= value].mean())

    if found is None:
        assert all(precision_from(value) < wanted for value in sure)
        return
    assert found.precision == pytest.approx(precision_from(found.value))
    assert found.precision >= wanted
    assert found.covered == pytest.approx((sure >= found.value).mean())
    assert all(precision_from(value) < wanted for value in sure if value < found.value)
    assert 0 <= found.at_least <= found.precision


def test_a_bound_is_wide_for_few_and_narrow_for_many() -> None:
    assert lower_bound(10, 10) == pytest.approx(0.787, abs=0.01)
    assert lower_bound(1_000, 1_000) > 0.99
    assert lower_bound(0, 5) == 0.0
    assert lower_bound(50, 100) < 0.5
