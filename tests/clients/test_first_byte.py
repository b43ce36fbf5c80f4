"""A call counts as sent from its first byte on: never later, and not while its connection is still being made."""

from __future__ import annotations

import asyncio
from typing import Any

import httpcore2
import pytest

from interlock.admission import ManualClock
from interlock.admission.outcome import OutcomeKind
from interlock.errors import TransientUpstreamError

from .conftest import WIRES, Bench, FakeSeat, until


class SlowDoor(httpcore2.AnyIOBackend):
    """Connections are made once `open` is set; `writes` notes whether each write came after its permit was sent."""

    def __init__(self, seat: FakeSeat) -> None:
        self.seat, self.open, self.knocked = seat, asyncio.Event(), 0
        self.writes: list[bool] = []

    async def connect_tcp(self, *args: Any, **options: Any) -> Any:
        self.knocked += 1
        await self.open.wait()
        stream = await super().connect_tcp(*args, **options)
        write = stream.write

        async def noticed(buffer: bytes, timeout: float | None = None) -> None:
            self.writes.append(all(permit.was_sent for permit in self.seat.permits))
            await write(buffer, timeout)

        stream.write = noticed
        return stream


def slow(bench: Bench, wire: Any, **more: Any) -> tuple[Any, FakeSeat, SlowDoor]:
    client, seat = bench.client(wire, **more)
    template = client._client
    if not template.tells_first_byte:
        pytest.skip("its transport does not tell")
    template.ready()
    door = SlowDoor(seat)
    template._http._transport._pool._network_backend = door
    return client, seat, door


async def ask(client: Any, streamed: bool) -> str:
    if not streamed:
        return (await client.single_response("Hello.")).text
    async with client.stream_response("Hello.") as pieces:
        return (await pieces.finish()).text


both = pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])


@both
async def test_it_is_sent_once_connected_and_before_anything_is_written(bench, wire, streamed: bool) -> None:
    client, seat, door = slow(bench, wire)
    task = asyncio.ensure_future(ask(client, streamed))
    await until(lambda: door.knocked)
    assert not seat.permits[0].was_sent
    door.open.set()
    await task
    assert door.writes
    assert all(door.writes)
    assert seat.kinds == [OutcomeKind.COMPLETED]


@both
async def test_cancelled_before_the_first_byte_gives_everything_back(bench, wire, streamed: bool) -> None:
    client, seat, door = slow(bench, wire)
    task = asyncio.ensure_future(ask(client, streamed))
    await until(lambda: door.knocked)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert seat.kinds == [OutcomeKind.UNSENT]
    assert seat.last.cost == 0
    assert bench.provider.count == 0


@both
async def test_out_of_time_before_the_first_byte_was_not_sent(bench, streamed: bool) -> None:
    clock = ManualClock()
    client, seat, door = slow(bench, WIRES[0], clock=clock, settings={"timeout_s": 5.0})
    task = asyncio.ensure_future(ask(client, streamed))
    await until(lambda: door.knocked)
    await clock.advance(6.0)
    with pytest.raises(TransientUpstreamError) as caught:
        await task
    assert caught.value.provider_code == "attempt_timeout"
    assert not caught.value.sent
    assert seat.kinds == [OutcomeKind.UNSENT]


async def test_cancelled_at_any_turn_of_the_loop_what_was_written_was_sent(bench) -> None:
    for turns in range(0, 40, 2):
        client, seat, door = slow(bench, WIRES[0])
        door.open.set()
        task = asyncio.ensure_future(ask(client, False))
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        try:
            await task
        except asyncio.CancelledError:
            if seat.permits:
                unsent = seat.kinds == [OutcomeKind.UNSENT]
                assert unsent != bool(door.writes), f"after {turns} turns"
        assert all(door.writes)
