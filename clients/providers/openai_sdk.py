"""What the OpenAI SDK brings to either of its wires: the key, the address, the limits in its headers."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from datetime import datetime
from typing import Any, ClassVar

import httpx2
import openai
from openai import AsyncStream

from interlock.admission.outcome import Dimension, ReportedLimit
from interlock.catalog.words import Depth

from ..hints import openai_limits
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


def data_url(data: bytes, media_type: str) -> str:
    return f"data:{media_type};base64,{base64.b64encode(data).decode()}"


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

    def read_limits(self, headers: Mapping[str, str], *, now: datetime) -> dict[Dimension, ReportedLimit]:
        return openai_limits(headers, now=now)
