"""What a usage costs, exact. Unknown is None and never 0; an explicit price of 0 is free; nothing is negative."""

from __future__ import annotations

import re
from decimal import Decimal, InvalidOperation

from interlock.errors import ConfigurationError

from .entry import Prices, PriceTier
from .usage import Usage

_CAP = re.compile(r"\s*([0-9]{1,15}(?:\.[0-9]{1,12})?)(?:\s+([A-Z]{3}))?\s*", re.ASCII)


def cost(prices: Prices | None, usage: Usage) -> Decimal | None:
    """The price of a usage in `prices.currency`; None where a price or a count it depends on is unknown."""
    if prices is None or usage.input_tokens is None:
        return None
    row = _row(prices, usage.total_input_tokens or 0)
    if usage.output_tokens is None and row.output:
        return None
    read_price = row.input if row.cache_read is None else row.cache_read
    write_price = row.input if row.cache_write is None else row.cache_write
    long_price = write_price if row.cache_write_1h is None else row.cache_write_1h
    written = _count(usage.cache_write_tokens)
    kept_long = min(_count(usage.cache_write_1h_tokens), written)
    total = (
        _count(usage.input_tokens) * row.input
        + _count(usage.cache_read_tokens) * read_price
        + (written - kept_long) * write_price
        + kept_long * long_price
        + _count(usage.output_tokens) * row.output
    )
    return total / prices.per


def worst_cost(prices: Prices | None, input_tokens: int, output_tokens: int) -> Decimal | None:
    """The most that a call of this size can cost: every input token at its dearest, the whole output limit used."""
    if prices is None:
        return None
    rows: list[Prices | PriceTier] = [prices]
    rows += [tier for tier in prices.tiers if tier.above_input_tokens < input_tokens]
    dearest_input = max(
        max(row.input, row.cache_read or 0, row.cache_write or 0, row.cache_write_1h or 0) for row in rows
    )
    dearest_output = max(row.output for row in rows)
    return (_count(input_tokens) * dearest_input + _count(output_tokens) * dearest_output) / prices.per


def parse_cap(text: str | int | Decimal) -> tuple[Decimal, str]:
    """`"0.50"` is US dollars, `"0.50 EUR"` is not. Raises `ConfigurationError`."""
    match = _CAP.fullmatch(str(text))
    if match is None:
        raise ConfigurationError(f"{str(text)[:40]!r} is no amount of money: write it as 0.50, or 0.50 EUR")
    try:
        return Decimal(match[1]), match[2] or "USD"
    except InvalidOperation:  # pragma: no cover - the pattern admits decimal numbers only
        raise ConfigurationError(f"{match[1]!r} is no amount of money") from None


def _row(prices: Prices, total_input_tokens: int) -> Prices | PriceTier:
    reached = [tier for tier in prices.tiers if tier.above_input_tokens < total_input_tokens]
    return max(reached, key=lambda tier: tier.above_input_tokens) if reached else prices


def _count(tokens: int | None) -> int:
    return max(tokens or 0, 0)
