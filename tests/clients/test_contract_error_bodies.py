"""An error is what its status and headers say, however badly its body says it: cut off, badly packed, of no text."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from interlock.admission.outcome import OutcomeKind
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
}
CLASSES = {529: OverloadedError, 401: CredentialError, 400: InvalidRequestError}
CASES = [*((name, 429, RateLimitedError) for name in BODIES), *(("cut", *each) for each in CLASSES.items())]


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
    answers: list[bytes] = []
    async with saying(answers) as port:
        client, seat = bench.client(wire, base_url=f"http://127.0.0.1:{port}/v1", settings={"max_connections": 1})
        for name, status, class_ in CASES:
            answers.append(answer(status, *BODIES[name]))
            with pytest.raises(UpstreamError) as caught:
                await asked(client, "Hello.", streamed=streamed)
            assert type(caught.value) is class_, name
            assert (caught.value.status, caught.value.retry_after_s) == (status, 7)
            assert answers == [], "one request"
        limited = [OutcomeKind.RATE_LIMITED] * len(BODIES)
        assert seat.kinds == [*limited, OutcomeKind.OVERLOADED, OutcomeKind.REJECTED, OutcomeKind.REJECTED]
        seat.check_books()


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
async def test_an_error_with_a_header_that_is_no_ascii(bench, wire, streamed):
    answers = [answer(429, SAID, None, "x-odd: caf\u00e9")]
    async with saying(answers) as port:
        client, seat = bench.client(wire, base_url=f"http://127.0.0.1:{port}/v1")
        with pytest.raises(RateLimitedError) as caught:
            await asked(client, "Hello.", streamed=streamed)
        assert caught.value.retry_after_s == 7
        seat.check_books()


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
async def test_a_packed_error_is_read(bench, wire, streamed):
    answers = [answer(403, gzip.compress(SAID), None, PACKED)]
    async with saying(answers) as port:
        client, _ = bench.client(wire, base_url=f"http://127.0.0.1:{port}/v1")
        with pytest.raises(RateLimitedError, match="Slower"):
            await asked(client, "Hello.", streamed=streamed)
