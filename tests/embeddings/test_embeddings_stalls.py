"""An error whose body never ends: its status is known, so it is of its class."""

from __future__ import annotations

import asyncio

import pytest
from waiting import until

from interlock.admission.clock import ManualClock
from interlock.admission.outcome import OutcomeKind
from interlock.clients.providers.error_body import GRACE_S
from interlock.clients.simulator import Step
from interlock.clients.simulator.script import Raw
from interlock.errors import RateLimitedError

from .conftest import HOSTED, Bench, Wire, check_books


@pytest.mark.parametrize("wire", HOSTED, ids=lambda wire: wire.id)
async def test_an_error_whose_body_does_not_end_is_still_of_its_class(bench: Bench, wire: Wire) -> None:
    clock = ManualClock()
    embeddings, seat = bench.client(wire, clock=clock)
    stalled = Raw(parts=(b'{"error"', b": {"), content_type="application/json", status=429, ending="stall")
    bench.script(Step(name="stalled", raw=stalled))
    task = asyncio.ensure_future(embeddings.embed("hello"))
    await until(lambda: clock.next_instant == clock.now() + GRACE_S)
    await clock.advance(GRACE_S)
    assert task.done()
    with pytest.raises(RateLimitedError):
        await task
    await bench.provider.idle()
    assert bench.provider.requests[-1].cut == "client"
    assert seat.permits[0].outcomes[0].kind is OutcomeKind.RATE_LIMITED
    check_books(seat)
