"""What a caller put together wrongly is refused by its name and place, on every wire, and nothing is sent: never an
AttributeError of some encoder, never something that a provider takes for another, never a block left out."""

from __future__ import annotations

from typing import Any

import pytest

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
from interlock.clients.options import CallOptions, Tool
from interlock.clients.shapes import check_conversation
from interlock.errors import InvalidRequestError
from interlock.runtime import LLMCall

CALL = ToolUseBlock(id="t", name="look")
RESULT = ToolResultBlock(tool_use_id="t", content="x")


def of(*blocks: Any) -> Conversation:
    return Conversation.of(blocks)


def calling(call: Any, result: Any = RESULT) -> Conversation:
    return Conversation.of("q").assistant([call]).user([result])


def block(kind: Any, **fields: Any) -> Any:
    return kind(**fields)


CONVERSATIONS: dict[str, tuple[Any, str]] = {
    "system": (Conversation.of("x", system=7), "the system text must be text, not int"),  # type: ignore[arg-type]
    "text": (of(TextBlock(7)), "text of the TextBlock in turn 1 must be text, not int"),  # type: ignore[arg-type]
    "no text": (of(TextBlock(None)), "text of the TextBlock in turn 1 must be text, not NoneType"),  # type: ignore[arg-type]
    "data": (of(block(ImageBlock, data="png")), "data of the ImageBlock in turn 1 must be bytes, not str"),
    "url": (of(block(DocumentBlock, url=b"x")), "url of the DocumentBlock in turn 1 must be text, not bytes"),
    "media type": (of(block(ImageBlock, data=b"x", media_type=None)), "media_type of the ImageBlock in turn 1"),
    "document's name": (of(block(DocumentBlock, data=b"x", name=3)), "name of the DocumentBlock in turn 1"),
    "arguments": (
        calling(block(ToolUseBlock, id="t", name="n", input=[1])),
        "input of the ToolUseBlock in turn 2 must",
    ),
    "result": (
        calling(CALL, block(ToolResultBlock, tool_use_id="t", content=[1])),
        "content of the ToolResultBlock in",
    ),
    "no id": (calling(ToolUseBlock(id="", name="n")), "ToolUseBlock in turn 2 needs an id"),
    "no name": (calling(ToolUseBlock(id="t", name="")), "ToolUseBlock in turn 2 needs a name"),
    "user's call": (
        of(TextBlock("a"), CALL).assistant([RESULT]).user("z"),
        "turn 1 is the user's, and holds a ToolUse",
    ),
    "user's thinking": (of(ThinkingBlock(text="h"), TextBlock("a")), "turn 1 is the user's, and holds a ThinkingBlock"),
    "model's result": (
        Conversation.of("q").assistant([CALL]).assistant([RESULT]).user("z"),
        "turn 3 is the assistant's, and holds a ToolResultBlock",
    ),
    "role": (Conversation(messages=(Message("system", (TextBlock("a"),)),)), "turn 1 has the role 'system'"),  # type: ignore[arg-type]
    "no block": (of({"type": "text", "text": "x"}), "cannot write a dict"),
    "bare text": (Conversation(messages=(Message("user", ("x",)),)), "cannot write a str"),  # type: ignore[arg-type]
}
OPTIONS: dict[str, tuple[dict[str, Any], str]] = {
    "temperature": ({"temperature": "hot"}, "temperature must be a number, not str|does not take 'temperature'"),
    "flag": ({"top_p": True}, "top_p must be a number, not bool"),
    "seed": ({"seed": "1"}, "seed must be a whole number, not str"),
    "stop": ({"stop": (1,)}, "a word of stop must be text, not int"),
    "stops": ({"stop": 1}, "stop must be a tuple, not int"),
    "tools": ({"tools": ({"name": "a"},)}, "tools must hold Tools, not dict"),
    "one tool": ({"tools": Tool("a")}, "tools must be a tuple, not Tool"),
    "schema": ({"tools": (Tool("a", "", "x"),)}, "schema of the tool 'a' must be a mapping, not str"),  # type: ignore[arg-type]
    "description": ({"tools": (Tool("a", None),)}, "description of the tool 'a' must be text"),  # type: ignore[arg-type]
    "tool's name": ({"tools": (Tool(7),)}, "name of the tool '7' must be text"),  # type: ignore[arg-type]
    "choice": ({"tools": (Tool("a"),), "tool_choice": {"name": "a"}}, "tool_choice must be text, not dict"),
    "parallel": ({"tools": (Tool("a"),), "parallel_tool_calls": "no"}, "parallel_tool_calls must be true or false"),
    "cache": ({"cache": "yes"}, "cache must be true or false, not str"),
    "lifetime": ({"cache": True, "cache_ttl": "2h"}, "cache_ttl must be 5m or 1h, not '2h'"),
    "provider's": ({"provider_options": [("a", 1)]}, "provider_options must be a mapping, not list"),
}


async def test_what_is_not_what_it_says_is_refused_by_name_and_place(bench, wire):
    client, seat = bench.client(wire, caching="marks")
    for conversation, said in CONVERSATIONS.values():
        with pytest.raises(InvalidRequestError, match=said) as caught:
            await client.single_response(conversation)
        assert (caught.value.sent, caught.value.model) == (False, "the-model")
    for options, said in OPTIONS.values():
        with pytest.raises(InvalidRequestError, match=said) as caught:
            client.stream_response("x", options=CallOptions(**options))
        assert caught.value.sent is False
    assert bench.provider.requests == []
    assert seat.permits == []


@pytest.mark.parametrize("odd", [ImageBlock(data=b"png"), DocumentBlock(data=b"%PDF")], ids=["image", "document"])
async def test_nothing_of_an_assistants_turn_is_left_out(bench, wire, odd):
    """It is written, or it is refused by name."""
    client, _ = bench.client(wire)
    conversation = Conversation.of("Draw.").assistant([TextBlock("Here."), odd]).user("Thanks.")
    if wire.key == "litellm" or wire.speaks in ("openai", "responses"):
        with pytest.raises(InvalidRequestError, match=f"no {type(odd).__name__} in an assistant's turn") as caught:
            await client.single_response(conversation)
        assert caught.value.sent is False
        return
    call = client._client.prepare(client.binding, conversation, None, None, stream=False)
    assert b"cG5n" in call.body or b"JVBERg" in call.body, "its bytes, in base64"


async def test_one_word_is_one_stop_sequence(bench, wire):
    client, _ = bench.client(wire)
    if "stop" not in client._client.takes:
        return
    await client.single_response("Hello.", options=CallOptions(stop="END"))  # type: ignore[arg-type]
    assert bench.provider.requests[-1].ask.stop_sequences == ("END",)


def test_one_word_of_a_job_is_one_stop_sequence():
    assert LLMCall("x", stop="END").options.stop == ("END",)
    assert LLMCall("x", stop=["END", "STOP"]).options.stop == ("END", "STOP")


def test_an_unknown_setting_of_a_call_is_named():
    with pytest.raises(TypeError, match="LLMCall has no argument 'temprature'"):
        LLMCall("x", temprature=1.0)  # type: ignore[call-overload]


def test_what_is_as_it_says_passes():
    whole = (
        Conversation.of([TextBlock("a"), ImageBlock(data=b"x"), DocumentBlock(url="https://a.test/b")], system="s")
        .assistant([ThinkingBlock(text="h", signature="s"), ThinkingBlock(redacted="r"), TextBlock("b"), CALL])
        .user([RESULT])
    )  # fmt: skip
    check_conversation(whole, model="m")
