"""The providers' own SDKs, with their retries off."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anthropic
import openai

from ..workload import KEY, MAX_TOKENS, MODEL, PROMPT, Ways

MESSAGES: Any = [{"role": "user", "content": PROMPT}]


@asynccontextmanager
async def opened(wire: str, url: str) -> AsyncIterator[Ways]:
    if wire == "anthropic":
        async with anthropic.AsyncAnthropic(api_key=KEY, base_url=url, max_retries=0) as claude:
            yield _anthropic(claude)
    else:
        async with openai.AsyncOpenAI(api_key=KEY, base_url=url, max_retries=0) as gpt:
            yield _openai(gpt)


def _anthropic(sdk: anthropic.AsyncAnthropic) -> Ways:
    async def whole() -> str:
        message = await sdk.messages.create(model=MODEL, max_tokens=MAX_TOKENS, messages=MESSAGES)
        return "".join(block.text for block in message.content if block.type == "text")

    async def streamed() -> int:
        pieces = 0
        async for event in await sdk.messages.create(
            model=MODEL, max_tokens=MAX_TOKENS, messages=MESSAGES, stream=True
        ):
            pieces += event.type == "content_block_delta"
        return pieces

    return Ways(whole, streamed)


def _openai(sdk: openai.AsyncOpenAI) -> Ways:
    async def whole() -> str:
        completion = await sdk.chat.completions.create(model=MODEL, max_completion_tokens=MAX_TOKENS, messages=MESSAGES)
        return completion.choices[0].message.content or ""

    async def streamed() -> int:
        pieces = 0
        async for chunk in await sdk.chat.completions.create(
            model=MODEL, max_completion_tokens=MAX_TOKENS, messages=MESSAGES, stream=True,
            stream_options={"include_usage": True},
        ):  # fmt: skip
            pieces += bool(chunk.choices and chunk.choices[0].delta.content)
        return pieces

    return Ways(whole, streamed)
