"""`anthropic-bedrock`: Claude on Amazon Bedrock's InvokeModel, with the messages of Anthropic's own API.

The model stands in the path, and so does whether the answer is streamed; the stream comes in AWS's binary frames, which
the SDK reads with botocore.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any, ClassVar
from urllib.parse import quote

import httpx2
from anthropic.lib.bedrock import AsyncAnthropicBedrock

from ..asking import Ask
from ..listing import ListedModel
from .anthropic_direct import AnthropicDirectClient
from .aws import AwsChatClient
from .bedrock_models import bedrock_models
from .sdk import as_json

#: The one version that Bedrock documents for Anthropic's messages.
VERSION = "bedrock-2023-05-31"


class AnthropicBedrockClient(AwsChatClient, AnthropicDirectClient):
    """Claude on Bedrock's classic endpoint."""

    request_id_header = "x-amzn-requestid"
    default_base_url: ClassVar[str | None] = None
    default_credential: ClassVar[str | None] = "aws"
    reserved = AnthropicDirectClient.reserved | {"anthropic_version"}

    def encode(self, ask: Ask) -> dict[str, Any]:
        wire = super().encode(ask)
        del wire["model"]
        wire.pop("stream", None)
        return {"anthropic_version": VERSION, **wire}

    def path_of(self, *, streamed: bool) -> str:
        model = quote(self.entry.wire_model_id, safe=":")
        return f"/model/{model}/invoke{'-with-response-stream' if streamed else ''}"

    async def count_tokens(self, body: bytes) -> int | None:
        asked = {"input": {"invokeModel": {"body": base64.b64encode(body).decode()}}}
        return self.read_count(await self.post_to(self.counted_path, as_json(asked)), "inputTokens")

    async def list_models(self) -> Sequence[ListedModel]:
        return await bedrock_models(self, maker="anthropic")

    def make_sdk(self, *, api_key: str | None, base_url: str, http: httpx2.AsyncClient, timeout: httpx2.Timeout) -> Any:
        return self.sdk_of(AsyncAnthropicBedrock, base_url=base_url, http=http, timeout=timeout)
