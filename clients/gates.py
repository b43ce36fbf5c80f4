"""What stands between an answer and its caller, in this order: refused, cut off, out of window, empty, wrong shape.

Pure: `judge` gives what the caller gets, or raises the error that the caller gets instead. Every such error carries the
usage, because the provider was paid for it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from interlock.errors import (
    ContextWindowExceededError,
    EmptyResponseError,
    MalformedResponseError,
    OutputTruncatedError,
    ProviderRefusalError,
    ResponseShapeError,
)

from .answer import Answer
from .conversation import Block, Conversation, Message, ServerToolBlock, TextBlock, ThinkingBlock, ToolUseBlock
from .response import StopReason
from .structured import Shape, WrongShape, correction

#: Blocks that ask a tool of the provider's, whose result is a block of its own.
_ASKS = frozenset({"server_tool_use", "mcp_tool_use"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """What the caller gets: its message, why it stopped, and the structured value where one was asked for."""

    message: Message
    stop_reason: StopReason
    parsed: Any = None


def judge(
    answer: Answer, *, conversation: Conversation, shape: Shape | None, answer_tool: str | None, limit: int, model: str
) -> Judged:
    """Pass an answer or raise. `answer_tool` is the tool a structured answer was asked for through, if any."""
    known: dict[str, Any] = {"model": model, "usage": answer.usage, "request_id": answer.request_id}
    stopped = answer.stop_reason
    if stopped is StopReason.REFUSAL:
        category, explanation = answer.refusal_category, answer.refusal_explanation
        told = ": ".join(part for part in (category, explanation) if part)
        raise ProviderRefusalError(f"{model} refused to answer" + (f" ({told})" if told else ""), category=category,
                                   explanation=explanation, **known)  # fmt: skip
    if stopped is StopReason.MAX_TOKENS:
        raise OutputTruncatedError(f"{model} was cut off at {limit} output tokens", limit=limit, partial=answer.text,
                                   **known)  # fmt: skip
    if stopped is StopReason.CONTEXT_WINDOW:
        raise ContextWindowExceededError(f"the context window of {model} was full before its answer was", **known)
    if answer.malformed:
        raise MalformedResponseError(f"{model} answered what is not of its wire: {answer.malformed}", **known)
    if _is_empty(answer):
        raise EmptyResponseError(f"{model} ended its turn without saying anything", **known)
    if answer.bad_tool_calls:
        bad = answer.bad_tool_calls[0]
        raise _wrong_shape(answer, conversation, f"tool call {bad.name or bad.id!r}: {bad.problem}", known)
    passed = Judged(message=answer.message, stop_reason=stopped or StopReason.END_TURN)
    if shape is None or stopped is StopReason.PAUSE_TURN:
        return passed
    return _shaped(answer, passed, conversation, shape, answer_tool, known)


def _shaped(
    answer: Answer,
    passed: Judged,
    conversation: Conversation,
    shape: Shape,
    answer_tool: str | None,
    known: dict[str, Any],
) -> Judged:
    calls = [block for block in answer.blocks if isinstance(block, ToolUseBlock)]
    answered = next((call for call in calls if call.name == answer_tool), None)
    if answered is None and calls:
        return passed  # the caller's own tools come first; the typed answer follows in a later turn
    try:
        if answered is not None:
            return _from_tool(answer, answered, shape)
        if answer_tool is not None and not answer.text.strip():
            raise WrongShape(f"call the tool {answer_tool!r} with the answer")
        return Judged(message=passed.message, stop_reason=passed.stop_reason, parsed=shape.parse(answer.text))
    except WrongShape as wrong:
        problem = str(wrong)
    raise _wrong_shape(answer, conversation, problem, known)


def _from_tool(answer: Answer, call: ToolUseBlock, shape: Shape) -> Judged:
    """The typed answer came as a tool call; in the message it stands as text, since nobody will answer that call."""
    parsed = shape.validate(dict(call.input))
    done = [block.payload.get("tool_use_id") for block in answer.blocks if isinstance(block, ServerToolBlock)]
    kept: list[Block] = [
        block
        for block in answer.blocks
        if isinstance(block, ThinkingBlock) or (isinstance(block, ServerToolBlock) and not _is_pending(block, done))
    ]
    said = TextBlock(json.dumps(call.input, ensure_ascii=False))
    return Judged(message=Message("assistant", (*kept, said)), stop_reason=StopReason.END_TURN, parsed=parsed)


def _is_pending(block: ServerToolBlock, done: list[Any]) -> bool:
    """Whether the provider waits with it until the turn's calls are answered. It is refused where none will be."""
    return block.kind in _ASKS and block.payload.get("id") not in done


def _wrong_shape(answer: Answer, conversation: Conversation, problem: str, known: dict[str, Any]) -> ResponseShapeError:
    return ResponseShapeError(
        f"{known['model']} did not answer in the wanted form: {problem}",
        problems=(problem,),
        answer=answer.text,
        correction=correction(conversation, answer, problem),
        **known,
    )


def _is_empty(answer: Answer) -> bool:
    if answer.stop_reason in (StopReason.STOP_SEQUENCE, StopReason.PAUSE_TURN):
        return False
    return not any(
        isinstance(block, ToolUseBlock | ServerToolBlock) or (isinstance(block, TextBlock) and block.text)
        for block in answer.blocks
    )
