"""A typed answer that came through a tool: what of it the caller gets, and what the model is told where it did not."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel

from interlock.clients.answer import Answer
from interlock.clients.conversation import Block, Conversation, TextBlock, ThinkingBlock, ToolUseBlock
from interlock.clients.gates import Judged, judge
from interlock.clients.response import StopReason
from interlock.clients.structured import Shape
from interlock.errors import ResponseShapeError


class Review(BaseModel):
    stars: int


def judged(*blocks: Block, stop: StopReason = StopReason.TOOL_USE, **more: Any) -> Judged:
    answer = Answer(blocks=blocks, stop_reason=stop)
    known: dict[str, Any] = {"answer_tool": "Review", "limit": 100, "model": "m", **more}
    return judge(answer, conversation=Conversation.of("Review it."), shape=Shape.of(Review), **known)


def test_the_thinking_before_it_stays_and_goes_back() -> None:
    thought = ThinkingBlock(text="Hm.", signature="s", signed_by="anthropic")
    passed = judged(thought, ToolUseBlock(id="1", name="Review", input={"stars": 4}))
    assert passed.parsed == Review(stars=4)
    assert passed.message.blocks == (thought, TextBlock('{"stars": 4}'))
    assert passed.message.blocks[0] is thought
    assert passed.stop_reason is StopReason.END_TURN, "nobody is to answer that call"


def test_the_callers_own_tools_come_first() -> None:
    passed = judged(ToolUseBlock(id="1", name="look", input={}))
    assert (passed.parsed, passed.stop_reason) == (None, StopReason.TOOL_USE)


def test_a_blank_answer_is_told_which_tool_to_call() -> None:
    with pytest.raises(ResponseShapeError, match="call the tool 'Review'") as caught:
        judged(TextBlock(" \n"), stop=StopReason.END_TURN)
    assert "call the tool 'Review'" in caught.value.correction.messages[-1].text


def test_an_answer_that_came_as_text_all_the_same_is_taken() -> None:
    assert judged(TextBlock('{"stars": 4}'), stop=StopReason.END_TURN).parsed == Review(stars=4)
