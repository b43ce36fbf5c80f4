"""What goes to the wire: every block, every option, golden bodies; and what never goes at all."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from interlock.catalog.entry import Thinking
from interlock.catalog.spec import ModelSpec
from interlock.catalog.tokens import TokenEstimator
from interlock.catalog.words import Depth, Input
from interlock.clients.conversation import (
    Conversation,
    DocumentBlock,
    ImageBlock,
    ServerToolBlock,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
)
from interlock.clients.measure import input_tokens
from interlock.clients.options import CallOptions, Tool
from interlock.clients.registry import provider_class
from interlock.clients.simulator import Step
from interlock.clients.simulator.replying import sign
from interlock.errors import InvalidRequestError

from .conftest import asked
from .served import CITED, FOUND, RESULT, SEARCH, WEB_CALL, WRITTEN

GOLDEN = Path(__file__).parent / "golden"
PIXEL = bytes.fromhex("89504e470d0a1a0a")
LOOK = Tool("look", "Look something up.", {"type": "object", "properties": {"word": {"type": "string"}}})


class Review(BaseModel):
    title: str
    stars: int
    note: str | None = None


class Counts(BaseModel):
    by_word: dict[str, int]


EVERY_BLOCK = (
    Conversation.of(
        [
            TextBlock("What is this?", cache=True),
            ImageBlock(data=PIXEL),
            ImageBlock(url="https://example.test/a.png", cache=True),
            DocumentBlock(data=b"%PDF-1.7", name="paper.pdf"),
            DocumentBlock(data="Grüße".encode(), media_type="text/plain", name="note.txt"),
        ],
        system="Be brief.",
    )
    .assistant(
        [
            ThinkingBlock(text="Hm.", signature=sign("Hm.", 0), signed_by="anthropic"),
            ThinkingBlock(redacted="b3BhcXVl", signed_by="anthropic"),
            ThinkingBlock(text="Somebody else's."),
            TextBlock("Let me look."),
            ToolUseBlock(id="call_1", name="look", input={"word": "pixel"}),
            ToolUseBlock(id="call_2", name="look"),
        ]
    )
    .user(
        [
            TextBlock("Well?"),
            ToolResultBlock(tool_use_id="call_1", content="A dot."),
            ToolResultBlock(tool_use_id="call_2", is_error=True),
        ]
    )
)
OWN_TOOLS = (
    Conversation.of("Is tea green?")
    .assistant(
        [
            TextBlock("Let me look."),
            ServerToolBlock(kind=SEARCH["type"], payload=SEARCH, signed_by="anthropic"),
            ServerToolBlock(kind=FOUND["type"], payload=FOUND, signed_by="anthropic"),
            ServerToolBlock(kind=WEB_CALL["type"], payload=WEB_CALL, signed_by="openai-responses"),
            ServerToolBlock(kind="executableCode", payload=WRITTEN, signed_by="gemini"),
            ServerToolBlock(kind="codeExecutionResult", payload=RESULT, signed_by="gemini"),
            TextBlock("It is.", signature=json.dumps({"citations": CITED}), signed_by="anthropic"),
        ]
    )
    .user("Sure?")
)
FEW_BLOCKS = Conversation.of("One.").assistant("").user("Two.").assistant("Begin: ")

CASES: dict[str, tuple[Any, dict[str, Any], dict[str, Any]]] = {
    "plain": ("Hello.", {}, {}),
    "every-block": (EVERY_BLOCK, {"options": CallOptions(tools=(LOOK,))}, {}),
    "merged-turns": (FEW_BLOCKS, {}, {}),
    "own-tools": (OWN_TOOLS, {}, {}),
    "options": (
        "Hello.",
        {
            "options": CallOptions(
                temperature=0.0,
                top_p=0.5,
                stop=("END", "STOP"),
                tools=(LOOK,),
                tool_choice="look",
                parallel_tool_calls=False,
                provider_options={"user": "u1"},
            )
        },
        {},
    ),
    "entry-parameters": (
        "Hello.",
        {},
        {"parameters": {"temperature": 0.3, "stop": ["X"]}, "provider_options": {"service_tier": "auto"}},
    ),
    "cached": (EVERY_BLOCK, {"options": CallOptions(cache=True, cache_ttl="1h", tools=(LOOK,))}, {"caching": "marks"}),
    "native": ("Review it.", {"response_model": Review}, {"structured": "native"}),
    "forced-tool": ("Review it.", {"response_model": Review}, {"structured": "tool"}),
    "offered-tool": ("Review it.", {"response_model": Review}, {"structured": "tool_auto"}),
    "prompt": (Conversation.of("Review it.", system="Be brief."), {"response_model": Review}, {"structured": "prompt"}),
    "beyond-native": ("Count.", {"response_model": Counts}, {"structured": "native"}),
    "thinking": ("Think.", {}, {"thinking": Thinking(mode="budget"), "depth": Depth.STANDARD}),
    "effort": ("Think.", {}, {"thinking": Thinking(mode="effort"), "depth": Depth.THOROUGH}),
    "no-thinking": ("Answer.", {}, {"thinking": Thinking(mode="adaptive")}),
    "effort-and-native": (
        "Review it.",
        {"response_model": Review},
        {"structured": "native", "thinking": Thinking(mode="effort"), "depth": Depth.THOROUGH},
    ),
    "thinking-and-a-tool": (
        "Review it.",
        {"response_model": Review},
        {"structured": "tool", "thinking": Thinking(mode="budget"), "depth": Depth.STANDARD},
    ),
    "adaptive": ("Think.", {}, {"thinking": Thinking(mode="adaptive"), "depth": Depth.QUICK}),
}


def fitted(call: dict[str, Any], takes: frozenset[str]) -> dict[str, Any]:
    """The call without the options that this wire has no words for."""
    if "options" not in call:
        return call
    left_out = {"stop": (), "parallel_tool_calls": None, "temperature": None, "top_p": None}
    names = {name: value for name, value in left_out.items() if name not in takes}
    return {**call, "options": replace(call["options"], **names)}


def with_bytes(conversation: Conversation) -> Conversation:
    """The conversation with every image as its bytes."""

    def fetched(block: Any) -> Any:
        return ImageBlock(data=PIXEL, cache=block.cache) if isinstance(block, ImageBlock) else block

    messages = [replace(message, blocks=tuple(map(fetched, message.blocks))) for message in conversation.messages]
    return replace(conversation, messages=tuple(messages))


def golden(wire: Any, case: str) -> Any:
    name = "anthropic-direct" if wire.key == "simulated" else wire.key
    return json.loads((GOLDEN / f"{name}.json").read_text(encoding="utf-8"))[case]


def asking(bench: Any, wire: Any, case: str, **more: Any) -> tuple[Any, Any, dict[str, Any]]:
    conversation, call, entry = CASES[case]
    if not wire.fetches and isinstance(conversation, Conversation):
        conversation = with_bytes(conversation)
    takes = provider_class(wire.key).takes
    call, entry = fitted(call, takes), {**entry, **more}
    entry["parameters"] = {name: value for name, value in entry.get("parameters", {}).items() if name in takes}
    depth = entry.pop("depth", Depth.IMMEDIATE)
    thinking_tokens = 0 if depth is Depth.IMMEDIATE else 1_024
    client, _ = bench.client(wire, thinking_tokens=thinking_tokens, output_tokens=2_000,
                             spec=ModelSpec("the-model", depth=depth), **entry)  # fmt: skip
    return client, conversation, call


@pytest.mark.parametrize("case", CASES)
async def test_golden_wire(bench, wire, case):
    """The body of each fixed conversation as it stands in golden/. A change there is a change of what users send."""
    client, conversation, call = asking(bench, wire, case)
    template = client._client
    bodies = [
        json.loads(
            template.prepare(
                client.binding, conversation, call.get("options"), call.get("response_model"), stream=stream
            ).body
        )
        for stream in (False, True)
    ]
    assert bodies[1].pop("stream", None) is (True if wire.streams_by_body else None)
    bodies[1].pop("stream_options", None)
    assert bodies[0] == bodies[1] == golden(wire, case)


@pytest.mark.parametrize("case", [case for case in CASES if case not in ("options", "entry-parameters")])
async def test_the_provider_takes_each_of_them(bench, wire, case):
    client, conversation, call = asking(bench, wire, case)
    if "response_model" in call:
        answer = {"by_word": {"a": 1}} if case == "beyond-native" else {"title": "Fine", "stars": 4, "note": None}
        bench.script(Step.answer(json=answer))
    response = await client.single_response(conversation, **call)
    assert response.text or response.tool_calls
    assert bench.sent == golden(wire, case)


# Never sent.

NEVER = [
    (Conversation(), {}, {}, "says nothing"),
    (" \n", {}, {}, "says nothing"),
    ("half \ud83d", {}, {}, "half a character .*turn 1 .TextBlock., character 5"),
    (Conversation.of("x", system="\ud800"), {}, {}, "system text"),
    ("x", {"options": CallOptions(tools=(Tool("a", "\ud800"),))}, {}, "half a character .*options"),
    (Conversation.of([ImageBlock(data=PIXEL)]), {}, {"inputs": frozenset({Input.TEXT})}, "does not read a ImageBlock"),
    (Conversation.of([DocumentBlock(data=b"x")]), {}, {"inputs": frozenset({Input.TEXT})}, "DocumentBlock"),
    (
        "x",
        {"options": CallOptions(temperature=0.1)},
        {"unsupported": frozenset({"temperature"})},
        "does not take 'temperature'",
    ),
    ("x", {"options": CallOptions(stop=("a",))}, {"unsupported": frozenset({"stop"})}, "does not take 'stop'"),
    ("x", {"options": CallOptions(temperature=3.0)}, {}, "temperature must lie"),
    ("x", {"options": CallOptions(top_p=float("nan"))}, {}, "top_p must lie"),
    ("x", {"options": CallOptions(tool_choice="any")}, {}, "without tools"),
    ("x", {"options": CallOptions(tools=(LOOK,), tool_choice="find")}, {}, "none of auto, any, none, look"),
    ("x", {"options": CallOptions(tools=(LOOK, LOOK))}, {}, "given twice"),
    ("x", {"options": CallOptions(provider_options={"max_tokens": 9})}, {}, "cannot set 'max_tokens'"),
    ("x", {"options": CallOptions(provider_options={"stream": True})}, {}, "cannot set 'stream'"),
    ("x", {"options": CallOptions(provider_options={"a": object()})}, {}, "cannot be written as JSON"),
    ("x", {"options": CallOptions(provider_options={"a": float("inf")})}, {}, "cannot be written as JSON"),
    ("x", {}, {"provider_options": {"model": "other"}}, "cannot set 'model'"),
    (Conversation.of("x").assistant([ToolUseBlock(id="t", name="look")]), {}, {}, "has no result"),
    ("x", {"response_model": object()}, {}, "cannot be asked for"),
]


@pytest.mark.parametrize(("conversation", "call", "entry", "said"), NEVER, ids=range(len(NEVER)))
async def test_bad_input_never_leaves(bench, wire, conversation, call, entry, said):
    client, seat = bench.client(wire, **entry)
    for streamed in (False, True):
        with pytest.raises(InvalidRequestError, match=said) as caught:
            await asked(client, conversation, streamed=streamed, **call)
        assert caught.value.sent is False
    assert bench.provider.count == 0
    assert seat.permits == []
    assert seat.records == []


async def test_seed_is_not_a_word_of_every_wire(bench, wire):
    client, _ = bench.client(wire)
    options = CallOptions(seed=7)
    if wire.speaks in ("openai", "gemini"):
        await client.single_response("Hello.", options=options)
        assert bench.sent.get("generationConfig", bench.sent)["seed"] == 7
        return
    with pytest.raises(InvalidRequestError, match="does not take 'seed'"):
        await client.single_response("Hello.", options=options)


async def test_a_document_by_url_is_refused_where_the_wire_has_no_place_for_it(bench, openai):
    client, _ = bench.client(openai)
    with pytest.raises(InvalidRequestError, match=r"no document by URL \('a.pdf'\)"):
        await client.single_response(Conversation.of([DocumentBlock(url="https://example.test/a.pdf", name="a.pdf")]))


@pytest.mark.parametrize("kind", ["text/plain", "text/markdown", "text/csv"])
async def test_a_document_of_text_goes_as_text(bench, anthropic, kind):
    client, _ = bench.client(anthropic)
    await client.single_response(Conversation.of([TextBlock("Read."), DocumentBlock(data=b"a,b", media_type=kind)]))
    source = bench.sent["messages"][0]["content"][1]["source"]
    assert source == {"type": "text", "media_type": "text/plain", "data": "a,b"}


async def test_a_document_that_is_no_text_is_refused(bench, anthropic):
    client, _ = bench.client(anthropic)
    with pytest.raises(InvalidRequestError, match="not UTF-8"):
        await client.single_response(Conversation.of([DocumentBlock(data=b"\xff", media_type="text/plain")]))


async def test_nul_goes_through_and_comes_back(bench, wire):
    client, _ = bench.client(wire)
    bench.script(Step.answer("a\x00b"))
    response = await client.single_response("x\x00y")
    assert response.text == "a\x00b"
    assert bench.provider.requests[-1].text == "x\x00y"


@pytest.mark.parametrize("text", ["<|endoftext|>", "<|im_start|>", "<|fim_prefix|>"])
async def test_b51_special_token_text(bench, wire, text):
    client, _ = bench.client(wire, estimator=TokenEstimator())
    await client.single_response(text)
    assert bench.provider.requests[-1].text == text


async def test_at_most_four_cache_marks_reach_the_wire(bench, anthropic):
    client, _ = bench.client(anthropic, caching="marks", cache_ttl="1h")
    await client.single_response(Conversation.of([TextBlock(f"Part {number}.", cache=True) for number in range(7)]))
    parts = bench.sent["messages"][0]["content"]
    assert [("cache_control" in part) for part in parts] == [False] * 3 + [True] * 4
    assert parts[-1]["cache_control"] == {"type": "ephemeral", "ttl": "1h"}


#: How each wire writes a cache mark. The others cache by themselves, and have no word for it.
MARKS = {
    "anthropic": "cache_control", "invoke": "cache_control", "mantle": "cache_control", "converse": "cachePoint",
    "responses": "prompt_cache_breakpoint",
}  # fmt: skip


@pytest.mark.parametrize(("caching", "most"), [("marks", 4), ("none", 0), ("automatic", 0)])
@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
async def test_at_most_four_marks_and_none_where_the_entry_takes_none(bench, wire, caching, most, streamed):
    client, _ = bench.client(wire, caching=caching)
    turns = Conversation.of("One.", system="Be brief.")
    for number in range(6):
        turns = turns.assistant("Yes.").user([TextBlock(f"Part {number}.", cache=True)])
    await asked(client, turns, streamed=streamed, options=CallOptions(cache=True, tools=(LOOK,)))
    written = json.dumps(bench.sent)
    assert sum(written.count(f'"{word}"') for word in set(MARKS.values())) == (most if wire.speaks in MARKS else 0)


async def test_usage_is_asked_for_unless_the_server_cannot(bench, openai):
    client, _ = bench.client(openai)
    await client.stream_response("Hello.").finish()
    assert bench.sent["stream_options"] == {"include_usage": True}
    lenient, _ = bench.client(openai, settings={"options": {"include_usage": False}})
    await lenient.stream_response("Hello.").finish()
    assert "stream_options" not in bench.sent


# What a call is taken for.


@pytest.mark.parametrize(("text", "reserved"), [("Hello.", 40), ("word " * 500, None)], ids=["as-declared", "larger"])
async def test_a_call_clearly_larger_than_declared_asks_for_what_it_is(bench, wire, text, reserved):
    client, seat = bench.client(wire, input_tokens=40, estimator=TokenEstimator())
    await client.single_response(text)
    assert seat.permits[0].input_tokens == (reserved or input_tokens("the-model", text, estimator=TokenEstimator()))


async def test_a_call_a_little_larger_than_declared_is_the_declared_one(bench, anthropic):
    """An estimate is no measurement: up to a tenth and 32 tokens more."""
    measured = input_tokens("the-model", "word " * 500, estimator=TokenEstimator())
    least = int((measured - 32) / 1.1) + 1
    for declared, reserved in ((least, None), (least - 2, measured)):
        client, seat = bench.client(anthropic, input_tokens=declared, estimator=TokenEstimator())
        await client.single_response("word " * 500)
        assert seat.permits[0].input_tokens == (reserved or declared)


async def test_the_estimate_learns_by_what_was_measured_and_not_by_what_was_declared(bench, wire):
    estimator = TokenEstimator()
    client, _ = bench.client(wire, input_tokens=9_000, estimator=estimator)
    bench.script(Step.answer("Fine.", input_tokens=2_000))
    await client.single_response("word " * 500)
    assert estimator.factor("the-model") > 1


async def test_what_the_cache_gave_was_input_too(bench, anthropic):
    estimator = TokenEstimator()
    client, _ = bench.client(anthropic, estimator=estimator)
    usage = {
        "input_tokens": 5,
        "cache_read_input_tokens": 1_000,
        "cache_creation_input_tokens": 995,
        "output_tokens": 2,
    }
    body = {"type": "message", "model": "m", "content": [{"type": "text", "text": "Fine."}], "stop_reason": "end_turn"}
    bench.script(Step.body({**body, "usage": usage}))
    await client.single_response("word " * 500)
    assert estimator.factor("the-model") > 1


async def test_nothing_is_learnt_from_an_estimate_of_our_own(bench, openai):
    """A server that reports no usage: what is recorded is what was declared."""
    estimator = TokenEstimator()
    client, _ = bench.client(openai, input_tokens=9_000, estimator=estimator)
    body = {"model": "m", "choices": [{"index": 0, "message": {"content": "Fine."}, "finish_reason": "stop"}]}
    bench.script(Step.body(body))
    response = await client.single_response("Hello.")
    assert response.usage.estimated
    assert estimator.factor("the-model") == 1


async def test_the_estimate_learns_from_what_is_reported(bench, wire):
    estimator = TokenEstimator()
    client, _ = bench.client(wire, estimator=estimator)
    for _ in range(5):
        bench.script(Step.answer("Fine.", input_tokens=2_000))
        await client.single_response("word " * 500)
    assert estimator.factor("the-model") > 1.5
