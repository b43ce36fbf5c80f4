"""async-batch-llm: its shared call pool, with requests and tokens a minute, its estimator and its own retries.

The cooldown is the one its guide gives for providers with short quota windows (30 s, at most 300 s; the default is
300 s); everything else is as it comes.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from async_batch_llm import (
    CallableStrategy,
    CallOutcome,
    CharacterTokenEstimator,
    LLMCallPool,
    ProcessorConfig,
    RateLimitConfig,
)

from ..child import Ask, Terms
from ..workload import MEAN_OUTPUT_TOKENS, Call
from . import sdk


@asynccontextmanager
async def opened(terms: Terms) -> AsyncIterator[Ask]:
    config = ProcessorConfig(
        concurrency=terms.callers,
        max_requests_per_minute=terms.rpm,
        max_tokens_per_minute=int(terms.tpm),
        quota_burst_seconds=terms.burst_s,
        token_estimator=CharacterTokenEstimator(expected_output_tokens=MEAN_OUTPUT_TOKENS),
        rate_limit=RateLimitConfig(cooldown_seconds=30.0, max_cooldown_seconds=300.0),
    )
    async with sdk.client(terms) as client:

        async def invoke(prompt: str, *, attempt: int, timeout: float, state: Any) -> CallOutcome[str]:
            used = (await sdk.send(client, prompt)).usage
            return CallOutcome("", {"input_tokens": used.input_tokens, "output_tokens": used.output_tokens})

        async with LLMCallPool(CallableStrategy(invoke), config=config) as pool:

            async def ask(call: Call) -> None:
                await pool.submit(call.text)

            yield ask
