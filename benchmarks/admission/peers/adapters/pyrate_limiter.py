"""pyrate-limiter: its token bucket, `weight` for tokens. Nothing comes back and nothing is retried."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from pyrate_limiter import Duration, limiter_factory

from ..child import Ask, Terms
from ..workload import MEAN_OUTPUT_TOKENS, Call
from . import sdk


@asynccontextmanager
async def opened(terms: Terms) -> AsyncIterator[Ask]:
    requests, tokens = (
        limiter_factory.create_token_bucket_limiter(
            rate_per_duration=int(rate), duration=Duration.MINUTE, burst=int(rate * terms.burst_s / 60)
        )
        for rate in (terms.rpm, terms.tpm)
    )
    async with sdk.client(terms) as client:

        async def once(call: Call) -> None:
            await tokens.try_acquire_async("tokens", weight=call.input_tokens + MEAN_OUTPUT_TOKENS)
            await requests.try_acquire_async("requests")
            await sdk.send(client, call.text)

        async def ask(call: Call) -> None:
            await sdk.until_served(once, call)

        yield ask
