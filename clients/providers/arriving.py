"""The bytes of a streamed answer on their way to an SDK. Each arrival is noticed, pings too, which an SDK swallows; and
two flaws of form are mended for which an SDK would pass over an event that came whole."""

from __future__ import annotations

import json
import re
from codecs import BOM_UTF8
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

import httpx2

_LINE_END = re.compile(rb"\r\n|\r|\n")
_BLANK_LINES = (b"\n\n", b"\r\r", b"\r\n\r\n")


def notice(response: httpx2.Response, alive: Callable[[], None]) -> None:
    """Call `alive` whenever something of the response arrives. Before anything is read of it."""
    response.stream = _Noticed(response.stream, alive)
    if _is_event_stream(response.headers):
        response.stream = _LastEvent(response.stream)


def _is_event_stream(headers: Mapping[str, str]) -> bool:
    """Whether these are events in the open: neither AWS's frames nor packed."""
    return "text/event-stream" in headers.get("content-type", "").lower() and "content-encoding" not in headers


class _Noticed(httpx2.AsyncByteStream):
    """The bytes without a byte order mark, for which an SDK would pass over the first event."""

    def __init__(self, inner: Any, alive: Callable[[], None]) -> None:
        self._inner, self._alive = inner, alive

    async def __aiter__(self) -> AsyncIterator[bytes]:
        held: bytes | None = b""  # what may be the beginning of a mark; None: the beginning is over
        async for chunk in self._inner:
            self._alive()
            if held is not None:
                chunk = held + chunk
                held = chunk if len(chunk) < len(BOM_UTF8) and BOM_UTF8.startswith(chunk) else None
                chunk = b"" if held is not None else chunk.removeprefix(BOM_UTF8)
            if chunk:
                yield chunk
        if held:
            yield held

    async def aclose(self) -> None:
        await self._inner.aclose()


class _LastEvent(httpx2.AsyncByteStream):
    """The bytes, and a blank line where they end in an event that lacks it and is whole: its data is JSON. What was cut
    off inside an event is left as it is."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    async def __aiter__(self) -> AsyncIterator[bytes]:
        tail = b""  # since the last blank line
        async for chunk in self._inner:
            seen = max(len(tail) - 3, 0)
            tail += chunk
            ends = [at + len(blank) for blank in _BLANK_LINES if (at := tail.rfind(blank, seen)) >= 0]
            if ends:
                tail = tail[max(ends) :]
            yield chunk
        if _is_whole(tail):
            yield b"\n\n"

    async def aclose(self) -> None:
        await self._inner.aclose()


def _is_whole(event: bytes) -> bool:
    data = [line[5:] for line in _LINE_END.split(event) if line.startswith(b"data:")]
    try:
        return isinstance(json.loads(b"\n".join(data)), dict)
    except (ValueError, RecursionError):
        return False
