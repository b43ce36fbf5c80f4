"""Reading Anthropic's Messages wire, whole and as events, and what of an answer goes back beside its blocks' own
fields. Pure."""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterator, Mapping, Sequence
from itertools import count
from typing import Any

from ..answer import Draft, as_kept
from ..conversation import Message, ServerToolBlock, ToolResultBlock
from ..response import Piece, PieceKind, StopReason

STOP_REASONS: Mapping[str, StopReason] = {
    "end_turn": StopReason.END_TURN,
    "stop_sequence": StopReason.STOP_SEQUENCE,
    "tool_use": StopReason.TOOL_USE,
    "max_tokens": StopReason.MAX_TOKENS,
    "model_context_window_exceeded": StopReason.CONTEXT_WINDOW,
    "pause_turn": StopReason.PAUSE_TURN,
    "refusal": StopReason.REFUSAL,
}
#: The wire's word for where code runs: beside an answer's blocks, and beside a request's messages.
CONTAINER = "container"


def read_reply(payload: Any, draft: Draft) -> None:
    draft.served_model = _known_text(payload.get("model")) or draft.served_model
    for index, block in enumerate(payload["content"]):
        _begin_block(index, block, draft)
    _count(payload.get("usage"), draft)
    _stop(payload, draft)
    _end(payload, draft)


def read_event(event: Any, draft: Draft) -> Sequence[Piece]:
    kind = event["type"]
    if kind == "content_block_delta":
        return _delta(event["index"], event["delta"], draft)
    if kind == "content_block_start":
        return _begin_block(event["index"], event["content_block"], draft)
    if kind == "message_start":
        draft.served_model = _known_text(event["message"].get("model"))
        _count(event["message"].get("usage"), draft)
        draft.notes[CONTAINER] = event["message"].get(CONTAINER)
    elif kind == "message_delta":
        _count(event.get("usage"), draft)
        _stop(event["delta"], draft)
        draft.notes[CONTAINER] = event["delta"].get(CONTAINER) or draft.notes.get(CONTAINER)
    elif kind == "message_stop":
        _end(draft.notes, draft)
        draft.complete = True
    elif kind == "message":  # a server that answered whole
        read_reply(event, draft)
        draft.complete = True
        return (Piece(kind=PieceKind.TEXT, text=draft.partial),) if draft.partial else ()
    return ()


def _begin_block(index: int, block: Any, draft: Draft) -> Sequence[Piece]:
    kind = block["type"]
    piece: Piece | None = None
    own: dict[Any, Hashable] = draft.notes.setdefault("own", {})  # the blocks that are the wire's own
    own.pop(index, None)
    if kind == "text":
        piece = draft.text(index, block.get("text") or "")
        _cite(index, block.get("citations"), draft)
    elif kind == "thinking":
        piece = draft.thinking(index, block.get("thinking") or "")
        draft.signature(index, block.get("signature"))
    elif kind == "redacted_thinking":
        draft.redacted(index, block.get("data"))
    elif kind == "tool_use":
        draft.tool(index, id=block.get("id"), name=block.get("name"), arguments=block.get("input"))
        draft.sign(index, _caller_text(block.get("caller")))
    else:  # of a tool that the provider runs itself
        numbers: Iterator[int] = draft.notes.setdefault("numbers", count())
        own[index] = key = ("own", next(numbers))  # an index that comes again begins another one
        draft.server_tool(key, kind, block)
    return () if piece is None else (piece,)


def _delta(index: int, delta: Any, draft: Draft) -> Sequence[Piece]:
    kind = delta["type"]
    own = draft.notes.get("own", {}).get(index)
    if own is not None:
        _delta_of_own(own, kind, delta, draft)
        return ()
    piece: Piece | None = None
    if kind == "text_delta":
        piece = draft.text(index, delta["text"])
    elif kind == "input_json_delta":
        piece = draft.tool_json(index, delta["partial_json"])
    elif kind == "thinking_delta":
        piece = draft.thinking(index, delta["thinking"])
    elif kind == "signature_delta":
        draft.signature(index, delta["signature"])
    elif kind == "citations_delta":
        _cite(index, [delta.get("citation")], draft)
    return () if piece is None else (piece,)


def _delta_of_own(key: Hashable, kind: Any, delta: Any, draft: Draft) -> None:
    if kind == "input_json_delta":
        draft.server_tool_json(key, delta["partial_json"])
    elif kind == "compaction_delta":  # whole, where the block began without
        draft.server_tool_fields(key, {name: value for name, value in delta.items() if name != "type"})


def _cite(index: int, citations: Any, draft: Draft) -> None:
    """What a text leans on is wanted back with it: it is the text's signature."""
    found = [one for one in citations if isinstance(one, dict)] if isinstance(citations, list) else []
    if found:
        kept: list[Any] = draft.notes.setdefault("citations", {}).setdefault(index, [])
        kept += found
        draft.sign(index, as_kept({"citations": kept})[1])


def _caller_text(caller: Any) -> str | None:
    """Code that called the tool from its container; a call by the model itself says nothing that is wanted back."""
    if not isinstance(caller, dict) or caller.get("type") in (None, "direct"):
        return None
    return as_kept({"caller": caller})[1]


def citations_in(signature: str | None) -> dict[str, Any]:
    """What a text's signature says of it, as it is sent: where a citation came from a file is no part of a request."""
    cited = _signed(signature).get("citations")
    if not isinstance(cited, list) or not all(isinstance(one, dict) for one in cited):
        return {}
    return {"citations": [{name: value for name, value in one.items() if name != "file_id"} for one in cited]}


def caller_in(signature: str | None) -> dict[str, Any]:
    caller = _signed(signature).get("caller")
    return {"caller": caller} if isinstance(caller, dict) else {}


def _signed(signature: str | None) -> Mapping[str, Any]:
    try:
        found = json.loads(signature) if signature else None
    except (ValueError, RecursionError):
        return {}  # of another wire, and nobody said so
    return found if isinstance(found, dict) else {}


def _end(place: Mapping[str, Any], draft: Draft) -> None:
    """Where its code ran is the last of an answer that holds anything."""
    container = place.get(CONTAINER)
    if isinstance(container, dict) and draft.says_something:
        draft.server_tool((CONTAINER,), CONTAINER, container)


def container_of(messages: Sequence[Message]) -> str | None:
    """The container that the last turn of the model works in, while that turn goes on: paused, or waiting for the
    results that are sent now. It is refused without. A later turn may find it expired, and gets a new one."""
    goes_on = bool(messages) and any(isinstance(block, ToolResultBlock) for block in messages[-1].blocks)
    for message in messages[-2:] if goes_on else messages[-1:]:
        for block in reversed(message.blocks) if message.role == "assistant" else ():
            if isinstance(block, ServerToolBlock) and block.kind == CONTAINER:
                return _known_text(block.payload.get("id"))
    return None


def _count(usage: Any, draft: Draft) -> None:
    """Reported at the start and at the end: the last value of each field is the whole, and a sum would double it."""
    if not isinstance(usage, dict):
        return
    details, written = usage.get("output_tokens_details"), usage.get("cache_creation")
    draft.count(
        input_tokens=usage.get("input_tokens"),
        output_tokens=usage.get("output_tokens"),
        cache_read_tokens=usage.get("cache_read_input_tokens"),
        cache_write_tokens=usage.get("cache_creation_input_tokens"),
        reasoning_tokens=details.get("thinking_tokens") if isinstance(details, dict) else None,
        cache_write_1h_tokens=written.get("ephemeral_1h_input_tokens") if isinstance(written, dict) else None,
    )


def _stop(place: Any, draft: Draft) -> None:
    reason = place.get("stop_reason")
    if reason == "refusal":
        details = place.get("stop_details")
        details = details if isinstance(details, dict) else {}
        draft.refuse(details.get("category"), details.get("explanation"))
    else:
        draft.stop(STOP_REASONS.get(reason) if isinstance(reason, str) else None)


def _known_text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None
