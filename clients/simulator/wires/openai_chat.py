"""OpenAI chat completions: answers, chunks, errors and headers as its SDK reads them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

from ..deciding import lettered, lettered_distribution
from ..exchange import Ask, Reply
from .logprobs import logprobs_of
from .openai_common import OpenAIWire, data_event, error_body
from .openai_reading import Reader
from .wire import Event, Target, WireError, pieces_of

_FINISHES = {
    "end": "stop",
    "stop_sequence": "stop",
    "tool": "tool_calls",
    "length": "length",
    "refusal": "stop",
    "window": "length",
    "pause": "stop",
}
_REFUSAL = "I'm sorry, but I can't help with that."


class OpenAIChatWire(OpenAIWire):
    name: ClassVar[str] = "openai"
    id_prefixes: ClassVar[tuple[str, str]] = ("chatcmpl-", "call_")

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    def read(self, body: dict[str, Any], target: Target) -> Ask:
        return self._reader.read(body)

    def counted_body(self, body: dict[str, Any], target: Target) -> dict[str, Any]:
        return body

    def counted(self, tokens: int) -> dict[str, Any]:
        return {"input_tokens": tokens}

    def too_long(self, tokens: int, window: int) -> WireError:
        message = (
            f"This model's maximum context length is {window} tokens. However, your messages resulted in "
            f"{tokens} tokens. Please reduce the length of the messages."
        )
        return WireError(400, message, param="messages", code="context_length_exceeded")

    def error_event(self, kind: str, message: str, reply: Reply, sent: int) -> bytes:
        return data_event(error_body(message, kind, kind))

    def keepalive(self, kind: str, reply: Reply) -> bytes:
        if kind == "empty":
            return data_event(_chunk(reply, {"content": ""}))
        return b": keepalive\n\n"

    def single(self, ask: Ask, reply: Reply) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": reply.text or None, "refusal": _refusal(reply)}
        if reply.refusal is not None:
            message["content"] = None
        if reply.tool_calls:
            message["tool_calls"] = [
                {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
                for call in reply.tool_calls
            ]
        choice: dict[str, Any] = {"index": 0, "message": message, "finish_reason": _finish(reply), "logprobs": None}
        if ask.logprobs is not None and reply.text:
            choice["logprobs"] = {"content": _logprobs(ask, reply.text), "refusal": None}
        return {
            "id": reply.id,
            "object": "chat.completion",
            "created": reply.created_s,
            "model": reply.model,
            "choices": [choice],
            "usage": _usage(reply),
            "service_tier": "default",
            "system_fingerprint": None,
        }

    def events(self, ask: Ask, reply: Reply) -> Iterator[Event]:
        usage = {"usage": None} if ask.include_usage else {}
        yield Event("start", data_event(_chunk(reply, {"role": "assistant", "content": "", "refusal": None}) | usage))
        refusal = _refusal(reply)
        if refusal is not None:
            for piece in pieces_of(refusal):
                yield Event("piece", data_event(_chunk(reply, {"refusal": piece}) | usage))
        elif reply.text:
            for piece in reply.pieces or pieces_of(reply.text):
                chunk = _chunk(reply, {"content": piece}) | usage
                if ask.logprobs is not None:
                    logprobs = {"content": _logprobs(ask, piece), "refusal": None}
                    chunk = _chunk(reply, {"content": piece}, logprobs=logprobs) | usage
                yield Event("piece", data_event(chunk))
        for index, call in enumerate(reply.tool_calls):
            function = {"name": call.name, "arguments": ""}
            begun = {"index": index, "id": call.id, "type": "function", "function": function}
            yield Event("start", data_event(_chunk(reply, {"tool_calls": [begun]}) | usage))
            for piece in pieces_of(call.arguments):
                more = {"index": index, "function": {"arguments": piece}}
                yield Event("piece", data_event(_chunk(reply, {"tool_calls": [more]}) | usage))
        yield Event("end", data_event(_chunk(reply, {}, _finish(reply)) | usage))
        if ask.include_usage:
            last = _chunk(reply, {}) | {"choices": [], "usage": _usage(reply)}
            yield Event("end", data_event(last))
        yield Event("end", b"data: [DONE]\n\n")


def _logprobs(ask: Ask, text: str) -> list[dict[str, Any]]:
    """Of a letter that stands for an option: how probable the others were."""
    distribution = lettered_distribution(ask.text) if lettered(ask.text) else {}
    return logprobs_of(text, ask.logprobs or 0, distribution if text.strip() in distribution else {})


def _chunk(
    reply: Reply, delta: dict[str, Any], finish: str | None = None, logprobs: dict[str, Any] | None = None
) -> dict[str, Any]:
    return {
        "id": reply.id,
        "object": "chat.completion.chunk",
        "created": reply.created_s,
        "model": reply.model,
        "service_tier": "default",
        "system_fingerprint": None,
        "choices": [{"index": 0, "delta": delta, "logprobs": logprobs, "finish_reason": finish}],
    }


def _finish(reply: Reply) -> str:
    if reply.stop_reason is not None:
        return reply.stop_reason
    if reply.refusal is not None and reply.refusal.category == "content_filter":
        return "content_filter"
    return _FINISHES[reply.stop]


def _refusal(reply: Reply) -> str | None:
    """The words of a refusal; a content filter has none."""
    if reply.refusal is None or reply.refusal.category == "content_filter":
        return None
    return reply.refusal.explanation or _REFUSAL


def _usage(reply: Reply) -> dict[str, Any]:
    prompt = reply.input_tokens + reply.cache_read_tokens + reply.cache_write_tokens
    return {
        "prompt_tokens": prompt,
        "completion_tokens": reply.output_tokens,
        "total_tokens": prompt + reply.output_tokens,
        "prompt_tokens_details": {
            "cached_tokens": reply.cache_read_tokens,
            "cache_write_tokens": reply.cache_write_tokens,
            "audio_tokens": 0,
        },
        "completion_tokens_details": {
            "reasoning_tokens": reply.reasoning_tokens,
            "audio_tokens": 0,
            "accepted_prediction_tokens": 0,
            "rejected_prediction_tokens": 0,
        },
    }
