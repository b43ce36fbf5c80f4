"""The fluid fair queue, against slices of time so thin that they are nearly fluid."""

from __future__ import annotations

import sys
from math import inf
from pathlib import Path

from hypothesis import given, settings, strategies as st

sys.path.append(str(Path(__file__).parents[2]))  # the benchmarks are not installed

from benchmarks.admission.fluid import Arrival, fluid_finishes

SLICE_S = 0.01


def sliced(arrivals: list[Arrival], rate: float, capacity: float, level: float) -> list[float]:
    """Each slice of the refill is divided equally among the workflows that wait, each to its first job."""
    left = [arrival.amount for arrival in arrivals]
    finishes = [inf] * len(arrivals)
    now = 0.0
    while inf in finishes and now < 1_000:
        here = [i for i, arrival in enumerate(arrivals) if arrival.at_s <= now and left[i] > 1e-9]
        level += rate * SLICE_S
        while level > 1e-9 and here:
            firsts = {}
            for i in here:
                firsts.setdefault(arrivals[i].workflow, i)
            each = min(level / len(firsts), *(left[i] for i in firsts.values()), inf)
            for i in firsts.values():
                left[i] -= each
                level -= each
                if left[i] <= 1e-9:
                    finishes[i] = now
            here = [i for i in here if left[i] > 1e-9]
        level = min(level, capacity) if not here else 0.0
        now += SLICE_S
    return finishes


def test_two_workflows_share_and_an_idle_one_leaves_its_part() -> None:
    jobs = [Arrival(0, "a", 10), Arrival(0, "b", 10), Arrival(1, "a", 5)]
    assert fluid_finishes(jobs, [(0, 2.0)], capacity=5, level=0) == [10.0, 10.0, 12.5]


def test_a_rate_that_changes_is_followed() -> None:
    jobs = [Arrival(0, "a", 10), Arrival(0, "b", 2)]
    assert fluid_finishes(jobs, [(0, 2.0), (3, 8.0)], capacity=5, level=0) == [3.75, 2.0]


def test_what_is_in_the_bucket_is_served_at_once_and_fills_again_when_nobody_waits() -> None:
    jobs = [Arrival(0, "a", 5), Arrival(1, "a", 4), Arrival(100, "a", 8)]
    assert fluid_finishes(jobs, [(0, 1.0)], capacity=5) == [0.0, 4.0, 103.0]


def test_without_a_refill_it_never_ends() -> None:
    assert fluid_finishes([Arrival(0, "a", 6)], [(0, 0.0)], capacity=5) == [inf]


@settings(max_examples=40)
@given(
    st.lists(st.tuples(st.integers(0, 40), st.sampled_from("abc"), st.integers(1, 30)), min_size=1, max_size=12),
    st.floats(0.5, 8.0),
    st.floats(0.0, 20.0),
)
def test_it_agrees_with_thin_slices(jobs: list[tuple[int, str, int]], rate: float, level: float) -> None:
    arrivals = [Arrival(at / 4, workflow, amount) for at, workflow, amount in sorted(jobs, key=lambda job: job[0])]
    exact = fluid_finishes(arrivals, [(0, rate)], capacity=20.0, level=level)
    near = sliced(arrivals, rate, 20.0, level)
    assert all(abs(a - b) <= 0.05 for a, b in zip(exact, near, strict=True))
