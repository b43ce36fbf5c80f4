"""Gemini's embedContent and batchEmbedContents, at its own address and at Vertex AI, whose config stands apart."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from ..exchange import Ask, Reply
from .embeddings import Count, EmbeddingsWire
from .gemini import GeminiWire
from .gemini_reading import GeminiReader
from .wire import Target, WireError

_TASKS = frozenset(
    {
        "TASK_TYPE_UNSPECIFIED", "RETRIEVAL_QUERY", "RETRIEVAL_DOCUMENT", "SEMANTIC_SIMILARITY", "CLASSIFICATION",
        "CLUSTERING", "QUESTION_ANSWERING", "FACT_VERIFICATION", "CODE_RETRIEVAL_QUERY",
    }
)  # fmt: skip
_CONFIG = frozenset({"taskType", "title", "outputDimensionality", "autoTruncate"})


class GeminiEmbeddingsWire(EmbeddingsWire, GeminiWire):
    name: ClassVar[str] = "gemini-embeddings"
    MOST_TEXTS, MOST_TOKENS, WIDTH = 100, 8_192, 3_072

    def __init__(self, *, seed: int, count: Count) -> None:
        EmbeddingsWire.__init__(self, seed=seed, count=count)
        GeminiWire.__init__(self, GeminiReader(seed=seed))

    def read(self, body: dict[str, Any], target: Target) -> Ask:
        model, batched = target.model or "", target.path.endswith(":batchEmbedContents")
        requests = body.get("requests") if batched else [body]
        if not isinstance(requests, list) or not requests:
            raise WireError(400, "* BatchEmbedContentsRequest.requests: requests is required")
        if len(requests) > self.MOST_TEXTS:
            message = f"at most {self.MOST_TEXTS} requests can be in one batch"
            raise WireError(400, f"* BatchEmbedContentsRequest.requests: {message}")
        read = [self._one(index, each, model, batched) for index, each in enumerate(requests)]
        widths = {width for _, width in read}
        return self.asked(model, [text for text, _ in read], native=self.WIDTH, width=max(widths), batched=batched)

    def _one(self, index: int, request: Any, model: str, batched: bool) -> tuple[str, int]:
        if not isinstance(request, dict):
            raise WireError(400, f"Invalid value at 'requests[{index}]'")
        named = request.get("model")
        if named is not None and str(named).rpartition("/")[2] != model:
            raise WireError(
                400, "* BatchEmbedContentsRequest.requests: model must match the model in the batch request"
            )
        config: Mapping[str, Any] = request.get("embedContentConfig") or {
            name: value for name, value in request.items() if name not in ("model", "content")
        }
        for name in config.keys() - _CONFIG:
            raise WireError(400, f'Invalid JSON payload received. Unknown name "{name}": Cannot find field.')
        if config.get("taskType", "TASK_TYPE_UNSPECIFIED") not in _TASKS:
            raise WireError(400, f"Invalid value at 'task_type': \"{config['taskType']}\"")
        width = config.get("outputDimensionality", self.WIDTH)
        if not isinstance(width, int) or not 0 < width <= self.WIDTH:
            raise WireError(
                400, f"* EmbedContentRequest.output_dimensionality: must be in 1..{self.WIDTH}, not {width}"
            )
        parts = (request.get("content") or {}).get("parts") or []
        text = "".join(part["text"] for part in parts)
        if not text:
            where = f"BatchEmbedContentsRequest.requests[{index}]" if batched else "EmbedContentRequest"
            raise WireError(400, f"* {where}.content: contents is not specified")
        tokens = self.count(text)
        if tokens > self.MOST_TOKENS:
            raise self.too_long(tokens, self.MOST_TOKENS)
        return text, width

    def unknown_model(self, model: str) -> WireError:
        message = f"models/{model} is not found for API version v1beta, or is not supported for embedContent."
        return WireError(404, f"{message} Call ListModels to see the list of available models.")

    def single(self, ask: Ask, reply: Reply) -> dict[str, Any]:
        assert ask.embeddings is not None
        found = [{"values": row} for row in self.rows(ask, reply)]
        used = {"usageMetadata": {"promptTokenCount": reply.input_tokens, "totalTokenCount": reply.input_tokens}}
        if not ask.embeddings.batched:
            return {"embedding": found[0] if found else {}, **used}
        return {"embeddings": found, **used}
