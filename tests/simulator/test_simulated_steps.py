"""Steps as the SDKs of Anthropic and OpenAI see them; what every wire must do stands in test_every_wire.py."""

from __future__ import annotations

import json
from typing import Any

import anthropic as anthropic_sdk
import httpx2
import openai as openai_sdk
import pytest
from anthropic import AsyncAnthropic
from openai import AsyncOpenAI

from interlock.clients.simulator import Answer, Framing, SimulatedProvider, Step, ToolCall

TEXT = "The parcel is late. The parcel was paid twice, and the parcel is heavy."
ANTHROPIC: Any = {"model": "m", "max_tokens": 200, "messages": [{"role": "user", "content": TEXT}]}
OPENAI: Any = {"model": "m", "messages": [{"role": "user", "content": TEXT}]}
PATHS = {"anthropic": "/v1/messages", "openai": "/v1/chat/completions"}
BODIES = {"anthropic": ANTHROPIC, "openai": OPENAI}


async def post(http: httpx2.AsyncClient, wire: str, *, stream: bool = False) -> httpx2.Response:
    return await http.post(PATHS[wire], json=BODIES[wire] | ({"stream": True} if stream else {}))


def events_of(text: str) -> list[Any]:
    lines = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: ")]
    return [line if line == "[DONE]" else json.loads(line) for line in lines]


async def test_overloaded_and_server_errors(
    anthropic: AsyncAnthropic, openai: AsyncOpenAI, provider: SimulatedProvider
) -> None:
    provider.script(Step.overloaded(), Step.server_error(), Step.overloaded(), Step.server_error(503))
    with pytest.raises(anthropic_sdk.APIStatusError) as overloaded:
        await anthropic.messages.create(**ANTHROPIC)
    assert (overloaded.value.status_code, overloaded.value.type) == (529, "overloaded_error")
    with pytest.raises(anthropic_sdk.InternalServerError) as broken:
        await anthropic.messages.create(**ANTHROPIC)
    assert (broken.value.status_code, broken.value.type) == (500, "api_error")
    for status in (503, 503):
        with pytest.raises(openai_sdk.InternalServerError) as failed:
            await openai.chat.completions.create(**OPENAI)
        assert (failed.value.status_code, failed.value.type) == (status, "server_error")
    assert len(provider.requests) == 4  # one request each: nobody retried


async def test_b11_out_of_money(anthropic: AsyncAnthropic, openai: AsyncOpenAI, provider: SimulatedProvider) -> None:
    provider.always(Step.quota())
    with pytest.raises(anthropic_sdk.BadRequestError, match="credit balance is too low"):
        await anthropic.messages.create(**ANTHROPIC)
    with pytest.raises(openai_sdk.RateLimitError) as spent:
        await openai.chat.completions.create(**OPENAI)
    assert (spent.value.code, spent.value.type) == ("insufficient_quota", "insufficient_quota")
    assert provider.refused == 0


async def test_b15_a_refusal_on_anthropic(anthropic: AsyncAnthropic, provider: SimulatedProvider) -> None:
    provider.script(Step.refusal("cyber", "It could do harm."), Step.refusal("bio", text="I was going to"))
    message = await anthropic.messages.create(**ANTHROPIC)
    assert (message.stop_reason, message.content) == ("refusal", [])
    assert message.stop_details is not None
    assert (message.stop_details.category, message.stop_details.explanation) == ("cyber", "It could do harm.")
    async with anthropic.messages.stream(**ANTHROPIC) as stream:
        streamed = await stream.get_final_message()
    assert streamed.stop_reason == "refusal"
    assert streamed.content[0].type == "text"
    assert streamed.content[0].text == "I was going to"


async def test_a_cut_off_tool_call(anthropic: AsyncAnthropic, openai: AsyncOpenAI, provider: SimulatedProvider) -> None:
    provider.always(Step.truncated(Answer(tool_calls=(ToolCall(name="f", input='{"text": "lo'),))))
    message = await anthropic.messages.create(**ANTHROPIC)
    assert (message.stop_reason, message.content[0].type) == ("max_tokens", "tool_use")
    completion = await openai.chat.completions.create(**OPENAI)
    assert completion.choices[0].finish_reason == "length"
    call: Any = (completion.choices[0].message.tool_calls or [])[0]
    with pytest.raises(json.JSONDecodeError):
        json.loads(call.function.arguments)


async def test_b44_arguments_of_any_kind(
    openai: AsyncOpenAI, http: httpx2.AsyncClient, provider: SimulatedProvider
) -> None:
    sent = ["", " ", "{}", "{}{}", "null", "[]"]
    for arguments in sent:
        provider.script(Step.answer(tool_calls=[ToolCall(name="f", input=arguments)]))
        completion = await openai.chat.completions.create(**OPENAI)
        call: Any = (completion.choices[0].message.tool_calls or [])[0]
        assert call.function.arguments == arguments
    provider.script(Step.answer(tool_calls=[ToolCall(name="f")]))
    events = events_of((await post(http, "anthropic", stream=True)).text)
    assert [event["type"] for event in events] == [
        "message_start",
        "content_block_start",
        "ping",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]
    provider.script(Step.answer(tool_calls=[ToolCall(name="f", input="{}{}")]))
    events = events_of((await post(http, "anthropic", stream=True)).text)
    parts = [event["delta"]["partial_json"] for event in events if event["type"] == "content_block_delta"]
    assert "".join(parts) == "{}{}"


async def test_pieces_and_stop_reasons_are_sent_as_given(http: httpx2.AsyncClient, provider: SimulatedProvider) -> None:
    provider.script(Step.answer(pieces=("a", "", "bc"), stop_reason="pause_turn"), Step.answer(stop_reason="odd"))
    events = events_of((await post(http, "anthropic", stream=True)).text)
    assert [event["delta"]["text"] for event in events if event["type"] == "content_block_delta"] == ["a", "", "bc"]
    assert events[-2]["delta"]["stop_reason"] == "pause_turn"
    odd = (await post(http, "openai")).json()["choices"][0]
    assert odd["finish_reason"] == "odd"
    assert odd["message"]["content"].startswith(TEXT[:19])  # what was not said is worked out


async def test_redacted_thinking_is_opaque(anthropic: AsyncAnthropic, provider: SimulatedProvider) -> None:
    provider.script(Step.answer("Done.", redacted_thinking="b64=="))
    async with anthropic.messages.stream(**ANTHROPIC) as stream:
        message = await stream.get_final_message()
    assert message.content[0].type == "redacted_thinking"
    assert message.content[0].data == "b64=="


async def test_b09_exactly_these_events(anthropic: AsyncAnthropic, provider: SimulatedProvider) -> None:
    usage = {"input_tokens": 25, "output_tokens": 1, "cache_read_input_tokens": 1000}
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": [], "usage": usage}
    provider.script(
        Step.events(
            {"type": "message_start", "message": message},
            {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
            b": a comment\n\n",
            {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "hi"}},
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 7}},
            {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 15}},
            {"type": "message_stop"},
        )
    )
    async with anthropic.messages.stream(**ANTHROPIC) as stream:
        final = await stream.get_final_message()
    assert (final.usage.input_tokens, final.usage.output_tokens) == (25, 15)
    assert final.usage.cache_read_input_tokens == 1000


async def test_b41_b16_exactly_these_chunks(openai: AsyncOpenAI, provider: SimulatedProvider) -> None:
    provider.script(
        Step.events({"error": {"code": 502, "message": "Upstream"}, "choices": []}),
        Step.events(*[{"id": "c", "choices": [], "usage": {"prompt_tokens": 48}}] * 3, "[DONE]"),
    )
    with pytest.raises(openai_sdk.APIError, match="Upstream"):
        async for _ in await openai.chat.completions.create(**OPENAI, stream=True):
            pass
    chunks = [chunk async for chunk in await openai.chat.completions.create(**OPENAI, stream=True)]
    assert [chunk.usage.prompt_tokens for chunk in chunks if chunk.usage] == [48, 48, 48]


FRAMINGS = [
    Framing(bytes_per_write=1),
    Framing(line_ending="\r\n", bytes_per_write=3),
    Framing(line_ending="\r", comments=True),
    Framing(bom=True, space_after_colon=False),
    Framing(comments=True, bom=True, bytes_per_write=2),
]


@pytest.mark.parametrize("framing", FRAMINGS)
async def test_b28_a_stream_may_be_framed_in_any_valid_way(
    framing: Framing, anthropic: AsyncAnthropic, openai: AsyncOpenAI, provider: SimulatedProvider
) -> None:
    text = "a\u2028b\u0085c\u2029 漢字 😀 end"
    provider.always(Step.answer(pieces=(text[:5], text[5:]), framing=framing))
    if not framing.bom:  # the SDK does not know the mark
        async with anthropic.messages.stream(**ANTHROPIC) as stream:
            assert await stream.get_final_text() == text
    chunks = [chunk async for chunk in await openai.chat.completions.create(**OPENAI, stream=True)]
    spoken = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert spoken == text


async def test_a_step_may_be_for_one_model_or_wire_only(http: httpx2.AsyncClient, provider: SimulatedProvider) -> None:
    provider.script(Step.overloaded().on(model="other"), Step.server_error().on(wire="openai"), Step.answer("third"))
    assert (await post(http, "anthropic")).json()["content"][0]["text"] == "third"
    assert (await post(http, "openai")).status_code == 500
    assert (await http.post(PATHS["anthropic"], json=ANTHROPIC | {"model": "other"})).status_code == 529
    assert provider.steps_left == 0


async def test_always_holds_when_the_script_is_used_up(http: httpx2.AsyncClient, provider: SimulatedProvider) -> None:
    provider.always(Step.overloaded().on(wire="openai"), Step.answer("always"))
    provider.script(Step.answer("once"))
    said = [(await post(http, "anthropic")).json()["content"][0]["text"] for _ in range(3)]
    assert said == ["once", "always", "always"]
    assert (await post(http, "openai")).status_code == 503
    provider.always()
    assert "parcel" in (await post(http, "anthropic")).text
    provider.script(Step.overloaded())
    provider.clear()
    assert (provider.steps_left, provider.requests, provider.count) == (0, [], 0)
    assert (await post(http, "anthropic")).status_code == 200
    assert provider.count == 1


async def test_an_answer_and_what_is_added_to_it(http: httpx2.AsyncClient, provider: SimulatedProvider) -> None:
    provider.script(Step.answer(Answer(text="said", output_tokens=9), stop_reason="pause_turn"), Step.answer(json=None))
    found = (await post(http, "anthropic")).json()
    assert found["content"][0]["text"] == "said"
    assert (found["stop_reason"], found["usage"]["output_tokens"]) == ("pause_turn", 9)
    assert (await post(http, "anthropic")).json()["content"][0]["text"] == "null"
