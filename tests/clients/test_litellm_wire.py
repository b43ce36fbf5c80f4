"""What LiteLLM must not do on its way, and what of it is not believed."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest

from interlock.admission.outcome import OutcomeKind
from interlock.catalog.usage import Usage
from interlock.clients.conversation import Conversation, TextBlock, ToolResultBlock
from interlock.clients.options import CallOptions, Tool
from interlock.clients.simulator import Step, ToolCall
from interlock.errors import InvalidRequestError, StreamInterruptedError

from .conftest import WIRES, Wire, asked

LOOK = Tool("look", "Look.", {"type": "object", "properties": {}})


@pytest.fixture
def through_openai() -> Wire:
    return next(wire for wire in WIRES if wire.id == "litellm-openai")


@pytest.fixture
def through_anthropic() -> Wire:
    return next(wire for wire in WIRES if wire.id == "litellm-anthropic")


async def test_importing_it_leaves_the_environment_as_it_was(bench, through_openai):
    before = dict(os.environ)
    client, _ = bench.client(through_openai)
    await client.single_response("Hello.")
    assert dict(os.environ) == before


@pytest.mark.parametrize(("model", "said"), [
    ("no-such-provider/x", "LLM Provider NOT provided"), ("claude", "LLM Provider NOT provided"),
])  # fmt: skip
async def test_what_litellm_itself_refuses_is_not_sent(bench, through_openai, model, said):
    client, seat = bench.client(through_openai, wire_model_id=model)
    with pytest.raises(InvalidRequestError, match=said) as caught:
        await client.single_response("Hello.")
    assert caught.value.sent is False
    assert seat.last.cost == 0
    assert bench.provider.count == 0


def chunk(content: str | None = None, finish: str | None = None, **more: Any) -> str:
    delta = {} if content is None else {"content": content}
    return json.dumps({"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "served",
                       "choices": [{"index": 0, "delta": delta, "finish_reason": finish}], **more})  # fmt: skip


async def test_b02_an_end_that_litellm_makes_up_is_none(bench, through_openai):
    client, seat = bench.client(through_openai)
    bench.script(Step.events(chunk("Hi"), b"data: [DONE]\n\n"))
    with pytest.raises(StreamInterruptedError) as caught:
        await client.stream_response("Hello.").finish()
    assert caught.value.partial == "Hi"
    assert seat.kinds == [OutcomeKind.UNKNOWN]


async def test_b16_counts_that_litellm_makes_up_are_estimates_of_ours(bench, through_openai):
    client, _ = bench.client(through_openai, input_tokens=30)
    bench.script(Step.events(chunk("A few words here."), chunk(None, "stop"), b"data: [DONE]\n\n"))
    usage = (await client.stream_response("Hello.").finish()).usage
    assert usage.estimated
    assert usage.input_tokens == 30


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
async def test_b10_cached_token_semantics(bench, through_anthropic, streamed):
    client, _ = bench.client(through_anthropic)
    answer = {"type": "message", "role": "assistant", "model": "served", "content": [{"type": "text", "text": "Hi."}],
              "stop_reason": "end_turn", "usage": {"input_tokens": 5, "output_tokens": 3,
              "cache_read_input_tokens": 70, "cache_creation_input_tokens": 20}, "id": "m"}  # fmt: skip
    if streamed:
        start = {**answer, "content": [], "stop_reason": None}
        events = [("message_start", {"message": start}),
                  ("content_block_start", {"index": 0, "content_block": {"type": "text", "text": ""}}),
                  ("content_block_delta", {"index": 0, "delta": {"type": "text_delta", "text": "Hi."}}),
                  ("content_block_stop", {"index": 0}),
                  ("message_delta", {"delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 3}}),
                  ("message_stop", {})]  # fmt: skip
        bench.script(Step.events(*(
            f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n".encode() for kind, fields in events
        )))  # fmt: skip
    else:
        bench.script(Step.body(answer))
    usage = (await asked(client, "Hello.", streamed=streamed)).usage
    assert usage == Usage(
        input_tokens=5, output_tokens=3, cache_read_tokens=70, cache_write_tokens=20,
        reasoning_tokens=usage.reasoning_tokens,
    )  # fmt: skip


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
async def test_signatures_go_back_through_it(bench, through_anthropic, streamed):
    client, _ = bench.client(through_anthropic)
    question = Conversation.of("Hello.")
    bench.script(Step.answer(thinking="Hm, hm.", tool_calls=[ToolCall(name="look", input={"a": 1})]))
    answer = await asked(client, question, streamed=streamed, options=CallOptions(tools=(LOOK,)))
    assert answer.thinking == "Hm, hm."
    result = ToolResultBlock(tool_use_id=answer.tool_calls[0].id, content="seen")
    further = question.assistant(answer.blocks).user([result, TextBlock("So?")])
    await client.single_response(further, options=CallOptions(tools=(LOOK,)))
    (thinking,) = [part for part in bench.sent["messages"][1]["content"] if part["type"] == "thinking"]
    assert thinking["thinking"] == "Hm, hm."
    assert thinking["signature"]
