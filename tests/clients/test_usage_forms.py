"""Each provider's own words for what a call consumed, in one normal form; what they cost; zero and unknown apart."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from interlock.catalog.entry import Prices, PriceTier
from interlock.catalog.pricing import cost
from interlock.catalog.usage import Usage
from interlock.clients.abstract import Reply
from interlock.clients.conversation import Conversation, TextBlock
from interlock.clients.options import CallOptions
from interlock.clients.simulator import Step

from .conftest import asked


def anthropic(usage: Any) -> dict[str, Any]:
    return {"type": "message", "content": [{"type": "text", "text": "x"}], "stop_reason": "end_turn", "usage": usage}


def chat(usage: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "message": {"content": "x"}, "finish_reason": "stop"}], "usage": usage}


def responses(usage: Any) -> dict[str, Any]:
    said = {"type": "message", "content": [{"type": "output_text", "text": "x"}]}
    return {"object": "response", "status": "completed", "output": [said], "usage": usage}


def gemini(usage: Any) -> dict[str, Any]:
    return {"candidates": [{"content": {"parts": [{"text": "x"}]}, "finishReason": "STOP"}], "usageMetadata": usage}


def converse(usage: Any) -> dict[str, Any]:
    return {"output": {"message": {"content": [{"text": "x"}]}}, "stopReason": "end_turn", "usage": usage}


WHOLE = {
    "anthropic": (anthropic, {
        "input_tokens": 10, "cache_read_input_tokens": 900, "cache_creation_input_tokens": 90, "output_tokens": 50,
        "cache_creation": {"ephemeral_5m_input_tokens": 60, "ephemeral_1h_input_tokens": 30},
        "output_tokens_details": {"thinking_tokens": 20},
    }),
    "openai": (chat, {
        "prompt_tokens": 1_000, "completion_tokens": 50,
        "prompt_tokens_details": {"cached_tokens": 900, "cache_write_tokens": 90},
        "completion_tokens_details": {"reasoning_tokens": 20},
    }),
    "responses": (responses, {
        "input_tokens": 1_000, "output_tokens": 50,
        "input_tokens_details": {"cached_tokens": 900, "cache_write_tokens": 90},
        "output_tokens_details": {"reasoning_tokens": 20},
    }),
    "gemini": (gemini, {
        "promptTokenCount": 1_000, "cachedContentTokenCount": 900, "candidatesTokenCount": 30, "thoughtsTokenCount": 20,
        "totalTokenCount": 1_050,
    }),
    "converse": (converse, {
        "inputTokens": 10, "cacheReadInputTokens": 900, "cacheWriteInputTokens": 90, "outputTokens": 50,
        "cacheDetails": [{"ttl": "5m", "inputTokens": 60}, {"ttl": "1h", "inputTokens": 30}],
    }),
}  # fmt: skip
WHOLE["invoke"] = WHOLE["mantle"] = WHOLE["anthropic"]
ZERO = {
    "anthropic": {"input_tokens": 0, "cache_read_input_tokens": 0, "cache_creation_input_tokens": 0,
                  "output_tokens": 0},
    "openai": {"prompt_tokens": 0, "completion_tokens": 0, "prompt_tokens_details": {"cached_tokens": 0}},
    "responses": {"input_tokens": 0, "output_tokens": 0, "input_tokens_details": {"cached_tokens": 0}},
    "gemini": {"promptTokenCount": 0, "cachedContentTokenCount": 0, "candidatesTokenCount": 0, "totalTokenCount": 0},
    "converse": {"inputTokens": 0, "cacheReadInputTokens": 0, "cacheWriteInputTokens": 0, "outputTokens": 0},
}  # fmt: skip
ZERO["invoke"] = ZERO["mantle"] = ZERO["anthropic"]

PRICES = Prices(
    input=Decimal(2), output=Decimal(10), cache_read=Decimal("0.2"), cache_write=Decimal("2.5"),
    cache_write_1h=Decimal(4),
    tiers=(PriceTier(above_input_tokens=999, input=Decimal(3), output=Decimal(15), cache_read=Decimal("0.3"),
                     cache_write=Decimal("3.75"), cache_write_1h=Decimal(6)),),
)  # fmt: skip


def read(bench: Any, wire: Any, usage: Any) -> Usage | None:
    body, _ = WHOLE[wire.speaks]
    found: Usage | None = bench.template(wire).read(Reply(payload=body(usage))).usage
    return found


async def test_b10_every_form_is_the_same_usage(bench, wire):
    usage = read(bench, wire, WHOLE[wire.speaks][1])
    assert usage is not None
    assert (usage.cache_read_tokens, usage.output_tokens, usage.total_input_tokens) == (900, 50, 1_000)
    assert usage.reasoning_tokens == (None if wire.speaks == "converse" else 20)
    writes = None if wire.speaks == "gemini" else 90
    assert usage.cache_write_tokens == writes
    assert usage.input_tokens == (100 if writes is None else 10)
    splits = wire.speaks in ("anthropic", "invoke", "mantle", "converse")
    assert usage.cache_write_1h_tokens == (30 if splits else None)
    # Above 999 tokens of whole input the tier holds: of everything, not of what is above.
    long = 30 if splits else 0
    expected = usage.input_tokens * Decimal(3) + 900 * Decimal("0.3") + 50 * Decimal(15)
    expected += ((writes or 0) - long) * Decimal("3.75") + long * Decimal(6)
    assert cost(PRICES, usage) == expected / 1_000_000


async def test_zero_is_zero(bench, wire):
    usage = read(bench, wire, ZERO[wire.speaks])
    assert usage is not None
    assert (usage.input_tokens, usage.output_tokens, usage.cache_read_tokens) == (0, 0, 0)
    assert cost(PRICES, usage) == 0


@pytest.mark.parametrize("said", [None, {}, "none", [1]], ids=["null", "empty", "text", "list"])
async def test_what_is_not_said_is_unknown(bench, wire, said):
    assert read(bench, wire, said) is None


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
async def test_an_hours_cache_is_paid_at_its_price(bench, wire, streamed):
    client, seat = bench.client(wire, caching="marks", prices=PRICES)
    long = Conversation.of([TextBlock("word " * 2_000, cache=True), TextBlock("And now?")])
    bench.script(Step.answer("Fine.", output_tokens=10))
    response = await asked(client, long, streamed=streamed, options=CallOptions(cache_ttl="1h"))
    usage = response.usage
    if wire.speaks not in ("anthropic", "invoke", "mantle", "converse"):
        assert usage.cache_write_1h_tokens is None, "the wire does not tell lifetimes apart"
        return
    assert usage.cache_write_1h_tokens == usage.cache_write_tokens > 0
    assert response.cost == seat.last.cost == cost(PRICES, usage)
    assert response.cost > usage.cache_write_tokens * Decimal(6) / 1_000_000
