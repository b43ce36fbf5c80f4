"""Our client: everything between a conversation and its record, but no admission (see benchmarks.admission)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from interlock.clients import PieceKind

from ..seat import client
from ..workload import PROMPT, Ways


@asynccontextmanager
async def opened(wire: str, url: str) -> AsyncIterator[Ways]:
    template, bound = client(wire, url)

    async def whole() -> str:
        return (await bound.single_response(PROMPT)).text

    async def streamed() -> int:
        count = 0
        async with bound.stream_response(PROMPT) as pieces:
            async for piece in pieces:
                count += piece.kind is PieceKind.TEXT
        return count

    yield Ways(whole, streamed)
    await template.aclose()
