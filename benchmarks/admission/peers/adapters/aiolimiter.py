"""aiolimiter: a leaky bucket a limit; `acquire(amount)` for tokens. Nothing comes back and nothing is retried."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiolimiter import AsyncLimiter

from ..child import Ask, Terms
from ..workload import MEAN_OUTPUT_TOKENS, Call
from . import sdk


@asynccontextmanager
async def opened(terms: Terms) -> AsyncIterator[Ask]:
    requests = AsyncLimiter(terms.rpm * terms.burst_s / 60, terms.burst_s)
    tokens = AsyncLimiter(terms.tpm * terms.burst_s / 60, terms.burst_s)
    async with sdk.client(terms) as client:

        async def once(call: Call) -> None:
            await tokens.acquire(call.input_tokens + MEAN_OUTPUT_TOKENS)
            await requests.acquire()
            await sdk.send(client, call.text)

        async def ask(call: Call) -> None:
            await sdk.until_served(once, call)

        yield ask
