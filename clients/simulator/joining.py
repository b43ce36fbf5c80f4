"""One write to the socket for all that is written in one turn of the loop.

uvicorn writes the head of a response and its body apart; each write is a system call that may wake the client for half
an answer. Joined, a whole answer costs one.
"""

from __future__ import annotations

import asyncio
from typing import Any


class JoiningTransport:
    """A transport that passes everything on but collects what is written."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._loop = asyncio.get_running_loop()
        self._parts: list[bytes] = []

    def write(self, data: bytes) -> None:
        if not self._parts:
            self._loop.call_soon(self._flush)
        self._parts.append(data)

    def close(self) -> None:
        self._flush()
        self._transport.close()

    def abort(self) -> None:
        """Abort after what was written has been handed to the socket."""
        self._flush()
        self._transport.abort()

    def _flush(self) -> None:
        parts, self._parts = self._parts, []
        if parts:
            self._transport.write(parts[0] if len(parts) == 1 else b"".join(parts))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)
