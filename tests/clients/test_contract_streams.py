"""Streams on every wire: what a SAFE one holds back and gives out, what a broken one settles to, and what their headers
tell."""

from __future__ import annotations

import asyncio

import pytest
from pydantic import BaseModel

from interlock.admission.outcome import Dimension, OutcomeKind
from interlock.catalog.usage import Usage
from interlock.clients.options import CallOptions, StreamingMode, Tool
from interlock.clients.response import StopReason
from interlock.clients.simulator import PublishedLimits, SimulatedProvider, Step, ToolCall
from interlock.errors import StreamBufferError, TransientUpstreamError, UpstreamError

from .conftest import asked
from .test_anthropic_wire import start

LOOK = Tool("look", "Look.", {"type": "object", "properties": {"word": {"type": "string"}}})


class Stars(BaseModel):
    stars: int


STORY = "Tell me a story of some length, please."


async def test_the_arguments_of_a_call_fill_a_safe_streams_buffer_too(bench, wire, monkeypatch):
    monkeypatch.setattr("interlock.clients.stream.BUFFER_LIMIT", 50)
    client, seat = bench.client(wire)
    bench.script(Step.answer(tool_calls=[ToolCall(name="look", input={"word": "long " * 40})]))
    with pytest.raises(StreamBufferError):
        await client.stream_response("Look.", mode=StreamingMode.SAFE, options=CallOptions(tools=(LOOK,))).finish()
    assert seat.kinds == [OutcomeKind.ABANDONED]


async def test_a_safe_stream_that_broke_gives_out_nothing_afterwards(bench, wire):
    client, _ = bench.client(wire)
    bench.script(Step.cut(2, "close"))
    stream = client.stream_response(STORY, mode=StreamingMode.SAFE)
    with pytest.raises(UpstreamError):
        await anext(stream)
    assert stream.partial, "something had come"
    assert [piece async for piece in stream] == []


async def test_lost_before_the_first_piece_it_keeps_the_whole_reservation(bench, wire):
    client, seat = bench.client(wire, input_tokens=50, output_tokens=1_000)
    bench.script(Step.cut(0, "close"))
    with pytest.raises(TransientUpstreamError):
        await client.stream_response(STORY).finish()
    assert seat.last.usage.output_tokens == 1_000
    assert seat.last.usage.estimated


async def test_the_count_with_which_a_stream_begins_is_no_count_of_what_was_written(bench, anthropic):
    """Anthropic's wire says at the start that one token was written."""
    client, seat = bench.client(anthropic, input_tokens=50, output_tokens=1_000)
    bench.script(Step.events(start(input_tokens=9, output_tokens=1)))
    with pytest.raises(TransientUpstreamError):
        await client.stream_response(STORY).finish()
    assert seat.last.usage == Usage(input_tokens=9, output_tokens=1_000, estimated=True)


@pytest.mark.parametrize("key", ["anthropic-direct", "openai-chat-completions", "openai-compatible", "openai"])
@pytest.mark.parametrize("end", ["left", "broken", "forgotten by time"])
async def test_limits_in_the_headers_of_a_stream_without_its_end_are_read(bench, wires, manual, key, end):
    wire = wires[key]
    async with SimulatedProvider(limits=PublishedLimits(rpm=100)) as provider:
        client, seat = bench.client(wire, base_url=wire.url(provider), clock=manual, timeout_s=30)
        provider.script(Step.cut(2, "close") if end == "broken" else Step.stall(2))
        stream = client.stream_response(STORY)
        assert (await anext(stream)).text
        if end == "left":
            await stream.aclose()
        else:
            if end == "forgotten by time":
                await manual.advance(31)
            with pytest.raises(UpstreamError):
                await stream.finish()
        assert seat.permits[0].outcome.reported[Dimension.REQUESTS].limit == 100
        await client._client.aclose()


async def test_a_paused_turn_that_is_closed_as_it_is_recorded_is_not_gone_on_with(bench, anthropic, until):
    """Its reader waits for the commit, and would then ask for the rest of the turn."""
    client, seat = bench.client(anthropic)
    bench.script(Step.answer("First part,", stop_reason="pause_turn"), Step.answer(" the rest."))
    gate = asyncio.Event()

    async def wait() -> None:
        await gate.wait()

    seat.commits = wait
    stream = client.stream_response("Go.")
    assert (await anext(stream)).text
    reader = asyncio.ensure_future(stream.finish())
    await until(lambda: seat.records)
    await stream.aclose()
    gate.set()
    response = await reader
    assert (response.text, response.stop_reason) == ("First part,", StopReason.PAUSE_TURN)
    assert bench.provider.count == 1


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
async def test_the_model_that_served_is_the_providers_word(bench, wire, streamed):
    client, seat = bench.client(wire)
    response = await asked(client, "Hello.", streamed=streamed)
    assert response.served_model == seat.last.served_model == ("wire-model" if wire.names_model else None)
    assert response.request_id == seat.last.request_id
    assert response.request_id


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
async def test_a_typed_answer_may_come_after_a_pause(bench, anthropic, streamed):
    client, seat = bench.client(anthropic)
    bench.script(Step.answer("Let me see. ", stop_reason="pause_turn"), Step.answer(json={"stars": 4}))
    response = await asked(client, "How many stars?", streamed=streamed, response_model=Stars)
    assert response.parsed == Stars(stars=4)
    assert [record.outcome for record in seat.records] == ["ok", "ok"]


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
async def test_a_continuation_is_reserved_as_what_it_is(bench, anthropic, monkeypatch, streamed):
    """Nobody could declare it: it is not held against the job."""
    client, seat = bench.client(anthropic)
    continues: list[bool] = []
    permit = seat.permit

    def noted(**asked_for):
        continues.append(asked_for.get("continuation", False))
        return permit(**asked_for)

    monkeypatch.setattr(seat, "permit", noted)
    bench.script(*[Step.answer("on ", stop_reason="pause_turn")] * 2, Step.answer("end."))
    assert (await asked(client, "Go.", streamed=streamed)).text == "on on end."
    assert continues == [False, True, True]
