"""What OpenAI's Responses wire does."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from interlock.admission.outcome import OutcomeKind
from interlock.catalog.entry import Thinking
from interlock.catalog.spec import ModelSpec
from interlock.catalog.usage import Usage
from interlock.catalog.words import Depth
from interlock.clients.conversation import Conversation, ImageBlock, TextBlock, ThinkingBlock, ToolResultBlock
from interlock.clients.options import CallOptions, Tool
from interlock.clients.response import StopReason
from interlock.clients.simulator import Step, ToolCall
from interlock.errors import (
    InvalidRequestError,
    OutputTruncatedError,
    ProviderRefusalError,
    QuotaExhaustedError,
    RateLimitedError,
    StreamInterruptedError,
    TransientUpstreamError,
    UpstreamError,
)

from .conftest import asked

LOOK = Tool("look", "Look.", {"type": "object", "properties": {}})
USAGE = {
    "input_tokens": 100, "output_tokens": 40, "total_tokens": 140,
    "input_tokens_details": {"cached_tokens": 60, "cache_write_tokens": 10},
    "output_tokens_details": {"reasoning_tokens": 25},
}  # fmt: skip
REASONING = {
    "id": "rs_1", "type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm."}],
    "encrypted_content": "gAAAé==", "status": "completed",
}  # fmt: skip


def said(text: str, **more: Any) -> dict[str, Any]:
    return {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}], **more}


def response(*output: Any, status: str = "completed", **more: Any) -> dict[str, Any]:
    return {"id": "r", "object": "response", "model": "served", "status": status, "output": list(output), **more}


def event(kind: str, **fields: Any) -> str:
    return json.dumps({"type": kind, **fields})


async def test_what_the_cache_gave_is_taken_out_of_the_input(bench, responses):
    client, seat = bench.client(responses)
    bench.script(Step.body(response(said("Hi."), usage=USAGE)))
    answer = await client.single_response("Hello.")
    assert answer.usage == Usage(
        input_tokens=30, output_tokens=40, cache_read_tokens=60, cache_write_tokens=10, reasoning_tokens=25
    )
    assert seat.last.usage.total_input_tokens == 100


@pytest.mark.parametrize("usage", [None, {}, {"input_tokens": None}], ids=["null", "empty", "nulls"])
async def test_usage_that_is_not_reported_is_estimated(bench, responses, usage):
    client, _ = bench.client(responses, input_tokens=30)
    bench.script(Step.body(response(said("A few words."), usage=usage)))
    found = (await client.single_response("Hello.")).usage
    assert found.estimated
    assert found.input_tokens == 30


async def test_nothing_is_stored_and_reasoning_goes_back_byte_for_byte(bench, responses):
    client, _ = bench.client(
        responses, thinking_tokens=512, thinking=Thinking(mode="effort"), spec=ModelSpec("m", depth=Depth.STANDARD)
    )
    call = {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"}
    bench.script(Step.body(response(REASONING, said("One moment.", phase="commentary"), call)))
    question = Conversation.of("Hello.")
    answer = await client.single_response(question, options=CallOptions(tools=(LOOK,)))
    assert answer.thinking == "Hm."
    assert answer.text == "One moment."
    assert bench.sent["store"] is False
    assert bench.sent["include"] == ["reasoning.encrypted_content"]
    further = question.assistant(answer.blocks).user([ToolResultBlock(tool_use_id="c1", content="seen")])
    body = client._client.prepare(client.binding, further, CallOptions(tools=(LOOK,)), None, stream=False).body
    assert json.loads(body)["input"] == [
        {"role": "user", "content": [{"type": "input_text", "text": "Hello."}]},
        REASONING,
        {"role": "assistant", "content": "One moment.", "phase": "commentary"},
        call,
        {"type": "function_call_output", "call_id": "c1", "output": "seen"},
    ]


async def test_the_simulated_provider_takes_its_sealed_reasoning_back(bench, responses):
    client, seat = bench.client(responses, thinking_tokens=512, thinking=Thinking(mode="effort"))
    for streamed in (False, True):
        bench.script(Step.answer(thinking="Hm.", tool_calls=[ToolCall(name="look", input={})]))
        question = Conversation.of("Hello.")
        answer = await asked(client, question, streamed=streamed, options=CallOptions(tools=(LOOK,)))
        result = ToolResultBlock(tool_use_id=answer.tool_calls[0].id, content="seen")
        await client.single_response(
            question.assistant(answer.blocks).user([result]), options=CallOptions(tools=(LOOK,))
        )
        assert "reasoning" in [item.get("type") for item in bench.sent["input"]]
    assert seat.kinds == [OutcomeKind.COMPLETED] * 4


async def test_thinking_that_is_no_item_of_this_wire_stays_out(bench, responses):
    client, _ = bench.client(responses)
    blocks = [ThinkingBlock(text="Hm.", signature="not json"), ThinkingBlock(text="Hm."), TextBlock("So.")]
    await client.single_response(Conversation.of("x").assistant(blocks).user("y"))
    assert [item.get("type") for item in bench.sent["input"]] == [None] * 3
    assert bench.sent["input"][1] == {"role": "assistant", "content": "So."}


@pytest.mark.parametrize(("reason", "error"), [
    ("max_output_tokens", OutputTruncatedError), ("content_filter", ProviderRefusalError),
])  # fmt: skip
@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
async def test_incomplete_answers(bench, responses, reason, error, streamed):
    client, seat = bench.client(responses)
    body = response(
        said("Half an"), status="incomplete", incomplete_details={"reason": reason}, usage={"output_tokens": 3}
    )
    bench.script(Step.events(event("response.incomplete", response=body)) if streamed else Step.body(body))
    with pytest.raises(error) as caught:
        await asked(client, "Hello.", streamed=streamed)
    assert caught.value.usage.output_tokens == 3
    assert seat.kinds == [OutcomeKind.COMPLETED]


@pytest.mark.parametrize("reason", ["max_messages", "steered", "something-new", None])
async def test_an_unknown_reason_is_an_end(bench, responses, reason):
    client, _ = bench.client(responses)
    bench.script(Step.body(response(said("Hi."), status="incomplete", incomplete_details={"reason": reason})))
    assert (await client.single_response("Hello.")).stop_reason is StopReason.END_TURN


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
async def test_b15_a_refusal_part(bench, responses, streamed):
    client, seat = bench.client(responses)
    item = {"type": "message", "content": [{"type": "refusal", "refusal": "I will not."}]}
    events = [event("response.refusal.delta", output_index=0, content_index=0, delta="I will "),
              event("response.refusal.delta", output_index=0, content_index=0, delta="not."),
              event("response.output_item.done", output_index=0, item=item),
              event("response.completed", response=response(item, usage=USAGE))]  # fmt: skip
    bench.script(Step.events(*events) if streamed else Step.body(response(item, usage=USAGE)))
    with pytest.raises(ProviderRefusalError) as caught:
        await asked(client, "Hello.", streamed=streamed)
    assert caught.value.explanation == "I will not."
    assert seat.last.usage.output_tokens == 40


@pytest.mark.parametrize(("code", "class_", "kind"), [
    ("rate_limit_exceeded", RateLimitedError, OutcomeKind.RATE_LIMITED),
    ("insufficient_quota", QuotaExhaustedError, OutcomeKind.REJECTED),
    ("server_error", TransientUpstreamError, OutcomeKind.UNKNOWN),
    ("invalid_prompt", ProviderRefusalError, OutcomeKind.REJECTED),
    ("bio_policy", ProviderRefusalError, OutcomeKind.REJECTED),
    ("image_content_policy_violation", ProviderRefusalError, OutcomeKind.REJECTED),
    ("image_parse_error", InvalidRequestError, OutcomeKind.REJECTED),
])  # fmt: skip
@pytest.mark.parametrize("how", ["whole", "failed", "error"])
async def test_b01_a_response_that_failed(bench, responses, code, class_, kind, how):
    client, seat = bench.client(responses)
    error = {"code": code, "message": "No."}
    body = response(status="failed", error=error)
    bench.script({
        "whole": Step.body(body), "failed": Step.events(event("response.failed", response=body)),
        "error": Step.events(event("error", **error, param=None, sequence_number=1)),
    }[how])  # fmt: skip
    with pytest.raises(UpstreamError) as caught:
        await asked(client, "Hello.", streamed=how != "whole")
    assert type(caught.value) is class_
    assert bench.provider.count == 1
    assert seat.kinds in ([kind], [OutcomeKind.COMPLETED])


async def test_b02_an_end_of_the_bytes_is_no_end_of_the_answer(bench, responses):
    client, seat = bench.client(responses)
    done = event("response.output_item.done", output_index=0, item=said("Hi."))
    bench.script(Step.events(event("response.output_text.delta", output_index=0, content_index=0, delta="Hi."), done))
    with pytest.raises(StreamInterruptedError) as caught:
        await client.stream_response("Hello.").finish()
    assert caught.value.partial == "Hi."
    assert seat.kinds == [OutcomeKind.UNKNOWN]


async def test_a_server_that_sends_no_deltas_is_read_all_the_same(bench, responses):
    client, _ = bench.client(responses)
    call = {"type": "function_call", "call_id": "c1", "name": "look", "arguments": '{"a": 1}'}
    bench.script(Step.events(event("response.completed", response=response(REASONING, said("Hi."), call))))
    async with client.stream_response("Hello.") as pieces:
        kinds = [piece.kind.value async for piece in pieces]
    assert kinds == ["thinking", "text", "tool_json", "response"]
    assert dict(pieces.response.tool_calls[0].input) == {"a": 1}
    assert pieces.response.stop_reason is StopReason.TOOL_USE


async def test_b39_tool_deltas_of_two_calls_at_once(bench, responses):
    client, _ = bench.client(responses)
    items = [{"type": "function_call", "call_id": f"c{at}", "name": "look", "arguments": ""} for at in (0, 1)]
    events = [event("response.output_item.added", output_index=at, item=items[at]) for at in (0, 1)]
    for at, part in [(0, '{"a"'), (1, '{"b"'), (0, ": 1}"), (1, ": 2}")]:
        events.append(event("response.function_call_arguments.delta", output_index=at, delta=part))
    whole = [{**items[0], "arguments": '{"a": 1}'}, {**items[1], "arguments": '{"b": 2}'}]
    bench.script(Step.events(*events, event("response.completed", response=response(*whole))))
    answer = await client.stream_response("Hello.").finish()
    assert [dict(call.input) for call in answer.tool_calls] == [{"a": 1}, {"b": 2}]


@pytest.mark.parametrize("status", ["queued", "in_progress", "cancelled"])
async def test_a_response_that_is_not_done_is_no_answer(bench, responses, status):
    client, _ = bench.client(responses)
    bench.script(Step.body(response(status=status)))
    with pytest.raises(TransientUpstreamError):
        await client.single_response("Hello.")


@pytest.mark.parametrize(("chosen", "sent"), [
    ("auto", "auto"), ("any", "required"), ("none", "none"), ("look", {"type": "function", "name": "look"}),
])  # fmt: skip
async def test_each_choice_of_a_tool(bench, responses, chosen, sent):
    client, _ = bench.client(responses)
    await client.single_response("Hello.", options=CallOptions(tools=(LOOK,), tool_choice=chosen))
    assert bench.sent["tool_choice"] == sent


async def test_marks_where_the_entry_says_so_and_at_most_four(bench, responses):
    conversation = Conversation.of([TextBlock(f"Part {number}.", cache=True) for number in range(6)])
    marking, _ = bench.client(responses, caching="marks", cache_ttl="1h")
    body = json.loads(marking._client.prepare(marking.binding, conversation, None, None, stream=False).body)
    parts = body["input"][0]["content"]
    assert [part.get("prompt_cache_breakpoint") for part in parts] == [None] * 2 + [
        {"mode": "explicit", "ttl": "12h"}
    ] * 4
    for caching in ("automatic", "none"):
        plain, _ = bench.client(responses, caching=caching)
        call = plain._client.prepare(plain.binding, conversation, CallOptions(cache=True), None, stream=False)
        assert b"prompt_cache" not in call.body


async def test_an_image_in_an_assistants_turn_is_refused_by_name(bench, responses):
    client, _ = bench.client(responses)
    with pytest.raises(InvalidRequestError, match="no ImageBlock in an assistant's turn") as caught:
        await client.single_response(Conversation.of("x").assistant([ImageBlock(data=b"png")]).user("y"))
    assert caught.value.sent is False


@pytest.mark.parametrize("name", ["stop", "seed"])
async def test_what_the_wire_has_no_word_for_is_refused_even_from_the_entry(bench, responses, name):
    client, _ = bench.client(responses, parameters={name: ["x"] if name == "stop" else 7})
    with pytest.raises(InvalidRequestError, match=f"sets '{name}' in its parameters, which openai does not take"):
        await client.single_response("Hello.")
    assert bench.provider.count == 0


OPENAIS = ("openai", "openai-chat-completions")


def cache_key(bench: Any, wire: Any, conversation: Any, options: CallOptions | None = None, **entry: Any) -> str | None:
    client, _ = bench.client(wire, **{"caching": "automatic", **entry})
    body = json.loads(client._client.prepare(client.binding, conversation, options, None, stream=False).body)
    key: str | None = body.get("prompt_cache_key")
    return key


@pytest.mark.parametrize("key", OPENAIS)
async def test_calls_that_begin_alike_share_a_cache_key_that_tells_nothing(bench, wires, key):
    wire, tools = wires[key], CallOptions(tools=(LOOK,))
    told = Conversation.of("Hello.", system="Be a brief and secret pirate.")
    first = cache_key(bench, wire, told, tools)
    assert first == cache_key(bench, wire, told.assistant("Arr.").user("More."), tools, caching="marks")
    assert re.fullmatch(r"[0-9a-f]{32}", first)
    others = [cache_key(bench, wire, told), cache_key(bench, wire, "Hello.", tools),
              cache_key(bench, wire, Conversation.of("Hello.", system="Be long."), tools)]  # fmt: skip
    assert len({first, *others}) == 4
    assert cache_key(bench, wire, told, CallOptions(provider_options={"prompt_cache_key": "mine"})) == "mine"


@pytest.mark.parametrize(("key", "entry", "told"), [
    *[(key, {"caching": "none"}, True) for key in OPENAIS], *[(key, {}, False) for key in OPENAIS],
    ("openai-compatible", {}, True), ("litellm-openai", {}, True),
])  # fmt: skip
async def test_no_cache_key_without_a_cache_or_a_beginning_or_for_who_imitates_it(bench, wires, key, entry, told):
    conversation = Conversation.of("Hello.", system="Be brief.") if told else "Hello."
    assert cache_key(bench, wires[key], conversation, **entry) is None


async def test_the_provider_takes_the_cache_key(bench, responses):
    client, _ = bench.client(responses, caching="automatic")
    assert (await client.single_response(Conversation.of("Hello.", system="Be brief."))).text
    assert bench.sent["prompt_cache_key"]
