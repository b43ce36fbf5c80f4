"""A conversation made ready for a wire: what every provider refuses is put right or refused here, before it is sent.

The caller's conversation is never changed. Put right, always the same way: whitespace-only text blocks and the turns
they leave empty are dropped, turns of one role in a row become one, and tool results stand before any text of their
turn. Refused by name: nothing left to say, a tool call without its result, half a character.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from hashlib import sha256

from interlock.catalog.words import Input
from interlock.errors import InvalidRequestError

from .conversation import (
    Block,
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

_NEEDS: Mapping[type, Input] = {ImageBlock: Input.IMAGES, DocumentBlock: Input.DOCUMENTS}
_SIGNED = TextBlock | ThinkingBlock | ToolUseBlock | ServerToolBlock


def without_foreign_signatures(conversation: Conversation, signs_as: str | None) -> Conversation:
    """The conversation without what another wire signed: its thinking and what its own tools did stay out, its text and
    its calls go unsigned. A signature that nobody put a name to is taken for the asked one's own."""
    if all(block.signed_by in (None, signs_as) for block in _signable(conversation)):
        return conversation
    return replace(
        conversation,
        messages=tuple(
            replace(message, blocks=tuple(_unsigned(message.blocks, signs_as))) for message in conversation.messages
        ),
    )


def _signable(conversation: Conversation) -> Iterable[TextBlock | ThinkingBlock | ToolUseBlock | ServerToolBlock]:
    for message in conversation.messages:
        for block in message.blocks:
            if isinstance(block, _SIGNED):
                yield block


def _unsigned(blocks: Iterable[Block], signs_as: str | None) -> Iterable[Block]:
    for block in blocks:
        if not isinstance(block, _SIGNED) or block.signed_by in (None, signs_as):
            yield block
        elif isinstance(block, TextBlock | ToolUseBlock):
            yield replace(block, signature=None, signed_by=None)


def with_fitting_ids(conversation: Conversation, fits: re.Pattern[str] | None) -> Conversation:
    """The conversation with an id that the wire takes on every tool call and its result: another provider's may be too
    long for it, or hold a character that it refuses. `fits` None: it takes any."""
    if fits is None or all(fits.fullmatch(call) for call in _call_ids(conversation)):
        return conversation
    return replace(
        conversation,
        messages=tuple(
            replace(message, blocks=tuple(_refitted(block, fits) for block in message.blocks))
            for message in conversation.messages
        ),
    )


def _call_ids(conversation: Conversation) -> Iterable[str]:
    for message in conversation.messages:
        for block in message.blocks:
            if isinstance(block, ToolUseBlock):
                yield block.id
            elif isinstance(block, ToolResultBlock):
                yield block.tool_use_id


def _refitted(block: Block, fits: re.Pattern[str]) -> Block:
    if isinstance(block, ToolUseBlock):
        return replace(block, id=_fitting(block.id, fits))
    if isinstance(block, ToolResultBlock):
        return replace(block, tool_use_id=_fitting(block.tool_use_id, fits))
    return block


def _fitting(call: str, fits: re.Pattern[str]) -> str:
    """Made of the id alone, so that a call and its result keep the same."""
    if fits.fullmatch(call):
        return call
    return f"call_{sha256(call.encode('utf-8', 'surrogatepass')).hexdigest()[:24]}"


def ready_turns(conversation: Conversation) -> Conversation:
    """The conversation as it may be sent. Raises `InvalidRequestError` (nothing sent)."""
    merged: list[Message] = []
    for message in conversation.messages:
        blocks = tuple(block for block in message.blocks if not _is_blank(block))
        if not blocks:
            continue
        if merged and merged[-1].role == message.role:
            merged[-1] = Message(message.role, (*merged[-1].blocks, *blocks))
        else:
            merged.append(Message(message.role, blocks))
    if not merged:
        raise refused("the conversation says nothing: it holds no block but whitespace")
    messages = tuple(Message(message.role, _results_first(message.blocks)) for message in merged)
    _check_tools(messages)
    system = conversation.system if conversation.system and conversation.system.strip() else None
    return replace(conversation, messages=messages, system=system)


def inputs_of(content: object) -> frozenset[Input]:
    """What a model must be able to read beside text, to be sent this. Nothing, for what is no conversation."""
    messages = content.messages if isinstance(content, Conversation) else ()
    needs = {_NEEDS.get(type(block)) for message in messages for block in message.blocks}
    return frozenset(need for need in needs if need is not None)


def check_inputs(conversation: Conversation, *, model: str, inputs: Iterable[Input]) -> None:
    """Refuse a block that the model cannot read, by name."""
    readable = frozenset(inputs)
    for number, message in enumerate(conversation.messages, start=1):
        for block in message.blocks:
            need = _NEEDS.get(type(block))
            if need is not None and need not in readable:
                raise refused(f"{model} does not read a {type(block).__name__} (turn {number}); it reads "
                              f"{', '.join(sorted(readable))}", model=model)  # fmt: skip
            if isinstance(block, (ImageBlock, DocumentBlock)) and (block.data is None) == (block.url is None):
                raise refused(f"the {type(block).__name__} of turn {number} needs either data or a url", model=model)


def half_character(conversation: Conversation) -> str | None:
    """Where a lone surrogate stands: text that cannot be written as UTF-8."""
    places = [("the system text", conversation.system or "")]
    places += [
        (f"turn {number} ({type(block).__name__})", text)
        for number, message in enumerate(conversation.messages, start=1)
        for block in message.blocks
        for text in _texts(block)
    ]
    for place, text in places:
        at = next((at for at, character in enumerate(text) if "\ud800" <= character <= "\udfff"), None)
        if at is not None:
            return f"{place}, character {at}"
    return None


def refused(message: str, *, model: str | None = None) -> InvalidRequestError:
    """An error about a request that never left."""
    return InvalidRequestError(message, model=model, sent=False)


def _is_blank(block: Block) -> bool:
    return isinstance(block, TextBlock) and not block.text.strip() and block.signature is None


def _results_first(blocks: tuple[Block, ...]) -> tuple[Block, ...]:
    results = tuple(block for block in blocks if isinstance(block, ToolResultBlock))
    if not results:
        return blocks
    return (*results, *(block for block in blocks if not isinstance(block, ToolResultBlock)))


def _check_tools(messages: tuple[Message, ...]) -> None:
    """Every tool call is answered in the very next turn, once, and every result has its call."""
    for position, message in enumerate(messages):
        asked = [block.id for block in message.blocks if isinstance(block, ToolUseBlock)]
        following = messages[position + 1].blocks if position + 1 < len(messages) else ()
        answered = [block.tool_use_id for block in following if isinstance(block, ToolResultBlock)]
        twice = next((call for call in asked if asked.count(call) > 1), None)
        if twice is not None:
            raise refused(f"two tool calls of turn {position + 1} have the id {twice!r}: each needs one of its own")
        missing = [call for call in asked if call not in answered]
        if missing:
            raise refused(f"tool call {missing[0]!r} of turn {position + 1} has no result in the turn after it")
        repeated = next((call for call in answered if answered.count(call) > 1), None)
        if repeated is not None:
            raise refused(f"tool call {repeated!r} of turn {position + 1} is answered twice")
        unasked = [call for call in answered if call not in asked]
        if unasked:
            raise refused(
                f"turn {position + 2} answers tool call {unasked[0]!r}, which the turn before it did not make"
            )
    first = messages[0].blocks
    if any(isinstance(block, ToolResultBlock) for block in first):
        raise refused("the conversation begins with a tool result, whose call is missing")


def _texts(block: Block) -> Iterable[str]:
    if isinstance(block, TextBlock | ThinkingBlock):
        yield block.text
    elif isinstance(block, ToolResultBlock):
        yield from (block.content, block.tool_use_id)
    elif isinstance(block, ImageBlock):
        yield from (block.url or "", block.media_type)
    elif isinstance(block, DocumentBlock):
        yield from (block.url or "", block.media_type, block.name)
    elif isinstance(block, ToolUseBlock):
        yield from (block.id, block.name)
        yield repr(block.input) if not _plain(block.input) else ""
        yield from (value for value in block.input.values() if isinstance(value, str))
        yield from block.input
    elif isinstance(block, ServerToolBlock):
        yield json.dumps(block.payload, ensure_ascii=False, default=str)


def _plain(values: Mapping[str, object]) -> bool:
    return all(isinstance(value, str) for value in values.values())
