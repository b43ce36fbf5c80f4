"""The SDK everybody sends with, and what people write around it when a limiter does not retry by itself.

A refused call sleeps as long as the provider says (else 0.5 s doubling to 8 s, with jitter), takes its place in the
limiter again and is sent again, without end.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

import anthropic

from ..child import Terms
from ..workload import MAX_OUTPUT_TOKENS, Call

_RETRIED = (anthropic.RateLimitError, anthropic.InternalServerError, anthropic.APIConnectionError)


def client(terms: Terms, *, max_retries: int = 0) -> anthropic.AsyncAnthropic:
    return anthropic.AsyncAnthropic(api_key="simulated", base_url=terms.base_url, max_retries=max_retries)


async def send(sdk: anthropic.AsyncAnthropic, text: str) -> Any:
    """One request; the provider's message."""
    return await sdk.messages.create(
        model="simulated", max_tokens=MAX_OUTPUT_TOKENS, messages=[{"role": "user", "content": text}]
    )


async def until_served(once: Callable[[Call], Awaitable[Any]], call: Call) -> None:
    """`once` takes a place in the limiter and sends."""
    refusals = 0
    while True:
        try:
            await once(call)
        except _RETRIED as error:
            await asyncio.sleep(_told_s(error) or min(0.5 * 2**refusals, 8.0) * random.uniform(0.75, 1.25))
            refusals += 1
        else:
            return


def _told_s(error: Exception) -> float | None:
    response = getattr(error, "response", None)
    told = response.headers.get("retry-after") if response is not None else None
    return float(told) if told else None
