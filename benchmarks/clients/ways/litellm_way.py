"""litellm.acompletion, with its retries off. It speaks to Anthropic without the SDK, to OpenAI with it."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"

import litellm

from ..workload import KEY, MAX_TOKENS, MODEL, PROMPT, Ways


@asynccontextmanager
async def opened(wire: str, url: str) -> AsyncIterator[Ways]:
    litellm.suppress_debug_info = True
    asked: dict[str, Any] = {
        "model": f"{wire}/{MODEL}", "api_base": url, "api_key": KEY, "max_tokens": MAX_TOKENS, "max_retries": 0,
        "messages": [{"role": "user", "content": PROMPT}],
    }  # fmt: skip

    async def whole() -> str:
        response = await litellm.acompletion(**asked)
        return response.choices[0].message.content or ""

    async def streamed() -> int:
        pieces = 0
        async for chunk in await litellm.acompletion(**asked, stream=True, stream_options={"include_usage": True}):
            pieces += bool(chunk.choices and chunk.choices[0].delta.content)
        return pieces

    yield Ways(whole, streamed)
