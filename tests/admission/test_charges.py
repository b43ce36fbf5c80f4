"""What a call is charged and settles to."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from interlock.admission import Charge, settle_charge, start_charge
from interlock.catalog.entry import Accounting
from interlock.catalog.usage import Usage

PLAIN, FREE_READS, EXPECTED = Accounting(), Accounting(cache_reads="free"), Accounting(output="expected")


def test_b53_the_reservation_is_the_input_and_the_limit_that_is_sent() -> None:
    assert start_charge(PLAIN, 5, 738) == Charge(1, 743, 5, 738)
    assert start_charge(PLAIN, 5, 0) == Charge(1, 5, 5, 0), "an embedding puts nothing out"
    assert start_charge(PLAIN, 5, 738, expected_output=100.0) == Charge(1, 743, 5, 738), "only where the entry says so"


def test_an_expected_output_stands_for_the_limit_and_never_above_it() -> None:
    assert start_charge(EXPECTED, 5, 700, expected_output=100.0) == Charge(1, 105, 5, 100)
    assert start_charge(EXPECTED, 5, 50, expected_output=100.0) == Charge(1, 55, 5, 50)
    assert start_charge(EXPECTED, 5, 700) == Charge(1, 705, 5, 700), "nothing is known yet"


@pytest.mark.parametrize(
    ("accounting", "usage", "into", "out"),
    [
        (PLAIN, Usage(input_tokens=3, cache_write_tokens=12_304, cache_read_tokens=0, output_tokens=550), 12_307, 550),
        (PLAIN, Usage(input_tokens=86, cache_read_tokens=1_920, output_tokens=10), 2_006, 10),
        (FREE_READS, Usage(input_tokens=86, cache_read_tokens=1_920, output_tokens=10), 86, 10),
        (FREE_READS, Usage(input_tokens=10, cache_read_tokens=900, cache_write_tokens=50, output_tokens=1), 60, 1),
        (Accounting(output_burndown=5.0), Usage(input_tokens=100, output_tokens=20), 100, 100),
        (PLAIN, Usage(input_tokens=100, output_tokens=20, reasoning_tokens=15), 100, 20),
    ],
)
def test_b10_cached_tokens_settle_as_the_provider_counts_them(
    accounting: Accounting, usage: Usage, into: int, out: int
) -> None:
    assert settle_charge(accounting, usage) == Charge(1, into + out, into, out)


def test_what_the_usage_does_not_know_keeps_its_reservation() -> None:
    reserved = start_charge(PLAIN, 100, 400)
    assert settle_charge(PLAIN, Usage(), reserved) == reserved
    assert settle_charge(PLAIN, Usage(output_tokens=7), reserved) == Charge(1, 107, 100, 7)
    assert settle_charge(PLAIN, Usage(input_tokens=90), reserved) == Charge(1, 490, 90, 400)


counts = st.none() | st.integers(0, 10**7)


@given(counts, counts, counts, counts, st.sampled_from([PLAIN, FREE_READS, Accounting(output_burndown=15.0)]))
def test_a_settlement_is_never_negative_and_adds_up(
    fresh: int | None, out: int | None, read: int | None, write: int | None, accounting: Accounting
) -> None:
    usage = Usage(input_tokens=fresh, output_tokens=out, cache_read_tokens=read, cache_write_tokens=write)
    charge = settle_charge(accounting, usage, start_charge(accounting, 10, 20))
    assert min(charge) >= 0
    assert charge.tokens == charge.input_tokens + charge.output_tokens
    assert charge.requests == 1
