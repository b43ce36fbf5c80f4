"""How large a call is, in estimated input tokens: one measure for what is reserved and for what is sent."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from interlock.catalog.tokens import IMAGE_TOKENS, MESSAGE_TOKENS, TokenEstimator, estimate_document, estimate_text

from .conversation import (
    Block,
    Conversation,
    DocumentBlock,
    ImageBlock,
    ServerToolBlock,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
)
from .options import CallOptions
from .structured import Shape

#: What a tool costs beyond its own words, and the first tool beyond that (the provider's own instructions).
TOOL_TOKENS, FIRST_TOOL_TOKENS = 10, 150

#: What a provider's own tool gives whose payload is a picture, and no text to be counted.
_PICTURES = frozenset({"image_generation_call", "inlineData"})


def raw_input_tokens(
    conversation: Conversation | str, *, options: CallOptions | None = None, response_model: type[Any] | None = None
) -> int:
    """Estimated input tokens of a call, before any model's correction. Never raises; linear in its size."""
    whole = Conversation.of(conversation)
    total = estimate_text(whole.system) + MESSAGE_TOKENS * (len(whole.messages) + bool(whole.system))
    total += sum(_block_tokens(block) for message in whole.messages for block in message.blocks)
    if options is not None and options.tools:
        total += FIRST_TOOL_TOKENS + sum(
            _tool_tokens(tool.name, tool.description, tool.schema) for tool in options.tools
        )
    if response_model is not None:
        total += FIRST_TOOL_TOKENS + estimate_text(Shape.of(response_model).schema_text)
    return total


def input_tokens(
    model_id: str,
    conversation: Conversation | str,
    *,
    estimator: TokenEstimator,
    options: CallOptions | None = None,
    response_model: type[Any] | None = None,
) -> int:
    """The same, corrected by what the model's provider has reported so far."""
    raw = raw_input_tokens(conversation, options=options, response_model=response_model)
    return estimator.corrected(model_id, raw)


def _block_tokens(block: Block) -> int:
    if isinstance(block, TextBlock | ThinkingBlock):
        return estimate_text(block.text)
    if isinstance(block, ToolResultBlock):
        return TOOL_TOKENS + estimate_text(block.content)
    if isinstance(block, ToolUseBlock):
        return TOOL_TOKENS + estimate_text(block.name) + estimate_text(_json(block.input))
    if isinstance(block, ServerToolBlock):
        return IMAGE_TOKENS if block.kind in _PICTURES else TOOL_TOKENS + estimate_text(_json(block.payload))
    if isinstance(block, ImageBlock):
        return IMAGE_TOKENS
    if isinstance(block, DocumentBlock):
        return estimate_document(len(block.data or b""))
    return 0


def _tool_tokens(name: str, description: str, schema: Mapping[str, Any]) -> int:
    return TOOL_TOKENS + estimate_text(name) + estimate_text(description) + estimate_text(_json(schema))


def _json(value: Any) -> str:
    try:
        return json.dumps(value, default=str)
    except Exception:  # its `default` is a user's own `__str__`
        pass
    try:
        return repr(value)
    except Exception:  # nested too deep, or a `__repr__` that fails: who encodes it says so
        return ""
