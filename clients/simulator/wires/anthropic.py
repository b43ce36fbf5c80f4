"""Anthropic Messages: answers, events, errors and headers as its SDK reads them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar

from ..buckets import Charge, Level, Refused
from ..exchange import Ask, Reply
from ..script import Failure
from .anthropic_reading import Reader
from .wire import SSE_HEADERS, Event, Headers, Refusing, Target, WireError, encode, pieces_of, sse_event

_KINDS = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    408: "timeout_error",
    409: "conflict_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}
_STATUSES = {kind: status for status, kind in _KINDS.items()} | {"api_error": 500, "timeout_error": 504}
_STOPS = {
    "end": "end_turn",
    "stop_sequence": "stop_sequence",
    "tool": "tool_use",
    "length": "max_tokens",
    "refusal": "refusal",
    "window": "model_context_window_exceeded",
    "pause": "pause_turn",
}
_MESSAGES = {
    "rate_limited": "Number of requests has exceeded your rate limit",
    "overloaded": "Overloaded",
    "server_error": "Internal server error",
    "quota": "Your credit balance is too low to access the Anthropic API. Please go to Plans & Billing to upgrade or "
    "purchase credits.",
}
_UNITS = {
    "requests": "requests per minute",
    "tokens": "tokens per minute",
    "input-tokens": "input tokens per minute",
    "output-tokens": "output tokens per minute",
}
_PING = b'event: ping\ndata: {"type":"ping"}\n\n'
_ROUNDED_ABOVE = 10_000  # remaining tokens are stated in thousands; a limit this small would lose its meaning


class AnthropicWire:
    name: ClassVar[str] = "anthropic"
    refused_counts: ClassVar[bool] = False
    id_prefixes: ClassVar[tuple[str, str]] = ("msg_", "toolu_")
    stream_headers: ClassVar[Headers] = SSE_HEADERS
    binary: ClassVar[bool] = False

    def __init__(self, reader: Reader, wall: Callable[[], datetime]) -> None:
        self._reader = reader
        self._wall = wall

    def read(self, body: dict[str, Any], target: Target) -> Ask:
        return self._reader.read(body)

    def counted_body(self, body: dict[str, Any], target: Target) -> dict[str, Any]:
        thinking = body.get("thinking")
        budget = thinking.get("budget_tokens") if isinstance(thinking, dict) else None
        return {"max_tokens": 1 + (budget if isinstance(budget, int) else 0)} | body

    def counted(self, tokens: int) -> dict[str, Any]:
        return {"input_tokens": tokens}

    def error(self, error: WireError, request_id: str) -> Refusing:
        body = self._error(error.status, error.message, request_id, error.kind)
        return Refusing(status=error.status, body=body)

    def unauthorized(self, *, given: bool) -> WireError:
        return WireError(401, "The API key is not valid." if given else "No API key was provided.")

    def unknown_model(self, model: str) -> WireError:
        return WireError(404, f"model: {model}")

    def too_long(self, tokens: int, window: int) -> WireError:
        return WireError(400, f"prompt is too long: {tokens} tokens > {window} maximum")

    @staticmethod
    def _error(status: int, message: str, request_id: str, kind: str | None = None) -> dict[str, Any]:
        kind = kind or _KINDS.get(status, "api_error" if status >= 500 else "invalid_request_error")
        return {"type": "error", "error": {"type": kind, "message": message}, "request_id": request_id}

    def failure(self, failure: Failure, ask: Ask, request_id: str) -> Refusing:
        status = failure.status or {"overloaded": 529, "quota": 400}.get(failure.kind, 500)
        message = failure.message or _MESSAGES.get(failure.kind, f"Answered with status {status} as scripted")
        headers = dict(failure.headers)
        if failure.retry_after_s is not None:
            headers.setdefault("retry-after", f"{failure.retry_after_s:g}")
        return Refusing(status=status, body=self._error(status, message, request_id), headers=headers)

    def refused(self, refused: Refused, ask: Ask, request_id: str) -> Refusing:
        message = (
            f"This request would exceed your organization's rate limit of {refused.limit:,.0f} "
            f"{_UNITS[refused.dimension]} (model: {ask.model}). Please reduce the prompt length or the maximum tokens "
            "requested, or try again later."
        )
        body = self._error(429, message, request_id)
        return Refusing(status=429, body=body, headers={"retry-after": str(max(1, math.ceil(refused.retry_after_s)))})

    def headers(self, request_id: str, levels: Mapping[str, Level]) -> Headers:
        headers = [(b"request-id", request_id.encode()), (b"anthropic-organization-id", b"org-simulated")]
        if levels:
            wall = self._wall().astimezone(UTC).replace(tzinfo=None)
            for name, level in levels.items():
                prefix = f"anthropic-ratelimit-{name}-".encode()
                rounds = name != "requests" and level.limit >= _ROUNDED_ABOVE
                remaining = round(level.remaining / 1000) * 1000 if rounds else int(level.remaining)
                reset = (wall + timedelta(seconds=level.full_in_s)).isoformat(timespec="seconds")
                headers.append((prefix + b"limit", b"%d" % level.limit))
                headers.append((prefix + b"remaining", b"%d" % remaining))
                headers.append((prefix + b"reset", reset.encode() + b"Z"))
        return headers

    def start_charge(self, ask: Ask, input_tokens: int, cached_tokens: int) -> Charge:
        """Fresh input and cache writes; nothing for the output limit."""
        return Charge(1, input_tokens - cached_tokens, input_tokens - cached_tokens, 0)

    def produced_charge(self, tokens: int) -> Charge:
        return Charge(0, tokens, 0, tokens)

    def settle_charge(self, ask: Ask, output_tokens: int, cached_tokens: int) -> Charge:
        return Charge()

    def status_of(self, kind: str) -> int:
        return _STATUSES.get(kind, 500)

    def error_event(self, kind: str, message: str, reply: Reply, sent: int) -> bytes:
        return _event("error", {"type": "error", "error": {"type": kind, "message": message}})

    def scripted(self, event: Any) -> bytes:
        return sse_event(event)

    def keepalive(self, kind: str, reply: Reply) -> bytes:
        if kind == "comment":
            return b": keepalive\n\n"
        if kind == "ping":
            return _PING
        return _delta(0, {"type": "text_delta", "text": ""})

    def single(self, ask: Ask, reply: Reply) -> dict[str, Any]:
        return {
            "id": reply.id,
            "type": "message",
            "role": "assistant",
            "model": reply.model,
            "content": _blocks(ask, reply),
            "stop_reason": reply.stop_reason or _STOPS[reply.stop],
            "stop_sequence": reply.stop_sequence,
            "stop_details": _stop_details(reply),
            "usage": _usage(reply, reply.output_tokens),
        }

    def events(self, ask: Ask, reply: Reply) -> Iterator[Event]:
        message = self.single(ask, reply)
        message |= {"content": [], "stop_reason": None, "stop_sequence": None, "stop_details": None}
        message["usage"] = _usage(reply, 1)
        yield Event("start", _event("message_start", {"type": "message_start", "message": message}))
        pinged = False
        for index, block in enumerate(_blocks(ask, reply)):
            begun = {"type": "content_block_start", "index": index, "content_block": _begun(block)}
            yield Event("start", _event("content_block_start", begun))
            if not pinged:
                pinged = True
                yield Event("start", _PING)
            yield from _deltas(index, block, reply)
            yield Event("start", _event("content_block_stop", {"type": "content_block_stop", "index": index}))
        delta = {
            "stop_reason": reply.stop_reason or _STOPS[reply.stop],
            "stop_sequence": reply.stop_sequence,
            "stop_details": _stop_details(reply),
        }
        usage = _usage(reply, reply.output_tokens)
        ended = {"type": "message_delta", "delta": delta, "usage": usage}
        yield Event("end", _event("message_delta", ended))
        yield Event("end", b'event: message_stop\ndata: {"type":"message_stop"}\n\n')

    def models(self, ids: Sequence[str], target: Target) -> dict[str, Any]:
        ids, more = target.page(ids, "limit", "after_id")
        data = [
            {
                "type": "model",
                "id": name,
                "display_name": name,
                "created_at": "2026-01-01T00:00:00Z",
                "lifecycle": "active",
            }
            for name in ids
        ]
        first, last = (ids[0], ids[-1]) if ids else (None, None)
        return {"data": data, "has_more": more, "first_id": first, "last_id": last}


def _blocks(ask: Ask, reply: Reply) -> list[dict[str, Any]]:
    blocks: list[dict[str, Any]] = []
    if reply.thinking is not None:
        shown = reply.thinking if ask.thinking_shown else ""
        blocks.append({"type": "thinking", "thinking": shown, "signature": reply.signature})
    if reply.redacted_thinking is not None:
        blocks.append({"type": "redacted_thinking", "data": reply.redacted_thinking})
    blocks += [dict(block) for block in reply.server_tools]
    if reply.text:
        blocks.append({"type": "text", "text": reply.text})
    for call in reply.tool_calls:
        blocks.append({"type": "tool_use", "id": call.id, "name": call.name, "input": call.value})
    return blocks


def _begun(block: dict[str, Any]) -> dict[str, Any]:
    """A block as it stands before its deltas."""
    empty: dict[str, dict[str, Any]] = {
        "text": {"text": ""},
        "thinking": {"thinking": "", "signature": ""},
        "tool_use": {"input": {}},
        "server_tool_use": {"input": {}},
        "mcp_tool_use": {"input": {}},
    }
    return {**block, **empty.get(block["type"], {})}


def _deltas(index: int, block: dict[str, Any], reply: Reply) -> Iterator[Event]:
    kind = block["type"]
    if kind == "text":
        for piece in reply.pieces or pieces_of(block["text"]):
            yield Event("piece", _delta(index, {"type": "text_delta", "text": piece}))
    elif kind == "thinking":
        for piece in pieces_of(block["thinking"]):
            yield Event("piece", _delta(index, {"type": "thinking_delta", "thinking": piece}))
        yield Event("start", _delta(index, {"type": "signature_delta", "signature": block["signature"]}))
    elif kind == "tool_use":
        yield from _arguments(index, next(call.arguments for call in reply.tool_calls if call.id == block["id"]))
    elif kind in ("server_tool_use", "mcp_tool_use"):
        yield from _arguments(index, encode(block.get("input", {})).decode())


def _arguments(index: int, arguments: str) -> Iterator[Event]:
    if arguments in ("", "{}"):
        return  # a call without arguments has no delta at all
    yield Event("start", _delta(index, {"type": "input_json_delta", "partial_json": ""}))
    for piece in pieces_of(arguments):
        yield Event("piece", _delta(index, {"type": "input_json_delta", "partial_json": piece}))


def _usage(reply: Reply, output_tokens: int) -> dict[str, Any]:
    usage: dict[str, Any] = {
        "input_tokens": reply.input_tokens,
        "cache_creation_input_tokens": reply.cache_write_tokens,
        "cache_read_input_tokens": reply.cache_read_tokens,
        "output_tokens": output_tokens,
        "service_tier": "standard",
    }
    if reply.cache_write_tokens:
        long = reply.cache_write_1h_tokens
        usage["cache_creation"] = {
            "ephemeral_5m_input_tokens": reply.cache_write_tokens - long,
            "ephemeral_1h_input_tokens": long,
        }
    if reply.reasoning_tokens:
        usage["output_tokens_details"] = {"thinking_tokens": min(reply.reasoning_tokens, output_tokens)}
    return usage


def _stop_details(reply: Reply) -> dict[str, Any] | None:
    if reply.refusal is None:
        return None
    return {"type": "refusal", "category": reply.refusal.category, "explanation": reply.refusal.explanation}


def _event(name: str, data: dict[str, Any]) -> bytes:
    return b"event: %s\ndata: %s\n\n" % (name.encode(), encode(data))


def _delta(index: int, delta: dict[str, Any]) -> bytes:
    data = encode({"type": "content_block_delta", "index": index, "delta": delta})
    return b"event: content_block_delta\ndata: " + data + b"\n\n"
