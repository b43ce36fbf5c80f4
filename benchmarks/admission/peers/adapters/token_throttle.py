"""token-throttle: reserve the input and the p99 of the output, report what was used, get the rest back.

In memory, which is its own advice for one process. It does not retry; a call that failed is taken to have used what it
reserved, as its own example for Anthropic has it (giving that back keeps it ahead of the provider for good: 18% refused
where 100% is served).
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from token_throttle import MemoryBackendBuilder, PerModelConfig, Quota, RateLimiter, UsageQuotas

from ..child import Ask, Terms
from ..workload import P99_OUTPUT_TOKENS, Call
from . import sdk


@asynccontextmanager
async def opened(terms: Terms) -> AsyncIterator[Ask]:
    share, window_s = terms.burst_s / 60, int(terms.burst_s)
    quotas = UsageQuotas(
        [
            Quota(metric="requests", limit=int(terms.rpm * share), per_seconds=window_s),
            Quota(metric="tokens", limit=int(terms.tpm * share), per_seconds=window_s),
        ]
    )
    limiter = RateLimiter(PerModelConfig(quotas=quotas), backend=MemoryBackendBuilder())
    async with sdk.client(terms) as client:

        async def once(call: Call) -> None:
            usage = {"requests": 1, "tokens": call.input_tokens + P99_OUTPUT_TOKENS}
            async with limiter.reserve(usage, model="simulated", usage_on_error=usage) as held:
                used = (await sdk.send(client, call.text)).usage
                held.set_actual_usage({"requests": 1, "tokens": used.input_tokens + used.output_tokens})

        async def ask(call: Call) -> None:
            await sdk.until_served(once, call)

        yield ask
