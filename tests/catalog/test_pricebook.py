"""B57: which entry's prices hold for a regional, dated or aliased wire id."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given, strategies as st

from interlock.catalog import Catalog, Grade, ModelEntry, Prices, Usage, cost
from interlock.catalog.pricebook import candidates

BASE = "anthropic.claude-sonnet-4-5-20250929-v1:0"
PROFILE = "arn:aws:bedrock:eu-central-1:123456789012:inference-profile/eu." + BASE


def entry(name: str, wire_id: str, price: str | None = None, **fields) -> ModelEntry:
    prices = None if price is None else Prices(input=Decimal(price))
    known = {"grade": Grade.MEDIUM, "provider": "anthropic-bedrock", **fields}
    return ModelEntry(id=name, wire_model_id=wire_id, prices=prices, **known)


def priced_by(rows: list[ModelEntry], wire_id: str, **fields) -> tuple[str, Decimal] | None:
    catalog = Catalog.of([*rows, entry("asked", wire_id, **fields)])
    row = catalog.prices_of(catalog.entry("asked"))
    return None if row is None else (row.entry_id, row.prices.input)


@pytest.mark.parametrize("prefix", ["us", "eu", "apac", "jp", "au", "global", "us-gov"])
def test_b57_a_regional_id_falls_back_to_the_base_row(prefix: str) -> None:
    assert priced_by([entry("base", BASE, "3.0")], f"{prefix}.{BASE}") == ("base", Decimal("3.0"))


def test_b57_the_regional_row_wins_over_the_base_row() -> None:
    rows = [entry("base", BASE, "3.0"), entry("eu", f"eu.{BASE}", "3.3")]
    assert priced_by(rows, f"eu.{BASE}") == ("eu", Decimal("3.3"))
    assert priced_by(rows, f"us.{BASE}") == ("base", Decimal("3.0"))
    assert priced_by(rows, PROFILE) == ("eu", Decimal("3.3"))
    assert priced_by(rows[:1], PROFILE) == ("base", Decimal("3.0"))


def test_b57_a_foundation_models_arn_is_its_base_row() -> None:
    arn = f"arn:aws:bedrock:us-east-1::foundation-model/{BASE}"
    assert priced_by([entry("base", BASE, "3.0")], arn) == ("base", Decimal("3.0"))


def test_b57_an_application_profile_hides_its_model_so_it_has_no_price() -> None:
    arn = "arn:aws:bedrock:us-east-1:123456789012:application-inference-profile/abc123"
    rows = [entry("base", BASE, "3.0")]
    assert priced_by(rows, arn) is None
    assert priced_by([*rows, entry("mine", arn, "4")], arn) == ("mine", Decimal(4))


@pytest.mark.parametrize(
    ("asked", "row"),
    [
        ("claude-haiku-4-5-20251001", "claude-haiku-4-5"),
        ("claude-haiku-4-5@20251001", "claude-haiku-4-5"),
        ("gpt-5.4-2026-03-05", "gpt-5.4"),
        (BASE, "anthropic.claude-sonnet-4-5"),
        (f"eu.{BASE}", "anthropic.claude-sonnet-4-5"),
    ],
)
def test_b57_a_dated_alias_falls_back_to_the_undated_row(asked: str, row: str) -> None:
    assert priced_by([entry("undated", row, "1")], asked) == ("undated", Decimal(1))


def test_b57_an_unknown_model_has_no_price_and_no_cost_and_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    catalog = Catalog.of([entry("base", BASE, "3.0"), entry("other", "us.meta.llama-9")])
    assert catalog.prices_of(catalog.entry("other")) is None
    assert catalog.prices_of(catalog.entry("other")) is None
    assert [record.message for record in caplog.records] == [
        "model other has no price in <code>: its calls are recorded without a cost"
    ]
    assert cost(catalog.entry("other").prices, Usage(input_tokens=5, output_tokens=5)) is None


def test_b57_an_explicit_zero_stays_zero() -> None:
    assert priced_by([entry("free", BASE, "0")], f"us.{BASE}") == ("free", Decimal(0))
    catalog = Catalog.of([entry("free", "x", "0"), entry("dear", "y", "5")])
    assert cost(catalog.entry("free").prices, Usage(input_tokens=5, output_tokens=5)) == 0


def test_b57_an_entry_without_prices_carries_those_of_its_base_row() -> None:
    catalog = Catalog.of([entry("base", BASE, "3.0"), entry("us", f"us.{BASE}")])
    assert cost(catalog.entry("us").prices, Usage(input_tokens=1_000_000, output_tokens=0)) == Decimal(3)


def test_b57_the_row_of_the_model_that_answered_is_the_one_that_counts() -> None:
    catalog = Catalog.of([entry("alias", "m-latest", "1"), entry("dated", "m-20260101", "2")])
    asked = catalog.entry("alias")
    served = catalog.prices_of(asked, "m-20260101")
    unlisted = catalog.prices_of(asked, "m-20990101")
    assert served is not None
    assert served.entry_id == "dated"
    assert unlisted is not None
    assert unlisted.entry_id == "alias"


def test_another_provider_or_server_has_its_own_prices() -> None:
    rows = [entry("base", BASE, "3.0")]
    assert priced_by(rows, BASE, provider="openai-compatible") is None
    assert priced_by(rows, BASE, base_url="http://127.0.0.1:8080") is None


@given(st.text(max_size=60))
def test_candidates_end_and_begin_with_the_id_itself(wire_id: str) -> None:
    found = list(candidates(wire_id))
    assert found[0] == wire_id
    assert len(found) == len(set(found)) <= 20
