"""Bedrock InvokeModel and InvokeModelWithResponseStream for Claude: Anthropic's messages in Bedrock's frames."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from typing import Any, ClassVar

from ..exchange import Ask, Reply
from .anthropic import AnthropicWire
from .anthropic_reading import Reader
from .bedrock import BedrockWire
from .eventstream import event_frame
from .wire import Event, Headers, Target, WireError, encode

_VERSION = re.compile(r"bedrock-2023-05-31|\d{4}-\d{2}-\d{2}")  # the documented one, and those the SDK puts in


class InvokeWire(BedrockWire):
    name: ClassVar[str] = "bedrock-invoke"
    stream_headers: ClassVar[Headers] = [
        *BedrockWire.stream_headers,
        (b"x-amzn-bedrock-content-type", b"application/json"),
    ]

    def __init__(self, reader: Reader, burndown: float, messages: AnthropicWire) -> None:
        super().__init__(burndown)
        self._reader = reader
        self._messages = messages

    def read(self, body: dict[str, Any], target: Target) -> Ask:
        version = body.get("anthropic_version")
        if version is None:
            raise WireError(400, "anthropic_version: Field required")
        if not isinstance(version, str) or not _VERSION.fullmatch(version):
            raise WireError(400, f"Invalid API version: {version}")
        for name in ("model", "stream"):
            if name in body:
                raise WireError(400, f"{name}: Extra inputs are not permitted")
        rest = {name: value for name, value in body.items() if name not in ("anthropic_version", "anthropic_beta")}
        return self._reader.read(rest | {"model": target.model, "stream": bool(target.streamed)})

    def counted_body(self, body: dict[str, Any], target: Target) -> dict[str, Any]:
        return body

    def keepalive(self, kind: str, reply: Reply) -> bytes:
        if kind == "empty":
            delta = {"type": "text_delta", "text": ""}
            return _chunk({"type": "content_block_delta", "index": 0, "delta": delta})
        return _chunk({"type": "ping"})

    def scripted(self, event: Any) -> bytes:
        if isinstance(event, bytes):
            return event
        return _chunk(event)

    def single(self, ask: Ask, reply: Reply) -> dict[str, Any]:
        return self._messages.single(ask, reply)

    def events(self, ask: Ask, reply: Reply) -> Iterator[Event]:
        for event in self._messages.events(ask, reply):
            data = json.loads(event.data.split(b"data: ", 1)[1])
            if data["type"] == "message_stop":
                data["amazon-bedrock-invocationMetrics"] = {
                    "inputTokenCount": reply.input_tokens,
                    "outputTokenCount": reply.output_tokens,
                    "invocationLatency": 1,
                    "firstByteLatency": 1,
                    "cacheReadInputTokenCount": reply.cache_read_tokens,
                    "cacheWriteInputTokenCount": reply.cache_write_tokens,
                }
            yield Event(event.kind, _chunk(data))


def _chunk(data: Any) -> bytes:
    payload = base64.b64encode(encode(data)).decode()
    return event_frame("chunk", {"bytes": payload})
