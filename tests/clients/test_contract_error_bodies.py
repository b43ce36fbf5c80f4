"""An error is what its status and headers say, however badly its body says it: cut off, badly packed, of no text,
without an end."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import httpx2
import pytest

from interlock.admission.outcome import OutcomeKind
from interlock.clients.providers.error_body import GRACE_S, ErrorBodies
from interlock.clients.simulator import Step
from interlock.clients.simulator.script import Raw
from interlock.errors import CredentialError, InvalidRequestError, OverloadedError, RateLimitedError, UpstreamError

from .conftest import asked

SAID = b'{"error": {"type": "rate_limit_error", "message": "Slower."}}'
PACKED = "content-encoding: gzip"
#: The body, how long it says it is, and a header.
BODIES = {
    "cut": (SAID[:20], 900, ""),
    "none": (b"", 900, ""),
    "badly-packed": (b"\x1f\x8bnonsense", None, PACKED),
    "packed-and-cut": (gzip.compress(SAID)[:30], 900, PACKED),
    "no-utf8": (b"\xff\xfe\x00", None, "content-type: text/plain; charset=nonsense"),
    "deep": (b"[" * 100_000, None, ""),
    "packed": (gzip.compress(SAID), None, PACKED),
    "odd-header": (SAID, None, "x-odd: caf\u00e9"),
}
LIMITED = (429, RateLimitedError, OutcomeKind.RATE_LIMITED)
#: Which body, with which status, of which class and outcome.
CASES = [
    *((name, *LIMITED) for name in BODIES),
    ("cut", 529, OverloadedError, OutcomeKind.OVERLOADED),
    ("cut", 401, CredentialError, OutcomeKind.REJECTED),
    ("cut", 400, InvalidRequestError, OutcomeKind.REJECTED),
]
#: Where another wire has the same SDK: one that is cut off, one that cannot be unpacked, one that is well, one header.
LESS = [case for case in CASES if case[0] in ("packed-and-cut", "packed", "odd-header") or case[1] == 401]
SAME_SDK = frozenset({"simulated", "openai", "openai-compatible", "anthropic-bedrock-mantle", "litellm-anthropic"})
STALLED = Raw(parts=(b'{"error"', b": {"), content_type="application/json", status=429, ending="stall",
              headers={"retry-after": "7"})  # fmt: skip


@asynccontextmanager
async def saying(answers: list[bytes]) -> AsyncIterator[int]:
    """The port of a server that answers each request with the next of these bytes, and hangs up."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            head = await reader.readuntil(b"\r\n\r\n")
            await reader.readexactly(int(head.lower().partition(b"content-length: ")[2].split()[0]))
            writer.write(answers.pop(0))
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


def answer(status: int, body: bytes, length: int | None, header: str) -> bytes:
    lines = [f"HTTP/1.1 {status} X", "retry-after: 7", "connection: close", header or "content-type: application/json"]
    lines.append(f"content-length: {len(body) if length is None else length}")
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
async def test_an_error_that_cannot_be_read_is_still_of_its_class(bench, wire, streamed):
    cases = LESS if streamed or wire.id in SAME_SDK else CASES
    answers: list[bytes] = []
    async with saying(answers) as port:
        client, seat = bench.client(wire, base_url=f"http://127.0.0.1:{port}/v1", settings={"max_connections": 1})
        for name, status, class_, _ in cases:
            answers.append(answer(status, *BODIES[name]))
            with pytest.raises(UpstreamError) as caught:
                await asked(client, "Hello.", streamed=streamed)
            assert type(caught.value) is class_, name
            assert (caught.value.status, caught.value.retry_after_s) == (status, 7)
            assert answers == [], "one request"
            if name == "packed":
                assert "Slower" in str(caught.value)
        assert seat.kinds == [kind for *_, kind in cases]
        seat.check_books()


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
async def test_an_error_whose_body_does_not_end_is_still_of_its_class(bench, wire, manual, until, streamed):
    client, seat = bench.client(wire, clock=manual, timeout_s=30, settings={"max_connections": 1})
    for status, class_ in ((429, RateLimitedError), (503, UpstreamError), (401, CredentialError)):
        bench.script(Step(name="stalled", raw=replace(STALLED, status=status)))
        task = asyncio.create_task(asked(client, "Hello.", streamed=streamed))
        await until(lambda: manual.next_instant == manual.now() + GRACE_S)
        await manual.advance(GRACE_S)
        assert task.done()
        with pytest.raises(class_) as caught:
            await task
        assert (caught.value.status, caught.value.retry_after_s) == (status, 7)
        assert '{"error"' not in str(caught.value), "half a word may be half a secret"
        assert bench.provider.requests[-1].cut == "client", "the connection was given up"
    assert (await asked(client, "Hello.", streamed=streamed)).text == "Hello."
    assert seat.kinds[0] is OutcomeKind.RATE_LIMITED
    seat.check_books()


@pytest.mark.parametrize(("timeout_s", "idle_timeout_s", "grace_s"), [(4, 60, 2), (30, 1, 0.5)])
async def test_the_grace_ends_before_the_call(bench, wires, manual, until, timeout_s, idle_timeout_s, grace_s):
    wire, settings = wires["anthropic-direct"], {"idle_timeout_s": idle_timeout_s}
    client, _ = bench.client(wire, clock=manual, timeout_s=timeout_s, settings=settings)
    bench.script(Step(name="stalled", raw=STALLED))
    task = asyncio.create_task(asked(client, "Hello.", streamed=True))
    await until(lambda: manual.next_instant == manual.now() + grace_s)
    await manual.advance(grace_s)
    assert task.done()
    with pytest.raises(RateLimitedError):
        await task


class Endless(httpx2.AsyncByteStream):
    async def __aiter__(self) -> AsyncIterator[bytes]:
        await asyncio.Event().wait()
        yield b""


async def test_the_grace_is_of_the_time_that_is_left(manual):
    bodies = ErrorBodies(manual, timeout_s=30, idle_timeout_s=60)
    request = httpx2.Request("POST", "http://localhost/")
    await bodies.on_request(request)
    await manual.advance(28)
    response = httpx2.Response(429, request=request, stream=Endless())
    task = asyncio.create_task(bodies.on_response(response))
    await manual.advance(0.9)
    assert not task.done()
    await manual.advance(0.1)
    assert task.done()
    assert response.content == b""


async def test_what_came_before_the_body_stalled_is_read_if_it_is_whole(bench, wires, manual, until):
    client, _ = bench.client(wires["anthropic-direct"], clock=manual)
    bench.script(Step(name="stalled", raw=replace(STALLED, parts=(SAID, b" "))))
    task = asyncio.create_task(client.single_response("Hello."))
    await until(lambda: manual.next_instant == manual.now() + GRACE_S)
    await manual.advance(GRACE_S)
    assert task.done()
    with pytest.raises(RateLimitedError, match="Slower"):
        await task
