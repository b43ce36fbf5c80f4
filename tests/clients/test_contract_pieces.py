"""Every piece of a stream says what it is and of which block: put together they are the answer, on every wire."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from dataclasses import replace
from typing import Any

import pytest

from interlock.catalog.entry import Thinking
from interlock.catalog.spec import ModelSpec
from interlock.catalog.words import Depth
from interlock.clients.conversation import Conversation, TextBlock, ThinkingBlock, ToolResultBlock, ToolUseBlock
from interlock.clients.options import CallOptions, StreamingMode, Tool
from interlock.clients.response import PieceKind
from interlock.clients.simulator import Step, ToolCall

from .conftest import asked

#: How thinking is asked of each wire that shows it.
THINKING = {"anthropic": "budget", "invoke": "budget", "mantle": "budget", "converse": "budget", "gemini": "budget",
            "responses": "effort"}  # fmt: skip
KINDS = {TextBlock: PieceKind.TEXT, ThinkingBlock: PieceKind.THINKING, ToolUseBlock: PieceKind.TOOL_JSON}
LOOK = Tool("look", "Look.", {"type": "object", "properties": {"word": {"type": "string"}}})


def unsigned(block: Any) -> tuple[Any, bool]:
    """The block, and whether it was signed: a signature may name its own answer."""
    return replace(block, signature=None), block.signature is not None


@pytest.mark.parametrize("mode", StreamingMode)
async def test_the_pieces_of_each_block_make_the_block(bench, wire, mode):
    shown = THINKING.get(wire.speaks) if wire.key != "litellm" else None
    client, seat = bench.client(
        wire, thinking_tokens=1_024 if shown else 0, output_tokens=2_000,
        spec=ModelSpec("the-model", depth=Depth.STANDARD), thinking=Thinking(mode=shown or "none"),
        settings={"options": {**wire.settings.get("options", {}), "reasoning_summary": "auto"}},
    )  # fmt: skip
    calls = [ToolCall(name="look", input={"word": word}, id=f"call_{word[:3]}") for word in ("one and two", "three")]
    bench.script(*[Step.answer("Let me look at both of them, one by one.", tool_calls=calls,
                               thinking="Hm, what might they have in mind?" if shown else None)] * 2)  # fmt: skip
    options = CallOptions(tools=(LOOK,))
    stream = client.stream_response("Look.", options=options, mode=mode)
    async with stream as pieces:
        *parts, last = [piece async for piece in pieces]
    assert (last.kind, last.response) == (PieceKind.RESPONSE, stream.response)
    blocks = stream.response.blocks
    assert [type(block) for block in blocks] == [*([ThinkingBlock] if shown else []), TextBlock, *[ToolUseBlock] * 2]
    texts: dict[int, str] = defaultdict(str)
    for piece in parts:
        assert piece.kind is KINDS[type(blocks[piece.block_index])]
        texts[piece.block_index] += piece.text
    assert list(texts) == list(range(len(blocks))), "in the order of the blocks, none of them without a piece"
    for number, block in enumerate(blocks):
        if isinstance(block, ToolUseBlock):
            assert json.loads(texts[number]) == block.input
        else:
            assert texts[number] == block.text  # type: ignore[union-attr]
    assert stream.partial == stream.response.text, "thinking and arguments are no part of the text"
    assert len([piece for piece in parts if piece.kind is PieceKind.TEXT]) > 1
    assert stream.response.thinking == ("Hm, what might they have in mind?" if shown else "")
    whole = (await client.single_response("Look.", options=options)).blocks
    assert [unsigned(block) for block in whole] == [unsigned(block) for block in blocks]
    seat.check_books()


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
async def test_calls_of_two_turns_with_one_id_are_told_apart(bench, wire, streamed):
    """Some servers count their calls anew in each turn, and some name none: that would be one id for two calls."""
    client, _ = bench.client(wire)
    options = CallOptions(tools=(Tool("look", "Look."), Tool("find", "Find.")))
    conversation = Conversation.of("Hello.")
    names = ("look", "find")
    bench.script(*(Step.answer("", tool_calls=[ToolCall(name=name, input={}, id="c1")]) for name in names))
    bench.script(Step.answer("Fine."))
    for _ in names:
        response = await asked(client, conversation, streamed=streamed, options=options)
        (call,) = response.tool_calls
        conversation = conversation.assistant(response.blocks).user(
            [ToolResultBlock(tool_use_id=call.id, content=call.name)]
        )
    assert (await asked(client, conversation, streamed=streamed, options=options)).text == "Fine."
    ids = [block.id for turn in conversation.messages for block in turn.blocks if isinstance(block, ToolUseBlock)]
    assert len(set(ids)) == 2
    assert all(json.dumps(bench.sent).count(f'"{one}"') == 2 for one in ids), "each call and its result, once"


#: Ids that servers give: longer than some take, of characters that others refuse.
FOREIGN = ("chatcmpl-tool-0123456789abcdef0123456789abcdef", "functions.look:0", "call/" + "x" * 90, "call_1")
TAKEN = {
    "anthropic": r"[a-zA-Z0-9_-]+", "mantle": r"[a-zA-Z0-9_-]+", "invoke": r"[a-zA-Z0-9_-]+",
    "converse": r"[a-zA-Z0-9_.:-]{1,64}", "responses": r".{1,64}", "openai": r".{1,40}",
}  # fmt: skip


async def test_the_calls_of_another_provider_go_under_ids_that_this_one_takes(bench, wire):
    client, _ = bench.client(wire)
    calls = [ToolUseBlock(id=one, name="look", input={"at": one}) for one in FOREIGN]
    results = [ToolResultBlock(tool_use_id=one, content=one) for one in FOREIGN]
    taken = TAKEN.get(wire.speaks, ".+") if wire.key not in ("openai-compatible", "litellm") else ".+"
    await client.single_response(Conversation.of("Look.").assistant(calls).user(results))
    sent = json.dumps(bench.sent)
    named = re.findall(r'"(?:id|call_id|tool_call_id|tool_use_id|toolUseId)": "([^"]+)"', sent)
    asked_for, answered = named[: len(FOREIGN)], named[len(FOREIGN) :]
    assert asked_for == answered
    assert len(set(asked_for)) == len(FOREIGN)
    assert all(re.fullmatch(taken, one) for one in asked_for)
    if wire.key == "litellm":  # which has a hand in it too
        return
    assert [new for new, old in zip(asked_for, FOREIGN, strict=True) if re.fullmatch(taken, old)] == [
        old for old in FOREIGN if re.fullmatch(taken, old)
    ], "those that fit stay"
