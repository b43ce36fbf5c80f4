"""A proxy before a Postgres server that loses answers, or hands out another backend for each transaction."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any
from urllib.parse import parse_qs, urlsplit

SSL_REQUEST = (8).to_bytes(4, "big") + (80877103).to_bytes(4, "big")

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class PostgresProxy:
    """`url` reaches the server at `behind` through it.

    `lose_commits`: of so many COMMITs the server hears and the client gets no answer, the connection being cut.
    `pooled`: every client has two backends, and each transaction goes to the other one than the one before.
    """

    def __init__(self, behind: str) -> None:
        self.behind = behind
        parts = urlsplit(behind)
        self._socket = f"{parse_qs(parts.query)['host'][0]}/.s.PGSQL.5432"
        self._database = parts.path.lstrip("/")
        self.lose_commits = 0
        self.pooled = False
        self.connections = 0
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[Any]] = set()

    async def __aenter__(self) -> PostgresProxy:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *exc: object) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def url(self) -> str:
        assert self._server is not None
        port = self._server.sockets[0].getsockname()[1]
        return f"postgresql://postgres@127.0.0.1:{port}/{self._database}"

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            await self._talk(reader, writer)
        except (ConnectionError, EOFError):
            pass
        finally:
            writer.close()

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        startup = await reader.readexactly(8)
        if startup == SSL_REQUEST:
            writer.write(b"N")
            startup = await reader.readexactly(8)
        startup += await reader.readexactly(int.from_bytes(startup[:4], "big") - 8)
        backends = [await self._backend(startup, writer.write)]
        if self.pooled:
            backends.append(await self._backend(startup, lambda message: None))
        try:
            await self._relay(reader, writer, backends)
        finally:
            for _, to_backend in backends:
                to_backend.close()

    async def _backend(self, startup: bytes, tell: Callable[[bytes], None]) -> Streams:
        """A backend that is ready. The client hears of the first one's greeting."""
        streams = await asyncio.open_unix_connection(self._socket)
        streams[1].write(startup)
        while True:
            message = await _message(streams[0])
            tell(message)
            if message[:1] == b"Z":
                return streams

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, backends: list[Streams]) -> None:
        current = 0
        losing = False

        async def answers(number: int) -> None:
            nonlocal current
            with suppress(ConnectionError, EOFError):
                while True:
                    message = await _message(backends[number][0])
                    ready = message[:1] == b"Z"
                    if losing and ready:
                        break
                    if not losing:
                        writer.write(message)
                    if ready and message[5:6] == b"I":
                        current = (number + 1) % len(backends)
            writer.transport.abort()

        tasks = [asyncio.create_task(answers(number)) for number in range(len(backends))]
        try:
            while True:
                message = await _message(reader)
                if message[:1] == b"Q" and b"COMMIT" in message and self.lose_commits > 0:
                    self.lose_commits -= 1
                    losing = True
                backends[current][1].write(message)
        finally:
            for task in tasks:
                task.cancel()
            with suppress(asyncio.CancelledError):
                await asyncio.gather(*tasks, return_exceptions=True)


async def _message(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readexactly(5)
    return head + await reader.readexactly(int.from_bytes(head[1:5], "big") - 4)
