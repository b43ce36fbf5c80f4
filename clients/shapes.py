"""Whether what a caller put together is what it says it is: refused by name and place, before anything looks into it.

The classes of a conversation and of options are plain data; they check nothing when they are made. What is wrong with
them would otherwise be an AttributeError deep in an encoder, or worse, something that a provider takes for another.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from interlock.catalog.entry import ModelEntry

from .conversation import (
    Conversation,
    DocumentBlock,
    ImageBlock,
    Message,
    ServerToolBlock,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
)
from .options import CallOptions, Tool
from .turns import refused

_TEXT, _MAYBE_TEXT = (str,), (str, type(None))
_MAYBE_BYTES = (bytes, bytearray, type(None))
_NUMBER, _WHOLE, _FLAG = (int, float, type(None)), (int, type(None)), (bool, type(None))
_IN_WORDS: Mapping[tuple[Any, ...], str] = {
    _TEXT: "text", _MAYBE_TEXT: "text", _MAYBE_BYTES: "bytes", (Mapping,): "a mapping", _NUMBER: "a number",
    _WHOLE: "a whole number", _FLAG: "true or false",
}  # fmt: skip

Fields = tuple[tuple[str, tuple[Any, ...]], ...]
_MEDIA: Fields = (("data", _MAYBE_BYTES), ("url", _MAYBE_TEXT), ("media_type", _TEXT))
_BLOCKS: Mapping[type, Fields] = {
    TextBlock: (("text", _TEXT), ("signature", _MAYBE_TEXT)),
    ImageBlock: _MEDIA,
    DocumentBlock: (*_MEDIA, ("name", _TEXT)),
    ToolUseBlock: (("id", _TEXT), ("name", _TEXT), ("input", (Mapping,)), ("signature", _MAYBE_TEXT)),
    ToolResultBlock: (("tool_use_id", _TEXT), ("content", _TEXT)),
    ThinkingBlock: (("text", _TEXT), ("signature", _MAYBE_TEXT), ("redacted", _MAYBE_TEXT)),
    ServerToolBlock: (("kind", _TEXT), ("payload", (Mapping,))),
}
#: Blocks that only one of the two can say.
_SAID_BY: Mapping[type, str] = {ToolUseBlock: "assistant", ThinkingBlock: "assistant", ToolResultBlock: "user"}
_OPTIONS: Fields = (
    ("temperature", _NUMBER), ("top_p", _NUMBER), ("seed", _WHOLE), ("tool_choice", _MAYBE_TEXT),
    ("parallel_tool_calls", _FLAG), ("cache", (bool,)), ("provider_options", (Mapping,)),
)  # fmt: skip
_TOOL: Fields = (("name", _TEXT), ("description", _TEXT), ("schema", (Mapping,)))
_LIFETIMES = (None, "5m", "1h")


def check_conversation(conversation: Conversation, *, model: str) -> None:
    """Raises `InvalidRequestError` (nothing sent)."""
    system = conversation.system
    if system is not None and not isinstance(system, str):
        raise refused(f"the system text must be text, not {type(system).__name__}", model=model)
    for number, message in enumerate(conversation.messages, start=1):
        _check_turn(number, message, model)


def _check_turn(number: int, message: Message, model: str) -> None:
    if message.role not in ("user", "assistant"):
        raise refused(f"turn {number} has the role {message.role!r}: turns are of user and assistant, and the system "
                      "text is the conversation's `system`", model=model)  # fmt: skip
    for block in message.blocks:
        kind = type(block)
        for name, wanted in _BLOCKS.get(kind, ()):
            value = getattr(block, name)
            if not isinstance(value, wanted):
                raise refused(f"{name} of the {kind.__name__} in turn {number} must be {_IN_WORDS[wanted]}, not "
                              f"{type(value).__name__}", model=model)  # fmt: skip
        if _SAID_BY.get(kind, message.role) != message.role:
            raise refused(f"turn {number} is the {message.role}'s, and holds a {kind.__name__}, which only the "
                          f"{_SAID_BY[kind]} can say", model=model)  # fmt: skip
        if isinstance(block, ToolUseBlock) and not (block.id and block.name):
            lacks = "a name" if block.id else "an id"
            raise refused(f"the ToolUseBlock in turn {number} needs {lacks}, and has none", model=model)


def check_options(options: CallOptions, entry: ModelEntry) -> None:
    """Raises `InvalidRequestError` (nothing sent)."""
    for name, wanted in _OPTIONS:
        _check_option(name, getattr(options, name), wanted, entry)
    if options.cache_ttl not in _LIFETIMES:
        raise refused(f"cache_ttl must be 5m or 1h, not {options.cache_ttl!r}", model=entry.id)
    for name in ("stop", "tools"):
        if not isinstance(getattr(options, name) or (), (tuple, list)):
            raise refused(f"{name} must be a tuple, not {type(getattr(options, name)).__name__}", model=entry.id)
    for word in options.stop or ():
        _check_option("a word of stop", word, _TEXT, entry)
    for tool in options.tools or ():
        if not isinstance(tool, Tool):
            raise refused(f"tools must hold Tools, not {type(tool).__name__}", model=entry.id)
        for name, wanted in _TOOL:
            _check_option(f"{name} of the tool {str(tool.name)[:80]!r}", getattr(tool, name), wanted, entry)


def _check_option(name: str, value: Any, wanted: tuple[Any, ...], entry: ModelEntry) -> None:
    is_flag = isinstance(value, bool) and bool not in wanted  # a bool is an int to Python, and not to anybody else
    if is_flag or not isinstance(value, wanted):
        raise refused(f"{name} must be {_IN_WORDS.get(wanted, 'true or false')}, not {type(value).__name__}",
                      model=entry.id)  # fmt: skip
