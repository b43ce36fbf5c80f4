"""A conversation made ready for a wire. Pure."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, strategies as st

from interlock.catalog.words import Input
from interlock.clients.conversation import (
    Conversation,
    DocumentBlock,
    ImageBlock,
    Message,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
)
from interlock.clients.turns import check_inputs, half_character, ready_turns, without_foreign_signatures
from interlock.errors import InvalidRequestError

CALL = ToolUseBlock(id="t1", name="look", input={})
RESULT = ToolResultBlock(tool_use_id="t1", content="seen")


@pytest.mark.parametrize("blank", ["", "\n", " ", "\t \u2003"])
def test_b62_whitespace_blocks_are_dropped_and_their_turns_merged(blank):
    before = Conversation.of("One.").assistant(blank).user([TextBlock(blank), TextBlock("Two.")])
    ready = ready_turns(before)
    assert ready.messages == (Message("user", (TextBlock("One."), TextBlock("Two."))),)
    assert before.messages[1].blocks == (TextBlock(blank),), "what the caller holds is unchanged"


def test_b62_a_blank_tool_result_stays():
    ready = ready_turns(Conversation.of("Go.").assistant([CALL]).user([ToolResultBlock(tool_use_id="t1", content=" ")]))
    assert isinstance(ready.messages[2].blocks[0], ToolResultBlock)


def test_b62_blank_system_text_is_none():
    assert ready_turns(Conversation.of("Go.", system=" \n")).system is None


def test_b24_results_stand_before_any_text():
    mixed = Conversation.of("Go.").assistant([TextBlock("I look."), CALL]).user([TextBlock("Well?"), RESULT])
    assert ready_turns(mixed).messages[2].blocks == (RESULT, TextBlock("Well?"))


@pytest.mark.parametrize(("conversation", "said"), [
    (Conversation(), "says nothing"), (Conversation.of(""), "says nothing"), (Conversation.of([]), "says nothing"),
    (Conversation.of("Go.").assistant([CALL]), "'t1' of turn 2 has no result"),
    (Conversation.of("Go.").assistant([CALL]).user("And?"), "'t1' of turn 2 has no result"),
    (Conversation.of("Go.").assistant([CALL]).user([RESULT, RESULT]), "answered twice"),
    (Conversation.of("Go.").assistant([CALL, CALL]).user([RESULT]), "two tool calls of turn 2 have the id 't1'"),
    (Conversation.of("Go.").assistant("No.").user([RESULT]), "did not make"),
    (Conversation.of([RESULT]), "begins with a tool result"),
], ids=range(9))  # fmt: skip
def test_what_no_provider_takes_is_refused_before_sending(conversation, said):
    with pytest.raises(InvalidRequestError, match=said) as caught:
        ready_turns(conversation)
    assert caught.value.sent is False


@pytest.mark.parametrize("block", [ImageBlock(data=b"x"), DocumentBlock(data=b"x")], ids=["image", "document"])
def test_a_block_the_model_cannot_read_is_named(block):
    conversation = Conversation.of([TextBlock("See."), block])
    with pytest.raises(InvalidRequestError, match=type(block).__name__):
        check_inputs(conversation, model="m", inputs={Input.TEXT})
    check_inputs(conversation, model="m", inputs=set(Input))


@pytest.mark.parametrize("block", [ImageBlock(), ImageBlock(data=b"x", url="http://x"), DocumentBlock()], ids=range(3))
def test_data_or_a_url_and_not_both(block):
    with pytest.raises(InvalidRequestError, match="either data or a url"):
        check_inputs(Conversation.of([block]), model="m", inputs=set(Input))


def test_half_a_character_is_found():
    assert half_character(Conversation.of("fine 🙂")) is None
    assert half_character(Conversation.of("ab\ud83d")) == "turn 1 (TextBlock), character 2"
    assert half_character(Conversation.of("x", system="\udc00")) == "the system text, character 0"
    call = ToolUseBlock(id="t1", name="look", input={"a": "\ud800"})
    assert half_character(Conversation.of("x").assistant([call])) == "turn 2 (ToolUseBlock), character 0"
    thought = ThinkingBlock(text="b\ud800")
    assert half_character(Conversation.of("x").assistant([thought])) == "turn 2 (ThinkingBlock), character 1"
    for odd in (ToolUseBlock(id="\ud800", name="look"), ToolUseBlock(id="t1", name="\ud800")):
        assert half_character(Conversation.of("x").assistant([odd])) == "turn 2 (ToolUseBlock), character 0"


@pytest.mark.parametrize("content", [None, 5, b"bytes", {"text": "x"}])
def test_what_is_no_text_and_no_blocks_is_said(content):
    with pytest.raises(TypeError, match=f"text or blocks, not {type(content).__name__}"):
        Conversation.of(content)


blocks = st.one_of(
    st.sampled_from(["", " ", "\n", "text", "more"]).map(TextBlock),
    st.just(ThinkingBlock(text="hm", signature="s")),
)
messages = st.builds(Message, st.sampled_from(["user", "assistant"]), st.lists(blocks, max_size=3).map(tuple))


@given(st.lists(messages, max_size=6).map(lambda found: Conversation(messages=tuple(found))))
def test_b62_ready_turns_alternate_lose_no_word_and_are_stable(conversation):
    try:
        ready = ready_turns(conversation)
    except InvalidRequestError:
        assert not any(block for message in conversation.messages for block in message.blocks
                       if not isinstance(block, TextBlock) or block.text.strip())  # fmt: skip
        return
    roles = [message.role for message in ready.messages]
    assert all(one != other for one, other in pairwise(roles))
    assert all(message.blocks for message in ready.messages)
    words = [
        block.text for message in conversation.messages for block in message.blocks if isinstance(block, TextBlock)
    ]
    kept = [block.text for message in ready.messages for block in message.blocks if isinstance(block, TextBlock)]
    assert kept == [word for word in words if word.strip()]
    assert ready_turns(ready) == ready


# Signatures go back to the wire that gave them, and to no other.

SIGNED = (
    Conversation.of("x")
    .assistant(
        [
            ThinkingBlock(text="Hm.", signature="s1", signed_by="one"),
            TextBlock("Look.", signature="s2", signed_by="one"),
            ToolUseBlock(id="t1", name="look", signature="s3", signed_by="one"),
            ThinkingBlock(text="Anybody's.", signature="s4"),
        ]
    )
    .user([ToolResultBlock(tool_use_id="t1", content="y")])
)


def test_a_wire_gets_its_own_signatures_back():
    assert without_foreign_signatures(SIGNED, "one") is SIGNED


@pytest.mark.parametrize("asked", ["two", None])
def test_no_wire_gets_another_ones_signatures(asked):
    blocks = without_foreign_signatures(SIGNED, asked).messages[1].blocks
    assert blocks == (
        TextBlock("Look."),
        ToolUseBlock(id="t1", name="look"),
        ThinkingBlock(text="Anybody's.", signature="s4"),
    )
    assert without_foreign_signatures(SIGNED, "one").messages[1].blocks[0].signature == "s1", "the caller's own is kept"


def test_a_signed_blank_is_no_blank():
    turns = ready_turns(Conversation.of("x").assistant([TextBlock("\n", signature="s"), TextBlock("\n")]).user("y"))
    assert turns.messages[1].blocks == (TextBlock("\n", signature="s"),)
