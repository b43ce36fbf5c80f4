"""What Anthropic's wire alone does: usage reported twice, signed thinking, paused turns."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from interlock.admission.outcome import Dimension, OutcomeKind
from interlock.catalog.pricing import cost
from interlock.catalog.usage import Usage
from interlock.clients.conversation import Conversation, DocumentBlock, ImageBlock, TextBlock, ThinkingBlock
from interlock.clients.options import StreamingMode
from interlock.clients.response import PieceKind, StopReason
from interlock.clients.simulator import PublishedLimits, SimulatedProvider, Step
from interlock.errors import (
    InvalidRequestError,
    OutputTruncatedError,
    ProviderRefusalError,
    StreamInterruptedError,
    TransientUpstreamError,
)

from .conftest import asked


def start(**usage: Any) -> dict[str, Any]:
    message = {"id": "m", "type": "message", "role": "assistant", "model": "served", "content": [], "usage": usage}
    return {"type": "message_start", "message": message}


def text(part: str, index: int = 0) -> list[dict[str, Any]]:
    return [
        {"type": "content_block_start", "index": index, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": index, "delta": {"type": "text_delta", "text": part}},
        {"type": "content_block_stop", "index": index},
    ]


def stop(reason: Any = "end_turn", usage: Any = None, **delta: Any) -> dict[str, Any]:
    return {"type": "message_delta", "delta": {"stop_reason": reason, **delta}, "usage": usage or {}}


END = {"type": "message_stop"}


@pytest.mark.parametrize(
    "deltas",
    [
        [
            stop(None, {"output_tokens": 7}),
            stop("end_turn", {"input_tokens": 25, "cache_read_input_tokens": 1000, "output_tokens": 15}),
        ],
        [stop("end_turn", {"output_tokens": 15})],
        [stop("end_turn", {"input_tokens": None, "cache_read_input_tokens": None, "output_tokens": 15})],
    ],
    ids=["twice", "output-only", "nulls"],
)
async def test_b09_anthropic_usage_cumulative(bench, anthropic, deltas):
    client, seat = bench.client(anthropic)
    bench.script(
        Step.events(start(input_tokens=25, output_tokens=1, cache_read_input_tokens=1000), *text("Hi."), *deltas, END)
    )
    response = await client.stream_response("Hello.").finish()
    assert response.usage == Usage(input_tokens=25, output_tokens=15, cache_read_tokens=1000)
    assert seat.last.usage == response.usage
    assert seat.last.cost == cost(client.binding.entry.prices, response.usage)


async def test_b10_cached_token_semantics(bench, anthropic):
    client, _ = bench.client(anthropic)
    body = {
        "type": "message",
        "model": "m",
        "content": [{"type": "text", "text": "Hi."}],
        "stop_reason": "end_turn",
        "usage": {
            "input_tokens": 3,
            "cache_creation_input_tokens": 12304,
            "cache_read_input_tokens": 0,
            "output_tokens": 550,
        },
    }
    bench.script(Step.body(body))
    response = await client.single_response("Hello.")
    assert response.usage == Usage(input_tokens=3, cache_write_tokens=12304, cache_read_tokens=0, output_tokens=550)
    assert str(response.cost) == "0.054399"
    assert response.usage.total_input_tokens == 12307


async def test_reasoning_is_a_part_of_the_output(bench, anthropic):
    client, _ = bench.client(anthropic)
    usage = {"input_tokens": 3, "output_tokens": 50, "output_tokens_details": {"thinking_tokens": 40}}
    bench.script(Step.events(start(input_tokens=3), *text("Hi."), stop("end_turn", usage), END))
    response = await client.stream_response("Hello.").finish()
    assert (response.usage.output_tokens, response.usage.reasoning_tokens) == (50, 40)


@pytest.mark.parametrize(
    ("reason", "found"),
    [
        ("end_turn", StopReason.END_TURN),
        ("stop_sequence", StopReason.STOP_SEQUENCE),
        ("tool_use", StopReason.TOOL_USE),
        (None, StopReason.END_TURN),
        ("quite_new", StopReason.END_TURN),
        (7, StopReason.END_TURN),
    ],
)
async def test_each_stop_reason(bench, anthropic, reason, found):
    client, _ = bench.client(anthropic)
    bench.script(Step.events(start(input_tokens=3), *text("Hi."), stop(reason, {"output_tokens": 2}), END))
    assert (await client.stream_response("Hello.").finish()).stop_reason is found


async def test_b02_a_stop_reason_without_the_terminal_marker_is_no_end(bench, anthropic):
    client, seat = bench.client(anthropic)
    bench.script(Step.events(start(input_tokens=3), *text("Hi."), stop("end_turn", {"output_tokens": 2})))
    with pytest.raises(Exception, match="without its terminal marker"):
        await client.stream_response("Hello.").finish()
    assert seat.kinds == [OutcomeKind.UNKNOWN]


@pytest.mark.parametrize(
    "framing",
    [b"", b": comment\n\n", b'event: ping\ndata: {"type": "ping"}\n\n', b'event: odd\ndata: {"type": "odd"}\n\n'],
)
async def test_what_says_nothing_is_passed_over(bench, anthropic, framing):
    client, _ = bench.client(anthropic)
    bench.script(
        Step.events(
            start(input_tokens=3),
            framing or {"type": "ping"},
            *text("Hi."),
            framing or {"type": "ping"},
            {"type": "content_block_start", "index": 1, "content_block": {"type": "server_tool_use", "id": "s"}},
            {"type": "content_block_delta", "index": 1, "delta": {"type": "citations_delta"}},
            stop("end_turn", {"output_tokens": 2}),
            END,
        )
    )
    assert (await client.stream_response("Hello.").finish()).text == "Hi."


async def test_b39_blocks_interleaved_with_text(bench, anthropic):
    client, _ = bench.client(anthropic)
    tool = [
        {
            "type": "content_block_start",
            "index": index,
            "content_block": {"type": "tool_use", "id": f"t{index}", "name": "look", "input": {}},
        }
        for index in (1, 2)
    ]
    json_delta = [
        {"type": "content_block_delta", "index": index, "delta": {"type": "input_json_delta", "partial_json": part}}
        for part, index in (('{"a"', 1), ('{"b"', 2), (": 1}", 1), (": 2}", 2))
    ]
    more = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": " More."}}
    bench.script(
        Step.events(
            start(input_tokens=3), *text("Hi."), *tool, json_delta[0], more, *json_delta[1:], stop("tool_use"), END
        )
    )
    response = await client.stream_response("Hello.").finish()
    assert response.text == "Hi. More."
    assert [(call.id, dict(call.input)) for call in response.tool_calls] == [("t1", {"a": 1}), ("t2", {"b": 2})]


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
async def test_thinking_goes_back_byte_for_byte(bench, anthropic, streamed):
    client, _ = bench.client(anthropic)
    bench.script(Step.answer("Said.", thinking="Thought \u2028 hard."), Step.answer("Again."))
    if streamed:
        stream = client.stream_response("Think.")
        async with stream as pieces:
            kinds = {piece.kind async for piece in pieces}
        assert PieceKind.THINKING in kinds
        response = stream.response
    else:
        response = await client.single_response("Think.")
    assert response.text == "Said.", "thinking never joins the text"
    assert response.thinking == "Thought \u2028 hard."
    (block,) = [block for block in response.blocks if isinstance(block, ThinkingBlock)]
    assert block.signature
    again = Conversation.of("Think.").assistant(response.blocks).user("Go on.")
    assert (await client.single_response(again)).text == "Again.", "the provider checks the signature"
    assert bench.sent["messages"][1]["content"][0]["signature"] == block.signature


async def test_redacted_thinking_goes_back_unchanged(bench, anthropic):
    client, _ = bench.client(anthropic)
    bench.script(Step.answer("Said.", redacted_thinking="b3BhcXVl"), Step.answer("Again."))
    response = await client.stream_response("Think.").finish()
    assert response.blocks[0] == ThinkingBlock(redacted="b3BhcXVl")
    await client.single_response(Conversation.of("Think.").assistant(response.blocks).user("Go on."))
    assert bench.sent["messages"][1]["content"][0] == {"type": "redacted_thinking", "data": "b3BhcXVl"}


@pytest.mark.parametrize("mode", [None, *StreamingMode])
async def test_a_paused_turn_is_continued_as_a_further_call(bench, anthropic, mode):
    client, seat = bench.client(anthropic)
    bench.script(Step.answer("First part,", stop_reason="pause_turn", input_tokens=10, output_tokens=3),
                 Step.answer(" second part.", input_tokens=14, output_tokens=4))  # fmt: skip
    if mode is None:
        response = await client.single_response("Go.")
    else:
        async with client.stream_response("Go.", mode=mode) as stream:
            pieces = [piece async for piece in stream]
        response = stream.response
        assert "".join(piece.text for piece in pieces) == stream.partial == response.text
        assert [piece.response for piece in pieces if piece.kind is PieceKind.RESPONSE] == [response]
        assert {piece.block_index for piece in pieces if piece.text} == {0, 1}
    assert response.text == "First part, second part."
    assert response.stop_reason is StopReason.END_TURN
    assert (response.usage.input_tokens, response.usage.output_tokens) == (24, 7)
    assert response.cost == seat.records[0].cost + seat.records[1].cost
    assert bench.sent["messages"][-1]["role"] == "assistant"
    assert bench.sent.get("stream", False) is (mode is not None)
    assert len(seat.permits) == 2
    seat.check_books()


@pytest.mark.parametrize("mode", StreamingMode)
async def test_a_continuation_that_fails_is_an_interruption_only_for_who_saw_the_turn_begin(bench, anthropic, mode):
    client, seat = bench.client(anthropic)
    bench.script(Step.answer("First part,", stop_reason="pause_turn"), Step.server_error())
    stream = client.stream_response("Go.", mode=mode)
    live = mode is StreamingMode.LIVE
    if live:
        assert (await anext(stream)).text == "First part,"
    with pytest.raises(StreamInterruptedError if live else TransientUpstreamError) as caught:
        await stream.finish()
    assert getattr(caught.value, "partial", "") == ("First part," if live else "")
    assert seat.records[0].outcome == "ok"
    seat.check_books()


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
async def test_a_continuation_that_is_left_is_settled_by_itself(bench, anthropic, manual, until, streamed):
    """Cancelled, and out of time: what was answered before it stays answered."""
    client, seat = bench.client(anthropic, clock=manual, timeout_s=30)
    pause, stall = Step.answer("First part,", stop_reason="pause_turn"), Step.stall(0 if streamed else None)
    for times in (1, 2):
        bench.script(pause, stall)
        task = asyncio.create_task(asked(client, "Go.", streamed=streamed))
        await until(lambda: bench.provider.count == 2 * times)  # noqa: B023 - awaited at once
        if times == 1:
            task.cancel()
        else:
            await manual.advance(31)
        with pytest.raises(asyncio.CancelledError if times == 1 else (TransientUpstreamError, StreamInterruptedError)):
            await task
    assert seat.kinds == [
        OutcomeKind.COMPLETED, OutcomeKind.ABANDONED, OutcomeKind.COMPLETED, OutcomeKind.UNKNOWN,
    ]  # fmt: skip
    seat.check_books()


async def test_a_turn_paused_without_end_is_given_out_as_it_is(bench, anthropic):
    client, seat = bench.client(anthropic)
    bench.provider.always(Step.answer("on ", stop_reason="pause_turn"))
    for response in (await client.single_response("Go."), await client.stream_response("Go.").finish()):
        assert response.stop_reason is StopReason.PAUSE_TURN
        assert response.text == "on " * 9
    assert len(seat.records) == 18


async def test_what_was_cut_off_in_safe_mode_gives_out_nothing(bench, anthropic):
    client, _ = bench.client(anthropic)
    bench.script(Step.answer("A part", stop_reason="max_tokens"))
    stream = client.stream_response("Go.", mode=StreamingMode.SAFE)
    with pytest.raises(OutputTruncatedError):
        await anext(stream)
    with pytest.raises(StopAsyncIteration):
        await anext(stream)


async def test_b15_a_refusal_in_mid_stream_keeps_its_details(bench, anthropic):
    client, seat = bench.client(anthropic)
    details = {"type": "refusal", "category": "bio", "explanation": "Not that."}
    bench.script(
        Step.events(
            start(input_tokens=9), *text("Well, "), stop("refusal", {"output_tokens": 4}, stop_details=details), END
        )
    )
    with pytest.raises(ProviderRefusalError) as caught:
        await client.stream_response("Hello.").finish()
    assert (caught.value.category, caught.value.explanation) == ("bio", "Not that.")
    assert seat.last.usage == Usage(input_tokens=9, output_tokens=4)


async def test_the_headers_limits_reach_the_permit(bench, anthropic):
    limits = PublishedLimits(rpm=100, input_tpm=50_000, output_tpm=10_000)
    async with SimulatedProvider(limits=limits) as provider:
        client, seat = bench.client(anthropic, base_url=provider.anthropic_url)
        await client.single_response("Hello.")
        await client.stream_response("Hello.").finish()
        await bench._clients[-1].aclose()
    for permit in seat.permits:
        reported = permit.outcome.reported
        assert reported[Dimension.REQUESTS].limit == 100
        assert reported[Dimension.INPUT_TOKENS].limit == 50_000
        assert reported[Dimension.OUTPUT_TOKENS].remaining <= 10_000


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
async def test_what_the_provider_runs_itself_is_no_call_of_the_callers(bench, anthropic, streamed):
    """A search that `provider_options` asked for: its blocks are neither text nor calls, whole or in pieces."""
    search = {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {}}
    found = {"type": "web_search_tool_result", "tool_use_id": "s1", "content": []}
    asks = {"type": "content_block_delta", "index": 0, "delta": {"type": "input_json_delta", "partial_json": '{"q":1}'}}
    begun = [
        {"type": "content_block_start", "index": at, "content_block": one} for at, one in enumerate((search, found))
    ]
    events = [
        start(input_tokens=9),
        begun[0],
        asks,
        begun[1],
        *text("Found.", 2),
        stop(usage={"output_tokens": 3}),
        END,
    ]
    body = {"type": "message", "model": "m", "content": [search, found, {"type": "text", "text": "Found."}],
            "stop_reason": "end_turn", "usage": {"input_tokens": 9, "output_tokens": 3}}  # fmt: skip
    client, _ = bench.client(anthropic)
    bench.script(Step.events(*events) if streamed else Step.body(body))
    response = await asked(client, "Look.", streamed=streamed)
    assert (response.text, response.tool_calls) == ("Found.", ())


@pytest.mark.parametrize(("block", "why"), [
    (ImageBlock(data=b"x", media_type="image/tiff"), "takes no image/tiff; images are image/jpeg"),
    (DocumentBlock(data=b"x", media_type="application/zip"), "takes no application/zip; documents are"),
    (DocumentBlock(data=b"\xff", media_type="text/plain", name="z"), "'z' is not UTF-8 text"),
], ids=["image", "document", "text"])  # fmt: skip
@pytest.mark.parametrize("key", ["anthropic-direct", "anthropic-bedrock", "anthropic-bedrock-mantle"])
async def test_what_it_cannot_take_is_refused_by_name(bench, wires, key, block, why):
    client, seat = bench.client(wires[key])
    with pytest.raises(InvalidRequestError, match=why) as caught:
        await client.single_response(Conversation.of([TextBlock("See."), block]))
    assert caught.value.sent is False
    assert (bench.provider.count, seat.permits) == (0, [])
