"""A stream of events whose last one lacks its blank line: it came whole, and an SDK would pass over it."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Mapping
from typing import Any

import httpx2

_LINE_END = re.compile(rb"\r\n|\r|\n")
_BLANK_LINES = (b"\n\n", b"\r\r", b"\r\n\r\n")


def is_event_stream(headers: Mapping[str, str]) -> bool:
    """Whether these are events in the open: neither AWS's frames nor packed."""
    return "text/event-stream" in headers.get("content-type", "").lower() and "content-encoding" not in headers


class LastEvent(httpx2.AsyncByteStream):
    """The bytes, and a blank line where they end in an event that is whole: its data is JSON. What was cut off inside
    an event is left as it is."""

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
