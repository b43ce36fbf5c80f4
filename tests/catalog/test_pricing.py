"""What a usage costs: exact, never negative, null where something is unknown."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pytest
from hypothesis import given, strategies as st

from interlock.catalog import Prices, PriceTier, Usage, cost, parse_cap, worst_cost
from interlock.errors import ConfigurationError

SONNET = Prices(input=Decimal("3"), output=Decimal("15"), cache_read=Decimal("0.30"), cache_write=Decimal("3.75"))


@pytest.mark.parametrize(
    ("provider", "counts", "expected"),
    [
        # The normal form of each provider's own report: fresh, read, written, out.
        ("anthropic", (3, 0, 12304, 550), "0.054399"),
        ("openai: 2006 with 1920 cached inside", (86, 1920, None, 100), "0.002334"),
        ("converse", (10, 900, 50, 0), "0.0004875"),
        ("gemini: 500 with 400 cached inside", (100, 400, None, 10), "0.00057"),
    ],
)
def test_b10_cached_tokens_cost_the_same_way_for_every_provider(provider: str, counts, expected: str) -> None:
    fresh, read, written, out = counts
    usage = Usage(input_tokens=fresh, cache_read_tokens=read, cache_write_tokens=written, output_tokens=out)
    assert cost(SONNET, usage) == Decimal(expected)


def test_b09_a_stream_counted_once_costs_its_last_values() -> None:
    """in 25, cache read 1000, out 15: what remains of three usage events when the last value of a field counts."""
    usage = Usage(input_tokens=25, cache_read_tokens=1000, output_tokens=15)
    assert cost(SONNET, usage) == Decimal("0.000600")


def test_b14_thought_tokens_are_paid_as_output() -> None:
    """prompt 20, candidates 151, thoughts 382: output is 533, and reasoning is a part of it, not beside it."""
    usage = Usage(input_tokens=20, output_tokens=151 + 382, reasoning_tokens=382)
    assert cost(SONNET, usage) == Decimal("0.008055")
    assert cost(SONNET, usage) == cost(SONNET, replace(usage, reasoning_tokens=None))


def test_without_a_cache_price_the_input_price_holds_and_zero_is_free() -> None:
    usage = Usage(input_tokens=0, cache_read_tokens=1_000_000, cache_write_tokens=1_000_000, output_tokens=0)
    assert cost(Prices(input=Decimal(2)), usage) == Decimal(4)
    assert cost(Prices(input=Decimal(2), cache_read=Decimal(0), cache_write=Decimal(0)), usage) == 0


@pytest.mark.parametrize(
    ("prices", "usage"),
    [
        (None, Usage(input_tokens=1, output_tokens=1)),
        (SONNET, Usage()),
        (SONNET, Usage(output_tokens=5)),
        (SONNET, Usage(input_tokens=5)),
    ],
)
def test_unknown_is_null_and_never_zero(prices: Prices | None, usage: Usage) -> None:
    assert cost(prices, usage) is None


def test_unknown_output_is_no_matter_where_output_is_free() -> None:
    assert cost(Prices(input=Decimal("0.02")), Usage(input_tokens=1_000_000)) == Decimal("0.02")


def test_what_is_kept_for_an_hour_has_its_own_price_or_that_of_any_write() -> None:
    usage = Usage(input_tokens=0, cache_write_tokens=1_000_000, cache_write_1h_tokens=400_000, output_tokens=0)
    prices = Prices(input=Decimal(2), cache_write=Decimal("2.5"), cache_write_1h=Decimal(4))
    assert cost(prices, usage) == Decimal("0.6") * Decimal("2.5") + Decimal("0.4") * 4
    assert cost(Prices(input=Decimal(2), cache_write=Decimal("2.5")), usage) == Decimal("2.5")
    assert worst_cost(prices, 1_000_000, 0) == 4
    odd = Usage(input_tokens=0, cache_write_tokens=10, cache_write_1h_tokens=10**6, output_tokens=0)
    assert cost(prices, odd) == Decimal(40) / 1_000_000, "a part is never more than the whole"


def test_a_tier_holds_for_the_whole_call_once_its_input_is_above() -> None:
    prices = Prices(
        input=Decimal(1),
        output=Decimal(2),
        tiers=(
            PriceTier(above_input_tokens=100, input=Decimal(10), output=Decimal(20)),
            PriceTier(above_input_tokens=1000, input=Decimal(100), output=Decimal(200)),
        ),
        per=1,
    )
    assert cost(prices, Usage(input_tokens=100, output_tokens=1)) == 102
    assert cost(prices, Usage(input_tokens=101, output_tokens=1)) == 1030
    # What was read from the cache stands in the window too.
    assert cost(prices, Usage(input_tokens=1, cache_read_tokens=100, output_tokens=1)) == 1030
    assert cost(prices, Usage(input_tokens=1001, output_tokens=1)) == 100_300


@given(
    st.builds(
        Usage,
        input_tokens=st.none() | st.integers(-5, 10**9),
        output_tokens=st.none() | st.integers(-5, 10**9),
        cache_read_tokens=st.none() | st.integers(-5, 10**9),
        cache_write_tokens=st.none() | st.integers(-5, 10**9),
    ),
    st.builds(
        Prices,
        input=st.decimals(0, 1000, places=6),
        output=st.decimals(0, 1000, places=6),
        cache_read=st.none() | st.decimals(0, 1000, places=6),
        cache_write=st.none() | st.decimals(0, 1000, places=6),
    ),
)
def test_a_cost_is_never_negative_and_never_above_the_worst(usage: Usage, prices: Prices) -> None:
    paid = cost(prices, usage)
    if paid is None:
        return
    assert paid >= 0
    counts = (usage.input_tokens, usage.cache_read_tokens, usage.cache_write_tokens)
    asked = worst_cost(prices, sum(max(count or 0, 0) for count in counts), max(usage.output_tokens or 0, 0))
    assert asked is not None
    assert paid <= asked


def test_the_worst_price_takes_the_dearest_row_within_reach() -> None:
    prices = Prices(input=Decimal(10), tiers=(PriceTier(above_input_tokens=5, input=Decimal(1)),), per=1)
    assert worst_cost(prices, 6, 0) == 60
    assert worst_cost(SONNET, 1_000_000, 1_000_000) == Decimal("18.75")
    assert worst_cost(None, 1, 1) is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0.50", (Decimal("0.50"), "USD")),
        ("0.50 EUR", (Decimal("0.50"), "EUR")),
        (" 5 ", (Decimal(5), "USD")),
        (5, (Decimal(5), "USD")),
        (Decimal("0.1"), (Decimal("0.1"), "USD")),
        ("0", (Decimal(0), "USD")),
    ],
)
def test_a_cap_without_a_currency_is_in_dollars(text, expected: tuple[Decimal, str]) -> None:
    assert parse_cap(text) == expected


@pytest.mark.parametrize(
    "text", ["", "-1", "1e3", "nan", "inf", "$5", "5 eur", "EUR 5", "5,00", "1_000", "5 EUROS", "1" * 40]
)
def test_what_is_no_amount_is_refused_in_words(text: str) -> None:
    with pytest.raises(ConfigurationError, match="write it as"):
        parse_cap(text)


@given(st.text())
def test_a_cap_parses_or_says_how(text: str) -> None:
    try:
        amount, currency = parse_cap(text)
    except ConfigurationError:
        return
    assert amount.is_finite()
    assert amount >= 0
    assert len(currency) == 3
