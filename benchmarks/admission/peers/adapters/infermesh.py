"""infermesh: requests and tokens a minute, its own retries, through LiteLLM (it has no other way to send).

It reserves the input as LiteLLM counts it and the whole output limit, and gives back what was not used.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # its import asks nobody for prices

from infermesh import LMClient

from ..child import Ask, Terms
from ..workload import MAX_OUTPUT_TOKENS, Call


@asynccontextmanager
async def opened(terms: Terms) -> AsyncIterator[Ask]:
    async with LMClient(
        model="anthropic/simulated",
        api_base=terms.base_url,
        api_key="simulated",
        rpm=int(terms.rpm),
        tpm=int(terms.tpm),
        max_request_burst=int(terms.rpm * terms.burst_s / 60),
        max_token_burst=int(terms.tpm * terms.burst_s / 60),
        max_parallel_requests=terms.callers,
    ) as client:

        async def ask(call: Call) -> None:
            await client.agenerate(call.text, max_tokens=MAX_OUTPUT_TOKENS)

        yield ask
