"""The SDK with its own retries and nothing else: 2 of them unless said otherwise, honouring retry-after."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from ..child import Ask, Terms
from ..workload import Call
from . import sdk


@asynccontextmanager
async def opened(terms: Terms, *, max_retries: int = 2) -> AsyncIterator[Ask]:
    async with sdk.client(terms, max_retries=max_retries) as client:

        async def ask(call: Call) -> None:
            await sdk.send(client, call.text)

        yield ask
