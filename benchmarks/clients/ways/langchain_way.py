"""langchain's chat models, with their retries off."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from langchain_anthropic import ChatAnthropic
from langchain_core.language_models import BaseChatModel
from langchain_openai import ChatOpenAI

from ..workload import KEY, MAX_TOKENS, MODEL, PROMPT, Ways


@asynccontextmanager
async def opened(wire: str, url: str) -> AsyncIterator[Ways]:
    model: BaseChatModel
    if wire == "anthropic":
        model = ChatAnthropic(model=MODEL, base_url=url, api_key=KEY, max_tokens=MAX_TOKENS, max_retries=0)
    else:
        model = ChatOpenAI(
            model=MODEL, base_url=url, api_key=KEY, max_completion_tokens=MAX_TOKENS, max_retries=0, stream_usage=True
        )

    async def whole() -> str:
        return str((await model.ainvoke(PROMPT)).text)

    async def streamed() -> int:
        pieces = 0
        async for chunk in model.astream(PROMPT):
            pieces += bool(chunk.text)
        return pieces

    yield Ways(whole, streamed)
