"""What LiteLLM is told beyond OpenAI's chat form: cache marks, signed thinking. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

from ..asking import Ask
from ..conversation import (
    DocumentBlock,
    ImageBlock,
    Message,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
)
from .openai_chat import OpenAIChatCompletionsClient

Encoders: TypeAlias = dict[type, Callable[[Any], Any]]

#: Of more marks than this the last ones count.
MOST_CACHE_MARKS = 4
_MARK: Mapping[str, str] = {"type": "ephemeral"}
#: Of a mark for Google's own models LiteLLM makes a cache first: a request that nobody reserved.
_CACHES_APART = ("gemini/", "vertex_ai/", "vertex_ai_beta/")


def thinking(block: ThinkingBlock) -> dict[str, Any] | None:
    """LiteLLM hands these to the providers that want them back. Without a signature none does."""
    if block.redacted is not None:
        return {"type": "redacted_thinking", "data": block.redacted}
    if block.signature is None:
        return None
    return {"type": "thinking", "thinking": block.text, "signature": block.signature}


def _marking(encode: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def marked(block: Any) -> Any:
        return {**encode(block), "cache_control": _MARK} if block.cache else encode(block)

    return marked


_PLAIN = OpenAIChatCompletionsClient.encoders
ENCODERS: Encoders = {
    **_PLAIN,
    **{kind: _marking(_PLAIN[kind]) for kind in (TextBlock, ImageBlock, DocumentBlock, ToolResultBlock)},
    ThinkingBlock: thinking,
}


def with_rest(said: list[dict[str, Any]], message: Message) -> list[dict[str, Any]]:
    """An assistant's turn with its thinking and its mark, which stand beside its text."""
    thought = [part for block in message.blocks if isinstance(block, ThinkingBlock) if (part := thinking(block))]
    marked = any(block.cache for block in message.blocks if isinstance(block, TextBlock))
    more = {**({"thinking_blocks": thought} if thought else {}), **({"cache_control": _MARK} if marked else {})}
    return [{**one, **more} for one in said]


def settle_marks(wire: dict[str, Any], ask: Ask) -> None:
    """Cache marks where the caller and `cache=True` put them: none where the entry or its model takes none, at most
    four, and all with the one lifetime that was asked for."""
    options, entry = ask.options, ask.entry
    if options.cache:
        _mark_ends(wire)
    marked = [place for place in _places(wire) if "cache_control" in place]
    apart = entry.wire_model_id.startswith(_CACHES_APART) and "claude" not in entry.wire_model_id
    kept = len(marked) - MOST_CACHE_MARKS if entry.caching == "marks" and not apart else len(marked)
    lifetime = options.cache_ttl or entry.cache_ttl
    for at, place in enumerate(marked):
        if at < kept:
            del place["cache_control"]
        else:
            place["cache_control"] = {**_MARK, "ttl": lifetime} if lifetime else _MARK
    for message in wire["messages"]:
        message["content"] = _joined(message["content"])


def _mark_ends(wire: dict[str, Any]) -> None:
    """Mark the last tool, the system text and the last turn."""
    for message in wire["messages"]:
        if isinstance(message["content"], str) and message["role"] in ("system", "user"):
            message["content"] = [{"type": "text", "text": message["content"]}]
    first, last = wire["messages"][0], wire["messages"][-1]
    if wire.get("tools"):
        wire["tools"][-1]["cache_control"] = _MARK
    if first["role"] == "system":
        first["content"][-1]["cache_control"] = _MARK
    (last["content"][-1] if isinstance(last["content"], list) else last)["cache_control"] = _MARK


def _places(wire: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Whatever may carry a mark, in the order in which a provider counts."""
    yield from wire.get("tools", ())
    for message in wire["messages"]:
        if isinstance(message["content"], list):
            yield from message["content"]
        else:
            yield message


def _joined(content: Any) -> Any:
    """One text without a mark stands as it is."""
    if isinstance(content, list) and len(content) == 1 and content[0].keys() == {"type", "text"}:
        return content[0]["text"]
    return content
