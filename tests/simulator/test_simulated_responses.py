"""OpenAI Responses, driven with the OpenAI SDK."""

from __future__ import annotations

import json
from typing import Any

import openai as sdk
import pytest
from openai import AsyncOpenAI

from interlock.clients.simulator import SimulatedProvider, Step

TEXT = "My parcel was charged twice. Billing must refund one payment for the parcel."
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"team": {"enum": ["sales", "billing"]}, "tags": {"type": "array", "items": {"type": "string"}}},
    "required": ["team", "tags"],
    "additionalProperties": False,
}
TOOL: Any = {"type": "function", "name": "route", "parameters": SCHEMA, "strict": True}
FORM: Any = {"format": {"type": "json_schema", "name": "n", "schema": SCHEMA, "strict": True}}
THINKS: Any = {"effort": "low", "summary": "auto"}
ASKED: Any = {"model": "m", "input": TEXT}


async def test_a_stream_says_what_a_whole_answer_says(openai: AsyncOpenAI, provider: SimulatedProvider) -> None:
    whole = await openai.responses.create(**ASKED, reasoning=THINKS, instructions="Be short.")
    async with openai.responses.stream(**ASKED, reasoning=THINKS, instructions="Be short.") as stream:
        events: list[Any] = [event async for event in stream]
        streamed = await stream.get_final_response()
    assert streamed.output_text == whole.output_text
    assert whole.output_text.startswith("My parcel was charged twice.")
    assert streamed.usage == whole.usage
    assert [item.type for item in whole.output] == ["reasoning", "message"]
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert [event.type for event in events][:2] == ["response.created", "response.in_progress"]
    assert events[-1].type == "response.completed"
    assert whole.usage is not None
    assert whole.usage.input_tokens == (len("Be short." + TEXT) + 3) // 4
    assert 0 < whole.usage.output_tokens_details.reasoning_tokens < whole.usage.output_tokens
    assert (provider.requests[0].wire, provider.requests[0].text) == ("openai-responses", TEXT)


async def test_reasoning_goes_back_byte_for_byte(openai: AsyncOpenAI) -> None:
    first = await openai.responses.create(**ASKED, reasoning=THINKS)
    items: list[Any] = [{"role": "user", "content": TEXT}, *(item.model_dump() for item in first.output)]
    again = [*items, {"role": "user", "content": "Go on."}]
    assert (await openai.responses.create(model="m", input=again)).status == "completed"
    with pytest.raises(sdk.BadRequestError, match="without its required following item"):
        await openai.responses.create(model="m", input=items[:2])
    items[1]["encrypted_content"] = "gAAA" + items[1]["encrypted_content"][4:]
    with pytest.raises(sdk.BadRequestError, match="could not be verified") as refused:
        await openai.responses.create(model="m", input=again)
    assert refused.value.code == "invalid_encrypted_content"


async def test_tools_are_called_and_answered(openai: AsyncOpenAI, provider: SimulatedProvider) -> None:
    forced: Any = {"tools": [TOOL], "tool_choice": {"type": "function", "name": "route"}}
    whole = await openai.responses.create(**ASKED, **forced)
    call = whole.output[0]
    assert call.type == "function_call"
    assert json.loads(call.arguments) == {"team": "billing", "tags": ["parcel", "charged", "twice"]}
    async with openai.responses.stream(**ASKED, **forced) as stream:
        deltas = [event.delta async for event in stream if event.type == "response.function_call_arguments.delta"]
    assert "".join(deltas) == call.arguments
    turns: list[Any] = [{"role": "user", "content": TEXT}, call.model_dump(exclude_none=True)]
    result = {"type": "function_call_output", "call_id": call.call_id, "output": "done"}
    assert (await openai.responses.create(model="m", input=[*turns, result])).status == "completed"
    assert provider.requests[-1].text == "done"
    with pytest.raises(sdk.BadRequestError, match="No tool output found for function call"):
        await openai.responses.create(model="m", input=turns)
    with pytest.raises(sdk.BadRequestError, match="No tool call found for function call output"):
        await openai.responses.create(model="m", input=[turns[0], result])


async def test_a_schema_is_obeyed_and_logprobs_are_given(openai: AsyncOpenAI) -> None:
    whole = await openai.responses.create(**ASKED, text=FORM, include=["message.output_text.logprobs"], top_logprobs=2)
    assert json.loads(whole.output_text)["team"] == "billing"
    part: Any = whole.output[0].content[0]  # type: ignore[union-attr, index]
    assert "".join(token.token for token in part.logprobs) == whole.output_text
    assert {len(token.top_logprobs) for token in part.logprobs} == {2}
    async with openai.responses.stream(
        **ASKED, text=FORM, include=["message.output_text.logprobs"], top_logprobs=2
    ) as stream:
        found = [event.logprobs async for event in stream if event.type == "response.output_text.delta"]
    assert "".join(token.token for tokens in found for token in tokens or ()) == whole.output_text


async def test_images_and_files_are_counted(openai: AsyncOpenAI) -> None:
    parts = [
        {"type": "input_text", "text": TEXT},
        {"type": "input_image", "detail": "auto", "image_url": "data:image/png;base64,AA=="},
        {"type": "input_file", "filename": "a.pdf", "file_data": "data:application/pdf;base64,AA=="},
    ]
    found: Any = await openai.responses.create(model="m", input=[{"role": "user", "content": parts}])  # type: ignore[list-item]
    assert found.usage.input_tokens > 4_500
    counted = await openai.responses.input_tokens.count(**ASKED)
    assert counted.input_tokens == 19


async def test_cache_breakpoints_and_automatic_caching(openai: AsyncOpenAI, time: Any) -> None:
    part = {"type": "input_text", "text": "Rules. " * 700, "prompt_cache_breakpoint": {"mode": "explicit"}}
    asked: Any = {"model": "m", "input": [{"role": "user", "content": [part, {"type": "input_text", "text": TEXT}]}]}
    first, second = [(await openai.responses.create(**asked)).usage for _ in range(2)]
    assert first is not None
    assert second is not None
    assert (first.input_tokens, second.input_tokens) == (1244, 1244)
    assert first.input_tokens_details.cache_write_tokens == 1225
    assert (second.input_tokens_details.cached_tokens, second.input_tokens_details.cache_write_tokens) == (1225, 0)
    async with (
        SimulatedProvider(automatic_caching=True, now=time.now) as provider,
        AsyncOpenAI(api_key="k", base_url=provider.openai_url, max_retries=0) as client,
    ):
        rules = "Rules. " * 700
        await client.responses.create(model="m", instructions=rules, input="One.")
        usage = (await client.responses.create(model="m", instructions=rules, input="Two.")).usage
        assert usage is not None
        assert usage.input_tokens_details.cached_tokens == 1225


async def test_b15_b12_how_an_answer_ends(openai: AsyncOpenAI, provider: SimulatedProvider) -> None:
    provider.script(Step.refusal(None, "No."), Step.refusal("content_filter", text="I was"), Step.truncated("cut"))
    refused, filtered, cut = [await openai.responses.create(**ASKED, max_output_tokens=50) for _ in range(3)]
    assert refused.output[0].content[0].refusal == "No."  # type: ignore[union-attr, index]
    assert refused.status == "completed"
    reasons = [each.incomplete_details and each.incomplete_details.reason for each in (refused, filtered, cut)]
    assert reasons == [None, "content_filter", "max_output_tokens"]
    assert cut.output[0].status == "incomplete"  # type: ignore[union-attr]
    provider.script(Step.truncated("cut"))
    async with openai.responses.stream(**ASKED) as stream:
        assert [event.type async for event in stream][-1] == "response.incomplete"


async def test_b01_errors_inside_a_stream(openai: AsyncOpenAI, provider: SimulatedProvider) -> None:
    provider.script(
        Step.stream_error(after_pieces=1), Step.stream_error("response.failed:rate_limit_exceeded", "Slow.")
    )
    flat: list[Any] = [event async for event in await openai.responses.create(**ASKED, stream=True)]
    assert (flat[-1].type, flat[-1].code, flat[-1].sequence_number) == ("error", "server_is_overloaded", 5)
    failed: list[Any] = [event async for event in await openai.responses.create(**ASKED, stream=True)]
    error = failed[-1].response.error
    assert (failed[-1].type, error.code, error.message) == ("response.failed", "rate_limit_exceeded", "Slow.")


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"max_output_tokens": 5}, "integer_below_min_value"),
        ({"frobnicate": 1}, "unknown_parameter"),
        ({"previous_response_id": "resp_1"}, "previous_response_not_found"),
        ({"input": None}, "missing_required_parameter"),
        ({"input": [{"role": "robot", "content": "x"}]}, "invalid_value"),
        ({"input": [{"role": "user", "content": [{"type": "sound"}]}]}, "invalid_value"),
        ({"text": {"format": {"type": "json_schema", "schema": SCHEMA}}}, "missing_required_parameter"),
        ({"text": {"format": {**FORM["format"], "schema": {"type": "object"}}}}, "invalid_json_schema"),
        ({"tools": [{**TOOL, "name": "no spaces"}]}, "invalid_value"),
        ({"tool_choice": {"type": "function", "name": "x"}, "tools": [TOOL]}, None),
    ],
)
async def test_what_the_real_one_refuses_is_refused(
    change: dict[str, Any], code: str | None, openai: AsyncOpenAI
) -> None:
    with pytest.raises(sdk.BadRequestError) as refused:
        await openai.responses.create(**ASKED, extra_body=change)
    assert refused.value.code == code
