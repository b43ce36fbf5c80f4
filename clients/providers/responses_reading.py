"""Reading OpenAI's Responses wire, whole and as events. Pure.

An answer is a list of items. Whole answers, finished items of a stream and the response that ends a stream all go
through `_item`, which adds only what has not come yet: so a streamed answer equals the whole one, and a server that
sends no deltas is read all the same.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..answer import Draft, count_without
from ..response import Piece, StopReason

INCOMPLETE: Mapping[str, StopReason] = {"max_output_tokens": StopReason.MAX_TOKENS}
_DELTAS = {
    "response.reasoning_summary_text.delta": "thinking",
    "response.reasoning_text.delta": "thinking",
    "response.function_call_arguments.delta": "tool",
}
_READ = frozenset({"message", "function_call", "reasoning"})
_ENDS = frozenset({"response.completed", "response.incomplete", "response.failed"})


def reasoning_item(signature: str | None) -> dict[str, Any] | None:
    """The reasoning item that a block's signature holds, or None where it holds none that can go back."""
    try:
        item = json.loads(signature) if signature else None
    except (ValueError, RecursionError):
        return None
    return item if isinstance(item, dict) and item.get("type") == "reasoning" else None


class ResponsesReader:
    """Puts what comes into a draft. `failed` makes the error of an answer that went wrong after its 200."""

    def __init__(self, draft: Draft, failed: Callable[[Any, Draft], Exception]) -> None:
        self._draft, self._failed = draft, failed

    def whole(self, payload: Any) -> list[Piece]:
        """A whole response, or the one that ends a stream."""
        draft, status = self._draft, payload.get("status")
        draft.served_model = _known_text(payload.get("model")) or draft.served_model
        _count(payload.get("usage"), draft)
        if status == "failed" or payload.get("error"):
            raise self._failed(payload.get("error") or {"code": "server_error"}, draft)
        if status in ("queued", "in_progress", "cancelled"):
            raise ValueError(f"the response is {status}")
        pieces = [piece for at, item in enumerate(payload["output"]) for piece in self._item(at, item)]
        self._stop(status, payload.get("incomplete_details"))
        draft.complete = True
        return pieces

    def event(self, event: Any) -> Sequence[Piece]:
        kind, draft = event.get("type"), self._draft
        if kind is None and event.get("object") == "response":  # a server that answered whole
            return self.whole(event)
        if kind == "error":
            raise self._failed(event.get("error") or {**event, "type": None}, draft)
        if kind in _ENDS:
            return self.whole(event["response"])
        if kind in ("response.created", "response.in_progress"):
            draft.served_model = _known_text(event["response"].get("model")) or draft.served_model
        elif kind == "response.output_item.added":
            self._begin(event["output_index"], event["item"])
        elif kind == "response.output_item.done":
            return self._item(event["output_index"], event["item"])
        elif kind == "response.output_text.delta":
            return _some(draft.text(("text", event["output_index"], event.get("content_index")), event["delta"]))
        elif kind == "response.refusal.delta":
            draft.notes.setdefault("refused", set()).add(event["output_index"])
            draft.refuse("refusal", event["delta"])
        elif kind in _DELTAS:
            return self._delta(_DELTAS[kind], event)
        return ()

    def _delta(self, kind: str, event: Any) -> Sequence[Piece]:
        key, draft = (kind, event["output_index"]), self._draft
        return _some(draft.tool_json(key, event["delta"]) if kind == "tool" else self._thought(key, event))

    def _thought(self, key: tuple[str, int], event: Any) -> Piece | None:
        """The parts of a summary are paragraphs."""
        parts: dict[tuple[str, int], Any] = self._draft.notes.setdefault("parts", {})
        part, last = event.get("summary_index"), parts.get(key)
        parts[key] = part
        gap = "\n\n" if last is not None and part != last else ""
        return self._draft.thinking(key, gap + event["delta"])

    def _begin(self, at: int, item: Any) -> None:
        if item["type"] == "function_call":
            self._draft.tool(("tool", at), id=item.get("call_id"), name=item.get("name"))
        elif item["type"] not in _READ:
            self._draft.server_tool(("own", at), item["type"], item)

    def _item(self, at: int, item: Any) -> list[Piece]:
        """A finished item: what of it has not come yet, and what only the finished one has."""
        kind, draft = item["type"], self._draft
        pieces: list[Piece | None] = []
        if kind == "message":
            pieces += self._message(at, item)
        elif kind == "function_call":
            key = ("tool", at)
            draft.tool(key, id=item.get("call_id"), name=item.get("name"))
            if not draft.wrote(key):
                pieces.append(draft.tool_json(key, item.get("arguments")))
        elif kind == "reasoning":
            key = ("thinking", at)
            if not draft.wrote(key):
                pieces.append(draft.thinking(key, "\n\n".join(_texts(item))))
            if item.get("encrypted_content"):
                draft.sign(key, json.dumps(item, ensure_ascii=False, separators=(",", ":")))
        else:  # of a tool that the provider runs itself: finished, it stands instead of how it began
            draft.server_tool(("own", at), kind, item)
        return [piece for piece in pieces if piece is not None]

    def _message(self, at: int, item: Any) -> list[Piece | None]:
        draft, pieces = self._draft, list[Piece | None]()
        for number, part in enumerate(item["content"]):
            key = ("text", at, number)
            if part["type"] == "refusal" and at not in draft.notes.get("refused", ()):
                draft.notes.setdefault("refused", set()).add(at)
                draft.refuse("refusal", part.get("refusal"))
            elif part["type"] == "output_text":
                if not draft.wrote(key):
                    pieces.append(draft.text(key, part["text"]))
                draft.sign(key, item.get("phase"))
        return pieces

    def _stop(self, status: Any, details: Any) -> None:
        draft = self._draft
        reason = details.get("reason") if isinstance(details, dict) else None
        if status == "incomplete" and reason == "content_filter":
            draft.refuse("content_filter")
        elif draft.stop_reason is not StopReason.REFUSAL:
            cut = INCOMPLETE.get(reason) if status == "incomplete" and isinstance(reason, str) else None
            draft.stop(cut or (StopReason.TOOL_USE if draft.calls_tools else StopReason.END_TURN))


def _texts(item: Any) -> list[str]:
    parts = item.get("summary") or item.get("content") or []
    return [part["text"] for part in parts if isinstance(part.get("text"), str)]


def _count(usage: Any, draft: Draft) -> None:
    """Input includes what the cache gave and took, and output the reasoning: the former are taken apart here."""
    if not isinstance(usage, dict):
        return
    given, made = usage.get("input_tokens_details"), usage.get("output_tokens_details")
    given, made = given if isinstance(given, dict) else {}, made if isinstance(made, dict) else {}
    read, wrote, total = given.get("cached_tokens"), given.get("cache_write_tokens"), usage.get("input_tokens")
    draft.count(
        input_tokens=count_without(total, read, wrote),
        output_tokens=usage.get("output_tokens"),
        cache_read_tokens=read,
        cache_write_tokens=wrote,
        reasoning_tokens=made.get("reasoning_tokens"),
    )


def _some(piece: Piece | None) -> Sequence[Piece]:
    return () if piece is None else (piece,)


def _known_text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None
