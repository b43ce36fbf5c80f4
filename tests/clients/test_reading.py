"""Small facts of the wires, read by the pure readers alone: what is easily lost when one of them is changed."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel

from interlock.catalog.entry import Thinking
from interlock.catalog.spec import ModelSpec
from interlock.catalog.usage import Usage
from interlock.catalog.words import Depth
from interlock.clients.answer import Draft
from interlock.clients.conversation import ThinkingBlock
from interlock.clients.partial import PartialObject
from interlock.clients.providers.openai_reading import read_choice
from interlock.clients.providers.responses_reading import ResponsesReader
from interlock.clients.response import Piece, PieceKind


class Review(BaseModel):
    title: str


def never(error: Any, draft: Draft) -> Exception:
    return AssertionError(error)


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
def test_servers_of_the_chat_wire_have_two_names_for_thinking(field: str) -> None:
    draft = Draft()
    (piece,) = read_choice({"delta": {field: "Hm."}}, draft)
    assert (piece.kind, piece.text) == (PieceKind.THINKING, "Hm.")


def test_the_parts_of_a_summary_are_paragraphs() -> None:
    draft = Draft()
    reader = ResponsesReader(draft, never)
    kind = "response.reasoning_summary_text.delta"
    for part, text in ((0, "One"), (0, "."), (1, "Two.")):
        reader.event({"type": kind, "output_index": 0, "summary_index": part, "delta": text})
    (block,) = draft.answer().blocks
    assert block == ThinkingBlock(text="One.\n\nTwo.")


@pytest.mark.parametrize("status", ["queued", "in_progress", "cancelled"])
def test_a_response_that_is_not_at_its_end_is_none(status: str) -> None:
    draft = Draft()
    said = {"type": "message", "content": [{"type": "output_text", "text": "Half"}]}
    with pytest.raises(ValueError, match=status):
        ResponsesReader(draft, never).whole({"status": status, "output": [said]})
    assert not draft.complete


def test_a_response_that_failed_tells_what_it_used(bench, responses):
    draft = Draft()
    draft.count(input_tokens=9, output_tokens=4)
    draft.request_id = "r"
    error = bench.template(responses)._failed({"code": "server_error", "message": "No."}, draft)
    assert (error.usage, error.request_id) == (Usage(input_tokens=9, output_tokens=4), "r")


def test_converse_gets_no_redacted_thinking_back(bench, wires):
    encode = bench.template(wires["bedrock-converse"]).encoders[ThinkingBlock]
    assert encode(ThinkingBlock(redacted="b3BhcXVl", signature="s")) == []
    assert encode(ThinkingBlock(text="Hm.")) == []
    assert encode(ThinkingBlock(text="Hm.", signature="s"))


@pytest.mark.parametrize(("depth", "shown"), [(Depth.IMMEDIATE, False), (Depth.QUICK, True)])
def test_thoughts_are_asked_for_where_thinking_was(bench, gemini, depth, shown):
    """A model that always thinks has room for it in an immediate answer too, and keeps it to itself."""
    client, _ = bench.client(
        gemini, thinking=Thinking(mode="budget"), thinking_tokens=512, spec=ModelSpec("the-model", depth=depth)
    )
    call = client._client.prepare(client.binding, "Hello.", None, None, stream=False)
    assert (b'"includeThoughts":true' in call.body) is shown
    assert b'"thinkingBudget":512' in call.body


def test_the_arguments_of_the_tool_are_the_answer_whatever_was_said_before() -> None:
    partial = PartialObject(Review)
    partial.add(Piece(kind=PieceKind.TEXT, text='I fill in {"title": ...} now.'))
    partial.add(Piece(kind=PieceKind.TOOL_JSON, text='{"title": "Fine', tool="Review"))
    assert partial.value == {"title": "Fine"}
