"""InvokeModel for Titan's and Cohere's embeddings: refused in Bedrock's words, and without a limit in any header."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from ..exchange import Ask, Reply
from .bedrock import BedrockWire
from .embeddings import Count, EmbeddingsWire
from .wire import Headers, Target, WireError


def _malformed(what: str) -> WireError:
    return WireError(400, f"Malformed input request: {what}, please reformat your input and try again.")


class _BedrockEmbeddingsWire(EmbeddingsWire, BedrockWire):
    id_prefixes: ClassVar[tuple[str, str]] = ("emb-", "call_")
    PARAMETERS: ClassVar[frozenset[str]]

    def __init__(self, *, seed: int, count: Count) -> None:
        EmbeddingsWire.__init__(self, seed=seed, count=count)
        BedrockWire.__init__(self, 1.0)

    def scripted(self, event: Any) -> bytes:
        return event if isinstance(event, bytes) else str(event).encode()

    def answer_headers(self, reply: Reply) -> Headers:
        """What a whole answer says beside its body."""
        return [(b"x-amzn-bedrock-input-token-count", b"%d" % reply.input_tokens)]

    def _known(self, body: dict[str, Any], required: Sequence[str]) -> None:
        for name in sorted(body.keys() - self.PARAMETERS):
            raise _malformed(f"extraneous key [{name}] is not permitted")
        for name in required:
            if name not in body:
                raise _malformed(f"required key [{name}] not found")


class TitanWire(_BedrockEmbeddingsWire):
    """`amazon.titan-embed-text-v1` (1,536 wide) and `-v2:0`: one text a request."""

    name: ClassVar[str] = "bedrock-titan"
    PARAMETERS = frozenset({"inputText", "dimensions", "normalize", "embeddingTypes"})
    WIDTHS, MOST_CHARACTERS, MOST_TOKENS = (256, 512, 1_024), 50_000, 8_192

    def read(self, body: dict[str, Any], target: Target) -> Ask:
        self._known(body, ["inputText"])
        text, first = body["inputText"], (target.model or "").endswith("-v1")
        if not isinstance(text, str):
            raise _malformed("#/inputText: expected type: String")
        if not text:
            raise _malformed("#/inputText: expected minLength: 1, actual: 0")
        if len(text) > self.MOST_CHARACTERS:
            raise _malformed(f"#/inputText: expected maxLength: {self.MOST_CHARACTERS}, actual: {len(text)}")
        tokens = self.count(text)
        if tokens > self.MOST_TOKENS:
            raise self.too_long(tokens, self.MOST_TOKENS)
        for name in ("dimensions", "normalize"):
            if first and name in body:
                raise _malformed(f"extraneous key [{name}] is not permitted")
        width = body.get("dimensions")
        if width is not None and width not in self.WIDTHS:
            raise _malformed(f"#/dimensions: {width} is not a valid enum value")
        return self.asked(target.model or "", [text], native=1_536 if first else 1_024, width=width)

    def too_long(self, tokens: int, window: int) -> WireError:
        message = f"Too many input tokens. Max input tokens: {window}, request input token count: {tokens}"
        return WireError(400, f"400 Bad Request: {message}")

    def single(self, ask: Ask, reply: Reply) -> dict[str, Any]:
        (row,) = self.rows(ask, reply)[:1] or [[]]
        return {"embedding": row, "embeddingsByType": {"float": row}, "inputTextTokenCount": reply.input_tokens}


class CohereWire(_BedrockEmbeddingsWire):
    """`cohere.embed-*-v3` (1,024 wide) and `cohere.embed-v4:0`."""

    name: ClassVar[str] = "bedrock-cohere"
    PARAMETERS = frozenset(
        {"texts", "input_type", "truncate", "embedding_types", "output_dimension", "max_tokens", "images", "inputs"}
    )
    INPUT_TYPES = frozenset({"search_document", "search_query", "classification", "clustering"})
    WIDTHS, MOST_TEXTS, MOST_CHARACTERS, MOST_TOKENS = (256, 512, 1_024, 1_536), 96, 2_048, 128_000

    def read(self, body: dict[str, Any], target: Target) -> Ask:
        self._known(body, ["texts", "input_type"])
        texts, third = body["texts"], (target.model or "").endswith("-v3")
        if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
            raise _malformed("#/texts: expected type: JSONArray")
        if not 0 < len(texts) <= self.MOST_TEXTS:
            raise _malformed(f"#/texts: expected maximum item count: {self.MOST_TEXTS}, found: {len(texts)}")
        if body["input_type"] not in self.INPUT_TYPES:
            raise _malformed(f"#/input_type: {body['input_type']} is not a valid enum value")
        if body.get("truncate", "NONE") not in ("NONE", "START", "END"):
            raise _malformed(f"#/truncate: {body['truncate']} is not a valid enum value")
        width = body.get("output_dimension")
        if third and width is not None:
            raise _malformed("extraneous key [output_dimension] is not permitted")
        if width is not None and width not in self.WIDTHS:
            raise _malformed(f"#/output_dimension: {width} is not a valid enum value")
        for index, text in enumerate(texts):
            self._check_text(index, text, third)
        untyped = body.get("embedding_types") is None
        native = 1_024 if third else 1_536
        return self.asked(target.model or "", texts, native=native, width=width, untyped=untyped)

    def _check_text(self, index: int, text: str, third: bool) -> None:
        if third and len(text) > self.MOST_CHARACTERS:
            raise _malformed(f"#/texts/{index}: expected maxLength: {self.MOST_CHARACTERS}, actual: {len(text)}")
        tokens = self.count(text)
        if tokens > self.MOST_TOKENS:
            raise self.too_long(tokens, self.MOST_TOKENS)

    def single(self, ask: Ask, reply: Reply) -> dict[str, Any]:
        assert ask.embeddings is not None
        rows: Any = self.rows(ask, reply)
        kind = "embeddings_floats" if ask.embeddings.untyped else "embeddings_by_type"
        found = rows if ask.embeddings.untyped else {"float": rows}
        return {"id": reply.id, "response_type": kind, "embeddings": found, "texts": list(ask.embeddings.texts)}
