"""Embeddings as OpenAI's SDK reads them, and what every wire of embeddings has in common."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar

from ..buckets import Charge
from ..embedding import base64_of, numbers, vectors_of
from ..exchange import Ask, AskedEmbeddings, Reply
from .openai_common import OpenAIWire
from .wire import Event, Target, WireError

Count = Callable[[str], int]


class EmbeddingsWire:
    """Stands before a wire of the same provider: its errors, headers and charges, without any output."""

    def __init__(self, *, seed: int, count: Count) -> None:
        self.seed, self.count = seed, count

    def counted_body(self, body: dict[str, Any], target: Target) -> dict[str, Any]:
        return body

    def counted(self, tokens: int) -> dict[str, Any]:
        return {"input_tokens": tokens}

    def start_charge(self, ask: Ask, input_tokens: int, cached_tokens: int) -> Charge:
        return Charge(1, input_tokens, input_tokens, 0)

    def produced_charge(self, tokens: int) -> Charge:
        return Charge()

    def settle_charge(self, ask: Ask, output_tokens: int, cached_tokens: int) -> Charge:
        return Charge()

    def events(self, ask: Ask, reply: Reply) -> Iterator[Event]:
        raise WireError(400, "Embeddings are not streamed.")

    def error_event(self, kind: str, message: str, reply: Reply, sent: int) -> bytes:
        return b""

    def keepalive(self, kind: str, reply: Reply) -> bytes:
        return b""

    def asked(self, model: str, texts: Sequence[str], *, native: int, width: int | None, **form: bool) -> Ask:
        asked = AskedEmbeddings(texts=tuple(texts), native=native, width=width or native, **form)
        # Every text is metered by itself: a total of roundings, as the per-text counts of the real ones are.
        return Ask(model=model, text="\n".join(texts), extra_input_tokens=sum(map(self.count, texts)), embeddings=asked)

    def rows(self, ask: Ask, reply: Reply) -> list[Any]:
        """The vectors as they are sent: those of a scripted answer (a list of lists), else worked out."""
        asked = ask.embeddings
        assert asked is not None
        given = _given(reply.text)
        if given is not None:
            return given
        found = vectors_of(asked.texts, native=asked.native, width=asked.width, seed=self.seed)
        return [base64_of(row) if asked.base64 else numbers(row) for row in found]


def _given(text: str | None) -> list[Any] | None:
    if not text:
        return None
    try:
        found = json.loads(text)
    except ValueError:
        return None
    return found if isinstance(found, list) else None


class OpenAIEmbeddingsWire(EmbeddingsWire, OpenAIWire):
    """`POST /embeddings`."""

    name: ClassVar[str] = "openai-embeddings"
    id_prefixes: ClassVar[tuple[str, str]] = ("emb-", "call_")
    MOST_TEXTS, MOST_TOKENS, MOST_OF_ONE = 2_048, 300_000, 8_192
    PARAMETERS = frozenset({"model", "input", "dimensions", "encoding_format", "user"})

    def read(self, body: dict[str, Any], target: Target) -> Ask:
        for name in body.keys() - self.PARAMETERS:
            raise WireError(400, f"Unknown parameter: '{name}'.", param=name, code="unknown_parameter")
        model = body.get("model")
        if not isinstance(model, str) or not model:
            raise WireError(400, "you must provide a model parameter")
        given = body.get("input")
        texts = [given] if isinstance(given, str) else given
        if not isinstance(texts, list) or not texts or not all(isinstance(text, str) and text for text in texts):
            raise WireError(
                400, "'$.input' is invalid. Please check the API reference: https://platform.openai.com/docs."
            )
        self._check_size(texts)
        native = 3_072 if model.endswith("-large") else 1_536
        form = body.get("encoding_format", "float")
        if form not in ("float", "base64"):
            raise WireError(400, f"Invalid value: '{form}'.", param="encoding_format", code="invalid_value")
        width = body.get("dimensions")
        if width is not None and not (isinstance(width, int) and 0 < width <= native):
            raise WireError(400, f"Invalid value for 'dimensions': {width}.", param="dimensions", code="invalid_value")
        return self.asked(model, texts, native=native, width=width, base64=form == "base64")

    def _check_size(self, texts: Sequence[str]) -> None:
        if len(texts) > self.MOST_TEXTS:
            message = f"Invalid 'input': array too long. Expected an array with maximum length {self.MOST_TEXTS}"
            raise WireError(400, f"{message}, but got an array with length {len(texts)} instead.", param="input")
        tokens = [self.count(text) for text in texts]
        if max(tokens) > self.MOST_OF_ONE:
            raise self.too_long(max(tokens), self.MOST_OF_ONE)
        if sum(tokens) > self.MOST_TOKENS:
            message = f"Requested {sum(tokens)} tokens, max {self.MOST_TOKENS} tokens per request"
            raise WireError(400, message, kind="max_tokens_per_request", code="max_tokens_per_request")

    def too_long(self, tokens: int, window: int) -> WireError:
        message = f"This model's maximum context length is {window} tokens, however you requested {tokens} tokens."
        return WireError(400, f"{message} Please reduce your prompt.")

    def single(self, ask: Ask, reply: Reply) -> dict[str, Any]:
        data = [
            {"object": "embedding", "index": index, "embedding": row} for index, row in enumerate(self.rows(ask, reply))
        ]
        used = {"prompt_tokens": reply.input_tokens, "total_tokens": reply.input_tokens}
        return {"object": "list", "data": data, "model": reply.model, "usage": used}
