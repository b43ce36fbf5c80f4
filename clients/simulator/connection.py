"""One request's connection: reading its body, writing an answer, pausing, noticing that the client has left."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Literal, TypeVar

from .wires.wire import Headers

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Sleep = Callable[[float], Awaitable[None]]

T = TypeVar("T")

TRANSPORT = "interlock.transport"  # where the loopback server leaves the socket's transport in the scope's state


class ClientLeftError(Exception):
    """The client has closed the connection before the answer was complete."""


class Connection:
    def __init__(self, scope: Scope, receive: Receive, send: Send, sleep: Sleep) -> None:
        self._state: MutableMapping[str, Any] = scope.get("state") or {}
        self._receive = receive
        self._send = send
        self._sleep = sleep
        self._watcher: asyncio.Task[None] | None = None

    async def body(self) -> bytes:
        message = await self._receive()
        if message["type"] == "http.request" and not message.get("more_body"):
            return bytes(message.get("body", b""))
        parts = []
        while True:
            if message["type"] == "http.disconnect":
                raise ClientLeftError
            parts.append(message.get("body", b""))
            if not message.get("more_body"):
                return b"".join(parts)
            message = await self._receive()

    async def respond(self, status: int, headers: Headers, body: bytes) -> None:
        """A whole response of known length."""
        if status == 204:
            body = b""
        else:
            headers = [*headers, (b"content-length", b"%d" % len(body))]
        await self.start(status, headers)
        await self.end(body)

    async def start(self, status: int, headers: Headers) -> None:
        await self._send({"type": "http.response.start", "status": status, "headers": headers})

    async def write(self, data: bytes) -> None:
        """A part of a body. Raises ClientLeftError once it is known that nobody listens."""
        if self._watcher is not None and self._watcher.done():
            raise ClientLeftError
        try:
            await self._send({"type": "http.response.body", "body": data, "more_body": True})
        except OSError as error:
            raise ClientLeftError from error

    async def end(self, data: bytes = b"") -> None:
        await self._send({"type": "http.response.body", "body": data, "more_body": False})

    async def breathe(self) -> None:
        """Let others run between two pieces, and notice a client that has left."""
        self._watch()
        await asyncio.sleep(0)

    async def pause(self, seconds: float) -> None:
        """Wait that long. Raises ClientLeftError as soon as the client leaves."""
        await self.while_here(self._sleep(seconds))

    async def while_here(self, work: Awaitable[T]) -> T:
        """Await `work`. As soon as the client leaves it is cancelled, and ClientLeftError raised."""
        watcher = self._watch()
        task = asyncio.ensure_future(work)
        try:
            await asyncio.wait((watcher, task), return_when=asyncio.FIRST_COMPLETED)
        finally:
            task.cancel()
            await asyncio.wait((task,))
        if watcher.done():
            with contextlib.suppress(BaseException):
                task.result()  # a failure that nobody will hear of
            raise ClientLeftError
        return task.result()

    async def until_left(self) -> None:
        """Wait until the client leaves (or the server stops)."""
        await asyncio.wait((self._watch(),))

    async def abort(self, how: Literal["close", "reset"]) -> None:
        """End the connection in the middle: closed after what was written, or reset."""
        transport: asyncio.Transport | None = self._state.get(TRANSPORT)
        if transport is None:
            raise ConnectionResetError("the simulated provider cut the connection")
        if how == "reset":
            raw = transport.get_extra_info("socket")
            if raw is not None:
                with contextlib.suppress(OSError):  # the client has left before us, and its socket is gone
                    raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # closing sends RST
            transport.abort()
        else:
            transport.close()
        await self.until_left()

    async def aclose(self) -> None:
        if self._watcher is not None:
            self._watcher.cancel()
            await asyncio.wait((self._watcher,))
            self._watcher = None

    def _watch(self) -> asyncio.Task[None]:
        if self._watcher is None:
            self._watcher = asyncio.ensure_future(self._wait_for_disconnect())
        return self._watcher

    async def _wait_for_disconnect(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
