"""`bedrock-titan-embeddings` and `bedrock-cohere-embeddings`: InvokeModel, signed by botocore, carried by httpx2.

Titan takes one text a request (its entry says `max_batch_items: 1`): the texts of a call go many at once, each on a
permit of its own, and it knows no purpose. Cohere takes up to 96, and is told what they are for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar
from urllib.parse import quote

import httpx2

from interlock.catalog.entry import ModelEntry
from interlock.catalog.usage import Usage
from interlock.clients.abstract import Reply
from interlock.clients.providers.bedrock_converse import BedrockConverseClient
from interlock.clients.providers.sdk import SdkChatClient
from interlock.credentials import AwsCredential

from ..abstract import EmbeddingAnswer
from ..packing import Caps
from ..purpose import EmbeddingPurpose
from .sdk import Carrier, SdkEmbeddingsClient, rows_of, tokens_of

_TOKENS = "x-amzn-bedrock-input-token-count"


@dataclass(frozen=True, slots=True, kw_only=True)
class Invoked(Reply):
    """An answer of InvokeModel, with the input tokens that its headers count; None where they do not."""

    input_tokens: int | None = None


class _Bedrock(Carrier, BedrockConverseClient):
    """InvokeModel, whatever the body."""

    async def send(self, body: bytes) -> Invoked:
        response = await self.post(body)
        reply, counted = self._reply(response), response.headers.get(_TOKENS, "")
        return Invoked(
            payload=reply.payload,
            request_id=reply.request_id,
            reported=reply.reported,
            input_tokens=int(counted) if counted.isascii() and counted.isdigit() and len(counted) < 12 else None,
        )

    async def post(self, body: bytes) -> httpx2.Response:
        response: httpx2.Response = await self._sdk().post(
            f"/model/{quote(self.entry.wire_model_id, safe='')}/invoke", body
        )
        try:
            await response.aread()
        except BaseException:
            await response.aclose()
            raise
        return self._served(response)


class _BedrockEmbeddingsClient(SdkEmbeddingsClient):
    carrier: ClassVar[type[SdkChatClient]] = _Bedrock
    CREDENTIAL: ClassVar[Any] = AwsCredential
    default_credential: ClassVar[str | None] = _Bedrock.default_credential
    check_credentials = staticmethod(_Bedrock.check_credentials)
    needed_credential = staticmethod(_Bedrock.needed_credential)
    reserved = frozenset({"inputText", "texts", "images", "inputs"})


class TitanEmbeddingsClient(_BedrockEmbeddingsClient):
    """Amazon Titan Text Embeddings."""

    MAX_REQUEST_TEXTS = 1
    MAX_TEXT_CHARACTERS = 50_000

    def encode(self, texts: Sequence[str], purpose: EmbeddingPurpose) -> dict[str, Any]:
        (text,) = texts
        wire: dict[str, Any] = {"inputText": text}
        if self.entry.requested_dimensions is not None:  # the first version knows neither
            wire |= {"dimensions": self.entry.requested_dimensions, "normalize": True}
        return wire

    def usage(self, reply: Reply) -> Usage | None:
        return tokens_of(reply.payload.get("inputTextTokenCount"))

    def read(self, reply: Reply, texts: Sequence[str]) -> EmbeddingAnswer:
        return EmbeddingAnswer(
            vectors=[reply.payload["embedding"]],
            usage=self.usage(reply),
            request_id=reply.request_id,
            reported=reply.reported,
        )


class CohereEmbeddingsClient(_BedrockEmbeddingsClient):
    """Cohere's Embed on Bedrock. It is told to cut nothing: a text that is too long is an error, or cut here."""

    MAX_REQUEST_TEXTS = 96
    MAX_REQUEST_BYTES = 20_000_000
    #: What the third version takes of a text.
    V3_CHARACTERS: ClassVar[int] = 2_048
    INPUT_TYPES: ClassVar[Mapping[EmbeddingPurpose, str]] = {
        EmbeddingPurpose.DOCUMENT: "search_document",
        EmbeddingPurpose.QUERY: "search_query",
    }

    @classmethod
    def caps(cls, entry: ModelEntry) -> Caps:
        third = entry.wire_model_id.partition("cohere.embed-")[2].endswith("-v3")
        return replace(super().caps(entry), item_characters=cls.V3_CHARACTERS if third else None)

    def encode(self, texts: Sequence[str], purpose: EmbeddingPurpose) -> dict[str, Any]:
        wire: dict[str, Any] = {
            "texts": list(texts),
            "input_type": self.INPUT_TYPES[purpose],
            "truncate": "NONE",
            "embedding_types": ["float"],
        }
        if self.entry.requested_dimensions is not None:  # the third version has one width
            wire["output_dimension"] = self.entry.requested_dimensions
        return wire

    def usage(self, reply: Reply) -> Usage | None:
        return tokens_of(reply.input_tokens if isinstance(reply, Invoked) else None)

    def read(self, reply: Reply, texts: Sequence[str]) -> EmbeddingAnswer:
        found = reply.payload["embeddings"]
        return EmbeddingAnswer(
            vectors=rows_of(found["float"] if isinstance(found, dict) else found),
            usage=self.usage(reply),
            request_id=reply.request_id,
            reported=reply.reported,
        )
