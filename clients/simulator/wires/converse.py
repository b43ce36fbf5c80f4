"""Bedrock Converse and ConverseStream: answers and frames as botocore reads them."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

from ..exchange import Ask, Reply
from .bedrock import BedrockWire
from .converse_reading import ConverseReader
from .eventstream import event_frame
from .wire import Event, Target, WireError, pieces_of

_STOPS = {
    "end": "end_turn",
    "stop_sequence": "stop_sequence",
    "tool": "tool_use",
    "length": "max_tokens",
    "refusal": "content_filtered",
    "window": "model_context_window_exceeded",
    "pause": "end_turn",
}


class ConverseWire(BedrockWire):
    """`invoked` reads the body of a CountTokens request that is in the words of InvokeModel."""

    name: ClassVar[str] = "bedrock-converse"

    def __init__(
        self,
        reader: ConverseReader,
        burndown: float,
        invoked: Callable[[dict[str, Any], Target], Ask],
    ) -> None:
        super().__init__(burndown)
        self._reader = reader
        self._invoked = invoked

    def read(self, body: dict[str, Any], target: Target) -> Ask:
        if "body" in body and target.path.endswith("/count-tokens"):
            return self._invoked(_decoded(body["body"]), target)
        return self._reader.read(body, target)

    def counted_body(self, body: dict[str, Any], target: Target) -> dict[str, Any]:
        given = body["input"]
        if set(given) not in ({"converse"}, {"invokeModel"}):
            raise WireError(400, "input: exactly one of converse and invokeModel must be set.")
        inner: dict[str, Any] = given.get("converse") or given["invokeModel"]
        return inner

    def keepalive(self, kind: str, reply: Reply) -> bytes:
        """The stream knows nothing that says nothing but an empty delta."""
        return event_frame("contentBlockDelta", {"contentBlockIndex": 0, "delta": {"text": ""}})

    def scripted(self, event: Any) -> bytes:
        if isinstance(event, bytes):
            return event
        name, payload = next(iter(event.items()))
        return event_frame(name, payload)

    def single(self, ask: Ask, reply: Reply) -> dict[str, Any]:
        return {
            "output": {"message": {"role": "assistant", "content": list(_blocks(ask, reply))}},
            "stopReason": _stop(reply),
            "usage": _usage(reply),
            "metrics": {"latencyMs": 1},
        }

    def events(self, ask: Ask, reply: Reply) -> Iterator[Event]:
        yield Event("start", event_frame("messageStart", {"role": "assistant"}))
        for index, block in enumerate(_blocks(ask, reply)):
            yield from _block_events(index, block, reply)
            yield Event("start", event_frame("contentBlockStop", {"contentBlockIndex": index}))
        yield Event("end", event_frame("messageStop", {"stopReason": _stop(reply)}))
        metadata = {"usage": _usage(reply), "metrics": {"latencyMs": 1}}
        yield Event("end", event_frame("metadata", metadata))


def _blocks(ask: Ask, reply: Reply) -> Iterator[dict[str, Any]]:
    if reply.thinking is not None:
        shown = reply.thinking if ask.thinking_shown else ""
        yield {"reasoningContent": {"reasoningText": {"text": shown, "signature": reply.signature}}}
    if reply.redacted_thinking is not None:
        data = base64.b64encode(reply.redacted_thinking.encode()).decode()
        yield {"reasoningContent": {"redactedContent": data}}
    text = reply.text
    if not text and reply.refusal is not None:
        text = reply.refusal.explanation  # the message a guardrail puts in place of the answer
    if text:
        yield {"text": text}
    for call in reply.tool_calls:
        yield {"toolUse": {"toolUseId": call.id, "name": call.name, "input": call.value}}


def _block_events(index: int, block: dict[str, Any], reply: Reply) -> Iterator[Event]:
    if "text" in block:
        own = reply.pieces if block["text"] == reply.text else ()
        for piece in own or pieces_of(block["text"]):
            yield Event("piece", _delta(index, {"text": piece}))
    elif "toolUse" in block:
        call = next(call for call in reply.tool_calls if call.id == block["toolUse"]["toolUseId"])
        begun = {"toolUse": {"toolUseId": call.id, "name": call.name}}
        yield Event("start", event_frame("contentBlockStart", {"contentBlockIndex": index, "start": begun}))
        for piece in pieces_of("" if call.arguments == "{}" else call.arguments):
            yield Event("piece", _delta(index, {"toolUse": {"input": piece}}))
    else:
        reasoning = block["reasoningContent"]
        if "redactedContent" in reasoning:
            yield Event("start", _delta(index, {"reasoningContent": reasoning}))
            return
        for piece in pieces_of(reasoning["reasoningText"]["text"]):
            yield Event("piece", _delta(index, {"reasoningContent": {"text": piece}}))
        signature = reasoning["reasoningText"]["signature"]
        yield Event("start", _delta(index, {"reasoningContent": {"signature": signature}}))


def _delta(index: int, delta: dict[str, Any]) -> bytes:
    return event_frame("contentBlockDelta", {"contentBlockIndex": index, "delta": delta})


def _stop(reply: Reply) -> str:
    if reply.stop_reason is None and reply.refusal is not None and reply.refusal.category == "guardrail":
        return "guardrail_intervened"
    return reply.stop_reason or _STOPS[reply.stop]


def _usage(reply: Reply) -> dict[str, Any]:
    """`inputTokens` is fresh input alone; the total counts everything."""
    read, written = reply.cache_read_tokens, reply.cache_write_tokens
    usage: dict[str, Any] = {
        "inputTokens": reply.input_tokens,
        "outputTokens": reply.output_tokens,
        "totalTokens": reply.input_tokens + read + written + reply.output_tokens,
        "cacheReadInputTokens": read,
        "cacheWriteInputTokens": written,
    }
    if written:
        long = reply.cache_write_1h_tokens
        details = [{"ttl": "5m", "inputTokens": written - long}, {"ttl": "1h", "inputTokens": long}]
        usage["cacheDetails"] = [each for each in details if each["inputTokens"]]
    return usage


def _decoded(data: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(base64.b64decode(data))
    return found
