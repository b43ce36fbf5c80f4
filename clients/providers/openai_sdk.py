"""What the OpenAI SDK brings to either of its wires: the key, the address, the limits in its headers."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from hashlib import sha256
from typing import Any, ClassVar

import httpx2
import openai
from openai import AsyncStream

from interlock.admission.outcome import Dimension, ReportedLimit
from interlock.catalog.words import Depth

from ..asking import Ask
from ..hints import openai_limits
from ..listing import ListedModel, inputs_of, items_of, text_of, tokens_of
from ..schema import OPENAI
from .sdk import SdkChatClient

EFFORTS: Mapping[Depth, str] = {
    Depth.IMMEDIATE: "low",
    Depth.QUICK: "low",
    Depth.STANDARD: "medium",
    Depth.THOROUGH: "high",
}
#: Our words for the choice of a tool, and the wire's.
TOOL_CHOICES: Mapping[str, str] = {"auto": "auto", "none": "none", "any": "required"}
#: Names of models that do not converse in text. The list does not say it otherwise; a name that is missing here costs a
#: superfluous entry that nothing picks.
_NOT_CHAT = re.compile(
    r"(?i)(^|[-/])(embed\w*|whisper|tts|transcribe|dall-e|image|sora|moderation|realtime|audio|babbage|davinci|rerank\w*)"
    r"($|[-_.:\d])"
)


def data_url(data: bytes, media_type: str) -> str:
    return f"data:{media_type};base64,{base64.b64encode(data).decode()}"


def add_cache_key(wire: dict[str, Any], ask: Ask) -> None:
    """By which OpenAI brings requests to where their beginning is cached: the same for the same system text and tools,
    of which it tells nothing. None where there are neither, or no cache."""
    if ask.entry.caching == "none" or not (ask.system or ask.tools):
        return
    beginning = json.dumps([ask.system, wire.get("tools")], sort_keys=True, default=str)
    wire["prompt_cache_key"] = sha256(beginning.encode("utf-8", "surrogatepass")).hexdigest()[:32]


class OpenAISdkClient(SdkChatClient):
    """A client of the OpenAI SDK: no retries, and nothing from the environment."""

    dialect = OPENAI
    request_id_header = "x-request-id"
    default_base_url: ClassVar[str | None] = "https://api.openai.com/v1"
    default_credential: ClassVar[str | None] = "openai-api-key"

    def make_sdk(self, *, api_key: str | None, base_url: str, http: httpx2.AsyncClient, timeout: httpx2.Timeout) -> Any:
        sdk = openai.AsyncOpenAI(
            api_key=api_key or "none",
            admin_api_key="",
            organization=self.environment.settings.options.get("organization") or "",
            project=self.environment.settings.options.get("project") or "",
            webhook_secret="",
            base_url=base_url,
            http_client=http,
            timeout=timeout,
            max_retries=0,
        )
        # An empty string kept the environment's value out; nothing at all keeps the header out.
        sdk.organization, sdk.project = sdk.organization or None, sdk.project or None
        return sdk

    def stream_class(self) -> Any:
        return AsyncStream[object]

    async def list_models(self) -> Sequence[ListedModel]:
        page = await self.get("/models", {})
        return [_listed(item) for item in items_of(page, "data")]

    def read_limits(self, headers: Mapping[str, str], *, now: datetime) -> dict[Dimension, ReportedLimit]:
        return openai_limits(headers, now=now)


def _listed(item: Mapping[str, Any]) -> ListedModel:
    """OpenAI tells ids alone. Servers that imitate it tell more, each under a name of its own."""
    top, shape = item.get("top_provider"), item.get("architecture")
    top = top if isinstance(top, dict) else {}
    shape = shape if isinstance(shape, dict) else {}
    name = str(item["id"])
    return ListedModel(
        wire_model_id=name,
        name=text_of(item.get("name")),
        context_window=tokens_of(item.get("max_model_len"), item.get("context_length"), item.get("context_window")),
        max_output_tokens=tokens_of(top.get("max_completion_tokens"), item.get("max_completion_tokens")),
        inputs=inputs_of(shape.get("input_modalities")),
        chat=_NOT_CHAT.search(name) is None,
    )
