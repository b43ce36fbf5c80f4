"""Reading the chat completions wire, as OpenAI and the many servers that imitate it send it. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from interlock.errors import TransientUpstreamError

from ..answer import Draft, count_without
from ..response import Piece, StopReason

FINISH_REASONS: Mapping[str, StopReason] = {
    "stop": StopReason.END_TURN,
    "tool_calls": StopReason.TOOL_USE,
    "function_call": StopReason.TOOL_USE,
    "length": StopReason.MAX_TOKENS,
    "content_filter": StopReason.REFUSAL,
}
_TEXT, _THOUGHT, _LEGACY = ("text", 0), ("thinking", 0), ("tool", "function_call")


def read_choice(choice: Any, draft: Draft) -> list[Piece]:
    """One choice: a stream's `delta`, or a whole `message`."""
    said = choice.get("delta") or choice.get("message") or {}
    pieces = [
        draft.thinking(_THOUGHT, said.get("reasoning_content") or said.get("reasoning")),
        draft.text(_TEXT, _content(said.get("content"))) if said.get("content") else None,
    ]
    calls = said.get("tool_calls")
    for call in calls if isinstance(calls, list) else ():
        pieces.append(_tool_call(call, draft))
    legacy = said.get("function_call")
    if isinstance(legacy, dict):
        draft.tool(_LEGACY, name=legacy.get("name"))
        pieces.append(draft.tool_json(_LEGACY, legacy.get("arguments")))
    if said.get("refusal"):
        draft.refuse("refusal", said["refusal"])
    if choice.get("finish_reason"):
        _finish(choice["finish_reason"], draft)
    return [piece for piece in pieces if piece is not None]


def _finish(reason: Any, draft: Draft) -> None:
    if reason == "error":
        raise TransientUpstreamError("the provider ended the stream with finish_reason 'error'", provider_code="error")
    draft.complete = True
    if draft.stop_reason is StopReason.REFUSAL:
        return
    if reason == "content_filter":
        draft.refuse("content_filter")
        return
    stop = FINISH_REASONS.get(reason) if isinstance(reason, str) else None
    # Some servers say "stop" after a tool call.
    draft.stop(StopReason.TOOL_USE if stop is StopReason.END_TURN and draft.notes.get("calls") else stop)


def _content(content: Any) -> Any:
    """Text, or a list of parts of which the text ones are text."""
    if not isinstance(content, list):
        return content
    return "".join(part["text"] for part in content if isinstance(part, dict) and isinstance(part.get("text"), str))


def read_usage(usage: Any, draft: Draft) -> None:
    """Input counts include what the cache gave, and reasoning is inside the output: both are taken apart here. On every
    chunk, at the end, or never: the last report that says something wins."""
    if not isinstance(usage, dict):
        return
    prompt, details = usage.get("prompt_tokens"), usage.get("prompt_tokens_details")
    details = details if isinstance(details, dict) else {}
    read, wrote = details.get("cached_tokens"), details.get("cache_write_tokens")
    inner = usage.get("completion_tokens_details")
    draft.count(
        input_tokens=count_without(prompt, read, wrote),
        output_tokens=usage.get("completion_tokens"),
        cache_read_tokens=read,
        cache_write_tokens=wrote,
        cache_write_1h_tokens=details.get("cache_write_1h_tokens"),
        reasoning_tokens=inner.get("reasoning_tokens") if isinstance(inner, dict) else None,
    )


class ToolCalls:
    """Which tool call a fragment belongs to. Servers number them, name them, or neither.

    An id that is known, or an index, continues a call, unless it comes with another name, or with a name after whole
    arguments; a new id that comes with a name, or a name where nothing else tells, begins one; a fragment with neither
    continues the last call. One that belongs to none becomes a call without a name, which is a malformed answer and no
    silent loss.
    """

    def __init__(self) -> None:
        self._by_id: dict[str, int] = {}
        self._by_index: dict[int, int] = {}
        self._names: dict[int, str] = {}
        self._written: dict[int, str] = {}
        self._last: int | None = None

    def key_of(self, index: Any, call_id: Any, name: Any, fragment: Any) -> int:
        call_id = call_id if isinstance(call_id, str) and call_id else None
        name = name if isinstance(name, str) and name else None
        index = index if isinstance(index, int) and not isinstance(index, bool) else None
        key = self._known(index, call_id, name, fragment)
        if key is None:
            key = len(self._written)
            self._written[key] = ""
        if call_id is not None:
            self._by_id[call_id] = key
        if index is not None:
            self._by_index[index] = key
        if name is not None:
            self._names.setdefault(key, name)
        if isinstance(fragment, str):
            self._written[key] += fragment
        self._last = key
        return key

    def _known(self, index: int | None, call_id: str | None, name: str | None, fragment: Any) -> int | None:
        if call_id is not None and call_id in self._by_id:
            known = self._by_id[call_id]
            return None if self._begins_another(known, name, fragment) else known
        at_index = self._by_index.get(index) if index is not None else None
        if call_id is not None and name is not None:
            return None  # a new id with a name begins a call, whatever index it carries
        if at_index is not None:
            return None if self._begins_another(at_index, name, fragment) else at_index
        if name is not None:
            again = self._last is not None and index is None and not self._begins_another(self._last, name, fragment)
            return self._last if again else None
        return self._last

    def _begins_another(self, key: int, name: str | None, fragment: Any) -> bool:
        """A name at a call that has one already: another name, or arguments that were whole, mean another call."""
        if name is None or key not in self._names:
            return False
        return self._names[key] != name or (bool(fragment) and _is_whole(self._written[key]))


def _is_whole(arguments: str) -> bool:
    try:
        return isinstance(json.loads(arguments), dict)
    except (ValueError, RecursionError):
        return False


def _tool_call(call: Any, draft: Draft) -> Piece | None:
    calls: ToolCalls = draft.notes.setdefault("calls", ToolCalls())
    function = call.get("function")
    function = function if isinstance(function, dict) else {}
    name, arguments = function.get("name"), function.get("arguments")
    key = ("tool", calls.key_of(call.get("index"), call.get("id"), name, arguments))
    if isinstance(arguments, dict):  # some servers give them parsed
        draft.tool(key, id=call.get("id"), name=name, arguments=arguments)
        return None
    draft.tool(key, id=call.get("id"), name=name)
    return draft.tool_json(key, arguments)
