"""What tools of the provider's own say, broken, cut off, or as one wire alone says it."""

from __future__ import annotations

import json

import pytest

from interlock.clients import stream
from interlock.clients.conversation import Conversation, ServerToolBlock, TextBlock
from interlock.clients.options import StreamingMode
from interlock.clients.simulator import Step
from interlock.errors import (
    InvalidRequestError,
    MalformedResponseError,
    OutputTruncatedError,
    StreamBufferError,
    StreamInterruptedError,
    TransientUpstreamError,
)

from .conftest import asked
from .served import (
    FOUND,
    SEARCH,
    WEB_CALL,
    begun,
    block,
    ended,
    json_delta,
    message,
    own,
)

# Broken ones.


@pytest.mark.parametrize("mode", StreamingMode)
async def test_a_stream_that_ends_inside_one_is_an_interruption(bench, anthropic, mode):
    client, seat = bench.client(anthropic)
    first = block(0, {"type": "text", "text": ""}, {"type": "text_delta", "text": "So: "})
    bench.script(Step.events(begun(), *first, *block(1, {**SEARCH, "input": {}}, json_delta('{"qu'))))
    live = mode is StreamingMode.LIVE
    with pytest.raises(StreamInterruptedError if live else TransientUpstreamError):
        await client.stream_response("Look.", mode=mode).finish()
    seat.check_books()


@pytest.mark.parametrize("content", [
    {"type": "server_tool_use"}, {"type": "server_tool_use", "id": None, "input": [1]}, {"type": "new", "x": {"y": 1}},
])  # fmt: skip
@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
async def test_what_lacks_something_is_kept_as_it_is(bench, anthropic, content, streamed):
    client, _ = bench.client(anthropic)
    said = {"type": "text", "text": "Four."}
    streaming = [begun(), *block(0, content), *block(1, said), *ended()]
    bench.script(Step.events(*streaming) if streamed else Step.body(message(content, said)))
    response = await asked(client, "Look.", streamed=streamed)
    assert response.blocks == (ServerToolBlock(kind=content["type"], payload=content), TextBlock("Four."))


@pytest.mark.parametrize("content", [
    {"type": None}, {"type": 5}, {"type": ""}, {"id": "x"}, "text", None, 7, ["server_tool_use"],
])  # fmt: skip
@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
async def test_what_is_no_block_at_all_is_a_malformed_answer(bench, anthropic, content, streamed):
    client, seat = bench.client(anthropic)
    streaming = [begun(), *block(0, content), *ended()]
    bench.script(Step.events(*streaming) if streamed else Step.body(message(content)))
    with pytest.raises(MalformedResponseError):
        await asked(client, "Look.", streamed=streamed)
    seat.check_books()


@pytest.mark.parametrize("fragment", ['{"query": ', "[1]", "{} {}", '{"a": NaN}', '"\\ud83d"'])
async def test_an_input_that_is_no_object_makes_the_answer_malformed(bench, anthropic, fragment):
    client, seat = bench.client(anthropic)
    bench.script(
        Step.events(begun(), *block(0, {**SEARCH, "input": {}}, json_delta(fragment)), *block(1, FOUND), *ended())
    )
    with pytest.raises(MalformedResponseError, match="input of its server_tool_use") as caught:
        await client.stream_response("Look.").finish()
    assert caught.value.usage is not None, "it was paid for"
    seat.check_books()


async def test_an_input_that_the_limit_cut_off_is_a_cut_off_answer(bench, anthropic):
    client, _ = bench.client(anthropic)
    bench.script(Step.events(begun(), *block(0, {**SEARCH, "input": {}}, json_delta('{"qu')), *ended("max_tokens")))
    with pytest.raises(OutputTruncatedError):
        await client.stream_response("Look.").finish()


async def test_an_index_that_comes_again_begins_another_block(bench, anthropic):
    client, _ = bench.client(anthropic)
    said = block(0, {"type": "text", "text": ""}, {"type": "text_delta", "text": "Four."})
    bench.script(
        Step.events(
            begun(), *said, *block(0, {**SEARCH, "input": {}}, json_delta(json.dumps(SEARCH["input"]))),
            *block(0, FOUND, {"type": "text_delta", "text": "no text of ours"}), *ended(),
        )
    )  # fmt: skip
    response = await client.stream_response("Look.").finish()
    assert [dict(one.payload) for one in own(response)] == [SEARCH, FOUND]
    assert response.text == "Four."


async def test_half_a_character_in_it_is_replaced(bench, anthropic):
    """No store and no wire takes one: the answer could not be sent back."""
    client, _ = bench.client(anthropic)
    broken = json.dumps(message(SEARCH, FOUND | {"title": "\ud83d"}, {"type": "text", "text": "Four."}))
    bench.script(Step.body(broken.encode(), "application/json"), Step.answer("Yes."))
    response = await client.single_response("Look.")
    assert own(response)[1].payload["title"] == "\ufffd"
    await client.single_response(Conversation.of("Look.").assistant(response.blocks).user("Sure?"))


async def test_what_begins_without_its_content_gets_it(bench, anthropic):
    client, _ = bench.client(anthropic)
    compaction = {"type": "compaction", "content": None, "encrypted_content": None}
    delta = {"type": "compaction_delta", "content": "Summed up.", "encrypted_content": "Eo8="}
    said = block(1, {"type": "text", "text": "Four."})
    bench.script(Step.events(begun(), *block(0, compaction, delta), *said, *ended()))
    response = await client.stream_response("Look.").finish()
    (kept,) = own(response)
    assert dict(kept.payload) == {"type": "compaction", "content": "Summed up.", "encrypted_content": "Eo8="}


async def test_what_is_buffered_of_it_counts(bench, anthropic, monkeypatch):
    monkeypatch.setattr(stream, "BUFFER_LIMIT", 1_000)
    client, _ = bench.client(anthropic)
    large = FOUND | {"content": "x" * 2_000}
    bench.script(Step.answer("Four.", server_tools=(SEARCH, large)))
    with pytest.raises(StreamBufferError):
        await client.stream_response("Look.", mode=StreamingMode.SAFE).finish()


@pytest.mark.parametrize(("made", "said"), [
    (ServerToolBlock(kind=5, payload={}), "kind of the ServerToolBlock in turn 2 must be text, not int"),
    (ServerToolBlock(kind="w", payload=[1]), "payload of the ServerToolBlock in turn 2 must be a mapping, not list"),
    (ServerToolBlock(kind="w", payload={"a": "\ud83d"}), "half a character .* turn 2 .ServerToolBlock."),
    (ServerToolBlock(kind="w", payload={"a": float("nan")}), "cannot be written as JSON"),
    (ServerToolBlock(kind="w", payload={"a": object()}), "cannot be written as JSON"),
], ids=["kind", "payload", "half", "nan", "object"])  # fmt: skip
@pytest.mark.parametrize("key", ["anthropic-direct", "openai", "gemini"])
async def test_one_that_cannot_be_sent_is_refused_by_name(bench, wires, key, made, said):
    client, seat = bench.client(wires[key])
    with pytest.raises(InvalidRequestError, match=said) as caught:
        await client.single_response(Conversation.of("Look.").assistant([made]).user("Sure?"))
    assert (caught.value.sent, bench.provider.count, seat.permits) == (False, 0, [])


# The other wires' own.


async def test_an_item_that_began_is_replaced_by_the_finished_one(bench, responses):
    """And stands where it began, whatever ends first."""
    client, _ = bench.client(responses)
    said = {"id": "m", "type": "message", "role": "assistant", "status": "completed",
            "content": [{"type": "output_text", "text": "Four.", "annotations": []}]}  # fmt: skip
    events = [
        {"type": "response.output_item.added", "output_index": 0, "item": {**WEB_CALL, "status": "in_progress"}},
        {"type": "response.output_item.added", "output_index": 1, "item": {**said, "content": []}},
        {"type": "response.output_text.delta", "output_index": 1, "content_index": 0, "delta": "Four."},
        {"type": "response.output_item.done", "output_index": 0, "item": WEB_CALL},
        {"type": "response.completed", "response": {"status": "completed", "model": "m", "output": [WEB_CALL, said]}},
    ]
    bench.script(Step.events(*(json.dumps(event) for event in events)))
    response = await client.stream_response("Look.").finish()
    assert response.blocks == (ServerToolBlock(kind="web_search_call", payload=WEB_CALL), TextBlock("Four."))


async def test_a_request_for_approval_is_an_answer_and_can_be_answered(bench, responses):
    client, _ = bench.client(responses)
    request = {"id": "mcpr_1", "type": "mcp_approval_request", "name": "roll", "arguments": "{}", "server_label": "d"}
    bench.script(Step.answer(server_tools=(request,), text=""), Step.answer("Rolled."))
    response = await client.single_response("Roll.")
    (wanted,) = own(response)
    approval = {"approval_request_id": wanted.payload["id"], "approve": True}
    again = Conversation.of("Roll.").assistant(response.blocks)
    again = again.user([ServerToolBlock(kind="mcp_approval_response", payload=approval)])
    assert (await client.single_response(again)).text == "Rolled."
    assert bench.sent["input"][1:] == [request, {**approval, "type": "mcp_approval_response"}]


async def test_a_signed_part_of_gemini_keeps_its_signature(bench, gemini):
    client, _ = bench.client(gemini)
    part = {"toolCall": {"id": "t1", "toolType": "GOOGLE_SEARCH_WEB", "args": {}}, "thoughtSignature": "Eo8="}
    chunk = {"candidates": [{"content": {"parts": [part, {"text": "Four."}]}, "finishReason": "STOP", "index": 0}]}
    bench.script(Step.body(chunk))
    response = await client.single_response("Look.")
    assert response.blocks == (ServerToolBlock(kind="toolCall", payload=part), TextBlock("Four."))
    body = json.loads(client._client.prepare(
        client.binding, Conversation.of("Look.").assistant(response.blocks).user("Sure?"), None, None, stream=False
    ).body)  # fmt: skip
    assert body["contents"][1]["parts"] == [part, {"text": "Four."}]


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
async def test_what_bedrock_runs_itself_is_no_call_of_the_callers(bench, wires, streamed):
    client, _ = bench.client(wires["bedrock-converse"])
    use = {"toolUseId": "t1", "name": "nova_grounding", "type": "server_tool_use"}
    result = {"toolUseId": "t1", "type": "nova_grounding_result", "status": "success"}
    content = [{"json": {"sources": ["https://tea.test"]}}]
    blocks = [{"toolUse": {**use, "input": {"q": "tea"}}}, {"toolResult": {**result, "content": content}},
              {"text": "Four."}]  # fmt: skip
    body = {"output": {"message": {"role": "assistant", "content": blocks}}, "stopReason": "end_turn", "usage": {}}
    events = [
        {"messageStart": {"role": "assistant"}},
        {"contentBlockStart": {"contentBlockIndex": 0, "start": {"toolUse": use}}},
        {"contentBlockDelta": {"contentBlockIndex": 0, "delta": {"toolUse": {"input": '{"q": "tea"}'}}}},
        {"contentBlockStart": {"contentBlockIndex": 1, "start": {"toolResult": result}}},
        {"contentBlockDelta": {"contentBlockIndex": 1, "delta": {"toolResult": content}}},
        {"contentBlockDelta": {"contentBlockIndex": 2, "delta": {"text": "Four."}}},
        {"messageStop": {"stopReason": "end_turn"}},
    ]
    bench.script(Step.events(*events) if streamed else Step.body(body), Step.answer("Yes."))
    response = await asked(client, "Look.", streamed=streamed)
    assert (response.text, response.tool_calls) == ("Four.", ())
    assert [{one.kind: dict(one.payload)} for one in own(response)] == blocks[:2]
    prepared = client._client.prepare(
        client.binding, Conversation.of("Look.").assistant(response.blocks).user("Sure?"), None, None, stream=False
    )
    assert json.loads(prepared.body)["messages"][1]["content"] == blocks


async def test_a_cited_text_of_bedrock_is_text(bench, wires):
    client, _ = bench.client(wires["bedrock-converse"])
    cited = {"citationsContent": {"content": [{"text": "Fo"}, {"text": "ur."}], "citations": [{"title": "t"}]}}
    body = {"output": {"message": {"role": "assistant", "content": [cited]}}, "stopReason": "end_turn", "usage": {}}
    bench.script(Step.body(body))
    assert (await client.single_response("Look.")).text == "Four."
