"""Gemini, at its own address and at Vertex AI: answers, chunks and errors as google-genai reads them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

from ..buckets import Charge, Level, Refused
from ..exchange import Ask, Reply, ReplyCall
from ..replying import seal
from ..script import Failure
from .gemini_errors import failing, limited, refusing, status_named
from .gemini_reading import GeminiReader
from .logprobs import logprobs_of
from .wire import SSE_HEADERS, Event, Headers, Refusing, Target, WireError, encode, pieces_of, sse_event

_STOPS = {
    "end": "STOP",
    "stop_sequence": "STOP",
    "tool": "STOP",
    "length": "MAX_TOKENS",
    "refusal": "SAFETY",
    "window": "MAX_TOKENS",
    "pause": "STOP",
}
_PROMPT = "prompt:"


class GeminiWire:
    name: ClassVar[str] = "gemini"
    refused_counts: ClassVar[bool] = False
    id_prefixes: ClassVar[tuple[str, str]] = ("", "call_")
    stream_headers: ClassVar[Headers] = SSE_HEADERS[:1]
    binary: ClassVar[bool] = False

    def __init__(self, reader: GeminiReader) -> None:
        self._reader = reader

    def read(self, body: dict[str, Any], target: Target) -> Ask:
        return self._reader.read(body, target)

    def counted_body(self, body: dict[str, Any], target: Target) -> dict[str, Any]:
        inner: dict[str, Any] = body.get("generateContentRequest") or body
        return {name: value for name, value in inner.items() if name != "model"}

    def counted(self, tokens: int) -> dict[str, Any]:
        return {"totalTokens": tokens, "promptTokensDetails": [{"modality": "TEXT", "tokenCount": tokens}]}

    def error(self, error: WireError, request_id: str) -> Refusing:
        return refusing(error.status, error.message, error.kind, error.code)

    def unauthorized(self, *, given: bool) -> WireError:
        if not given:
            message = "Method doesn't allow unregistered callers (callers without established identity)."
            return WireError(
                403, f"{message} Please use API Key or other form of API consumer identity to call this API."
            )
        return WireError(400, "API key not valid. Please pass a valid API key.", code="API_KEY_INVALID")

    def unknown_model(self, model: str) -> WireError:
        message = f"models/{model} is not found for API version v1beta, or is not supported for generateContent."
        return WireError(404, f"{message} Call ListModels to see the list of available models.")

    def too_long(self, tokens: int, window: int) -> WireError:
        message = f"The input token count ({tokens}) exceeds the maximum number of tokens allowed ({window})."
        return WireError(400, message)

    def failure(self, failure: Failure, ask: Ask, request_id: str) -> Refusing:
        return failing(failure, ask.model)

    def refused(self, refused: Refused, ask: Ask, request_id: str) -> Refusing:
        return limited(refused, ask.model)

    def headers(self, request_id: str, levels: Mapping[str, Level]) -> Headers:
        return [(b"server", b"scaffolding on HTTPServer2")]  # an answer is named in its body

    def start_charge(self, ask: Ask, input_tokens: int, cached_tokens: int) -> Charge:
        """The limit on tokens is one on input."""
        return Charge(1, input_tokens, input_tokens, 0)

    def produced_charge(self, tokens: int) -> Charge:
        return Charge(0, 0, 0, tokens)

    def settle_charge(self, ask: Ask, output_tokens: int, cached_tokens: int) -> Charge:
        return Charge()

    def status_of(self, kind: str) -> int:
        return status_named(kind)[0]

    def error_event(self, kind: str, message: str, reply: Reply, sent: int) -> bytes:
        status, name = status_named(kind)
        return _data(refusing(status, message, name).body)

    def scripted(self, event: Any) -> bytes:
        return sse_event(event)

    def keepalive(self, kind: str, reply: Reply) -> bytes:
        """There is nothing that says nothing but a chunk of no text; google-genai takes a comment for JSON."""
        return _data(_chunk(reply, [{"text": ""}]))

    def single(self, ask: Ask, reply: Reply) -> dict[str, Any]:
        found = self._ended(ask, reply)
        if "candidates" in found:
            parts = list(self._parts(ask, reply))
            if parts:
                found["candidates"][0]["content"] = {"parts": parts, "role": "model"}
        return found

    def events(self, ask: Ask, reply: Reply) -> Iterator[Event]:
        """Chunks that are each a whole response with a part of the answer; the last has the finish reason."""
        if not _is_blocked(reply):
            for part in self._parts(ask, reply):
                for piece in _cut(part, reply):
                    chunk = _chunk(reply, [piece]) | {"usageMetadata": _usage(reply, 0)}
                    yield Event("piece", _data(chunk))
        last = self._ended(ask, reply)
        if "candidates" in last:
            last["candidates"][0]["content"] = {"parts": [{"text": ""}], "role": "model"}
        yield Event("end", _data(last))

    def models(self, ids: Sequence[str], target: Target) -> dict[str, Any]:
        ids, more = target.page(ids, "pageSize", "pageToken")
        token = {"nextPageToken": ids[-1]} if more else {}
        if target.path.endswith("/publishers/google/models"):
            names = [f"publishers/google/models/{name}" for name in ids]
            return {"publisherModels": [{"name": name, "versionId": "default"} for name in names], **token}
        return {"models": [_model(name) for name in ids], **token}

    def _parts(self, ask: Ask, reply: Reply) -> Iterator[dict[str, Any]]:
        """The parts in order. A signature stands on the first call, or on the text where there is none."""
        if reply.thinking and ask.thinking_shown:
            yield {"text": reply.thinking, "thought": True}
        yield from (dict(part) for part in reply.server_tools)
        sealed = seal(reply.thinking, self._reader.seed) if reply.thinking is not None else None
        calls = [(call, args) for call in reply.tool_calls if (args := _arguments(call)) is not None]
        whole = reply.stop != "length"
        signed = {"thoughtSignature": sealed} if sealed is not None else {}
        if reply.text:
            yield {"text": reply.text, **({} if calls and whole else signed)}
        for index, (call, args) in enumerate(calls if whole else ()):
            function = {"name": call.name, "args": args, "id": call.id}
            yield {"functionCall": function, **(signed if index == 0 else {})}

    def _ended(self, ask: Ask, reply: Reply) -> dict[str, Any]:
        """A response without content: how it ended, and its usage."""
        body: dict[str, Any] = {"usageMetadata": _usage(reply, None)}
        if _is_blocked(reply):
            assert reply.refusal is not None
            reason = (reply.refusal.category or "").removeprefix(_PROMPT) or "SAFETY"
            feedback: dict[str, Any] = {"blockReason": reason}
            if reply.refusal.explanation:
                feedback["blockReasonMessage"] = reply.refusal.explanation
            return {"promptFeedback": feedback, **body} | _named(reply)
        candidate: dict[str, Any] = {"finishReason": _finish(reply), "index": 0}
        if reply.refusal is not None and reply.refusal.explanation:
            candidate["finishMessage"] = reply.refusal.explanation
        if ask.logprobs is not None and reply.text:
            candidate |= _logprobs(reply.text, ask.logprobs)
        return {"candidates": [candidate], **body} | _named(reply)


def _is_blocked(reply: Reply) -> bool:
    """The prompt was refused, before there was any candidate."""
    category = reply.refusal.category if reply.refusal is not None else None
    return category is not None and category.startswith(_PROMPT)


def _finish(reply: Reply) -> str:
    if reply.stop_reason is not None:
        return reply.stop_reason
    if reply.refusal is not None and reply.refusal.category and reply.refusal.category.isupper():
        return reply.refusal.category
    if reply.stop == "tool" and any(_arguments(call) is None for call in reply.tool_calls):
        return "MALFORMED_FUNCTION_CALL"
    return _STOPS[reply.stop]


def _arguments(call: ReplyCall) -> dict[str, Any] | None:
    """A call's arguments; None where they are no object, which this wire cannot carry."""
    try:
        found = json.loads(call.arguments.strip() or "{}")
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _cut(part: dict[str, Any], reply: Reply) -> Iterator[dict[str, Any]]:
    """A part as it is streamed: text in pieces, its signature on the last of them."""
    if "text" not in part:
        yield part
        return
    own = reply.pieces if not part.get("thought") else ()
    pieces = list(own or pieces_of(part["text"]))
    rest = {name: value for name, value in part.items() if name not in ("text", "thoughtSignature")}
    for index, piece in enumerate(pieces):
        signed = {"thoughtSignature": part["thoughtSignature"]} if "thoughtSignature" in part else {}
        yield {"text": piece, **rest, **(signed if index == len(pieces) - 1 else {})}


def _chunk(reply: Reply, parts: list[dict[str, Any]]) -> dict[str, Any]:
    return {"candidates": [{"content": {"parts": parts, "role": "model"}, "index": 0}]} | _named(reply)


def _named(reply: Reply) -> dict[str, Any]:
    return {"modelVersion": reply.model, "responseId": reply.id}


def _usage(reply: Reply, output_tokens: int | None) -> dict[str, Any]:
    """The prompt counts what the cache gave; candidates do not count thoughts."""
    prompt = reply.input_tokens + reply.cache_read_tokens + reply.cache_write_tokens
    output = reply.output_tokens if output_tokens is None else output_tokens
    thoughts = min(reply.reasoning_tokens, output)
    usage: dict[str, Any] = {
        "promptTokenCount": prompt,
        "totalTokenCount": prompt + output,
        "promptTokensDetails": [{"modality": "TEXT", "tokenCount": prompt}],
    }
    if output - thoughts:
        usage["candidatesTokenCount"] = output - thoughts
    if thoughts:
        usage["thoughtsTokenCount"] = thoughts
    if reply.cache_read_tokens:
        usage["cachedContentTokenCount"] = reply.cache_read_tokens
    return usage


def _logprobs(text: str, alternatives: int) -> dict[str, Any]:
    tokens = logprobs_of(text, alternatives)
    chosen = [_token(token) for token in tokens]
    top = [{"candidates": [_token(each) for each in token["top_logprobs"]]} for token in tokens]
    average = sum(token["logprob"] for token in tokens) / len(tokens)
    return {"avgLogprobs": average, "logprobsResult": {"chosenCandidates": chosen, "topCandidates": top}}


def _token(token: Mapping[str, Any]) -> dict[str, Any]:
    return {"token": token["token"], "logProbability": token["logprob"]}


def _model(name: str) -> dict[str, Any]:
    return {
        "name": f"models/{name}",
        "version": "001",
        "displayName": name,
        "inputTokenLimit": 1_048_576,
        "outputTokenLimit": 65_536,
        "supportedGenerationMethods": ["generateContent", "countTokens"],
    }


def _data(value: dict[str, Any]) -> bytes:
    return b"data: " + encode(value) + b"\n\n"
