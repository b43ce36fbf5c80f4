"""Input tokens as each provider counts them itself: the request that would be sent, and nothing else of it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from pydantic import BaseModel

from interlock.catalog import Catalog
from interlock.catalog.entry import Thinking
from interlock.catalog.spec import ModelBinding, ModelSpec
from interlock.catalog.words import Depth
from interlock.clients.conversation import (
    Conversation,
    DocumentBlock,
    ImageBlock,
    TextBlock,
    ToolResultBlock,
    ToolUseBlock,
)
from interlock.clients.options import CallOptions, Tool
from interlock.clients.simulator import Step
from interlock.errors import (
    CatalogError,
    CredentialError,
    InvalidRequestError,
    MalformedResponseError,
    RateLimitedError,
    TransientUpstreamError,
    UpstreamError,
)

COUNTING = ("anthropic-direct", "simulated", "openai", "gemini", "vertex",
            "anthropic-bedrock", "anthropic-bedrock-mantle", "bedrock-converse")  # fmt: skip
NOT_COUNTING = ("openai-chat-completions", "openai-compatible")
LOOK = Tool("look", "Look something up in the book of words.",
            {"type": "object", "properties": {"word": {"type": "string", "description": "The word."}}})  # fmt: skip


class Review(BaseModel):
    title: str
    stars: int


SEEN = Conversation.of(
    [TextBlock("What do you see?"), ImageBlock(data=b"png"), DocumentBlock(data=b"%PDF-1.4")], system="Be brief."
)
USED = (
    SEEN.assistant([ToolUseBlock(id="call_1", name="look", input={"word": "pixel"})])
    .user([ToolResultBlock(tool_use_id="call_1", content="A dot.")])
)  # fmt: skip
CASES: dict[str, tuple[Any, dict[str, Any], dict[str, Any]]] = {
    "plain": ("Hello there.", {}, {}),
    "seen": (SEEN, {}, {}),
    "tools": (USED, {"options": CallOptions(tools=(LOOK,), tool_choice="look")}, {}),
    "native": ("Review it.", {"response_model": Review}, {"structured": "native"}),
    "forced": ("Review it.", {"response_model": Review}, {"structured": "tool"}),
    "prompt": (SEEN, {"response_model": Review}, {"structured": "prompt"}),
    "cached": (SEEN, {"options": CallOptions(cache=True, cache_ttl="1h")}, {"caching": "marks"}),
    "thinking": ("Think about it a little longer.", {}, {"thinking": Thinking(mode="budget")}),
}


def prepared(template: Any, conversation: Any, call: dict[str, Any], **binding: Any) -> Any:
    made = ModelBinding(
        spec=ModelSpec("the-model", depth=Depth.STANDARD), entry=template.entry, input_tokens=50, output_tokens=2_000,
        thinking_tokens=1_024 if template.entry.thinking.mode != "none" else 0,
    )  # fmt: skip
    return template.prepare(made, conversation, call.get("options"), call.get("response_model"), stream=False)


@pytest.mark.parametrize("key", COUNTING)
async def test_the_count_is_that_of_the_request_that_is_sent(bench, wires, key):
    for case, (conversation, call, entry) in CASES.items():
        template = bench.template(wires[key], **entry)
        made = prepared(template, conversation, call)
        counted = await template.count_input(made)
        assert ((seen := bench.provider.requests[-1]).kind, seen.status) == ("count", 200)
        await template.send(made.body)
        sent = bench.provider.requests[-1]
        estimated = key == "bedrock-converse" and case == "native"  # its endpoint takes no schema
        assert counted > sent.input_tokens if estimated else counted == sent.input_tokens > 2, case
        assert sent.model.endswith("wire-model")
    assert bench.provider.count == len(CASES), "no answer was asked for by a count"


@pytest.mark.parametrize("key", NOT_COUNTING)
async def test_who_has_no_endpoint_says_so_and_sends_nothing(bench, wires, key):
    template = bench.template(wires[key])
    assert await template.count_input(prepared(template, "Hello.", {})) is None
    assert bench.provider.requests == []


@pytest.mark.parametrize(("key", "model", "path"), [
    ("anthropic-bedrock", "eu.anthropic.claude-x-v1:0", "/model/anthropic.claude-x-v1:0/count-tokens"),
    ("bedrock-converse", "us-gov.amazon.nova", "/model/amazon.nova/count-tokens"),
    ("bedrock-converse", "mistral.large", "/model/mistral.large/count-tokens"),
    ("anthropic-bedrock-mantle", "anthropic.claude-x", "/anthropic/v1/messages/count_tokens"),
    ("vertex", "g", "/v1beta1/projects/the-project/locations/global/publishers/google/models/g:countTokens"),
    ("gemini", "gemini-x", "/v1/models/gemini-x:countTokens"),
    ("openai", "gpt-x", "/v1/responses/input_tokens"),
])  # fmt: skip
async def test_where_each_is_asked(bench, wires, key, model, path):
    template = bench.template(wires[key], wire_model_id=model)
    await template.count_input(prepared(template, "Hello.", {}))
    assert bench.provider.requests[-1].path == path


FAILURES = (
    (Step.rate_limited(7), RateLimitedError),
    (Step.server_error(503), TransientUpstreamError),
    (Step.html(), MalformedResponseError),
    (Step.body({"tokens": 3}), MalformedResponseError),
    (Step.body(dict.fromkeys(("input_tokens", "totalTokens", "inputTokens"), True)), MalformedResponseError),
    (Step.body({"input_tokens": "3", "totalTokens": "3", "inputTokens": 0}), MalformedResponseError),
    (Step.status(404), UpstreamError),
    (Step.status(400, {"message": "No.", "error": {"message": "No."}}), InvalidRequestError),
    (Step.status(401, {"message": "No.", "error": {"message": "No.", "code": 401}}), CredentialError),
)


@pytest.mark.parametrize("key", COUNTING)
async def test_a_count_that_fails_is_a_typed_error(bench, wires, key):
    template = bench.template(wires[key])
    made = prepared(template, "Hello.", {})
    for step, class_ in FAILURES:
        if key == "vertex" and class_ is CredentialError:
            continue  # its credentials have been accepted by then: they would be found anew
        bench.provider.script_counts(step)
        with pytest.raises(class_) as caught:
            await template.count_input(made)
        assert (caught.value.model, caught.value.provider) == ("the-model", template.entry.provider)
        assert caught.value.__cause__ is caught.value.__context__ is None


@pytest.mark.parametrize("key", COUNTING)
async def test_a_count_that_is_cancelled_gives_its_connection_back(bench, wires, key, until):
    template = bench.template(wires[key], settings={"max_connections": 1})
    bench.provider.script_counts(Step.stall())
    made = prepared(template, "Hello.", {})
    waiting = asyncio.create_task(template.count_input(made))
    await until(lambda: bench.provider.requests)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert await template.count_input(made)
    await bench.provider.idle()
    assert [seen.cut for seen in bench.provider.requests] == ["client", None]


ENTRY = "models: [{{id: m, provider: p, wire_model_id: w, {}}}]"


def test_an_entry_says_who_counts():
    chat, defaults = "kind: chat, grade: SMALL", "defaults: {p: {count: provider}}\n"
    assert Catalog.load(ENTRY.format(chat), file="test").entry("m").count == "offline"
    assert Catalog.load(ENTRY.format(f"{chat}, count: provider"), file="test").entry("m").count == "provider"
    assert Catalog.load(defaults + ENTRY.format(chat), file="test").entry("m").count == "provider"
    own = Catalog.load(defaults + ENTRY.format(f"{chat}, count: offline"), file="test")
    assert own.entry("m").count == "offline"


@pytest.mark.parametrize(("fields", "why"), [
    ("kind: chat, grade: SMALL, count: online", r"models\[0\].count: must be one of offline, provider"),
    ("kind: embeddings, dimensions: 8, count: provider", "only chat models are counted by their provider"),
])  # fmt: skip
def test_a_count_that_cannot_be_is_a_problem_of_the_file(fields, why):
    with pytest.raises(CatalogError, match=why):
        Catalog.load(ENTRY.format(fields), file="test")
