"""OpenAI Responses: answers, events and errors as its SDK reads them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

from ..exchange import Ask, Reply
from ..replying import seal
from ..script import Failure
from .logprobs import logprobs_of
from .openai_common import OpenAIWire, error_body
from .responses_reading import ResponsesReader
from .responses_stream import item_events
from .wire import Event, Refusing, Target, WireError, encode

_REFUSAL = "I'm sorry, but I can't help with that."
_OVERLOADED = "Our servers are currently overloaded. Please try again later."
_CODES = {
    "overloaded_error": "server_is_overloaded",
    "rate_limit_error": "rate_limit_exceeded",
    "api_error": "server_error",
}
_STATUSES = {"server_is_overloaded": 503, "slow_down": 429, "rate_limit_exceeded": 429, "server_error": 500}
_FAILED = "response.failed"


class ResponsesWire(OpenAIWire):
    name: ClassVar[str] = "openai-responses"
    id_prefixes: ClassVar[tuple[str, str]] = ("resp_", "call_")

    def __init__(self, reader: ResponsesReader) -> None:
        self._reader = reader

    def read(self, body: dict[str, Any], target: Target) -> Ask:
        return self._reader.read(body)

    def counted_body(self, body: dict[str, Any], target: Target) -> dict[str, Any]:
        return {name: value for name, value in body.items() if name != "personality"}

    def counted(self, tokens: int) -> dict[str, Any]:
        return {"object": "response.input_tokens", "input_tokens": tokens}

    def too_long(self, tokens: int, window: int) -> WireError:
        message = "Your input exceeds the context window of this model. Please adjust your input and try again."
        return WireError(400, message, param="input", code="context_length_exceeded")

    def failure(self, failure: Failure, ask: Ask, request_id: str) -> Refusing:
        if failure.kind != "overloaded":
            return super().failure(failure, ask, request_id)
        body = error_body(failure.message or _OVERLOADED, "service_unavailable_error", "server_is_overloaded")
        return Refusing(status=failure.status or 503, body=body, headers=failure.headers)

    def status_of(self, kind: str) -> int:
        code = kind.removeprefix(f"{_FAILED}:")
        return _STATUSES.get(_CODES.get(code, code), 500)

    def error_event(self, kind: str, message: str, reply: Reply, sent: int) -> bytes:
        """A flat `error` event; for the kind `response.failed` (or `response.failed:CODE`) a failed response."""
        name, _, code = kind.partition(":")
        if name == _FAILED:
            failed = {"error": {"code": code or "server_error", "message": message}}
            response = self._response(None, reply, "failed", []) | failed
            return _event({"type": _FAILED, "response": response, "sequence_number": sent})
        error: dict[str, Any] = {
            "code": _CODES.get(kind, kind),
            "message": message,
            "param": None,
            "sequence_number": sent,
        }
        return _event({"type": "error"} | error)

    def keepalive(self, kind: str, reply: Reply) -> bytes:
        if kind != "empty":
            return b": keepalive\n\n"
        delta = {"item_id": f"msg_{_bare(reply)}", "output_index": 0, "content_index": 0, "delta": "", "logprobs": []}
        return _event({"type": "response.output_text.delta", "sequence_number": 0} | delta)

    def single(self, ask: Ask, reply: Reply) -> dict[str, Any]:
        status, _ = _status(reply)
        return self._response(ask, reply, status, self._items(ask, reply)) | {"usage": _usage(reply)}

    def events(self, ask: Ask, reply: Reply) -> Iterator[Event]:
        begun = self._response(ask, reply, "in_progress", [])
        for number, (kind, data) in enumerate(self._plain(ask, reply, begun)):
            yield Event(kind, _event(data | {"sequence_number": number}))

    def _plain(self, ask: Ask, reply: Reply, begun: dict[str, Any]) -> Iterator[tuple[Any, dict[str, Any]]]:
        yield "start", {"type": "response.created", "response": begun}
        yield "start", {"type": "response.in_progress", "response": begun}
        for index, item in enumerate(self._items(ask, reply)):
            yield from item_events(index, item, reply.pieces)
        whole = self.single(ask, reply)
        yield "end", {"type": f"response.{whole['status']}", "response": whole}

    def _items(self, ask: Ask, reply: Reply) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = []
        if reply.thinking is not None:
            summary = [{"type": "summary_text", "text": reply.thinking}] if ask.thinking_shown else []
            sealed = seal(reply.thinking, self._reader.seed)
            items.append(
                {"id": f"rs_{_bare(reply)}", "type": "reasoning", "summary": summary, "encrypted_content": sealed}
            )
        items += [dict(item) for item in reply.server_tools]
        content = _content(ask, reply)
        if content:
            items.append(
                {
                    "id": f"msg_{_bare(reply)}",
                    "type": "message",
                    "status": "completed",
                    "role": "assistant",
                    "content": content,
                }
            )
        for index, call in enumerate(reply.tool_calls):
            items.append(
                {
                    "id": f"fc_{_bare(reply)}{index:02x}",
                    "type": "function_call",
                    "status": "completed",
                    "arguments": call.arguments,
                    "call_id": call.id,
                    "name": call.name,
                }
            )
        if reply.stop == "length" and items and "status" in items[-1]:
            items[-1]["status"] = "incomplete"
        return items

    def _response(self, ask: Ask | None, reply: Reply, status: str, items: list[dict[str, Any]]) -> dict[str, Any]:
        tools = ask.tools if ask is not None else ()
        return {
            "id": reply.id,
            "object": "response",
            "created_at": reply.created_s,
            "status": status,
            "background": False,
            "error": None,
            "incomplete_details": _status(reply)[1] if status == "incomplete" else None,
            "instructions": (ask.system or None) if ask is not None else None,
            "max_output_tokens": ask.max_output_tokens if ask is not None else None,
            "metadata": {},
            "model": reply.model,
            "output": items,
            "parallel_tool_calls": True,
            "previous_response_id": None,
            "reasoning": {"effort": None, "summary": None},
            "service_tier": "default",
            "store": False,
            "temperature": 1.0,
            "text": {"format": {"type": "text"}},
            "tool_choice": "auto",
            "tools": [
                {
                    "type": "function",
                    "name": tool.name,
                    "description": tool.description,
                    "parameters": tool.schema,
                    "strict": False,
                }
                for tool in tools
            ],
            "top_p": 1.0,
            "truncation": "disabled",
            "usage": None,
        }


def _bare(reply: Reply) -> str:
    return reply.id.removeprefix("resp_")


def _content(ask: Ask, reply: Reply) -> list[dict[str, Any]]:
    if reply.refusal is not None and reply.refusal.category != "content_filter":
        return [{"type": "refusal", "refusal": reply.refusal.explanation or _REFUSAL}]
    if not reply.text:
        return []
    logprobs = logprobs_of(reply.text, ask.logprobs) if ask.logprobs is not None else []
    return [{"type": "output_text", "text": reply.text, "annotations": [], "logprobs": logprobs}]


def _status(reply: Reply) -> tuple[str, dict[str, Any] | None]:
    """The status, and what is missing where it is incomplete."""
    if reply.stop_reason is not None:
        if reply.stop_reason in ("completed", "failed", "cancelled"):
            return reply.stop_reason, None
        return "incomplete", {"reason": reply.stop_reason}
    if reply.refusal is not None and reply.refusal.category == "content_filter":
        return "incomplete", {"reason": "content_filter"}
    return ("incomplete", {"reason": "max_output_tokens"}) if reply.stop == "length" else ("completed", None)


def _usage(reply: Reply) -> dict[str, Any]:
    read, written = reply.cache_read_tokens, reply.cache_write_tokens
    input_tokens = reply.input_tokens + read + written
    return {
        "input_tokens": input_tokens,
        "input_tokens_details": {"cached_tokens": read, "cache_write_tokens": written},
        "output_tokens": reply.output_tokens,
        "output_tokens_details": {"reasoning_tokens": reply.reasoning_tokens},
        "total_tokens": input_tokens + reply.output_tokens,
    }


def _event(data: dict[str, Any]) -> bytes:
    return b"event: %s\ndata: %s\n\n" % (data["type"].encode(), encode(data))
