"""`openai-compatible`: any server that speaks the chat completions wire (vLLM, llama.cpp, Ollama, LM Studio, gateways).

Needs a `base_url`; a key only where the settings name a credential. It asks for less than OpenAI's own class: the older
name of the output limit, and structured answers as the entry says (`structured: prompt` is safe everywhere). Where a
server refuses `stream_options`, the provider's `options: {include_usage: false}` leaves it out; where it takes a schema
as `{"type": "json_object", "schema": ...}` only (llama-cpp-python), `options: {response_format: json_object}` writes
`structured: native` so.
"""

from __future__ import annotations

from typing import Any

import httpx2
import openai

from ..asking import Ask
from .openai_chat import OpenAIChatCompletionsClient


class OpenAICompatibleClient(OpenAIChatCompletionsClient):
    """A server that imitates OpenAI's."""

    default_base_url = None
    default_credential = None
    limit_field = "max_tokens"
    keys_cache = False
    call_ids = None  # a server's own may be of any length

    def encode(self, ask: Ask) -> dict[str, Any]:
        wire = super().encode(ask)
        beside = self.environment.settings.options.get("response_format") == "json_object"
        if beside and "response_format" in wire:
            wire["response_format"] = {
                "type": "json_object",
                "schema": wire["response_format"]["json_schema"]["schema"],
            }
        return wire

    def make_sdk(self, *, api_key: str | None, base_url: str, http: httpx2.AsyncClient, timeout: httpx2.Timeout) -> Any:
        sdk = super().make_sdk(api_key=api_key, base_url=base_url, http=http, timeout=timeout)
        return sdk if api_key is not None else _Keyless(sdk)


class _Keyless:
    """The SDK insists on a key; a server without one gets no header at all."""

    def __init__(self, sdk: Any) -> None:
        self._sdk = sdk

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "_sdk":
            object.__setattr__(self, name, value)
        else:
            setattr(self._sdk, name, value)

    async def post(self, path: str, **request: Any) -> Any:
        options = {**request.pop("options", {}), "headers": {"Authorization": openai.Omit()}}
        return await self._sdk.post(path, options=options, **request)

    async def get(self, path: str, **request: Any) -> Any:
        options = {**request.pop("options", {}), "headers": {"Authorization": openai.Omit()}}
        return await self._sdk.get(path, options=options, **request)
