"""A relay before the provider that counts what really goes over its sockets, and can end a connection as servers do."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

_HEAD = re.compile(rb"POST /\S* HTTP/1\.1\r\n")


@dataclass
class Relay:
    """`heads` are the requests that came, `connections` the sockets they came over. `keeps` is how many requests one
    connection serves; the next one on it is read whole, and the connection closed without a word."""

    port: int = 0
    keeps: int = 10**9
    heads: list[bytes] = field(default_factory=list)
    connections: int = 0
    open: set[asyncio.StreamWriter] = field(default_factory=set)

    async def hang_up(self) -> None:
        """Close every connection, as a server does whose idle time is over."""
        for writer in tuple(self.open):
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()


@asynccontextmanager
async def relay(to_port: int, *, keeps: int = 10**9) -> AsyncIterator[Relay]:
    made = Relay(keeps=keeps)

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while chunk := await reader.read(65_536):
                writer.write(chunk)
                await writer.drain()
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        made.connections += 1
        made.open.add(writer)
        inner_reader, inner_writer = await asyncio.open_connection("127.0.0.1", to_port)
        back = asyncio.create_task(carry(inner_reader, writer))
        served = 0
        with suppress(OSError):
            while chunk := await reader.read(65_536):
                found = _HEAD.findall(chunk)
                made.heads += found
                served += len(found)
                if served > made.keeps:
                    break
                inner_writer.write(chunk)
        back.cancel()
        for each in (inner_writer, writer):
            each.close()
        made.open.discard(writer)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    made.port = server.sockets[0].getsockname()[1]
    try:
        yield made
    finally:
        server.close()
        await made.hang_up()
