"""What really goes over the wire, counted at the sockets: as many requests as permits and records, whatever an SDK or
its transport would like to do again by itself."""

from __future__ import annotations

import contextlib
from typing import Any
from urllib.parse import urlsplit

import pytest

from interlock.admission.outcome import OutcomeKind
from interlock.clients.simulator import Step
from interlock.errors import TransientUpstreamError, UpstreamError

from .conftest import Bench, Wire, asked
from .relay import Relay, relay


def through(bench: Bench, wire: Wire, at: Relay, **settings: Any) -> Any:
    """A client of the wire whose provider is reached through the relay."""
    url = urlsplit(wire.url(bench.provider))
    return bench.client(wire, base_url=url._replace(netloc=f"127.0.0.1:{at.port}").geturl(), settings=settings)


def port_of(bench: Bench, wire: Wire) -> int:
    port = urlsplit(wire.url(bench.provider)).port
    assert port is not None
    return port


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
async def test_b03_each_failure_is_one_request_at_the_socket(bench, wire, streamed):
    steps = [Step.rate_limited(0), Step.status(529), Step.server_error(503), Step.status(408), Step.status(409),
             Step.html(502), Step.cut(0, "reset"), Step.cut(None, "close"),
             Step.status(500, b"", {"x-should-retry": "true"}), Step.answer("Fine.")]  # fmt: skip
    async with relay(port_of(bench, wire)) as at:
        client, seat = through(bench, wire, at)
        bench.script(*steps)
        for _ in steps:
            with contextlib.suppress(UpstreamError):
                await asked(client, "Hello.", streamed=streamed)
        assert len(at.heads) == len(steps) == len(seat.permits) == len(seat.records)
        assert sum(permit.was_sent for permit in seat.permits) == len(steps)
        seat.check_books()


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
async def test_b03_a_connection_that_ends_under_a_request_is_not_tried_again_by_the_transport(bench, wire, streamed):
    """The server takes the request on a kept connection and hangs up: the answer may have been made, and paid."""
    async with relay(port_of(bench, wire), keeps=1) as at:
        client, seat = through(bench, wire, at, max_connections=1)
        bench.script(Step.answer("Fine."), Step.answer("Again."))
        assert (await asked(client, "Hello.", streamed=streamed)).text == "Fine."
        with pytest.raises(TransientUpstreamError) as caught:
            await asked(client, "Hello.", streamed=streamed)
        assert at.connections == 1
        assert caught.value.sent
        assert caught.value.retryable
        assert len(at.heads) == 2 == len(seat.permits)
        assert seat.kinds == [OutcomeKind.COMPLETED, OutcomeKind.UNKNOWN]
        assert (await asked(client, "Hello.", streamed=streamed)).text == "Again."
        assert len(at.heads) == 3


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
async def test_a_connection_that_was_closed_while_idle_costs_nobody_a_failure(bench, wire, until, streamed):
    async with relay(port_of(bench, wire)) as at:
        client, seat = through(bench, wire, at, max_connections=1)
        bench.provider.always(Step.answer("Fine."))
        for number in range(1, 4):
            assert (await asked(client, "Hello.", streamed=streamed)).text == "Fine."
            await at.hang_up()
            await until(lambda: not at.open)
            assert at.connections == number == len(at.heads), "a new connection each time, and one request on it"
        assert seat.kinds == [OutcomeKind.COMPLETED] * 3
