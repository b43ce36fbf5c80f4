"""The figures: accuracy, log-loss, calibration error, thresholds, temperatures; on data whose truth is known."""

from __future__ import annotations

import io
import math
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from rich.console import Console

from interlock.decisions import Calibration, Choice, Noul, Question
from interlock.decisions.temperature import scaled
from interlock.errors import ConfigurationError
from interlock.runtime.decisions_eval.evaluation import Answers, QuestionReport, calibration_of, evaluate
from interlock.runtime.decisions_eval.fitting import (
    COLDEST,
    HOTTEST,
    at_its_end,
    at_temperature,
    cross_fitted,
    fit_temperature,
)
from interlock.runtime.decisions_eval.metrics import (
    Threshold,
    accuracy,
    calibration_error,
    log_loss,
    lower_bound,
    majority,
    reliability,
    sureness,
    threshold,
)
from interlock.runtime.decisions_eval.picture import draw
from interlock.runtime.decisions_eval.report import render, sides


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
        sure, right = sureness(kind, rows, truths, rows.argmax(axis=1))  # type: ignore[arg-type]
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
            calibration_error(reliability(*sureness("choice", each, truths, each.argmax(axis=1))))
            for each in (overdone, mended)
        )
        assert after < before


@settings(max_examples=15)
@given(st.integers(2, 5), st.integers(0, 10_000), st.floats(0.2, 5))
def test_a_temperature_changes_no_winner_and_is_the_one_the_client_applies(
    options: int, seed: int, temperature: float
) -> None:
    rows, _ = honest(50, options, seed)
    made = at_temperature(rows, temperature)
    assert list(made.argmax(axis=1)) == list(rows.argmax(axis=1))
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


@pytest.mark.parametrize("rows", [np.full((30, 3), 1 / 3), np.full((30, 2), 0.5)])
def test_where_no_temperature_is_better_it_stays_as_it_is(rows: np.ndarray) -> None:
    assert fit_temperature(rows, np.zeros(30, dtype=np.int64)) == 1.0


@settings(max_examples=10)
@given(st.integers(2, 5), st.integers(0, 10_000), st.floats(0.5, 2.5))
def test_no_temperature_near_the_one_that_is_fitted_is_better(options: int, seed: int, off: float) -> None:
    rows, truths = honest(300, options, seed)
    rows = at_temperature(rows, off)
    found = fit_temperature(rows, truths)
    least = log_loss(at_temperature(rows, found), truths)
    if not at_its_end(found):
        assert all(least <= log_loss(at_temperature(rows, found * by), truths) for by in (0.9, 0.99, 1.01, 1.1))


def test_a_temperature_that_ran_as_far_as_it_goes_is_none() -> None:
    assert [at_its_end(each) for each in (0.1, COLDEST + 1e-5, 0.2, 1.0, 9.9, 9.9999, 10.0)] == [
        True, True, False, False, False, True, True,
    ]  # fmt: skip


def answers_of(question: Question, *told: tuple[dict[str, object], int], times: int = 1) -> Answers:
    answers = Answers(question, "wire")
    for answer, truth in told * times:
        answers.add(answer, truth)
    return answers


def report_of(answers: Answers, **options: Any) -> QuestionReport:
    (report,) = evaluate({("q", "m", answers.question): answers}, **{"precision": 0.9, **options})
    return report


TEAM = Choice.of("Which?", "billing", "sales")


def test_of_two_options_as_probable_the_one_that_was_answered_is_judged() -> None:
    tie = {"choice": "sales", "probabilities": {"billing": 0.5, "sales": 0.5}}
    near = {"choice": "sales", "probabilities": {"billing": 0.505, "sales": 0.5}}
    report = report_of(answers_of(TEAM, (tie, 1), (near, 1)))
    assert report.accuracy == 1.0
    assert [(each.said, each.was) for each in report.raw.bins] == [(0.5, 1.0)]


def test_a_threshold_is_of_what_was_said_and_not_of_what_it_adds_up_to() -> None:
    """Hosted values are rounded: 0.80 and 0.18 are what the caller compares, not 0.816."""
    said = {"choice": "billing", "probabilities": {"billing": 0.8, "sales": 0.18}}
    report = report_of(answers_of(TEAM, (said, 0)))
    assert report.raw.threshold is not None
    assert report.raw.threshold.value == report.raw.bins[0].said == 0.8
    assert report.raw.log_loss == pytest.approx(-math.log(0.8 / 0.98))


def test_a_value_on_an_edge_is_in_the_bin_that_begins_there() -> None:
    edges = np.array([0.3, 0.1 + 0.2, 0.3 / 1.0000000000000002, 0.7, 0.7 / 1.0000000000000002, 1.0])
    assert [each.low for each in reliability(edges, np.ones(6, dtype=bool))] == [0.3, 0.7, 0.9]


@pytest.mark.parametrize(
    ("answers", "note"),
    [
        ([(0.7, 0)], "no temperature was fitted: all is right however sure it is"),
        ([(0.7, 0), (0.7, 1), (0.8, 1)], "no temperature was fitted: it is right no more often than by chance"),
        ([(0.9, 0)] * 20 + [(0.9, 1)], "its temperature makes the log-loss worse"),
        ([(0.9, 0), (0.9, 0), (0.9, 1)], None),
    ],
)
def test_what_speaks_against_a_temperature_is_said(answers: list[tuple[float, int]], note: str | None) -> None:
    told = [({"noul": noul}, truth) for noul, truth in answers]
    report = report_of(answers_of(Noul.of("?"), *told, times=-(-20 // len(told))), fit=True)
    assert [each for each in report.notes if note is not None and note in each] == list(report.notes)
    assert len(report.notes) == (note is not None)
    applied = note is None or note.startswith("its")
    assert (report.temperature is not None) == (report.fitted is not None) == applied
    if not applied:
        with pytest.raises(ConfigurationError, match=r"nothing was fitted: .* some of them right and some wrong"):
            calibration_of([report], Calibration(), date(2026, 11, 30))


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0.95, "0.95"), (0.4549, "0.4549"), (0.39836, "0.3983"), (0.99999, "0.9999"), (1.0, "1.00"), (0.0, "0.00"),
     (0.3, "0.30"), (0.29, "0.29"), (0.5000000000000001, "0.50")],
)  # fmt: skip
def test_a_threshold_is_shown_so_that_it_can_be_used(value: float, shown: str) -> None:
    """As it was, a rounding upwards left out the very answers it was found by."""
    threshold = Threshold(value=value, precision=1.0, at_least=0.9, covered=value / 100)
    report = replace(report_of(answers_of(Noul.of("?"), ({"noul": 0.9}, 0))), fitted=None)
    raw = replace(report.raw, threshold=threshold)
    console = Console(width=200, file=io.StringIO(), color_system=None)
    console.print(render((replace(report, raw=raw),), precision=0.995))
    told = console.file.getvalue()  # type: ignore[attr-defined]
    assert f"from {shown} " in told
    assert "right 99.5% of the time" in told
    assert ("under 1%" in told) == (value < 1)


def test_the_plain_figures() -> None:
    rows = np.array([[0.9, 0.1], [0.6, 0.4], [0.2, 0.8], [0.0, 1.0]])
    truths = np.array([0, 1, 1, 0])
    assert accuracy(rows.argmax(axis=1), truths) == 0.5
    assert majority(truths) == 0.5
    losses = [-math.log(0.9), -math.log(0.4), -math.log(0.8), -math.log(0.0001)]
    assert log_loss(rows, truths) == pytest.approx(sum(losses) / 4)
    sure, right = sureness("choice", rows, truths, rows.argmax(axis=1))
    assert list(sure) == [0.9, 0.6, 0.8, 1.0]
    assert list(right) == [True, False, True, False]
    sure, right = sureness("noul", rows, truths, rows.argmax(axis=1))
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


#: Hosted probabilities are rounded, so many are the same.
SURE = st.sampled_from([0.5, 0.6, 0.75, 0.9]) | st.floats(0, 1)
ANSWERS = st.lists(st.tuples(SURE, st.booleans()), min_size=1, max_size=60)


def test_of_answers_as_sure_a_threshold_takes_all_or_none() -> None:
    sure, right = np.array([0.9, 0.9, 0.7, 0.7, 0.7]), np.array([True, True, True, False, False])
    found = threshold(sure, right, 0.75)  # 3 of 4 would be enough, if there were no other two as sure
    assert found is not None
    assert (found.value, found.precision, found.covered) == (0.9, 1.0, 0.4)
    all_of_them = threshold(sure, right, 0.6)
    assert all_of_them is not None
    assert (all_of_them.value, all_of_them.precision, all_of_them.covered) == (0.7, 0.6, 1.0)


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


def test_the_picture_shows_how_sure_how_often_right_and_how_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    matplotlib_figure = pytest.importorskip("matplotlib.figure")
    drawn: list[Any] = []
    monkeypatch.setattr(matplotlib_figure.Figure, "savefig", lambda figure, *_, **__: drawn.append(figure))
    sure = [({"noul": 0.9}, 0)] * 3 + [({"noul": 0.9}, 1), ({"noul": 0.25}, 1), ({"noul": 0.25}, 1), ({"noul": 0.8}, 1)]
    yes = report_of(answers_of(Noul.of("?"), *sure, times=4), fit=True)
    team = {"choice": "sales", "probabilities": {"billing": 0.4, "sales": 0.6}}
    draw((yes, report_of(answers_of(TEAM, (team, 1)))), tmp_path / "out.png")
    (figure,) = drawn
    diagram, _, counts, _ = figure.axes
    assert diagram.get_title(loc="left") == "q (m): 71% of 28 right"
    assert diagram.get_ylabel() == "how often it was yes"
    assert counts.get_xlabel() == "probability of yes"
    assert yes.fitted is not None
    for (_, figures), points in zip(sides(yes), diagram.collections, strict=True):
        assert [tuple(each) for each in points.get_offsets()] == [(each.said, each.was) for each in figures.bins]
    bars = [bar.get_height() for bar in counts.patches]
    assert bars == [each.count for side in (yes.raw, yes.fitted) for each in side.bins]
    assert [text.get_text() for text in counts.texts] == [str(each.count) for each in yes.fitted.bins]
    assert all(bar.get_x() >= 0 and bar.get_x() + bar.get_width() <= 1 for bar in counts.patches)
