"""What the record of a stream still tells that did not come to its end: who served it, under which id, and what it had
said by then."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from interlock.clients.response import Piece
from interlock.clients.simulator import Step
from interlock.clients.stream import ResponseStream
from interlock.errors import UpstreamError

STORY = "Tell me a story of some length, please, with a beginning and an end."


async def _left(stream: ResponseStream, manual: Any) -> None:
    await stream.aclose()


async def _cancelled(stream: ResponseStream, manual: Any) -> None:
    reader = asyncio.ensure_future(_rest(stream))
    await asyncio.sleep(0)
    reader.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reader


async def _broken(stream: ResponseStream, manual: Any) -> None:
    with pytest.raises(UpstreamError):
        await _rest(stream)


async def _out_of_time(stream: ResponseStream, manual: Any) -> None:
    """Nobody reads when the attempt's time is up."""
    await manual.advance(31)
    with pytest.raises(UpstreamError):
        await _rest(stream)


async def _rest(stream: ResponseStream) -> list[Piece]:
    return [piece async for piece in stream]


@pytest.mark.parametrize(
    ("step", "end", "outcome"),
    [
        (Step.stall(2), _left, "cancelled"),
        (Step.stall(2), _cancelled, "cancelled"),
        (Step.cut(2, "close"), _broken, "stream_interrupted"),
        (Step.stream_error(after_pieces=2), _broken, "stream_interrupted"),
        (Step.stall(2), _out_of_time, "stream_interrupted"),
    ],
    ids=["left", "cancelled", "cut", "error", "out-of-time"],
)
async def test_a_stream_without_its_end_is_recorded_with_what_was_known(bench, wire, manual, step, end, outcome):
    client, seat = bench.client(
        wire, keep_text=True, clock=manual, timeout_s=30, settings={"idle_timeout_s": 900, "max_connections": 1}
    )
    bench.script(step)
    stream = client.stream_response(STORY)
    assert (await anext(stream)).text
    await end(stream, manual)
    record = seat.last
    assert record.outcome == outcome
    assert record.text == stream.partial
    assert record.text
    assert record.served_model == ("wire-model" if wire.names_model else None)
    assert record.request_id
    assert record.latency_s == (30 if end is _out_of_time else 0)
    seat.check_books()


async def test_the_text_of_a_stream_without_its_end_is_not_recorded_unless_asked(bench, wire):
    client, seat = bench.client(wire)
    bench.script(Step.cut(2, "close"))
    with pytest.raises(UpstreamError) as caught:
        await client.stream_response(STORY).finish()
    assert caught.value.partial
    assert seat.last.text is None
