"""Bytes as a network may leave them, through every wire's real SDK: cut, torn, garbled, anything at all. What comes of
it is an answer or a typed error, at once; and an answer only where the wire's own end came.
"""

from __future__ import annotations

import asyncio
import base64
import subprocess
import sys
import tomllib
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx2
import pytest
from botocore.eventstream import EventStreamBuffer
from hypothesis import given, settings, strategies as st

from interlock.admission.outcome import OutcomeKind
from interlock.clients.bound import BoundLLMClient
from interlock.clients.options import CallOptions, Tool
from interlock.clients.outcomes import outcome_of
from interlock.clients.response import LLMResponse
from interlock.clients.simulator import SimulatedProvider, Step, ToolCall
from interlock.errors import InvalidRequestError, TransientUpstreamError, UpstreamError

from .conftest import ALIKE, WIRES, Bench, FakeSeat, Wire

SPOKEN = [wire for wire in WIRES if wire.id not in ALIKE or wire.key == "litellm"]
LOOK = Tool("look", "Look.", {"type": "object", "properties": {}})
LONGEST_S = 30.0
#: What is in the stream of each wire once its end has come.
ENDS = {
    "anthropic": b"message_stop", "mantle": b"message_stop", "invoke": b"message_stop", "converse": b"messageStop",
    "openai": b'"finish_reason":"tool_calls"', "responses": b"response.completed", "gemini": b'"finishReason":"STOP"',
}  # fmt: skip


@dataclass
class Tape(httpx2.AsyncBaseTransport):
    """Plays what is put on it. With `inner` it is a recorder."""

    inner: Any = None
    status: int = 200
    headers: list[tuple[bytes, bytes]] = field(default_factory=list)
    chunks: Sequence[bytes] = ()
    error: Exception | None = None
    leaves: bool = True  # before the error
    asked: int = 0

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        self.asked += 1
        if self.leaves and (trace := request.extensions.get("trace")) is not None:
            await trace("http11.send_request_headers.started", {"request": SimpleNamespace(method=b"POST")})
        if self.error is not None:
            raise self.error
        if self.inner is not None:
            response = await self.inner.handle_async_request(request)
            self.chunks, self.headers = [await response.aread()], response.headers.raw
        length = (b"content-length", b"transfer-encoding")
        kept = [(name, value) for name, value in self.headers if name.lower() not in length]
        return httpx2.Response(self.status, headers=kept, stream=_Played(self.chunks), request=request)


class _Played(httpx2.AsyncByteStream):
    def __init__(self, chunks: Sequence[bytes]) -> None:
        self._chunks = chunks

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for chunk in self._chunks:
            yield chunk


@dataclass
class Deck:
    """A client that hears only its tape, and what its provider once said: streamed and whole."""

    wire: Wire
    runner: asyncio.Runner
    client: BoundLLMClient
    seat: FakeSeat
    tape: Tape
    said: dict[bool, tuple[list[tuple[bytes, bytes]], bytes, LLMResponse]]

    def play(self, *chunks: bytes, streamed: bool = True, status: int = 200) -> LLMResponse | None:
        """The answer; None for a typed error. Anything else is a failure of the test."""
        self.tape.headers, _, _ = self.said[streamed]
        self.tape.status, self.tape.chunks = status, chunks
        try:
            return self.runner.run(self._asked(streamed))
        except UpstreamError:
            return None
        finally:
            self.seat.check_books()
            self.seat.permits.clear()
            self.seat.records.clear()

    async def _asked(self, streamed: bool) -> LLMResponse:
        options = CallOptions(tools=(LOOK,))
        async with asyncio.timeout(LONGEST_S):
            if streamed:
                return await self.client.stream_response("Hello.", options=options).finish()
            return await self.client.single_response("Hello.", options=options)


async def recorded(wire: Wire, runner: asyncio.Runner) -> Deck:
    async with SimulatedProvider() as provider:
        bench = Bench(provider)
        client, seat = bench.client(wire)
        client._client.ready()
        http = client._client._http  # type: ignore[attr-defined]
        tape = Tape(http._transport)
        http._transport, http._mounts = tape, {}
        deck = Deck(wire, runner, client, seat, tape, {})
        for streamed in (False, True):
            provider.script(Step.answer("Hello, Grüße, 你好.", tool_calls=[ToolCall(name="look", input={"a": "b c"})]))
            response = await deck._asked(streamed)
            deck.said[streamed] = (tape.headers, b"".join(tape.chunks), response)
        await tape.inner.aclose()
        tape.inner = None
    return deck


@pytest.fixture(scope="module", params=SPOKEN, ids=lambda wire: wire.id)
def deck(request: pytest.FixtureRequest) -> Iterator[Deck]:
    with asyncio.Runner() as runner:
        made = runner.run(recorded(request.param, runner))
        yield made
        runner.run(made.client._client.aclose())


def has_ended(wire: Wire, seen: bytes) -> bool:
    """Whether the wire's own end is among these bytes. AWS's frames are read by botocore."""
    if wire.speaks in ("invoke", "converse"):
        buffer = EventStreamBuffer()
        buffer.add_data(seen)
        frames = list(buffer)
        seen = b"".join(frame.payload + str(frame.headers).encode() for frame in frames)
        if wire.speaks == "invoke":
            seen = b"".join(base64.b64decode(frame.payload.split(b'"')[3]) for frame in frames)
    return ENDS[wire.speaks] in seen.replace(b'": "', b'":"')


def cut(data: bytes, places: Sequence[float]) -> list[bytes]:
    edges = sorted({0, len(data), *(int(place * len(data)) for place in places)})
    return [data[start:end] for start, end in pairwise(edges)]


places = st.lists(st.floats(0, 1), max_size=6)
edits = st.lists(st.tuples(st.floats(0, 1), st.integers(0, 8), st.binary(max_size=8)), min_size=1, max_size=3)


def edited(data: bytes, changes: Sequence[tuple[float, int, bytes]]) -> bytes:
    for place, removed, put in changes:
        at = int(place * len(data))
        data = data[:at] + put + data[at + removed :]
    return data


def test_the_tape_says_what_the_provider_said(deck: Deck) -> None:
    for streamed in (False, True):
        _, data, once = deck.said[streamed]
        again = deck.play(data, streamed=streamed)
        assert again is not None
        assert (again.text, again.tool_calls) == (once.text, once.tool_calls)
        assert again.text == "Hello, Grüße, 你好."


def test_b02_a_stream_that_is_cut_anywhere_is_a_success_only_behind_its_end(deck: Deck) -> None:
    _, data, once = deck.said[True]

    @settings(max_examples=25)
    @given(at=st.integers(0, len(data)) | st.integers(max(0, len(data) - 200), len(data)), torn=places)
    def check(at: int, torn: list[float]) -> None:
        answer = deck.play(*cut(data[:at], torn))
        if answer is not None:
            assert has_ended(deck.wire, data[:at])
            assert (answer.text, answer.tool_calls) == (once.text, once.tool_calls)

    check()
    assert has_ended(deck.wire, data)
    assert deck.play(data[: len(data) // 2]) is None


def test_garbled_streams_and_bodies_are_an_answer_or_a_typed_error(deck: Deck) -> None:
    @settings(max_examples=15)
    @given(changes=edits, torn=places, streamed=st.booleans())
    def check(changes: list[tuple[float, int, bytes]], torn: list[float], streamed: bool) -> None:
        deck.play(*cut(edited(deck.said[streamed][1], changes), torn), streamed=streamed)

    check()


def test_any_bytes_at_all_are_no_success(deck: Deck) -> None:
    @settings(max_examples=10)
    @given(data=st.binary(max_size=300), torn=places, streamed=st.booleans())
    def check(data: bytes, torn: list[float], streamed: bool) -> None:
        assert deck.play(*cut(data, torn), streamed=streamed) is None

    check()


def test_any_body_under_an_error_status_is_a_typed_error(deck: Deck) -> None:
    errors = st.binary(max_size=200) | st.sampled_from([
        b'{"error": {"message": "no", "type": "x", "code": 1}}', b"<html>", b"[[[[", b'{"error": "no"}', b"null", b"1",
        b'{"message": "no", "__type": "ThrottlingException"}', b"[" * 3_000, b'[{"error": {"details": [1]}}]',
    ])  # fmt: skip

    @settings(max_examples=15)
    @given(
        data=errors, torn=places, streamed=st.booleans(),
        status=st.sampled_from([300, 301, 400, 401, 403, 404, 408, 413, 422, 429, 500, 502, 503, 529, 599]),
    )  # fmt: skip
    def check(data: bytes, torn: list[float], streamed: bool, status: int) -> None:
        assert deck.play(*cut(data, torn), streamed=streamed, status=status) is None

    check()


LOST = [
    (httpx2.ConnectError, False), (httpx2.ConnectTimeout, False), (httpx2.PoolTimeout, False),
    (httpx2.ReadTimeout, True), (httpx2.WriteTimeout, True), (httpx2.ReadError, True), (httpx2.WriteError, True),
    (httpx2.RemoteProtocolError, True),
]  # fmt: skip


def failing(deck: Deck, error: Exception, *, streamed: bool, leaves: bool) -> UpstreamError:
    deck.tape.error, deck.tape.leaves, deck.tape.asked = error, leaves, 0
    try:
        deck.runner.run(deck._asked(streamed))
    except UpstreamError as caught:
        return caught
    finally:
        deck.tape.error, deck.tape.leaves = None, True
        deck.seat.check_books()
        deck.seat.permits.clear()
        deck.seat.records.clear()
    raise AssertionError("it did not fail")


@pytest.mark.parametrize(("kind", "sent"), LOST, ids=[kind.__name__ for kind, _ in LOST])
def test_b20_every_loss_of_the_transport_is_transient_and_asked_once(deck: Deck, kind: Any, sent: bool) -> None:
    for streamed in (False, True):
        found = failing(deck, kind("lost"), streamed=streamed, leaves=sent)
        assert isinstance(found, TransientUpstreamError)
        assert (found.sent, deck.tape.asked) == (sent, 1)
        assert found.__cause__ is None


def test_b20_a_programming_error_is_no_providers_failure(deck: Deck) -> None:
    """One SDK called it a lost connection, and tried again."""
    for streamed in (False, True):
        found = failing(deck, TypeError("an argument too many"), streamed=streamed, leaves=False)
        assert deck.tape.asked == 1
        if deck.wire.key != "litellm":  # which does not tell it from an answer that it stumbles over
            assert type(found) is InvalidRequestError
            assert found.sent is False
            assert outcome_of(found)[0] is OutcomeKind.UNSENT


def test_b20_no_provider_needs_httpx_but_litellm() -> None:
    code = (
        "import sys\nsys.modules['httpx'] = None\n"
        "from interlock.clients.registry import provider_class, provider_keys\n"
        "for key in provider_keys(): provider_class(key)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_b20_every_pin_has_an_upper_bound() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    needs = [*project["dependencies"], *(one for extra in project["optional-dependencies"].values() for one in extra)]
    open_ended = [need for need in needs if "<" not in need and not need.startswith(("interlock[", "tzdata"))]
    assert open_ended == []
