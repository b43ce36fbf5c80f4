"""`openai-embeddings`, and `openai-compatible-embeddings`: any server that speaks its wire (a `base_url` is needed, a
key only where the settings name one).

Numbers are asked for as numbers: the SDK would ask for base64, which not every server speaks. `dimensions` is sent
where the entry has `requested_dimensions`. The wire knows no purpose: a model that wants to be told writes `prefixes`
into its entry.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from interlock.catalog.usage import Usage
from interlock.clients.abstract import Reply
from interlock.clients.providers.openai_compatible import OpenAICompatibleClient
from interlock.clients.providers.openai_sdk import OpenAISdkClient
from interlock.clients.providers.sdk import SdkChatClient

from ..abstract import EmbeddingAnswer
from ..purpose import EmbeddingPurpose
from .sdk import Carrier, SdkEmbeddingsClient, rows_of, tokens_of


class _OpenAI(Carrier, OpenAISdkClient):
    path = "/embeddings"


class _Compatible(Carrier, OpenAICompatibleClient):
    path = "/embeddings"


class OpenAIEmbeddingsClient(SdkEmbeddingsClient):
    """OpenAI's embeddings."""

    carrier: ClassVar[type[SdkChatClient]] = _OpenAI
    default_credential: ClassVar[str | None] = _OpenAI.default_credential
    needed_credential = staticmethod(_OpenAI.needed_credential)
    MAX_REQUEST_TEXTS: ClassVar[int | None] = 2_048
    MAX_REQUEST_TOKENS: ClassVar[int | None] = 300_000

    def encode(self, texts: Sequence[str], purpose: EmbeddingPurpose) -> dict[str, Any]:
        wire: dict[str, Any] = {
            "model": self.entry.wire_model_id,
            "input": list(texts),
            "encoding_format": "float",
        }
        if self.entry.requested_dimensions is not None:
            wire["dimensions"] = self.entry.requested_dimensions
        return wire

    def usage(self, reply: Reply) -> Usage | None:
        used = reply.payload.get("usage") or {}
        return tokens_of(used.get("prompt_tokens", used.get("total_tokens")))

    def read(self, reply: Reply, texts: Sequence[str]) -> EmbeddingAnswer:
        found = rows_of(reply.payload["data"])
        served = reply.payload.get("model")
        return EmbeddingAnswer(
            vectors=[item["embedding"] for item in found],
            indexes=[item.get("index") for item in found],
            usage=self.usage(reply),
            request_id=reply.request_id,
            served_model=served if isinstance(served, str) and served else None,
            reported=reply.reported,
        )


class OpenAICompatibleEmbeddingsClient(OpenAIEmbeddingsClient):
    """A server that imitates OpenAI's."""

    carrier: ClassVar[type[SdkChatClient]] = _Compatible
    default_credential: ClassVar[str | None] = None
    needed_credential = staticmethod(_Compatible.needed_credential)
    MAX_REQUEST_TEXTS: ClassVar[int | None] = None
    MAX_REQUEST_TOKENS: ClassVar[int | None] = None
