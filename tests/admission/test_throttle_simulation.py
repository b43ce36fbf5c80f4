"""The throttle through the whole shell, on virtual time: short versions of rows of benchmarks/admission/settling.py.

The limits asserted are the ones that the table promises for an hour, widened for a shorter run.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2]))  # the benchmarks are not installed

from benchmarks.admission.served import run
from benchmarks.admission.settling import BUSY, CHANGE_S, ROWS, Row, goodput, measure

END_S = 1_200.0


def row(name: str) -> Row:
    return next(row for row in ROWS if row.name == name)


@pytest.mark.parametrize(
    ("name", "refused"),
    [
        ("60%, 50 callers", 0.008),
        ("30%, 50 callers", 0.008),
        ("30%, 500 callers", 0.006),
        ("low volume, 30%", 0.014),
        ("30%, no hints", 0.01),
        ("30%, hints of 0", 0.01),
        ("30%, hints too short", 0.015),
        ("30%, refills each second", 0.008),
    ],
)
def test_it_settles_at_what_is_really_served(name: str, refused: float) -> None:
    figures = measure(row(name), seed=1, until_s=END_S)
    assert figures.goodput >= 0.97
    assert 0 < figures.refused <= refused


@pytest.mark.parametrize("name", ["100%, 50 callers", "100%, 500 callers"])
def test_nothing_is_refused_at_a_full_burst_by_a_provider_that_serves_what_it_says(name: str) -> None:
    figures = measure(row(name), seed=2, until_s=300.0)
    assert figures.refused == 0
    assert figures.goodput >= 0.98  # of four minutes: a large call is 3% of them


def test_honest_headers_are_better_than_refusals() -> None:
    told = measure(row("30%, honest headers"), seed=1, until_s=END_S)
    silent = measure(row("30%, 50 callers"), seed=1, until_s=END_S)
    assert told.goodput >= 0.98
    assert told.refused <= 0.001 < silent.refused


def test_a_step_up_is_followed_within_a_minute_and_a_step_down_too() -> None:
    up = row("step 30% to 100%, 500 callers")
    trace = run(up.manner, up.work, seed=0, until_s=CHANGE_S + 120)
    assert goodput(trace, up, CHANGE_S + 60, CHANGE_S + 120) >= 0.9
    down = replace(up, manner=replace(up.manner, shares=((0.0, 1.0), (600.0, 0.3))), work=replace(BUSY, callers=100))
    trace = run(down.manner, down.work, seed=0, until_s=900.0)
    assert goodput(trace, down, 660, 900) >= 0.9
    assert len(trace.refused) <= 0.01 * trace.calls


def test_a_storm_of_529s_is_over_a_minute_after_it_ends() -> None:
    storm = row("529 storm, 50 callers")
    manner = replace(storm.manner, storm_s=(120.0, 180.0))
    trace = run(manner, storm.work, seed=0, until_s=300.0)
    assert goodput(trace, replace(storm, manner=manner), 200, 300) >= 0.95


def test_the_same_seed_gives_the_same_trace() -> None:
    one = row("30%, 50 callers")
    traces = [run(one.manner, one.work, seed=9, until_s=300.0) for _ in range(2)]
    assert traces[0] == traces[1]
    assert traces[0].refused
