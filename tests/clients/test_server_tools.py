"""Tools that the provider runs itself: what they were asked and gave is kept whole, in its place, and goes back to the
wire that made it, and to no other."""

from __future__ import annotations

import asyncio
import json

import pytest

from interlock.clients.conversation import Conversation, ServerToolBlock, TextBlock, ToolResultBlock, ToolUseBlock
from interlock.clients.measure import raw_input_tokens
from interlock.clients.options import CallOptions, StreamingMode
from interlock.clients.response import PieceKind, StopReason
from interlock.clients.simulator import Step
from interlock.runtime.journal.codec import dumps, loads

from .conftest import WIRES, asked
from .served import (
    CITED,
    CODE,
    FOUND,
    LOOK,
    RAN,
    SEARCH,
    USED,
    begun,
    block,
    ended,
    json_delta,
    message,
    own,
    sent_back,
)

WITHOUT = [wire.id for wire in WIRES if wire.id not in USED]


@pytest.mark.parametrize("key", USED)
@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
async def test_what_it_did_is_kept_in_its_place_and_goes_back_unchanged(bench, wires, key, streamed):
    client, seat = bench.client(wires[key])
    bench.script(Step.answer("Four.", server_tools=USED[key]), Step.answer("Yes."))
    response = await asked(client, "Look.", streamed=streamed)
    assert [dict(block.payload) for block in own(response)] == list(USED[key])
    assert [json.dumps(dict(block.payload)) for block in own(response)] == [json.dumps(one) for one in USED[key]]
    assert [type(block) for block in response.blocks] == [*[ServerToolBlock] * len(USED[key]), TextBlock]
    assert {block.signed_by for block in own(response)} == {client._client.signs_as}
    assert (response.text, response.tool_calls, response.stop_reason) == ("Four.", (), StopReason.END_TURN)

    again = Conversation.of("Look.").assistant(response.blocks).user("Sure?")
    assert (await asked(client, again, streamed=streamed)).text == "Yes."
    assert [json.dumps(one) for one in sent_back(bench)[:-1]] == [json.dumps(one) for one in USED[key]]
    seat.check_books()


@pytest.mark.parametrize("key", USED)
async def test_streamed_equals_whole_and_its_pieces_are_the_texts_alone(bench, wires, key):
    client, _ = bench.client(wires[key])
    bench.provider.always(Step.answer("Four.", server_tools=USED[key], input_tokens=9, output_tokens=4))
    whole = await client.single_response("Look.")
    async with client.stream_response("Look.") as stream:
        pieces = [piece async for piece in stream]
    assert stream.response.blocks == whole.blocks
    assert stream.response.usage == whole.usage
    assert {piece.kind for piece in pieces} == {PieceKind.TEXT, PieceKind.RESPONSE}
    assert {piece.block_index for piece in pieces if piece.text} == {len(USED[key])}


@pytest.mark.parametrize("key", WITHOUT)
@pytest.mark.parametrize("made", ["anthropic", "openai-responses", "gemini", None])
async def test_another_wire_is_not_given_it(bench, wires, key, made):
    """Nor is a wire without a place for it, whoever made it."""
    client, _ = bench.client(wires[key])
    if made is None and key == "bedrock-converse":
        return
    block = ServerToolBlock(kind="server_tool_use", payload=SEARCH, signed_by=made)
    conversation = Conversation.of("Look.").assistant([TextBlock("So: "), block, TextBlock("four.")]).user("Sure?")
    await client.single_response(conversation)
    assert "web_search" not in json.dumps(bench.sent)
    alone = Conversation.of("Look.").assistant([block]).user("Sure?")
    await client.single_response(alone)
    assert "web_search" not in json.dumps(bench.sent)


@pytest.mark.parametrize("key", ["anthropic-direct", "openai", "gemini"])
async def test_the_wires_that_have_them_take_none_of_each_others(bench, wires, key):
    client, _ = bench.client(wires[key])
    for other in {"anthropic", "openai-responses", "gemini"} - {client._client.signs_as}:
        block = ServerToolBlock(kind="server_tool_use", payload=SEARCH, signed_by=other)
        await client.single_response(Conversation.of("Look.").assistant([block, TextBlock("Four.")]).user("Sure?"))
        assert "web_search" not in json.dumps(bench.sent)
        assert len(sent_back(bench)) == 1


@pytest.mark.parametrize("text", [None, "So far."], ids=["nothing else", "a text"])
@pytest.mark.parametrize("mode", [None, *StreamingMode])
async def test_a_paused_turn_goes_back_whole(bench, anthropic, mode, text):
    client, seat = bench.client(anthropic)
    bench.script(
        Step.answer(text, server_tools=(SEARCH, FOUND, CODE), stop_reason="pause_turn", input_tokens=10),
        Step.answer("Four.", server_tools=(), input_tokens=14),
    )
    if mode is None:
        response = await client.single_response("Look.")
    else:
        response = await client.stream_response("Look.", mode=mode).finish()
    said = [{"type": "text", "text": text}] if text else []
    assert sent_back(bench) == [SEARCH, FOUND, CODE, *said]
    assert bench.sent["messages"][-1]["role"] == "assistant"
    assert [dict(block.payload) for block in own(response)] == [SEARCH, FOUND, CODE]
    assert response.text == (text or "") + "Four."
    assert response.stop_reason is StopReason.END_TURN
    assert len(seat.permits) == 2
    seat.check_books()


async def test_a_pause_may_hold_nothing_but_the_call(bench, anthropic):
    client, _ = bench.client(anthropic)
    bench.script(Step.answer(server_tools=(SEARCH,), stop_reason="pause_turn"), Step.answer("Four."))
    response = await client.stream_response("Look.").finish()
    assert sent_back(bench) == [SEARCH]
    assert response.text == "Four."


# Where code runs.

CONTAINER = {"id": "container_1", "expires_at": "2026-11-30T13:00:00Z"}


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("told", [None, {"skills": []}], ids=["alone", "with what the call says of it"])
async def test_a_paused_turn_goes_on_in_its_container(bench, anthropic, streamed, told):
    client, _ = bench.client(anthropic)
    paused = [begun(), *block(0, CODE | {"input": {}}, json_delta(json.dumps(CODE["input"]))), *block(1, RAN)]
    bench.script(
        Step.events(*paused, *ended("pause_turn", container=CONTAINER))
        if streamed
        else Step.body(message(CODE, RAN, stop="pause_turn", container=CONTAINER)),
        Step.answer("Four."),
    )
    options = CallOptions(provider_options={"container": told} if told else {})
    response = await asked(client, "Count.", streamed=streamed, options=options)
    assert bench.sent["container"] == ({**told, "id": "container_1"} if told else "container_1")
    assert sent_back(bench) == [CODE, RAN]
    assert [dict(one.payload) for one in own(response)] == [CODE, RAN, CONTAINER]

    bench.script(Step.answer("Yes."))
    await asked(client, Conversation.of("Count.").assistant(response.blocks).user("Sure?"), streamed=streamed)
    assert "container" not in bench.sent, "it may be gone by the next turn"


async def test_results_go_to_the_container_that_waits_for_them(bench, anthropic):
    """Code of the provider's called a tool of the caller's."""
    client, _ = bench.client(anthropic)
    caller = {"type": "code_execution_20260120", "tool_id": "srvtoolu_2"}
    call = {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {"word": "tea"}, "caller": caller}
    for step in (
        Step.body(message(CODE, call, stop="tool_use", container=CONTAINER)),
        Step.events(begun(container=CONTAINER), *block(0, CODE), *block(1, call), *ended("tool_use")),
    ):
        bench.script(step, Step.answer("Four."))
        response = await asked(client, "Look.", streamed=step.name == "events", options=CallOptions(tools=(LOOK,)))
        assert response.stop_reason is StopReason.TOOL_USE
        assert [one.id for one in response.tool_calls] == ["toolu_1"]
        answered = Conversation.of("Look.").assistant(response.blocks)
        answered = answered.user([ToolResultBlock(tool_use_id="toolu_1", content="green")])
        await client.single_response(answered, options=CallOptions(tools=(LOOK,)))
        assert bench.sent["container"] == "container_1"
        assert sent_back(bench) == [CODE, call]


async def test_a_container_alone_is_no_answer(bench, anthropic):
    draft = (client := bench.template(anthropic)).draft()
    client.read_reply(message(container=CONTAINER), draft)
    assert draft.answer().blocks == ()


# What a text leans on.


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
async def test_citations_go_back_with_their_text(bench, anthropic, streamed):
    client, _ = bench.client(anthropic)
    cited = [
        *CITED,
        {"type": "char_location", "cited_text": "x", "document_index": 0, "document_title": "t", "start_char_index": 0,
         "end_char_index": 1, "file_id": None},
    ]  # fmt: skip
    text = {"type": "text", "text": "Green.", "citations": cited}
    deltas = [
        {"type": "text_delta", "text": "Green."},
        *({"type": "citations_delta", "citation": one} for one in cited),
    ]
    streaming = [begun(), *block(0, {"type": "text", "text": "", "citations": []}, *deltas), *ended()]
    bench.script(Step.events(*streaming) if streamed else Step.body(message(text)), Step.answer("Yes."))
    response = await asked(client, "Look.", streamed=streamed)
    assert response.text == "Green."
    assert json.loads(response.blocks[0].signature) == {"citations": cited}
    conversation = Conversation.of("Look.").assistant(response.blocks).user("Sure?")
    await client.single_response(conversation)
    as_sent = [cited[0], {name: value for name, value in cited[1].items() if name != "file_id"}]
    assert sent_back(bench) == [{**text, "citations": as_sent}]

    other, _ = bench.client(next(wire for wire in WIRES if wire.key == "gemini"))
    await other.single_response(conversation)
    assert sent_back(bench) == [{"text": "Green."}]


@pytest.mark.parametrize("signature", ["opaque", "[1]", '{"citations": 1}', '{"citations": [1]}', "{", "1e999"])
async def test_a_signature_that_holds_no_citations_adds_nothing(bench, anthropic, signature):
    client, _ = bench.client(anthropic)
    said = [TextBlock("Green.", signature=signature), TextBlock(" ", signature=signature)]
    call = ToolUseBlock(id="t", name="look", signature=signature)
    asked_for = Conversation.of("Look.").assistant([*said, call]).user([ToolResultBlock(tool_use_id="t")])
    await client.single_response(asked_for)
    assert sent_back(bench) == [
        {"type": "text", "text": "Green."},
        {"type": "tool_use", "id": "t", "name": "look", "input": {}},
    ]


# Measured, journaled, marked.


def test_it_counts_as_input():
    plain = Conversation.of("Look.").assistant("Four.")
    found = {"type": "web_search_tool_result", "content": "word " * 1_000}
    with_it = Conversation.of("Look.").assistant([ServerToolBlock(kind="w", payload=found), TextBlock("Four.")])
    assert raw_input_tokens(with_it) - raw_input_tokens(plain) > 900
    picture = ServerToolBlock(kind="image_generation_call", payload={"result": "A" * 4_000_000})
    assert raw_input_tokens(Conversation.of("Draw.").assistant([picture])) < 10_000, "a picture is no text"


@pytest.mark.parametrize("key", ["anthropic-direct", "openai", "gemini"])
async def test_the_journal_gives_the_same_block_byte_for_byte(bench, wires, key):
    client, _ = bench.client(wires[key])
    bench.script(Step.answer("Four.", server_tools=USED[key]), Step.answer("Yes."), Step.answer("Yes."))
    response = await client.single_response("Look.")
    read = loads(dumps(response, "the answer"), "the answer")
    assert read == response
    assert [one.signed_by for one in own(read)] == [one.signed_by for one in own(response)]
    bodies = []
    for one in (response, read):
        await client.single_response(Conversation.of("Look.").assistant(one.blocks).user("Sure?"))
        bodies.append(json.dumps(bench.sent))
    assert bodies[0] == bodies[1]


def test_a_payload_with_the_journals_own_mark_comes_back():
    odd = ServerToolBlock(kind="w", payload={"!": "tuple", "v": [1.5, None, {"!": 1}]}, signed_by="anthropic")
    read = loads(dumps(odd, "it"), "it")
    assert (read, read.signed_by) == (odd, "anthropic")


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
async def test_cache_marks_leave_it_as_it_came(bench, anthropic, streamed):
    client, _ = bench.client(anthropic, caching="marks")
    bench.script(Step.answer("So far.", server_tools=(SEARCH, FOUND), stop_reason="pause_turn"), Step.answer("Four."))
    await asked(client, "Look.", streamed=streamed, options=CallOptions(cache=True))
    assert sent_back(bench)[:2] == [SEARCH, FOUND]
    assert "cache_control" in sent_back(bench)[2]
    bench.script(Step.answer(server_tools=(SEARCH, FOUND), stop_reason="pause_turn"), Step.answer("Four."))
    await asked(client, "Look.", streamed=streamed, options=CallOptions(cache=True))
    assert sent_back(bench) == [SEARCH, FOUND]
    assert "cache_control" in bench.sent["messages"][0]["content"][-1]


async def test_a_pause_that_is_cancelled_settles_what_was_seen(bench, anthropic, until):
    client, seat = bench.client(anthropic)
    bench.script(Step.answer(server_tools=(SEARCH,), stop_reason="pause_turn"), Step.stall())
    task = asyncio.create_task(client.stream_response("Look.").finish())
    await until(lambda: bench.provider.count == 2)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    seat.check_books()
