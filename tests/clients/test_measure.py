"""What a call is taken for: everything in it that its provider reads counts."""

from __future__ import annotations

from dataclasses import replace

import pytest
from pydantic import BaseModel

from interlock.catalog.tokens import IMAGE_TOKENS, PAGE_BYTES, PAGE_TOKENS, TokenEstimator
from interlock.clients.conversation import (
    Block,
    Conversation,
    DocumentBlock,
    ImageBlock,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
)
from interlock.clients.measure import FIRST_TOOL_TOKENS, raw_input_tokens
from interlock.clients.options import CallOptions, Tool

WORDS = "word " * 100
PLAIN = raw_input_tokens("Hello.")


class Review(BaseModel):
    title: str


@pytest.mark.parametrize(
    "block",
    [
        TextBlock(WORDS),
        ThinkingBlock(text=WORDS),
        ToolUseBlock(id="1", name="look", input={"word": WORDS}),
        ToolResultBlock(tool_use_id="1", content=WORDS),
    ],
    ids=lambda block: type(block).__name__,
)
def test_the_words_of_each_block_count(block: Block) -> None:
    assert raw_input_tokens(Conversation.of([TextBlock("Hello."), block])) > PLAIN + 100


def test_an_image_and_a_document_count_by_what_they_are() -> None:
    image, document = ImageBlock(data=b"x"), DocumentBlock(data=b"x" * (PAGE_BYTES + 1))
    assert raw_input_tokens(Conversation.of([TextBlock("Hello."), image])) == PLAIN + IMAGE_TOKENS
    assert raw_input_tokens(Conversation.of([TextBlock("Hello."), document])) == PLAIN + 2 * PAGE_TOKENS


def test_the_system_text_the_tools_and_the_schema_count() -> None:
    tool = Tool("look", WORDS, {"type": "object", "properties": {"word": {"type": "string"}}})
    told = raw_input_tokens(Conversation.of("Hello.", system=WORDS))
    one = raw_input_tokens("Hello.", options=CallOptions(tools=(tool,)))
    two = raw_input_tokens("Hello.", options=CallOptions(tools=(tool, tool)))
    assert told > PLAIN + 100
    assert one > PLAIN + FIRST_TOOL_TOKENS + 100
    assert two - one == one - PLAIN - FIRST_TOOL_TOKENS
    assert raw_input_tokens("Hello.", response_model=Review) > PLAIN + FIRST_TOOL_TOKENS


async def test_what_was_declared_is_not_larger_because_the_estimate_has_moved_since(bench, anthropic):
    estimator, raw = TokenEstimator(), raw_input_tokens(WORDS * 5)
    bound, seat = bench.client(anthropic, estimator=estimator)
    binding = replace(bound.binding, input_tokens=raw, raw_input_tokens=raw)
    client = bound._client.bound(binding, seat)
    estimator.observe("the-model", raw, 4 * raw)
    await client.single_response(WORDS * 5)
    await client.single_response(WORDS * 6)
    assert estimator.factor("the-model") > 1
    assert seat.permits[0].input_tokens == raw, "the same text as was declared"
    assert seat.permits[1].input_tokens > 2 * raw, "a larger one is taken for what it is"
