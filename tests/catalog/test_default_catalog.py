"""The catalog that ships: it loads, covers what is promised, and says where its figures come from."""

from __future__ import annotations

from datetime import date
from decimal import Decimal

import pytest

from interlock.catalog import (
    Catalog,
    DefaultPicker,
    Depth,
    Grade,
    Kind,
    ModelEntry,
    ModelSpec,
    OutputSize,
    Seat,
    Situation,
    Usage,
    cost,
    output_limit,
)
from interlock.errors import ModelResolutionError

CATALOG = Catalog.default()
ENTRIES = list(CATALOG.entries.values())
LOCAL = {"simulated", "wordllama", "sparrow", "openai-compatible"}


@pytest.mark.parametrize(
    "provider",
    [
        "anthropic-direct",
        "anthropic-bedrock",
        "anthropic-bedrock-mantle",
        "bedrock-converse",
        "openai",
        "openai-chat-completions",
        "openai-compatible",
        "gemini",
        "simulated",
        "openai-embeddings",
        "bedrock-titan-embeddings",
        "bedrock-cohere-embeddings",
        "gemini-embeddings",
        "wordllama",
        "systemone-decision",
        "sparrow",
    ],
)
def test_every_promised_provider_has_an_entry_and_settings(provider: str) -> None:
    entries = [entry for entry in ENTRIES if entry.provider == provider]
    assert entries
    settings = CATALOG.providers[provider]
    assert provider in LOCAL or settings.credential, f"{provider} names no credential"


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.id)
def test_every_entry_is_priced_with_a_source_and_a_date(entry: ModelEntry) -> None:
    assert entry.prices is not None
    assert entry.prices.source
    assert entry.prices.as_of == date(2026, 11, 30)
    paid = cost(entry.prices, Usage(input_tokens=1_000, output_tokens=100))
    assert paid is not None
    assert (paid == 0) == (entry.provider in LOCAL - {"simulated"})
    if entry.provider == "simulated":
        assert "made up" in entry.prices.source


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.id)
def test_every_published_limit_has_a_source_and_a_date(entry: ModelEntry) -> None:
    _, limits = CATALOG.limits_of(entry)
    if any((limits.rpm, limits.tpm, limits.input_tpm, limits.output_tpm, limits.rpd, limits.tpd)):
        assert limits.source
        assert limits.as_of is not None
        assert limits.as_of <= date(2026, 11, 30)
        said_by = ("assumption: ", "platform.claude.com/", "docs.typesafe.ai", "LiteLLM ", "made up")
        assert limits.source.startswith(said_by), "a page that states it, or an assumption that says so"


@pytest.mark.parametrize("entry", [e for e in ENTRIES if e.kind is Kind.CHAT], ids=lambda entry: entry.id)
def test_every_chat_entry_has_a_window_a_ceiling_and_a_usable_limit_at_every_depth(entry: ModelEntry) -> None:
    assert entry.context_window
    assert entry.max_output_tokens
    for depth in Depth:
        total, thinking = output_limit(entry, declared=200, depth=depth, input_tokens=1_000)
        assert 200 <= total - thinking <= total <= entry.max_output_tokens
    assert output_limit(entry, output=OutputSize.MAX)[0] == entry.max_output_tokens


def test_the_pins_cover_every_grade_and_need_no_key_for_embeddings_and_decisions() -> None:
    assert {key for key in CATALOG.pins if isinstance(key, Grade)} == set(Grade) - {Grade.MEGA}
    assert CATALOG.pins["embeddings"] == ("wordllama",)
    assert CATALOG.pins["decision"] == ("sparrow",)
    for name in ("wordllama", "sparrow"):
        assert CATALOG.provider(CATALOG.entry(name).provider).credential is None


def test_a_request_that_an_entrys_pool_can_never_grant_is_not_its_default_one() -> None:
    """The default limit with a short input fits every pool that ships, the simulated ones included."""
    for entry in ENTRIES:
        _, limits = CATALOG.limits_of(entry)
        for rate in (limits.tpm, limits.input_tpm):
            assert rate is None or rate * limits.burst_s / 60 > 9_000


def test_without_any_key_no_simulated_model_stands_in() -> None:
    def unable(entry: ModelEntry) -> str | None:
        return "no key" if CATALOG.provider(entry.provider).credential else None

    seat = Seat(kind=Kind.CHAT, spec=ModelSpec(Grade.SMALL))
    with pytest.raises(ModelResolutionError) as caught:
        DefaultPicker().pick(seat, Situation(catalog=CATALOG, callable=unable))
    assert not any(name.startswith("simulated") for name in caught.value.skipped)


def test_the_embeddings_share_one_width_and_the_local_one_is_padded_to_it() -> None:
    assert CATALOG.embedding_width == 1024
    assert CATALOG.entry("wordllama").dimensions == 256
    for entry in ENTRIES:
        if entry.kind is Kind.EMBEDDINGS and entry.id != "wordllama":
            assert entry.requested_dimensions == 1024


def test_known_figures_stand() -> None:
    sonnet = CATALOG.entry("claude-sonnet-direct")
    assert sonnet.prices is not None
    assert (sonnet.prices.input, sonnet.prices.output) == (Decimal("2.00"), Decimal("10.00"))
    assert (sonnet.accounting.output, sonnet.accounting.cache_reads) == ("expected", "free")
    bedrock = CATALOG.entry("claude-sonnet-bedrock")
    assert (bedrock.accounting.output, bedrock.accounting.output_burndown) == ("limit", 5)
    jev = CATALOG.entry("jev")
    assert (jev.wire_model_id, CATALOG.provider(jev.provider).base_url) == ("jev-latest", "https://api.typesafe.ai")
    decision = CATALOG.entry("gpt-luna-decision").prices
    assert cost(decision, Usage(input_tokens=272_001, output_tokens=10)) == Decimal("0.0544002")
    haiku = CATALOG.entry("claude-haiku-direct").prices
    assert cost(haiku, Usage(input_tokens=100_001, output_tokens=0)) == Decimal("0.0500005")
