"""How goodput is measured, on logs written by hand."""

from dataclasses import dataclass

import pytest

from interlock.runtime.demo.figures import goodput_after_burst


@dataclass(frozen=True)
class Logged:
    at_s: float
    status: int | None = 200
    input_tokens: int = 100
    output_tokens: int = 10


TEN_A_SECOND = {"requests": (20.0, 10.0)}


def at_once(count: int) -> list[Logged]:
    return [Logged(0.0) for _ in range(count)]


def steadily(seconds: int, *, rate_per_s: float) -> list[Logged]:
    return [Logged(number / rate_per_s) for number in range(1, round(seconds * rate_per_s) + 1)]


def test_all_that_could_be_had_is_one() -> None:
    assert goodput_after_burst(at_once(20) + steadily(20, rate_per_s=10.0), TEN_A_SECOND) == pytest.approx(1.0)


def test_the_burst_does_not_count() -> None:
    assert goodput_after_burst(at_once(20) + steadily(20, rate_per_s=5.0), TEN_A_SECOND) == pytest.approx(0.5)


def test_refused_requests_are_not_served() -> None:
    served = at_once(20) + steadily(20, rate_per_s=8.0)
    refused = [Logged(number / 3, status=429) for number in range(1, 30)]
    assert goodput_after_burst(served + refused, TEN_A_SECOND) == pytest.approx(0.8)


def test_a_pause_costs() -> None:
    log = [seen for seen in steadily(22, rate_per_s=10.0) if not 10.0 < seen.at_s <= 15.0]
    assert goodput_after_burst(log, TEN_A_SECOND) == pytest.approx(0.75, abs=0.01)


def test_the_dimension_that_binds_is_the_one_counted() -> None:
    limits = TEN_A_SECOND | {"input-tokens": (1_000.0, 500.0), "output-tokens": (10_000.0, 10_000.0)}
    assert goodput_after_burst(at_once(10) + steadily(20, rate_per_s=5.0), limits) == pytest.approx(1.0)


def test_a_run_that_ended_within_its_burst_has_no_goodput() -> None:
    assert goodput_after_burst([], TEN_A_SECOND) is None
    assert goodput_after_burst(at_once(20), TEN_A_SECOND) is None
    assert goodput_after_burst(steadily(2, rate_per_s=10.0), TEN_A_SECOND) is None
