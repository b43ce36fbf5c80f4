"""`gemini-embeddings`: batchEmbedContents, with an API key or on Vertex AI (as the `gemini` provider has them).

What a text is for is told by `taskType`, which the first generation (gemini-embedding-001) knows. The second is told in
the text: its entry has `prefixes`, and then no task type is sent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import httpx2

from interlock.catalog.usage import Usage
from interlock.clients.abstract import Reply
from interlock.clients.providers.gemini import GeminiClient
from interlock.clients.providers.sdk import SdkChatClient

from ..abstract import EmbeddingAnswer
from ..purpose import EmbeddingPurpose
from .sdk import Carrier, SdkEmbeddingsClient, rows_of, tokens_of


class _Gemini(Carrier, GeminiClient):
    async def post(self, body: bytes) -> httpx2.Response:
        response = await self._asked("batchEmbedContents", body)
        try:
            await response.aread()
        except BaseException:
            await response.aclose()
            raise
        return response

    @property
    def model_path(self) -> str:
        return self._model_path()


class GeminiEmbeddingsClient(SdkEmbeddingsClient):
    """Gemini's embeddings."""

    carrier: ClassVar[type[SdkChatClient]] = _Gemini
    default_credential: ClassVar[str | None] = _Gemini.default_credential
    check_credentials = staticmethod(_Gemini.check_credentials)
    needed_credential = staticmethod(_Gemini.needed_credential)
    reserved = frozenset({"requests"})
    MAX_REQUEST_TEXTS = 100
    TASKS: ClassVar[Mapping[EmbeddingPurpose, str]] = {
        EmbeddingPurpose.DOCUMENT: "RETRIEVAL_DOCUMENT",
        EmbeddingPurpose.QUERY: "RETRIEVAL_QUERY",
    }

    def encode(self, texts: Sequence[str], purpose: EmbeddingPurpose) -> dict[str, Any]:
        carried = self.carried
        assert isinstance(carried, _Gemini)
        config: dict[str, Any] = {}
        if not self.entry.prefixes:
            config["taskType"] = self.TASKS[purpose]
        if self.entry.requested_dimensions is not None:
            config["outputDimensionality"] = self.entry.requested_dimensions
        beside: dict[str, Any] = {"model": carried.model_path, **config}
        if carried.on_vertex:
            beside = {"embedContentConfig": config}
        return {"requests": [{"content": {"parts": [{"text": text}]}, **beside} for text in texts]}

    def usage(self, reply: Reply) -> Usage | None:
        """Google states it in one place, in another, or not at all."""
        told = reply.payload.get("usageMetadata")
        if isinstance(told, dict):
            return tokens_of(told.get("promptTokenCount", told.get("totalTokenCount")))
        counts = [tokens_of((item.get("statistics") or {}).get("tokenCount")) for item in reply.payload["embeddings"]]
        known = [count for count in counts if count is not None]
        return sum(known[1:], start=known[0]) if known and len(known) == len(counts) else None

    def read(self, reply: Reply, texts: Sequence[str]) -> EmbeddingAnswer:
        return EmbeddingAnswer(
            vectors=[item["values"] for item in rows_of(reply.payload["embeddings"])],
            usage=self.usage(reply),
            request_id=reply.request_id,
            reported=reply.reported,
        )
