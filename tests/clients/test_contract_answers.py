"""What every chat provider must do, through its real SDK against a loopback provider: answers, tools, gates, counts."""

from __future__ import annotations

import asyncio
from decimal import Decimal
from typing import Any

import pytest
from pydantic import BaseModel

from interlock.admission.outcome import OutcomeKind
from interlock.clients.conversation import Conversation, TextBlock, ToolResultBlock
from interlock.clients.options import CallOptions, Tool
from interlock.clients.response import Piece, PieceKind, StopReason
from interlock.clients.simulator import Framing, Step, ToolCall
from interlock.errors import (
    ContextWindowExceededError,
    EmptyResponseError,
    OutputTruncatedError,
    ProviderRefusalError,
    ResponseShapeError,
    UpstreamError,
)

from .conftest import asked

WEATHER = Tool("weather", "The weather of a place.", {
    "type": "object", "properties": {"place": {"type": "string"}}, "required": ["place"]})  # fmt: skip


class Review(BaseModel):
    title: str
    stars: int


async def read(stream: Any) -> list[Piece]:
    async with stream as pieces:
        return [piece async for piece in pieces]


# A plain answer, whole and in pieces.


async def test_answer_has_all_that_is_known(bench, wire):
    client, seat = bench.client(wire, keep_text=True)
    bench.script(Step.answer("Good morning.", input_tokens=20, output_tokens=4))
    response = await client.single_response("Say good morning.")
    assert response.text == "Good morning."
    assert response.stop_reason is StopReason.END_TURN
    assert (response.usage.input_tokens, response.usage.output_tokens) == (20, 4)
    assert response.usage.estimated is False
    assert response.cost == (20 * Decimal(3) + 4 * Decimal(15)) / 1_000_000
    assert (response.model, response.provider, response.currency) == ("the-model", wire.key, "USD")
    assert response.served_model == ("wire-model" if wire.names_model else None)
    assert response.request_id
    record = seat.last
    assert record.outcome == "ok"
    assert record.error is None
    assert record.text == "Good morning."
    assert record.request_id == response.request_id
    assert record.stop_reason == "end_turn"
    assert len(record.request_hash) == 64
    assert seat.permits[0].outcome.usage == response.usage
    seat.check_books()


async def test_text_is_not_recorded_unless_asked(bench, wire):
    client, seat = bench.client(wire)
    await client.single_response("Say good morning.")
    assert seat.last.text is None


async def test_streamed_equals_whole(bench, wire):
    client, seat = bench.client(wire)
    for _ in range(2):
        bench.script(
            Step.answer("One two three four five six seven.", thinking="Hmm." if wire.speaks == "anthropic" else None)
        )
    whole = await client.single_response("Count.")
    pieces = await read(stream := client.stream_response("Count."))
    assert "".join(piece.text for piece in pieces if piece.kind is PieceKind.TEXT) == whole.text
    assert [piece.kind for piece in pieces[-1:]] == [PieceKind.RESPONSE]
    assert len(pieces) > 2
    streamed = stream.response
    assert pieces[-1].response is streamed
    assert (streamed.text, streamed.stop_reason, streamed.usage) == (whole.text, whole.stop_reason, whole.usage)
    assert streamed.thinking == whole.thinking
    assert streamed.first_piece_s is not None
    assert seat.last.first_piece_s is not None
    assert seat.records[0].request_hash != seat.records[1].request_hash
    seat.check_books()


async def test_what_was_reserved_is_what_is_sent(bench, wire):
    client, seat = bench.client(wire, input_tokens=77, output_tokens=321)
    await client.single_response(Conversation.of("Hello.", system="Be brief."))
    assert (seat.permits[0].input_tokens, seat.permits[0].output_tokens) == (77, 321)
    seen = bench.provider.requests[-1]
    assert seen.ask.max_output_tokens == 321
    assert seen.ask.system == "Be brief."
    assert seen.ask.text == "Hello."
    assert seen.model == "wire-model"


@pytest.mark.parametrize("framing", [
    Framing(line_ending="\r\n"), Framing(line_ending="\r"), Framing(bytes_per_write=1), Framing(bytes_per_write=3),
    Framing(comments=True), Framing(space_after_colon=False), Framing(bom=True), Framing(bom=True, bytes_per_write=1),
    Framing(final_blank_line=False), Framing(final_blank_line=False, line_ending="\r\n", bytes_per_write=1),
], ids=["crlf", "cr", "one-byte", "three-bytes", "comments", "no-space", "bom", "bom-in-bytes", "no-end",
        "no-end-in-bytes"])  # fmt: skip
async def test_b28_sse_line_splitting(bench, wire, framing):
    text = "a\u2028b\u0085c\u2029 漢字 🙂 end"
    client, _ = bench.client(wire)
    bench.script(Step.answer(text, framing=framing))
    pieces = await read(client.stream_response("Echo."))
    assert "".join(piece.text for piece in pieces) == text
    assert not pieces[-1].response.usage.estimated, "no event was lost"


# Tools.


async def test_tool_call_and_its_result(bench, wire):
    client, seat = bench.client(wire)
    options = CallOptions(tools=(WEATHER,), tool_choice="any")
    bench.script(Step.answer(tool_calls=[ToolCall(name="weather", input={"place": "Oslo"}, id="call_1")]))
    question = Conversation.of("How is the weather in Oslo?")
    response = await client.single_response(question, options=options)
    assert response.stop_reason is StopReason.TOOL_USE
    (call,) = response.tool_calls
    assert (call.id, call.name, dict(call.input)) == ("call_1", "weather", {"place": "Oslo"})
    bench.script(Step.answer("It rains."))
    reply = (ToolResultBlock(tool_use_id="call_1", content="rain", is_error=True),)
    further = question.assistant(response.blocks).user(reply)
    assert (await client.single_response(further, options=options)).text == "It rains."
    assert seat.kinds == [OutcomeKind.COMPLETED] * 2


async def test_parallel_tool_calls_stream_whole(bench, wire):
    client, _ = bench.client(wire)
    calls = [ToolCall(name="weather", input={"place": place}) for place in ("Oslo", "Rome", "Lima")]
    bench.script(Step.answer("Looking.", tool_calls=calls))
    pieces = await read(stream := client.stream_response("Weather?", options=CallOptions(tools=(WEATHER,))))
    assert [call.input["place"] for call in stream.response.tool_calls] == ["Oslo", "Rome", "Lima"]
    assert len({call.id for call in stream.response.tool_calls}) == 3
    assert any(piece.kind is PieceKind.TOOL_JSON for piece in pieces)
    assert stream.response.text == "Looking."


@pytest.mark.parametrize("raw", ["", " ", "{}"], ids=["nothing", "blank", "object"])
@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
async def test_b44_empty_tool_arguments(bench, openai, raw, streamed):
    client, _ = bench.client(openai)
    bench.script(Step.answer(tool_calls=[ToolCall(name="weather", input=raw)]))
    options = CallOptions(tools=(WEATHER,))
    response = await asked(client, "Weather?", streamed=streamed, options=options)
    assert dict(response.tool_calls[0].input) == {}


@pytest.mark.parametrize("raw", ["{}{}", "[]", "null", '{"a": '], ids=["two", "list", "null", "cut"])
async def test_b44_wrong_tool_arguments_cost_a_correction(bench, openai, raw):
    client, seat = bench.client(openai)
    bench.script(Step.answer(tool_calls=[ToolCall(name="weather", input=raw, id="call_9"),
                                         ToolCall(name="weather", input={"place": "Rome"}, id="call_10")]))  # fmt: skip
    with pytest.raises(ResponseShapeError) as caught:
        await client.single_response("Weather?", options=CallOptions(tools=(WEATHER,)))
    answered = [block.tool_use_id for block in caught.value.correction.messages[-1].blocks]
    assert answered == ["call_9", "call_10"]
    assert seat.last.outcome == "response_shape"
    assert seat.kinds == [OutcomeKind.COMPLETED]


async def test_b44_a_call_without_arguments_streams(bench, wire):
    client, _ = bench.client(wire)
    bench.script(Step.answer(tool_calls=[ToolCall(name="weather", input={})]))
    async with client.stream_response("Weather?", options=CallOptions(tools=(WEATHER,))) as pieces:
        response = await pieces.finish()
    assert dict(response.tool_calls[0].input) == {}


# What stands between an answer and its caller.


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("reply", ['{"title": "Fi', '{"title": "Fine", "stars": 4}'], ids=["cut", "parses"])
async def test_b12_truncated_json_reasked(bench, wire, streamed, reply):
    client, seat = bench.client(wire, output_tokens=64)
    bench.script(Step.truncated(reply))
    with pytest.raises(OutputTruncatedError) as caught:
        await asked(client, "Review it.", streamed=streamed, response_model=Review)
    assert caught.value.limit == 64
    assert caught.value.partial == reply
    assert caught.value.usage.output_tokens == 64
    assert seat.last.outcome == "output_truncated"
    assert seat.permits[0].outcome.kind is OutcomeKind.COMPLETED


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
async def test_b15_refusal_shapes(bench, wire, streamed):
    client, seat = bench.client(wire)
    bench.script(Step.refusal("bio", "I cannot help with that."))
    with pytest.raises(ProviderRefusalError) as caught:
        await asked(client, "Tell me.", streamed=streamed, response_model=Review)
    error = caught.value
    assert error.explanation == "I cannot help with that."
    assert error.usage.input_tokens > 0
    assert not error.retryable
    assert (seat.last.outcome, seat.last.stop_reason) == ("provider_refusal", "refusal")
    assert seat.last.usage.input_tokens == error.usage.input_tokens
    assert seat.kinds == [OutcomeKind.COMPLETED]


async def test_b71_an_empty_answer_is_its_own_class(bench, wire):
    client, seat = bench.client(wire)
    bench.script(Step.answer("", output_tokens=0), Step.answer("", output_tokens=0))
    with pytest.raises(EmptyResponseError) as caught:
        await client.single_response("Say something.")
    assert caught.value.retryable
    with pytest.raises(EmptyResponseError):
        await read(client.stream_response("Say something."))
    assert seat.kinds == [OutcomeKind.COMPLETED] * 2


async def test_b71_all_output_went_to_thinking(bench, anthropic):
    client, seat = bench.client(anthropic)
    bench.script(
        Step.truncated(None).on(), Step.answer("", thinking="Hm, hm.", stop_reason="max_tokens", output_tokens=64)
    )
    for _ in range(2):
        with pytest.raises(OutputTruncatedError):
            await client.single_response("Think.")
    assert seat.last.usage.output_tokens == 64


async def test_context_window_is_not_a_bad_request(bench, wire):
    client, seat = bench.client(wire)
    text = ("prompt is too long: 210000 tokens > 200000 maximum" if wire.speaks == "anthropic"
            else "This model's maximum context length is 8192 tokens.")  # fmt: skip
    bench.script(Step.status(400, message=text))
    with pytest.raises(ContextWindowExceededError) as caught:
        await client.single_response("Long.")
    assert caught.value.status == 400
    assert seat.kinds == [OutcomeKind.REJECTED]
    assert seat.last.cost == 0


# Counting.


async def test_b03_requests_records_and_permits_are_the_same_number(bench, wire):
    client, seat = bench.client(wire)
    steps = [Step.answer("Fine."), Step.rate_limited(), Step.status(529), Step.server_error(), Step.quota(),
             Step.cut(1, "close"), Step.refusal(), Step.truncated(), Step.html(), Step.answer("Fine.")]  # fmt: skip
    bench.script(*steps)
    for number in range(len(steps)):
        try:
            if number % 2:
                await read(client.stream_response("Hello there, all of you."))
            else:
                await client.single_response("Hello there, all of you.")
        except UpstreamError:
            pass
    assert bench.provider.count == len(steps) == len(seat.permits) == len(seat.records)
    seat.check_books()


async def test_many_calls_at_once_share_the_connections(bench, wire):
    client, seat = bench.client(wire, settings={"max_connections": 4})
    responses = await asyncio.gather(*(client.single_response(f"Number {number}.") for number in range(12)))
    assert len({response.request_id for response in responses}) == 12
    assert seat.kinds == [OutcomeKind.COMPLETED] * 12


async def test_text_blocks_and_conversations_stand_for_each_other(bench, wire):
    client, seat = bench.client(wire)
    await client.single_response("Hello.")
    await client.single_response(Conversation.of("Hello."))
    await client.single_response(Conversation.of([TextBlock("Hello.")]))
    assert len({record.request_hash for record in seat.records}) == 1


async def test_the_missions_own_spellings(bench, wire):
    client, _ = bench.client(wire)
    assert (await client.singleResponse("Hello.")).text
    assert (await read(client.streamResponse("Hello.")))[-1].response is not None
    assert client.getUpstreamRetries() == 3
