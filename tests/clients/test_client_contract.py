"""What every chat provider must do, driven through its real SDK against a loopback provider."""

from __future__ import annotations

import asyncio
from decimal import Decimal
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field, TypeAdapter

from interlock.admission.outcome import OutcomeKind
from interlock.catalog.usage import Usage
from interlock.clients.conversation import Conversation, TextBlock, ToolResultBlock
from interlock.clients.options import CallOptions, StreamingMode, Tool
from interlock.clients.response import Piece, PieceKind, StopReason
from interlock.clients.simulator import Framing, Step, ToolCall
from interlock.errors import (
    ContextWindowExceededError,
    CredentialError,
    EmptyResponseError,
    InvalidRequestError,
    MalformedResponseError,
    OutputTruncatedError,
    OverloadedError,
    ProviderRefusalError,
    QuotaExhaustedError,
    RateLimitedError,
    ResponseShapeError,
    StreamBufferError,
    StreamInterruptedError,
    TransientUpstreamError,
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


async def noted(stream: Any, seen: list[str]) -> None:
    """Read a stream, noting each text as it comes."""
    async with stream as pieces:
        async for piece in pieces:
            seen.append(piece.text)


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
    assert response.served_model == "wire-model"
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
    Framing(comments=True, bom=False), Framing(space_after_colon=False),
], ids=["crlf", "cr", "one-byte", "three-bytes", "comments", "no-space"])  # fmt: skip
async def test_b28_sse_line_splitting(bench, wire, framing):
    text = "a\u2028b\u0085c\u2029 漢字 🙂 end"
    client, _ = bench.client(wire)
    bench.script(Step.answer(text, framing=framing))
    pieces = await read(client.stream_response("Echo."))
    assert "".join(piece.text for piece in pieces) == text


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


# Typed answers.


@pytest.mark.parametrize("mode", ["native", "tool", "tool_auto", "prompt"])
@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
async def test_typed_answer(bench, wire, mode, streamed):
    client, seat = bench.client(wire, structured=mode)
    given = {"native": {"json": {"title": "Fine", "stars": 4}}, "tool": {"json": {"title": "Fine", "stars": 4}},
             "tool_auto": {"tool_calls": [ToolCall(name="Review", input={"title": "Fine", "stars": 4})]},
             "prompt": {"text": 'Sure:\n```json\n{"title": "Fine", "stars": 4}\n```'}}[mode]  # fmt: skip
    bench.script(Step.answer(**given))
    response = await asked(client, "Review it.", streamed=streamed, response_model=Review)
    assert response.parsed == Review(title="Fine", stars=4)
    assert response.stop_reason is StopReason.END_TURN
    assert response.tool_calls == ()
    assert seat.kinds == [OutcomeKind.COMPLETED]
    # What it said goes back as it is, and the next turn is accepted.
    await client.single_response(Conversation.of("Review it.").assistant(response.blocks).user("Thanks."))


async def test_the_simulated_provider_fills_the_schema(bench, wire):
    client, _ = bench.client(wire)
    response = await client.single_response("Review the coffee of this place.", response_model=Review)
    assert isinstance(response.parsed, Review)


@pytest.mark.parametrize("mode", ["native", "tool", "prompt"])
async def test_b42_wrong_shape_carries_usage_and_a_correction(bench, wire, mode):
    client, seat = bench.client(wire, structured=mode)
    wrong: dict[str, Any] = {"title": "Fine", "stars": "many"}
    bench.script(Step.answer(json=wrong, input_tokens=10, output_tokens=5) if mode != "prompt"
                 else Step.answer("Four stars.", input_tokens=10, output_tokens=5))  # fmt: skip
    question = Conversation.of("Review it.")
    with pytest.raises(ResponseShapeError) as caught:
        await client.single_response(question, response_model=Review)
    error = caught.value
    assert (error.usage.input_tokens, error.usage.output_tokens) == (10, 5)
    assert len(error.problems) == 1
    assert question == Conversation.of("Review it."), "the caller's conversation is not touched"
    assert error.correction.messages[: len(question.messages)] == question.messages
    # The correction is a turn that the provider takes, and the model is told what was wrong.
    bench.script(Step.answer(json={"title": "Fine", "stars": 4}) if mode != "prompt"
                 else Step.answer('{"title": "Fine", "stars": 4}'))  # fmt: skip
    response = await client.single_response(error.correction, response_model=Review)
    assert response.parsed == Review(title="Fine", stars=4)
    assert "stars" in bench.provider.requests[-1].text or mode == "prompt"
    assert [record.outcome for record in seat.records] == ["response_shape", "ok"]
    seat.check_books()


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


# Every class of failure, alone and as the first thing of a stream.

FAILURES = [
    (Step.rate_limited(7), RateLimitedError, OutcomeKind.RATE_LIMITED),
    (Step.rate_limited(None), RateLimitedError, OutcomeKind.RATE_LIMITED),
    (Step.status(529), OverloadedError, OutcomeKind.OVERLOADED),
    (Step.server_error(500), TransientUpstreamError, OutcomeKind.UNKNOWN),
    (Step.server_error(503), TransientUpstreamError, OutcomeKind.UNKNOWN),
    (Step.html(502), TransientUpstreamError, OutcomeKind.UNKNOWN),
    (Step.status(408), TransientUpstreamError, OutcomeKind.UNKNOWN),
    (Step.status(409), TransientUpstreamError, OutcomeKind.UNKNOWN),
    (Step.status(424), TransientUpstreamError, OutcomeKind.UNKNOWN),
    (Step.quota(), QuotaExhaustedError, OutcomeKind.REJECTED),
    (Step.status(402), QuotaExhaustedError, OutcomeKind.REJECTED),
    (Step.status(401), CredentialError, OutcomeKind.REJECTED),
    (Step.status(403), CredentialError, OutcomeKind.REJECTED),
    (Step.status(400), InvalidRequestError, OutcomeKind.REJECTED),
    (Step.status(404), InvalidRequestError, OutcomeKind.REJECTED),
    (Step.status(413), InvalidRequestError, OutcomeKind.REJECTED),
    (Step.status(422, b""), InvalidRequestError, OutcomeKind.REJECTED),
    (Step.status(307, b"", {"location": "http://127.0.0.1:1/"}), InvalidRequestError, OutcomeKind.REJECTED),
]


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize(
    ("step", "class_", "kind"), FAILURES, ids=[f"{step.name}-{at}" for at, (step, _, _) in enumerate(FAILURES)]
)
async def test_b03_each_failure_is_one_request_of_its_class(bench, wire, step, class_, kind, streamed):
    client, seat = bench.client(wire)
    bench.script(step)
    with pytest.raises(UpstreamError) as caught:
        await asked(client, "Hello.", streamed=streamed)
    error = caught.value
    assert type(error) is class_
    assert (error.model, error.provider) == ("the-model", wire.key)
    if step.failure is not None and step.failure.status is not None:
        assert error.status == step.failure.status
    assert error.__cause__ is None
    assert error.__context__ is None
    assert bench.provider.count == 1
    assert seat.kinds == [kind]
    assert seat.last.outcome == error.code
    if error.status == 408:
        assert seat.last.usage.estimated, "behind a gateway's timeout the answer may have been made, and billed"
    else:
        assert seat.last.cost == 0, "an error is not billed"
        assert seat.last.usage == Usage()
    seat.check_books()


async def test_the_hint_and_the_request_id_travel(bench, wire):
    client, seat = bench.client(wire)
    bench.script(Step.rate_limited(7))
    with pytest.raises(RateLimitedError) as caught:
        await client.single_response("Hello.")
    assert caught.value.retry_after_s == 7
    assert caught.value.request_id
    assert seat.last.request_id == caught.value.request_id
    assert seat.permits[0].outcome.retry_after_s == 7


@pytest.mark.parametrize("hint", [60, 61, 600, 133107])
async def test_b48_long_retry_after(bench, wire, hint):
    client, seat = bench.client(wire)
    bench.script(Step.rate_limited(hint))
    with pytest.raises(RateLimitedError) as caught:
        await client.single_response("Hello.")
    assert caught.value.retry_after_s == hint
    assert seat.permits[0].outcome.retry_after_s == hint
    assert bench.provider.count == 1


async def test_b11_quota_is_one_request(bench, wire):
    client, seat = bench.client(wire)
    bench.script(Step.quota())
    with pytest.raises(QuotaExhaustedError) as caught:
        await client.single_response("Hello.")
    assert not caught.value.retryable
    assert bench.provider.count == 1
    assert seat.kinds == [OutcomeKind.REJECTED]


# Errors inside a stream that began with 200, and streams that end too early.


@pytest.mark.parametrize("after", [None, 0], ids=["only-event", "after-start"])
async def test_b01_sse_error_under_200_before_the_first_piece(bench, wire, after):
    client, seat = bench.client(wire)
    bench.script(Step.stream_error(after_pieces=after))
    with pytest.raises(OverloadedError) as caught:
        await read(client.stream_response("Hello."))
    assert caught.value.retryable
    assert seat.kinds == [OutcomeKind.OVERLOADED]
    # ... and the next attempt is as if nothing had been.
    bench.script(Step.answer("Fine."))
    assert (await read(client.stream_response("Hello.")))[-1].response.text == "Fine."


async def test_b01_sse_error_after_the_first_piece(bench, wire):
    client, seat = bench.client(wire)
    bench.script(Step.stream_error(after_pieces=2))
    seen: list[str] = []
    with pytest.raises(StreamInterruptedError) as caught:
        await noted(client.stream_response("Tell me a story of some length, please."), seen)
    error = caught.value
    assert error.partial == "".join(seen)
    assert error.partial
    assert not error.retryable
    assert bench.provider.count == 1, "not sent again behind the caller's back"
    assert seat.last.outcome == "stream_interrupted"
    assert seat.kinds == [OutcomeKind.OVERLOADED], "the throttle hears of it all the same"
    assert seat.last.usage.output_tokens > 0


@pytest.mark.parametrize("kind", ["rate_limit_error", "api_error"])
async def test_b01_other_errors_inside_a_stream(bench, wire, kind):
    client, seat = bench.client(wire)
    bench.script(Step.stream_error(kind, "No."))
    with pytest.raises(RateLimitedError if kind == "rate_limit_error" else TransientUpstreamError):
        await read(client.stream_response("Hello."))
    assert seat.kinds == [OutcomeKind.RATE_LIMITED if kind == "rate_limit_error" else OutcomeKind.UNKNOWN]


@pytest.mark.parametrize("how", ["clean", "close", "reset"])
@pytest.mark.parametrize("after", [None, 0, 2], ids=["nothing", "start", "two-pieces"])
async def test_b02_b13_a_stream_that_ends_too_early_is_no_success(bench, wire, how, after):
    client, seat = bench.client(wire)
    bench.script(Step.cut(after, how))
    with pytest.raises(UpstreamError) as caught:
        await read(client.stream_response("Tell me a story of some length, please."))
    error = caught.value
    if after == 2:
        assert type(error) is StreamInterruptedError
        assert error.partial
    else:
        assert type(error) in (TransientUpstreamError, MalformedResponseError)
        assert error.retryable
    assert seat.kinds == [OutcomeKind.UNKNOWN]
    assert seat.last.usage.estimated
    assert seat.last.cost > 0, "the provider may bill it"
    assert bench.provider.count == 1
    seat.check_books()


@pytest.mark.parametrize("how", ["close", "reset"])
async def test_b21_a_whole_answer_that_is_lost(bench, wire, how):
    client, seat = bench.client(wire, input_tokens=50, output_tokens=1_000)
    bench.script(Step.cut(0, how))
    with pytest.raises(TransientUpstreamError) as caught:
        await client.single_response("Hello.")
    assert caught.value.sent
    assert seat.kinds == [OutcomeKind.UNKNOWN]
    assert seat.last.usage == Usage(input_tokens=50, output_tokens=1_000, estimated=True)
    assert seat.last.cost == (50 * Decimal(3) + 1_000 * Decimal(15)) / 1_000_000


async def test_b21_a_connection_that_was_never_made_refunds_everything(bench, wire):
    client, seat = bench.client(wire, base_url="http://127.0.0.1:9/v1")
    with pytest.raises(TransientUpstreamError) as caught:
        await client.single_response("Hello.")
    assert caught.value.sent is False
    assert seat.kinds == [OutcomeKind.UNSENT]
    assert seat.last.cost == 0
    assert bench.provider.count == 0


# What is not of the wire.


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize(
    "step",
    [
        Step.html(),
        Step.body(b"[]", "application/json"),
        Step.body(b"null", "application/json"),
        Step.body(b"{}", "application/json"),
        Step.body(b'{"type": "mess', "application/json"),
        Step.body(b"", "application/json", status=204),
        Step.body(b"\x1f\x8bbroken", "application/json", headers={"content-encoding": "gzip"}),
        Step.body(b"\xff\xfe\x00", "application/json"),
        Step.body(b"[" * 100_000, "application/json"),
        Step.body(b"hello", "text/plain"),
    ],
    ids=["html", "list", "null", "empty-object", "cut-json", "204", "broken-gzip", "not-utf8", "deep", "text"],
)
async def test_b63_html_200(bench, wire, step, streamed):
    client, seat = bench.client(wire)
    bench.script(step)
    with pytest.raises(TransientUpstreamError) as caught:
        await asked(client, "Hello.", streamed=streamed)
    assert len(str(caught.value)) < 700
    if step.name == "html":
        assert type(caught.value) is MalformedResponseError
        assert "127.0.0.1" in str(caught.value)
        assert "text/html" in str(caught.value)
    assert seat.kinds in ([OutcomeKind.UNKNOWN], [OutcomeKind.COMPLETED])
    assert bench.provider.count == 1
    seat.check_books()


@pytest.mark.parametrize("event", [
    "not json", "[1, 2]", "null", '"text"', "{}", '{"type": 7}', '{"choices": 3}', '{"choices": [7]}',
    '{"type": "content_block_delta", "index": 0}', '{"type": "message_start"}',
    '{"choices": [{"delta": {"tool_calls": [7]}}]}', "{" * 50, "[" * 100_000, "\ud83d".encode("utf-8", "surrogatepass"),
], ids=range(14))  # fmt: skip
async def test_an_event_that_is_not_of_the_wire(bench, wire, event):
    client, seat = bench.client(wire)
    data = event if isinstance(event, bytes) else event.encode()
    bench.script(Step.events(b"event: content_block_delta\ndata: " + data + b"\n\n"))
    with pytest.raises(TransientUpstreamError):
        await read(client.stream_response("Hello."))
    seat.check_books()


# SAFE streams.


async def test_a_safe_stream_delivers_nothing_of_a_broken_answer(bench, wire):
    client, seat = bench.client(wire)
    bench.script(Step.stream_error(after_pieces=2), Step.answer("All of it."))
    stream = client.stream_response("Tell me a story of some length, please.", mode=StreamingMode.SAFE)
    with pytest.raises(OverloadedError):
        await read(stream)
    pieces = await read(client.stream_response("Again.", mode=StreamingMode.SAFE))
    assert "".join(piece.text for piece in pieces) == "All of it."
    assert seat.kinds == [OutcomeKind.OVERLOADED, OutcomeKind.COMPLETED]


async def test_a_safe_stream_has_a_bound(bench, wire, until, monkeypatch):
    monkeypatch.setattr("interlock.clients.stream.BUFFER_LIMIT", 20)
    client, seat = bench.client(wire)
    bench.script(Step.stall(4))
    with pytest.raises(StreamBufferError):
        await client.stream_response("Tell me a story of some length, please.", mode=StreamingMode.SAFE).finish()
    assert seat.kinds == [OutcomeKind.ABANDONED]
    await until(lambda: bench.provider.requests[-1].cut == "client")
    seat.check_books()


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


# Schemas, against a server that refuses what the real ones refuse.


class Circle(BaseModel):
    kind: Literal["circle"]
    radius: float = Field(gt=0)


class Square(BaseModel):
    kind: Literal["square"]
    side: float


class Drawing(BaseModel):
    name: str = Field(max_length=40, pattern="^[a-z ]*$")
    shape: Annotated[Circle | Square, Field(discriminator="kind")]
    colour: Literal["red", "blue"] = "red"
    note: str | None = None
    tags: Annotated[list[str], Field(max_length=3)] = []


class Branch(BaseModel):
    word: str
    branches: list[Branch] = []


class Counts(BaseModel):
    by_word: dict[str, int]


@pytest.mark.parametrize(("wanted", "given"), [
    (Drawing, {"name": "one", "shape": {"kind": "circle", "radius": 1.5}, "colour": "blue", "note": None, "tags": []}),
    (Branch, {"word": "a", "branches": [{"word": "b", "branches": []}]}),
    (Counts, {"by_word": {"a": 1}}),
    (list[Circle], {"value": [{"kind": "circle", "radius": 2.0}]}),
    (int, {"value": 7}),
], ids=["nested", "recursive", "free-keys", "list", "number"])  # fmt: skip
@pytest.mark.parametrize("mode", ["native", "tool"])
async def test_b70_schemas_that_a_strict_server_takes(bench, wire, mode, wanted, given):
    client, _ = bench.client(wire, structured=mode)
    bench.script(Step.answer(json=given))
    response = await client.single_response("Draw it.", response_model=wanted)
    assert TypeAdapter(wanted).dump_python(response.parsed) == given.get("value", given)
    assert bench.provider.count == 1


async def test_b70_a_schema_that_a_server_refuses_is_not_asked_again(bench, wire):
    client, seat = bench.client(wire)
    bench.script(Step.status(400, message="Invalid schema for response_format"))
    with pytest.raises(InvalidRequestError) as caught:
        await client.single_response("Review it.", response_model=Review)
    assert not caught.value.retryable
    assert seat.kinds == [OutcomeKind.REJECTED]
