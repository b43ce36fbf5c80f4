"""Whatever a server sends, reading it ends in an answer or a typed error: never in another exception. Pure."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, strategies as st

from interlock.catalog.entry import ModelEntry, ProviderSettings
from interlock.catalog.words import Grade
from interlock.clients.abstract import AbstractLLMClient, Reply
from interlock.clients.answer import Answer, Draft
from interlock.clients.conversation import Conversation
from interlock.clients.environment import ClientEnvironment
from interlock.clients.gates import judge
from interlock.clients.registry import provider_class
from interlock.clients.structured import Shape, correction
from interlock.credentials import Chain, EnvironmentStore, Redactor
from interlock.errors import TransientUpstreamError, UpstreamError

KEYS = ("anthropic-direct", "openai-chat-completions")


def template(key: str) -> AbstractLLMClient:
    entry = ModelEntry(id="m", grade=Grade.SMALL, provider=key, wire_model_id="w")
    environment = ClientEnvironment(
        settings=ProviderSettings(), credentials=Chain(EnvironmentStore({})), redactor=Redactor()
    )
    made: AbstractLLMClient = provider_class(key)(entry, environment)
    return made


CLIENTS = {key: template(key) for key in KEYS}

WORDS = (
    "type",
    "index",
    "delta",
    "content_block",
    "message",
    "usage",
    "text",
    "partial_json",
    "thinking",
    "signature",
    "data",
    "id",
    "name",
    "input",
    "stop_reason",
    "stop_details",
    "category",
    "input_tokens",
    "output_tokens",
    "content",
    "role",
    "choices",
    "finish_reason",
    "tool_calls",
    "function",
    "arguments",
    "refusal",
    "prompt_tokens",
    "model",
    "error",
    "prompt_tokens_details",
    "cached_tokens",
    "function_call",
    "reasoning_content",
)
VALUES = (
    "message_start",
    "content_block_start",
    "content_block_delta",
    "content_block_stop",
    "message_delta",
    "message_stop",
    "message",
    "text",
    "text_delta",
    "input_json_delta",
    "thinking_delta",
    "signature_delta",
    "tool_use",
    "thinking",
    "redacted_thinking",
    "end_turn",
    "max_tokens",
    "refusal",
    "stop",
    "tool_calls",
    "length",
    "content_filter",
    "error",
    "{",
    "}",
    '{"a": 1}',
    "",
    "look",
    "\ud800",
)
leaves = st.sampled_from(VALUES) | st.none() | st.booleans() | st.integers(-2, 3) | st.floats(allow_nan=True)
json_values = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(WORDS), inner, max_size=6),
    max_leaves=25,
)
events = st.lists(st.dictionaries(st.sampled_from(WORDS), json_values, max_size=8) | json_values, max_size=5)


def usable(answer: Answer) -> None:
    """An answer can be judged, corrected and written down."""
    asked = Conversation.of("x")
    for shape in (None, Shape.of(dict[str, int])):
        try:
            judged = judge(answer, conversation=asked, shape=shape, answer_tool=None, limit=9, model="m")
        except UpstreamError:
            continue
        json.dumps([str(block) for block in judged.message.blocks]).encode()
        judged.message.text.encode()
    assert len(correction(asked, answer, "x").messages) >= 2


@pytest.mark.parametrize("key", KEYS)
@given(given_events=events)
def test_any_events_make_an_answer_or_a_typed_error(key: str, given_events: list[Any]):
    client, draft = CLIENTS[key], Draft()
    try:
        for event in given_events:
            for piece in client.read_one(event, draft):
                assert piece.text
    except TransientUpstreamError:
        pass
    usable(draft.answer())


@pytest.mark.parametrize("key", KEYS)
@given(payload=st.dictionaries(st.sampled_from(WORDS), json_values, max_size=10) | json_values)
def test_any_body_makes_an_answer_or_a_typed_error(key: str, payload: Any):
    try:
        answer = CLIENTS[key].read(Reply(payload=payload))
    except TransientUpstreamError:
        return
    usable(answer)
