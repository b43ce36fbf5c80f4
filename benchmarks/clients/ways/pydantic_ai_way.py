"""pydantic-ai's direct requests: its models without an agent around them, the least of it there is."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anthropic
import openai
from pydantic_ai.direct import model_request, model_request_stream
from pydantic_ai.messages import ModelMessage, ModelRequest, PartDeltaEvent, PartStartEvent
from pydantic_ai.models import Model
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.settings import ModelSettings

from ..workload import KEY, MAX_TOKENS, MODEL, PROMPT, Ways

MESSAGES: list[ModelMessage] = [ModelRequest.user_text_prompt(PROMPT)]
SETTINGS = ModelSettings(max_tokens=MAX_TOKENS)


@asynccontextmanager
async def opened(wire: str, url: str) -> AsyncIterator[Ways]:
    sdk: Any
    model: Model
    if wire == "anthropic":
        sdk = anthropic.AsyncAnthropic(api_key=KEY, base_url=url, max_retries=0)
        model = AnthropicModel(MODEL, provider=AnthropicProvider(anthropic_client=sdk))
    else:
        sdk = openai.AsyncOpenAI(api_key=KEY, base_url=url, max_retries=0)
        model = OpenAIChatModel(MODEL, provider=OpenAIProvider(openai_client=sdk))

    async def whole() -> str:
        response = await model_request(model, MESSAGES, model_settings=SETTINGS)
        return "".join(part.content for part in response.parts if part.part_kind == "text")

    async def streamed() -> int:
        pieces = 0
        async with model_request_stream(model, MESSAGES, model_settings=SETTINGS) as stream:
            async for event in stream:
                pieces += isinstance(event, PartDeltaEvent | PartStartEvent)
        return pieces

    async with sdk:
        yield Ways(whole, streamed)
