"""OpenAI chat completions: answers, chunks, errors and headers as its SDK reads them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

from ..buckets import Charge, Level, Refused
from ..exchange import Ask, Reply
from ..script import Failure
from .logprobs import logprobs_of
from .openai_reading import Reader
from .wire import Event, Headers, Refusing, WireError, encode, pieces_of

_FINISHES = {
    "end": "stop",
    "stop_sequence": "stop",
    "tool": "tool_calls",
    "length": "length",
    "refusal": "stop",
    "window": "length",
    "pause": "stop",
}
_KINDS = {
    400: "invalid_request_error",
    401: "invalid_request_error",
    403: "invalid_request_error",
    404: "invalid_request_error",
    409: "invalid_request_error",
    429: "requests",
}
_STATUSES = {"rate_limit_error": 429, "rate_limit_exceeded": 429, "overloaded_error": 503, "server_error": 500}
_REFUSAL = "I'm sorry, but I can't help with that."


class OpenAIChatWire:
    name: ClassVar[str] = "openai"
    refused_counts: ClassVar[bool] = True

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    def read(self, body: dict[str, Any]) -> Ask:
        return self._reader.read(body)

    def error(self, error: WireError, request_id: str) -> dict[str, Any]:
        kind = error.kind or _KINDS.get(
            error.status, "server_error" if error.status >= 500 else "invalid_request_error"
        )
        return _error(error.message, kind, error.code, error.param)

    def failure(self, failure: Failure, ask: Ask, request_id: str) -> Refusing:
        headers = dict(failure.headers)
        if failure.retry_after_s is not None:
            headers.setdefault("retry-after", f"{failure.retry_after_s:g}")
        if failure.kind == "rate_limited":
            message = failure.message or f"Rate limit reached for {ask.model} on requests per min (RPM)."
            return Refusing(status=429, body=_error(message, "requests", "rate_limit_exceeded"), headers=headers)
        if failure.kind == "quota":
            message = failure.message or "You exceeded your current quota, please check your plan and billing details."
            body = _error(message, "insufficient_quota", "insufficient_quota")
            return Refusing(status=failure.status or 429, body=body, headers=headers)
        if failure.kind == "overloaded":
            message = failure.message or "The engine is currently overloaded, please try again later"
            return Refusing(status=failure.status or 503, body=_error(message, "server_error"), headers=headers)
        status = failure.status or 500
        message = failure.message or "The server had an error while processing your request. Sorry about that!"
        kind = _KINDS.get(status, "server_error" if status >= 500 else "invalid_request_error")
        return Refusing(status=status, body=_error(message, kind), headers=headers)

    def refused(self, refused: Refused, ask: Ask, request_id: str) -> Refusing:
        kind, unit = ("requests", "requests per min (RPM)")
        if refused.dimension != "requests":
            kind, unit = ("tokens", "tokens per min (TPM)")
        limit = f"on {unit}: Limit {refused.limit:.0f}"
        if refused.too_large:
            message = (
                f"Request too large for {ask.model} {limit}, Requested {refused.asked:.0f}. "
                "The input or output tokens must be reduced in order to run successfully."
            )
        else:
            message = (
                f"Rate limit reached for {ask.model} {limit}, Used {refused.used:.0f}, Requested {refused.asked:.0f}. "
                f"Please try again in {_duration(refused.retry_after_s)}."
            )
        wait_ms = max(1, math.ceil(refused.retry_after_s * 1000))
        headers = {"retry-after": str(max(1, math.ceil(wait_ms / 1000))), "retry-after-ms": str(wait_ms)}
        return Refusing(status=429, body=_error(message, kind, "rate_limit_exceeded"), headers=headers)

    def headers(self, request_id: str, levels: Mapping[str, Level]) -> Headers:
        headers = [
            (b"x-request-id", request_id.encode()),
            (b"openai-organization", b"org-simulated"),
            (b"openai-version", b"2020-10-01"),
        ]
        for name in ("requests", "tokens"):
            level = levels.get(name)
            if level is not None:
                headers.append((b"x-ratelimit-limit-" + name.encode(), b"%d" % level.limit))
                headers.append((b"x-ratelimit-remaining-" + name.encode(), b"%d" % level.remaining))
                headers.append((b"x-ratelimit-reset-" + name.encode(), _duration(level.full_in_s).encode()))
        return headers

    def start_charge(self, ask: Ask, fresh_tokens: int) -> Charge:
        """Input, cached or not, and the whole output limit."""
        input_tokens = fresh_tokens
        return Charge(1, input_tokens + (ask.max_output_tokens or 0), input_tokens, 0)

    def produced_charge(self, tokens: int) -> Charge:
        return Charge(0, 0, 0, tokens)

    def settle_charge(self, ask: Ask, output_tokens: int) -> Charge:
        return Charge(0, output_tokens - (ask.max_output_tokens or 0), 0, 0)

    def status_of(self, kind: str) -> int:
        return _STATUSES.get(kind, 500)

    def error_event(self, kind: str, message: str) -> bytes:
        return _data(_error(message, kind, kind))

    def keepalive(self, kind: str, reply: Reply) -> bytes:
        if kind == "empty":
            return _data(_chunk(reply, {"content": ""}))
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
            choice["logprobs"] = {"content": logprobs_of(reply.text, ask.logprobs), "refusal": None}
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
        yield Event("start", _data(_chunk(reply, {"role": "assistant", "content": "", "refusal": None}) | usage))
        refusal = _refusal(reply)
        if refusal is not None:
            for piece in pieces_of(refusal):
                yield Event("piece", _data(_chunk(reply, {"refusal": piece}) | usage))
        elif reply.text:
            for piece in reply.pieces or pieces_of(reply.text):
                chunk = _chunk(reply, {"content": piece}) | usage
                if ask.logprobs is not None:
                    logprobs = {"content": logprobs_of(piece, ask.logprobs), "refusal": None}
                    chunk = _chunk(reply, {"content": piece}, logprobs=logprobs) | usage
                yield Event("piece", _data(chunk))
        for index, call in enumerate(reply.tool_calls):
            function = {"name": call.name, "arguments": ""}
            begun = {"index": index, "id": call.id, "type": "function", "function": function}
            yield Event("start", _data(_chunk(reply, {"tool_calls": [begun]}) | usage))
            for piece in pieces_of(call.arguments):
                more = {"index": index, "function": {"arguments": piece}}
                yield Event("piece", _data(_chunk(reply, {"tool_calls": [more]}) | usage))
        yield Event("end", _data(_chunk(reply, {}, _finish(reply)) | usage))
        if ask.include_usage:
            last = _chunk(reply, {}) | {"choices": [], "usage": _usage(reply)}
            yield Event("end", _data(last))
        yield Event("end", b"data: [DONE]\n\n")

    def models(self, ids: Sequence[str]) -> dict[str, Any]:
        data = [{"id": name, "object": "model", "created": 1_767_225_600, "owned_by": "simulated"} for name in ids]
        return {"object": "list", "data": data}


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


def _error(message: str, kind: str, code: str | None = None, param: str | None = None) -> dict[str, Any]:
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def _data(value: dict[str, Any]) -> bytes:
    return b"data: " + encode(value) + b"\n\n"


def _duration(seconds: float) -> str:
    """As the reset headers have it: `17ms`, `1.5s`, `6m0s`, `1h2m3s`."""
    if seconds < 1:
        return f"{math.ceil(seconds * 1000)}ms"
    if seconds < 60:
        return f"{math.ceil(seconds * 1000) / 1000:g}s"
    whole = math.ceil(seconds)
    hours, rest = divmod(whole, 3600)
    minutes, left = divmod(rest, 60)
    return f"{hours}h{minutes}m{left}s" if hours else f"{minutes}m{left}s"
