"""Whatever a server sends, reading it ends in an answer or a typed error: never in another exception. Pure."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, strategies as st

from interlock.catalog.entry import ModelEntry, ProviderSettings
from interlock.catalog.words import Grade
from interlock.clients.abstract import AbstractLLMClient, Reply
from interlock.clients.answer import Answer, Draft
from interlock.clients.conversation import Conversation, ServerToolBlock, TextBlock
from interlock.clients.environment import ClientEnvironment
from interlock.clients.gates import judge
from interlock.clients.providers.litellm_reading import Overheard
from interlock.clients.providers.sse import EventDecoder, json_events
from interlock.clients.registry import provider_class
from interlock.clients.structured import Shape, correction
from interlock.credentials import Chain, EnvironmentStore, Redactor
from interlock.errors import UpstreamError

KEYS = ("anthropic-direct", "openai-chat-completions", "openai", "gemini", "litellm", "bedrock-converse")


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
    "response",
    "output",
    "output_index",
    "item",
    "status",
    "incomplete_details",
    "reason",
    "summary",
    "encrypted_content",
    "call_id",
    "candidates",
    "parts",
    "finishReason",
    "functionCall",
    "args",
    "thoughtSignature",
    "thought",
    "usageMetadata",
    "promptTokenCount",
    "promptFeedback",
    "blockReason",
    "thinking_blocks",
    "messageStart",
    "contentBlockStart",
    "contentBlockDelta",
    "contentBlockIndex",
    "contentBlockStop",
    "messageStop",
    "metadata",
    "toolUse",
    "toolUseId",
    "reasoningContent",
    "reasoningText",
    "stopReason",
    "inputTokens",
    "citations",
    "citation",
    "container",
    "caller",
    "executableCode",
    "toolResult",
    "citationsContent",
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
    "response.completed",
    "response.incomplete",
    "response.failed",
    "response.output_text.delta",
    "response.output_item.done",
    "response.function_call_arguments.delta",
    "response.reasoning_summary_text.delta",
    "output_text",
    "function_call",
    "reasoning",
    "STOP",
    "MAX_TOKENS",
    "SAFETY",
    "MALFORMED_FUNCTION_CALL",
    "server_tool_use",
    "web_search_tool_result",
    "citations_delta",
    "compaction_delta",
    "pause_turn",
    "response.output_item.added",
    "web_search_call",
)
leaves = st.sampled_from(VALUES) | st.none() | st.booleans() | st.integers(-2, 3) | st.floats(allow_nan=True)
json_values = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(WORDS), inner, max_size=6),
    max_leaves=25,
)
events = st.lists(st.dictionaries(st.sampled_from(WORDS), json_values, max_size=8) | json_values, max_size=5)


def usable(answer: Answer, key: str) -> None:
    """An answer can be judged, corrected, written down, and what is the wire's own sent back."""
    for block in answer.blocks:
        if isinstance(block, ServerToolBlock) or (isinstance(block, TextBlock) and block.signature):
            json.dumps(CLIENTS[key].encoders[type(block)](block), ensure_ascii=False, allow_nan=False).encode()
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
    except UpstreamError:
        pass
    usable(draft.answer(), key)


@pytest.mark.parametrize("key", KEYS)
@given(payload=st.dictionaries(st.sampled_from(WORDS), json_values, max_size=10) | json_values)
def test_any_body_makes_an_answer_or_a_typed_error(key: str, payload: Any):
    try:
        answer = CLIENTS[key].read(Reply(payload=payload))
    except UpstreamError:
        return
    usable(answer, key)


# Error bodies, and the bytes of an event stream.

details = st.lists(
    st.dictionaries(
        st.sampled_from(["@type", "reason", "violations", "quotaId", "retryDelay"]),
        st.sampled_from(["API_KEY_INVALID", "12.5s", "GenerateRequestsPerDay", "x"]) | json_values,
    ),
    max_size=3,
)
errors = st.fixed_dictionaries(
    {},
    optional={
        "code": st.sampled_from([400, 429, 503, "rate_limit_exceeded", "bio_policy", None, True]) | json_values,
        "status": st.sampled_from(["RESOURCE_EXHAUSTED", "UNAVAILABLE"]) | json_values,
        "message": st.text(max_size=20) | json_values,
        "details": details | json_values,
    },
)


@pytest.mark.parametrize("key", ["openai", "gemini"])
@given(
    status=st.sampled_from([None, 200, 400, 401, 403, 413, 429, 500, 503, 529]),
    body=errors.map(lambda error: {"error": error}) | errors | st.lists(errors, max_size=2) | json_values,
)
def test_any_error_body_is_a_typed_error(key: str, status: int | None, body: Any):
    found = CLIENTS[key]._said_no(status, body, None)  # type: ignore[attr-defined]
    assert isinstance(found, UpstreamError)
    assert found.retry_after_s is None or found.retry_after_s >= 0


@given(error=st.deferred(lambda: made_errors), inner=st.lists(st.deferred(lambda: made_errors), max_size=3))
def test_any_chain_of_litellms_errors_is_read(error: Exception, inner: list[Exception]):
    outer = error
    for one in inner:
        outer.__cause__, outer = one, one
    found = CLIENTS["litellm"].read_error(error)
    assert found is None or isinstance(found, UpstreamError)


class AnError(Exception):
    def __init__(self, said: str, /, **attributes: Any) -> None:
        super().__init__(said)
        self.__dict__.update(attributes)


AnError.__module__ = "litellm.exceptions"
made_errors = st.builds(
    AnError,
    st.text(max_size=20) | st.just('{"error": {"type": "overloaded_error"}}') | st.just("{" * 30),
    status_code=st.sampled_from([None, 200, 400, 500, "429"]) | json_values,
    body=json_values,
    message=st.none() | st.text(max_size=10) | json_values,
    headers=st.none() | st.dictionaries(st.text(max_size=5), st.text(max_size=5)) | json_values,
) | st.sampled_from([KeyError("x"), StopAsyncIteration(), ValueError("y"), OSError()])


bits = (
    *(b"data: ", b"data:", b"\r", b"\n", b"\r\n", b": ping", b"event: x", b"{}", b"[", b'{"a":"', b"\xff"),
    *(b"\xe2\x80\xa8", b"\xef\xbb\xbf"),
)


@given(
    data=st.binary(max_size=200) | st.lists(st.sampled_from(bits), max_size=30).map(b"".join),
    cuts=st.lists(st.integers(0, 200), max_size=8),
)
def test_event_bytes_are_read_the_same_however_they_are_cut(data: bytes, cuts: list[int]):
    def read(chunks: list[bytes]) -> tuple[list[str], str | None]:
        decoder = EventDecoder()
        return [found for chunk in chunks for found in decoder.feed(chunk)], decoder.rest()

    edges = sorted({0, len(data), *(min(cut, len(data)) for cut in cuts)})
    assert read([data[a:b] for a, b in pairwise(edges)]) == read([data])


@given(
    sent=st.lists(st.dictionaries(st.sampled_from(WORDS), json_values, max_size=4) | json_values, max_size=5),
    garbage=st.binary(max_size=40),
    cuts=st.lists(st.integers(0, 400), max_size=6),
)
def test_whatever_is_overheard_beside_litellm_raises_nothing(sent: list[Any], garbage: bytes, cuts: list[int]):
    data = b"".join(f"data: {json.dumps(event)}\n\n".encode() for event in sent) + garbage
    overheard = Overheard()
    edges = sorted({0, len(data), *(min(cut, len(data)) for cut in cuts)})
    for start, end in pairwise(edges):
        overheard.feed(data[start:end])
    assert isinstance(overheard.refusal(), str)
    if overheard.error is not None:
        found = CLIENTS["litellm"]._said_no(None, overheard.error, None)  # type: ignore[attr-defined]
        assert isinstance(found, UpstreamError)


async def test_an_event_that_was_cut_off_is_none():
    async def chunks() -> Any:
        yield b'data: {"a": 1}\r\n\r\n: ping\n\ndata:{"b":\ndata: 2}\n\ndata: {"c'

    assert [event async for event in json_events(chunks())] == [{"a": 1}, {"b": 2}]
