"""Reading Converse: whole answers, and the events of its stream out of AWS's binary frames. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from botocore.eventstream import EventStreamBuffer

from ..answer import Draft
from ..response import Piece, StopReason

STOP_REASONS: Mapping[str, StopReason] = {
    "end_turn": StopReason.END_TURN,
    "stop_sequence": StopReason.STOP_SEQUENCE,
    "tool_use": StopReason.TOOL_USE,
    "max_tokens": StopReason.MAX_TOKENS,
    "model_context_window_exceeded": StopReason.CONTEXT_WINDOW,
}
#: The answer was stopped by a filter: a refusal of this category.
REFUSALS = frozenset({"guardrail_intervened", "content_filtered"})
#: The model slipped; another try may not.
SLIPS = frozenset({"malformed_tool_use", "malformed_model_output"})

#: How a call is marked that the provider runs itself.
_OWN = "server_tool_use"

Slipped = Callable[[str, Draft], Exception]


class FrameDecoder:
    """Bytes in, (event's name, its payload) out. An exception frame comes out as `error`. Raises botocore's
    `ParserError`, or ValueError for a payload that is no JSON object."""

    def __init__(self) -> None:
        self._buffer = EventStreamBuffer()

    def feed(self, chunk: bytes) -> Iterator[tuple[str, Mapping[str, Any]]]:
        self._buffer.add_data(chunk)
        for message in self._buffer:
            yield _event(message.headers, message.payload)


def _event(headers: Mapping[str, Any], payload: bytes) -> tuple[str, Mapping[str, Any]]:
    kind = headers.get(":message-type")
    try:
        value = json.loads(payload) if payload else {}
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise ValueError("a frame whose payload is no JSON object")
    if kind == "event":
        return str(headers.get(":event-type", "")), value
    code = headers.get(":exception-type") or headers.get(":error-code") or "unknown"
    message = value.get("message") or value.get("Message") or headers.get(":error-message") or ""
    status = value.get("originalStatusCode")
    return "error", {"error": {"type": str(code), "message": str(message), "status": status}}


def read_reply(payload: Any, draft: Draft, slipped: Slipped) -> None:
    message = payload["output"]["message"]
    for index, block in enumerate(message["content"]):
        _block(index, block, draft)
    _count(payload.get("usage"), draft)
    _stop(payload.get("stopReason"), draft, slipped)


def read_event(name: str, payload: Mapping[str, Any], draft: Draft, slipped: Slipped) -> Sequence[Piece]:
    if name == "contentBlockDelta":
        return _delta(payload["contentBlockIndex"], payload["delta"], draft)
    if name == "contentBlockStart":
        _begin(payload["contentBlockIndex"], payload.get("start", {}), draft)
    elif name == "messageStop":
        _stop(payload.get("stopReason"), draft, slipped)
        draft.complete = True  # what it cost follows in `metadata`, or never
    elif name == "metadata":
        _count(payload.get("usage"), draft)
    return ()


def _begin(index: int, start: Mapping[str, Any], draft: Draft) -> None:
    use = start.get("toolUse")
    if use is not None and use.get("type") != _OWN:
        draft.tool(index, id=use.get("toolUseId"), name=use.get("name"))
        return
    for kind, begun in start.items():
        draft.server_tool(("own", index), kind, begun)


def _block(index: int, block: Mapping[str, Any], draft: Draft) -> None:
    if "text" in block:
        draft.text(index, block["text"])
    elif "toolUse" in block and block["toolUse"].get("type") != _OWN:
        use = block["toolUse"]
        draft.tool(index, id=use.get("toolUseId"), name=use.get("name"), arguments=use.get("input"))
    elif "reasoningContent" in block:
        reasoning = block["reasoningContent"]
        said = reasoning.get("reasoningText")
        if said is not None:
            draft.thinking(index, said.get("text") or "")
            draft.signature(index, said.get("signature"))
        draft.redacted(index, reasoning.get("redactedContent"))
    elif "citationsContent" in block:  # in a stream it is text, with its citations beside it
        for part in block["citationsContent"].get("content") or ():
            draft.text(index, part.get("text"))
    else:
        for kind, held in block.items():
            draft.server_tool(("own", index), kind, held)


def _delta(index: int, delta: Mapping[str, Any], draft: Draft) -> Sequence[Piece]:
    piece: Piece | None = None
    if draft.has(("own", index)):
        _delta_of_own(("own", index), delta, draft)
    elif "text" in delta:
        piece = draft.text(index, delta["text"])
    elif "toolUse" in delta:
        piece = draft.tool_json(index, delta["toolUse"].get("input"))
    elif "reasoningContent" in delta:
        reasoning = delta["reasoningContent"]
        if "text" in reasoning:
            piece = draft.thinking(index, reasoning["text"])
        draft.signature(index, reasoning.get("signature"))
        draft.redacted(index, reasoning.get("redactedContent"))
    return () if piece is None else (piece,)


def _delta_of_own(key: tuple[str, int], delta: Mapping[str, Any], draft: Draft) -> None:
    if "toolUse" in delta:
        draft.server_tool_json(key, delta["toolUse"].get("input"))
    elif "toolResult" in delta:
        given: list[Any] = draft.notes.setdefault("given", {}).setdefault(key, [])
        given += delta["toolResult"]
        draft.server_tool_fields(key, {"content": given})


def _count(usage: Any, draft: Draft) -> None:
    """`inputTokens` is fresh input alone."""
    if isinstance(usage, dict):
        draft.count(
            input_tokens=usage.get("inputTokens"),
            output_tokens=usage.get("outputTokens"),
            cache_read_tokens=usage.get("cacheReadInputTokens"),
            cache_write_tokens=usage.get("cacheWriteInputTokens"),
            cache_write_1h_tokens=_kept_long(usage.get("cacheDetails")),
        )


def _kept_long(details: Any) -> int | None:
    """Of what was written to a cache, that which is kept for an hour. None: nothing is said of it."""
    if not isinstance(details, list):
        return None
    counts = [one.get("inputTokens") for one in details if isinstance(one, dict) and one.get("ttl") == "1h"]
    return sum(count for count in counts if isinstance(count, int))


def _stop(reason: Any, draft: Draft, slipped: Slipped) -> None:
    if reason in SLIPS:
        raise slipped(str(reason), draft)
    if reason in REFUSALS:
        draft.refuse(reason, draft.partial or None)
    else:
        draft.stop(STOP_REASONS.get(reason) if isinstance(reason, str) else None)
