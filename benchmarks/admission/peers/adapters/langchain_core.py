"""langchain-core's InMemoryRateLimiter: requests only, as its documentation says; it looks every 0.1 s."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from langchain_core.rate_limiters import InMemoryRateLimiter

from ..child import Ask, Terms
from ..workload import Call
from . import sdk


@asynccontextmanager
async def opened(terms: Terms) -> AsyncIterator[Ask]:
    limiter = InMemoryRateLimiter(requests_per_second=terms.rpm / 60, max_bucket_size=terms.rpm * terms.burst_s / 60)
    async with sdk.client(terms) as client:

        async def once(call: Call) -> None:
            await limiter.aacquire()
            await sdk.send(client, call.text)

        async def ask(call: Call) -> None:
            await sdk.until_served(once, call)

        yield ask
