"""What a model answered, in one form for every provider."""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal
from enum import StrEnum
from typing import Any

from interlock.catalog.usage import Usage

from .conversation import Block, Message, ThinkingBlock, ToolUseBlock


class StopReason(StrEnum):
    END_TURN = "end_turn"
    STOP_SEQUENCE = "stop_sequence"
    TOOL_USE = "tool_use"
    MAX_TOKENS = "max_tokens"
    REFUSAL = "refusal"
    CONTEXT_WINDOW = "context_window"
    PAUSE_TURN = "pause_turn"


@dataclass(frozen=True, slots=True, kw_only=True)
class LLMResponse:
    """One answer. `message` holds its blocks as they go back into a conversation; `text` is its text alone.

    `model` is the catalog entry that served, `served_model` what the provider echoed. `cost` is in `currency`, None
    where the entry has no price. Times are seconds. `parsed` is the structured answer where one was asked for.
    """

    message: Message
    stop_reason: StopReason
    usage: Usage
    model: str
    provider: str
    served_model: str | None = None
    request_id: str | None = None
    cost: Decimal | None = None
    currency: str | None = None
    latency_s: float = 0.0
    first_piece_s: float | None = None
    parsed: Any = None
    refusal_category: str | None = None
    refusal_explanation: str | None = None

    @property
    def text(self) -> str:
        return self.message.text

    @property
    def thinking(self) -> str:
        return "".join(block.text for block in self.message.blocks if isinstance(block, ThinkingBlock))

    @property
    def tool_calls(self) -> tuple[ToolUseBlock, ...]:
        return tuple(block for block in self.message.blocks if isinstance(block, ToolUseBlock))

    @property
    def blocks(self) -> tuple[Block, ...]:
        return self.message.blocks


class PieceKind(StrEnum):
    TEXT = "text"
    THINKING = "thinking"
    TOOL_JSON = "tool_json"
    RESPONSE = "response"  # the last piece: the whole response


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A part of a streamed answer, in order. The last one is of kind RESPONSE and carries the response. `tool` is the
    tool that a TOOL_JSON piece is an argument of, where the wire has said so by then."""

    kind: PieceKind
    text: str = ""
    block_index: int = 0
    tool: str | None = None
    response: LLMResponse | None = field(default=None, repr=False)
