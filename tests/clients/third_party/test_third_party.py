"""The contract, as far as each of these servers speaks it: what no server of ours could tell us we got wrong.

Several cases stand in one test: what takes time is to begin. Where a server is wrong about a wire, the test says so.
"""

from __future__ import annotations

import contextlib

import pytest
from pydantic import BaseModel

from interlock.admission.outcome import Dimension, OutcomeKind
from interlock.clients.conversation import Conversation, ToolResultBlock
from interlock.clients.options import CallOptions, Tool
from interlock.clients.response import PieceKind, StopReason
from interlock.errors import (
    CredentialError,
    InvalidRequestError,
    OverloadedError,
    RateLimitedError,
    ResponseShapeError,
    StreamInterruptedError,
    TransientUpstreamError,
    UpstreamError,
)

from ..conftest import asked

WEATHER = Tool("weather", "The weather of a place.", {
    "type": "object", "properties": {"place": {"type": "string"}}, "required": ["place"]})  # fmt: skip
TEXT = "It is warm, and nobody minds."
STORY = "Tell me a story of some length, please."


class Review(BaseModel):
    title: str
    stars: int


async def test_an_answer_and_its_usage(third, server, spoken):
    said = TEXT if "answer" in server.can else server.ANSWER
    client, seat = third.make(input_tokens=5_000, output_tokens=1_000)
    for streamed in spoken.ways:
        if "answer" in server.can:
            server.answer(TEXT)
        response = await asked(client, "How is it?", streamed=streamed)
        assert response.text == said
        assert response.stop_reason is StopReason.END_TURN
        usage = response.usage
        assert not usage.estimated
        assert 0 < usage.input_tokens < 1_000
        assert 0 < usage.output_tokens < 1_000
        assert seat.permits[-1].outcome.usage == usage
        assert response.cost > 0
        assert seat.last.outcome == "ok"
    assert seat.kinds == [OutcomeKind.COMPLETED] * len(spoken.ways)
    assert server.count() == len(seat.records) == len(spoken.ways)
    seat.check_books()


@pytest.mark.needs("answer", "stream")
async def test_streamed_pieces_make_the_text(third, server):
    server.answer(TEXT)
    client, _ = third.make()
    async with client.stream_response("How is it?") as pieces:
        seen = [piece async for piece in pieces]
    assert "".join(piece.text for piece in seen if piece.kind is PieceKind.TEXT) == TEXT
    assert len(seen) > 2
    assert seen[-1].kind is PieceKind.RESPONSE


@pytest.mark.needs("tool")
async def test_a_tool_call_and_its_result(third, server, streamed):
    server.call_tool("weather", {"place": "Oslo"})
    client, seat = third.make()
    options = CallOptions(tools=(WEATHER,))
    question = Conversation.of("How is the weather in Oslo?")
    response = await asked(client, question, streamed=streamed, options=options)
    assert response.stop_reason is StopReason.TOOL_USE
    (call,) = response.tool_calls
    assert (call.name, dict(call.input)) == ("weather", {"place": "Oslo"})
    server.answer(TEXT)
    further = question.assistant(response.blocks).user((ToolResultBlock(tool_use_id=call.id, content="warm"),))
    assert (await asked(client, further, streamed=streamed, options=options)).text == TEXT
    assert server.count() == len(seat.records) == 2


@pytest.mark.needs("typed")
async def test_a_typed_answer(third, spoken):
    # llmock reads Anthropic's schema where a beta once had it (`output_format`), and answers prose to where it is now
    # (`output_config.format`).
    native = spoken.wire.key != "anthropic-direct"
    client, seat = third.make(structured="native" if native else "tool")
    for streamed in spoken.ways:
        response = await asked(client, "Review it.", streamed=streamed, response_model=Review)
        assert isinstance(response.parsed, Review)
    assert seat.kinds == [OutcomeKind.COMPLETED] * 2
    if not native:
        client, _ = third.make(structured="native")
        with pytest.raises(ResponseShapeError):
            await asked(client, "Review it.", streamed=False, response_model=Review)


FAILURES = {
    400: (InvalidRequestError, OutcomeKind.REJECTED),
    401: (CredentialError, OutcomeKind.REJECTED),
    429: (RateLimitedError, OutcomeKind.RATE_LIMITED),
    500: (TransientUpstreamError, OutcomeKind.UNKNOWN),
    503: (TransientUpstreamError, OutcomeKind.UNKNOWN),
    529: (OverloadedError, OutcomeKind.OVERLOADED),
}


async def test_each_failure_is_one_request_and_its_class(third, server, spoken, streamed):
    made = []
    for status in server.statuses:
        server.fail(status)
        client, seat = third.make()
        made.append(seat)
        expected = FAILURES[status]
        if status == 503 and server.name == "llmock" and spoken.wire.speaks == "anthropic":
            expected = FAILURES[529]  # the body of its 503 says `overloaded_error`
        with pytest.raises(UpstreamError) as caught:
            await asked(client, "How is it?", streamed=streamed)
        assert (type(caught.value), *seat.kinds) == expected, status
        assert caught.value.status == status
        seat.check_books()
    assert server.count() == sum(len(seat.records) for seat in made) == len(made)


@pytest.mark.needs("fail")
async def test_b08_retry_after_is_read(third, server, spoken):
    client, seat = third.make()
    for streamed in spoken.ways:
        server.fail(429, retry_after_s=7)
        with pytest.raises(RateLimitedError) as caught:
            await asked(client, "How is it?", streamed=streamed)
        assert caught.value.retry_after_s == 7
        assert seat.permits[-1].outcome.retry_after_s == 7


@pytest.mark.needs("limits")
async def test_a_real_limit_is_read_from_headers_and_binds(third, server, spoken):
    client, seat = third.make(output_tokens=3_900)
    for _ in range(5):  # its bucket holds 20,000 tokens, and each call asks for a little more than 3,900
        await asked(client, "How is it?", streamed=False)
    with pytest.raises(RateLimitedError) as caught:
        await asked(client, "How is it?", streamed=False)
    assert seat.kinds == [OutcomeKind.COMPLETED] * 5 + [OutcomeKind.RATE_LIMITED]
    assert 0 < caught.value.retry_after_s <= 60
    if spoken.wire.speaks != "gemini":  # which has no such headers
        for permit in seat.permits:
            limits = permit.outcome.reported
            assert limits[Dimension.REQUESTS].limit == 500
            assert limits[Dimension.TOKENS].limit == 20_000
        assert seat.permits[0].outcome.reported[Dimension.REQUESTS].remaining == 499


@pytest.mark.needs("disconnect", "stream")
async def test_b13_a_connection_that_is_lost_in_a_stream(third, server):
    server.break_stream("disconnect")
    client, seat = third.make()
    with pytest.raises(StreamInterruptedError) as caught:
        await asked(client, STORY, streamed=True)
    assert caught.value.partial
    assert seat.kinds == [OutcomeKind.UNKNOWN]
    assert seat.last.usage.estimated
    assert server.count() == len(seat.records) == 1
    seat.check_books()


@pytest.mark.needs("drop")
async def test_b21_a_connection_that_is_lost_before_the_answer(third, server, streamed):
    server.break_stream("drop")
    client, seat = third.make()
    with pytest.raises(TransientUpstreamError) as caught:
        await asked(client, STORY, streamed=streamed)
    assert caught.value.sent
    assert seat.kinds == [OutcomeKind.UNKNOWN]
    assert seat.last.usage.estimated
    seat.check_books()


@pytest.mark.needs("truncate", "stream")
async def test_b02_a_stream_that_ends_too_early_is_no_success(third, server):
    server.break_stream("truncate")
    client, seat = third.make()
    with pytest.raises(StreamInterruptedError) as caught:
        await asked(client, STORY, streamed=True)
    assert caught.value.partial
    assert seat.kinds == [OutcomeKind.UNKNOWN]
    assert server.count() == len(seat.records) == 1


@pytest.mark.needs("malformed", "stream")
async def test_an_event_that_is_no_json(third, server):
    server.break_stream("malformed")
    client, seat = third.make()
    with pytest.raises(StreamInterruptedError) as caught:
        await asked(client, STORY, streamed=True)
    assert caught.value.partial
    assert seat.last.usage.estimated
    assert server.count() == len(seat.records) == 1
    seat.check_books()


@pytest.mark.needs("error", "stream")
async def test_b01_an_error_inside_a_stream(third, server, spoken):
    if spoken.wire.speaks != "anthropic":
        return  # it has one for Anthropic's wire only
    server.break_stream("error")
    client, seat = third.make()
    with pytest.raises(TransientUpstreamError):
        await asked(client, "How is it?", streamed=True)
    assert seat.kinds == [OutcomeKind.UNKNOWN]
    assert server.count() == len(seat.records) == 1


@pytest.mark.needs("answer", "fail")
async def test_b03_requests_and_records_are_the_same_number(third, server, spoken):
    client, seat = third.make()
    for number, status in enumerate((0, 429, 529, 500, 401, 0)):
        if status:
            server.fail(status)
        else:
            server.answer(TEXT)
        with contextlib.suppress(UpstreamError):
            await asked(client, "How is it?", streamed=spoken.ways[number % len(spoken.ways)])
    assert server.count() == len(seat.permits) == len(seat.records) == 6
    seat.check_books()
