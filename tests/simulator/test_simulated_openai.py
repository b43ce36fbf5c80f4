"""The OpenAI chat completions wire, driven with the OpenAI SDK."""

from __future__ import annotations

import json
from typing import Any

import httpx2
import openai as sdk
import pytest
from openai import AsyncOpenAI

from interlock.clients.simulator import Answer, SimulatedProvider, Step, ToolCall

TEXT = "My parcel was charged twice. Billing must refund one payment for the parcel."
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"team": {"enum": ["sales", "billing"]}, "tags": {"type": "array", "items": {"type": "string"}}},
    "required": ["team", "tags"],
    "additionalProperties": False,
}
TOOL: Any = {"type": "function", "function": {"name": "route", "parameters": SCHEMA, "strict": True}}


def user(text: Any = TEXT) -> list[Any]:
    return [{"role": "user", "content": text}]


async def test_an_answer_comes_from_the_text(openai: AsyncOpenAI, provider: SimulatedProvider) -> None:
    completion = await openai.chat.completions.create(
        model="m-1", messages=[{"role": "system", "content": "Be short."}, *user()], temperature=0.2
    )
    choice = completion.choices[0]
    assert choice.message.content is not None
    assert choice.message.content.startswith("My parcel was charged twice.")
    assert (choice.finish_reason, choice.message.refusal, completion.model) == ("stop", None, "m-1")
    assert completion.usage is not None
    assert completion.usage.prompt_tokens == (len("Be short." + TEXT) + 3) // 4
    assert completion.usage.total_tokens == completion.usage.prompt_tokens + completion.usage.completion_tokens
    seen = provider.requests[0]
    assert (seen.wire, seen.path, seen.status, seen.text) == ("openai", "/v1/chat/completions", 200, TEXT)
    assert "sk-test" not in repr(seen)
    assert completion._request_id is not None
    assert completion._request_id.startswith("req_")


async def test_a_stream_says_the_same_and_ends_with_its_usage(openai: AsyncOpenAI) -> None:
    whole = await openai.chat.completions.create(model="m", messages=user())
    chunks = [
        chunk
        async for chunk in await openai.chat.completions.create(
            model="m", messages=user(), stream=True, stream_options={"include_usage": True}
        )
    ]
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == whole.choices[0].message.content
    assert [chunk.choices[0].finish_reason for chunk in chunks[-2:-1]] == ["stop"]
    assert chunks[-1].choices == []
    assert chunks[-1].usage == whole.usage
    assert all(chunk.usage is None for chunk in chunks[:-1])
    assert len({chunk.id for chunk in chunks}) == 1


async def test_usage_is_not_streamed_unless_asked_for(http: httpx2.AsyncClient) -> None:
    body = {"model": "m", "messages": user(), "stream": True}
    response = await http.post("/v1/chat/completions", json=body)
    assert "usage" not in response.text
    assert response.text.endswith("data: [DONE]\n\n")


async def test_a_forced_tool_is_called_with_what_its_schema_wants(openai: AsyncOpenAI) -> None:
    choice: Any = {"type": "function", "function": {"name": "route"}}
    completion = await openai.chat.completions.create(model="m", messages=user(), tools=[TOOL], tool_choice=choice)
    assert completion.choices[0].finish_reason == "tool_calls"
    assert completion.choices[0].message.content is None
    calls = completion.choices[0].message.tool_calls
    assert calls is not None
    assert calls[0].type == "function"
    assert json.loads(calls[0].function.arguments) == {"team": "billing", "tags": ["parcel", "charged", "twice"]}


async def test_b39_parallel_calls_are_streamed_by_index(openai: AsyncOpenAI, provider: SimulatedProvider) -> None:
    calls = [ToolCall(name="route", input={"team": "sales" * index}) for index in range(3)]
    provider.script(Step.answer("Both.", tool_calls=calls))
    arguments: dict[int, str] = {}
    ids: list[str] = []
    async for chunk in await openai.chat.completions.create(model="m", messages=user(), tools=[TOOL], stream=True):
        for part in chunk.choices[0].delta.tool_calls or ():
            assert part.function is not None
            arguments[part.index] = arguments.get(part.index, "") + (part.function.arguments or "")
            ids += [part.id] if part.id else []
    assert [json.loads(text)["team"] for text in arguments.values()] == ["", "sales", "salessales"]
    assert len(set(ids)) == 3


async def test_a_json_schema_is_obeyed(openai: AsyncOpenAI) -> None:
    form: Any = {"type": "json_schema", "json_schema": {"name": "ticket", "schema": SCHEMA, "strict": True}}
    completion = await openai.chat.completions.create(model="m", messages=user(), response_format=form)
    assert json.loads(completion.choices[0].message.content or "")["team"] == "billing"


async def test_json_mode_answers_an_object_and_wants_the_word(openai: AsyncOpenAI) -> None:
    form: Any = {"type": "json_object"}
    asked = user(f"Answer in JSON. {TEXT}")
    completion = await openai.chat.completions.create(model="m", messages=asked, response_format=form)
    assert "keywords" in json.loads(completion.choices[0].message.content or "")
    with pytest.raises(sdk.BadRequestError, match="must contain the word 'json'"):
        await openai.chat.completions.create(model="m", messages=user(), response_format=form)


async def test_b15_refusals_have_two_shapes(openai: AsyncOpenAI, provider: SimulatedProvider) -> None:
    provider.script(Step.refusal(explanation="I will not."), Step.refusal("content_filter"))
    refused = (await openai.chat.completions.create(model="m", messages=user())).choices[0]
    assert (refused.message.refusal, refused.message.content, refused.finish_reason) == ("I will not.", None, "stop")
    filtered = (await openai.chat.completions.create(model="m", messages=user())).choices[0]
    assert (filtered.message.refusal, filtered.message.content) == (None, None)
    assert filtered.finish_reason == "content_filter"


async def test_logprobs_are_given_where_asked_for(openai: AsyncOpenAI) -> None:
    completion = await openai.chat.completions.create(model="m", messages=user(), logprobs=True, top_logprobs=2)
    logprobs = completion.choices[0].logprobs
    assert logprobs is not None
    assert logprobs.content is not None
    assert "".join(each.token for each in logprobs.content) == completion.choices[0].message.content
    assert all(len(each.top_logprobs) == 2 and each.top_logprobs[0].token == each.token for each in logprobs.content)


async def test_a_limit_cuts_and_a_stop_sequence_stops(openai: AsyncOpenAI) -> None:
    cut = await openai.chat.completions.create(model="m", messages=user(), max_completion_tokens=5)
    assert (cut.choices[0].message.content, cut.choices[0].finish_reason) == (TEXT[:20], "length")
    stopped = await openai.chat.completions.create(model="m", messages=user(), stop=" twice")
    assert (stopped.choices[0].message.content, stopped.choices[0].finish_reason) == ("My parcel was charged", "stop")


async def test_b24_every_call_needs_its_result(openai: AsyncOpenAI) -> None:
    calls = [
        {"id": f"c{index}", "type": "function", "function": {"name": "route", "arguments": "{}"}} for index in range(2)
    ]
    turns: list[Any] = [*user(), {"role": "assistant", "content": None, "tool_calls": calls}]
    results: list[Any] = [{"role": "tool", "tool_call_id": call["id"], "content": "sent to billing"} for call in calls]
    completion = await openai.chat.completions.create(model="m", messages=[*turns, *results])
    assert (completion.choices[0].message.content or "").startswith("sent to billing")
    for messages, said in (
        ([*turns, results[0]], "did not have response messages: c1"),
        ([*turns, results[1], *user("x")], "did not have response messages: c0"),
        (turns, "did not have response messages: c0, c1"),
        ([*turns, *results, results[0]], "must be a response to a preceeding message"),
        ([*user(), results[0]], "must be a response to a preceeding message"),
    ):
        with pytest.raises(sdk.BadRequestError, match=said):
            await openai.chat.completions.create(model="m", messages=messages)


@pytest.mark.parametrize(
    ("change", "code", "param"),
    [
        ({"messages": None}, "missing_required_parameter", "messages"),
        ({"messages": []}, "empty_array", "messages"),
        ({"messages": [{"role": "robot", "content": "x"}]}, "invalid_value", "messages[0].role"),
        ({"messages": [{"role": "user", "content": None}]}, "invalid_type", "messages.[0].content"),
        ({"messages": user([{"type": "smell"}])}, "invalid_value", "messages[0].content"),
        ({"frobnicate": 1}, "unknown_parameter", "frobnicate"),
        ({"max_tokens": 0}, "integer_below_min_value", "max_tokens"),
        ({"max_tokens": "5"}, "invalid_type", "max_tokens"),
        ({"max_tokens": 5, "max_completion_tokens": 5}, "invalid_parameter_combination", None),
        ({"stream_options": {"include_usage": True}}, None, "stream_options"),
        ({"top_logprobs": 3}, None, "top_logprobs"),
        ({"logprobs": True, "top_logprobs": 30}, "integer_above_max_value", "top_logprobs"),
        ({"tools": []}, "empty_array", "tools"),
        ({"tool_choice": "required"}, None, "tool_choice"),
        ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "invalid_value", "tools[0].function.name"),
        ({"response_format": {"type": "xml"}}, "invalid_value", "response_format"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"schema": SCHEMA}}},
            "missing_required_parameter",
            "response_format.json_schema.name",
        ),
        (
            {
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {"name": "x", "strict": True, "schema": SCHEMA | {"required": ["team"]}},
                }
            },
            "invalid_json_schema",
            "response_format",
        ),
        (
            {
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {"name": "x", "strict": True, "schema": {"type": "object", "properties": {}}},
                }
            },
            "invalid_json_schema",
            "response_format",
        ),
    ],
)
async def test_what_the_real_one_refuses_is_refused(
    change: dict[str, Any], code: str | None, param: str | None, http: httpx2.AsyncClient
) -> None:
    body = {"model": "m", "messages": user()} | change
    body = {key: value for key, value in body.items() if value is not None}
    response = await http.post("/v1/chat/completions", json=body)
    error = response.json()["error"]
    assert response.status_code == 400
    assert (error["type"], error["code"], error["param"]) == ("invalid_request_error", code, param)


async def test_keys_models_windows_and_parameters_are_checked_where_told() -> None:
    async with (
        SimulatedProvider(keys=["good"], models=["m"], context_window=10, openai_refuses=["temperature"]) as provider,
        AsyncOpenAI(api_key="bad", base_url=provider.openai_url, max_retries=0) as bad,
        AsyncOpenAI(api_key="good", base_url=provider.openai_url, max_retries=0) as good,
    ):
        with pytest.raises(sdk.AuthenticationError) as wrong_key:
            await bad.chat.completions.create(model="m", messages=user("hi"))
        assert wrong_key.value.code == "invalid_api_key"
        with pytest.raises(sdk.NotFoundError) as unknown:
            await good.chat.completions.create(model="other", messages=user("hi"))
        assert unknown.value.code == "model_not_found"
        with pytest.raises(sdk.BadRequestError) as too_long:
            await good.chat.completions.create(model="m", messages=user())
        assert too_long.value.code == "context_length_exceeded"
        with pytest.raises(sdk.BadRequestError) as refused:
            await good.chat.completions.create(model="m", messages=user("hi"), temperature=1)
        assert refused.value.code == "unsupported_parameter"
        assert [model.id async for model in await good.models.list()] == ["m"]


async def test_any_prefix_of_the_path_is_served(provider: SimulatedProvider, http: httpx2.AsyncClient) -> None:
    response = await http.post("/openai/v3/chat/completions", json={"model": "m", "messages": user()})
    assert response.status_code == 200


async def test_cached_tokens_are_a_part_of_the_prompt(openai: AsyncOpenAI, provider: SimulatedProvider) -> None:
    provider.script(Step.answer("x", input_tokens=10, cache_read_tokens=90, output_tokens=7, reasoning_tokens=5))
    usage = (await openai.chat.completions.create(model="m", messages=user())).usage
    assert usage is not None
    assert usage.prompt_tokens == 100
    assert usage.prompt_tokens_details is not None
    assert usage.prompt_tokens_details.cached_tokens == 90
    assert usage.completion_tokens_details is not None
    assert usage.completion_tokens_details.reasoning_tokens == 5


async def test_images_and_files_cost_tokens(openai: AsyncOpenAI, provider: SimulatedProvider) -> None:
    parts: list[Any] = [
        {"type": "text", "text": "See."},
        {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}},
    ]
    await openai.chat.completions.create(model="m", messages=user(parts))
    assert provider.requests[0].input_tokens == 1 + 1_500


async def test_an_answer_function_sees_both_wires(time: Any) -> None:
    async with (
        SimulatedProvider(answer=lambda request: Answer(text=f"{request.wire}: {request.ask.system}")) as provider,
        AsyncOpenAI(api_key="k", base_url=provider.openai_url, max_retries=0) as client,
    ):
        messages: list[Any] = [{"role": "developer", "content": "Hush."}, *user()]
        completion = await client.chat.completions.create(model="m", messages=messages)
    assert completion.choices[0].message.content == "openai: Hush."


async def test_b71_reasoning_is_counted_and_not_shown(openai: AsyncOpenAI, provider: SimulatedProvider) -> None:
    completion = await openai.chat.completions.create(model="m", messages=user(), reasoning_effort="low")
    assert completion.usage is not None
    assert completion.usage.completion_tokens_details is not None
    reasoning = completion.usage.completion_tokens_details.reasoning_tokens or 0
    assert 0 < reasoning < completion.usage.completion_tokens
    assert "The request is about" not in completion.model_dump_json()
    cut = await openai.chat.completions.create(
        model="m", messages=user(), reasoning_effort="low", max_completion_tokens=reasoning
    )
    assert (cut.choices[0].message.content, cut.choices[0].finish_reason) == (None, "length")


async def test_more_than_one_choice_is_refused_rather_than_forgotten(openai: AsyncOpenAI) -> None:
    with pytest.raises(sdk.BadRequestError, match="'n' must be 1"):
        await openai.chat.completions.create(model="m", messages=user(), n=2)


async def test_tokens_may_be_counted_in_another_way() -> None:
    async with (
        SimulatedProvider(
            count_tokens=lambda text: len(text.split()), answer=lambda _: "one two three four"
        ) as provider,
        AsyncOpenAI(api_key="k", base_url=provider.openai_url, max_retries=0) as client,
    ):
        completion = await client.chat.completions.create(model="m", messages=user("a b c"), max_tokens=2)
    assert completion.usage is not None
    assert (completion.usage.prompt_tokens, completion.usage.completion_tokens) == (3, 2)
    assert (completion.choices[0].message.content or "").split() == ["one", "two"]


async def test_b12_arguments_are_cut_off_by_the_output_limit_or_by_a_step(
    openai: AsyncOpenAI, provider: SimulatedProvider
) -> None:
    async def called(most: int) -> tuple[str, str]:
        choice = (
            await openai.chat.completions.create(
                model="m",
                max_completion_tokens=most,
                messages=user(),
                tools=[TOOL],
                tool_choice={"type": "function", "function": {"name": "route"}},
            )
        ).choices[0]
        assert choice.message.tool_calls is not None
        call = choice.message.tool_calls[0]
        assert call.type == "function"
        return call.function.arguments, choice.finish_reason

    whole, reason = await called(200)
    assert json.loads(whole)["team"] == "billing"
    assert reason in ("stop", "tool_calls")
    limited, reason = await called(8)
    assert (whole.startswith(limited), reason) == (True, "length")
    assert 0 < len(limited) < len(whole)
    provider.script(Step.truncated())
    assert await called(200) == (whole[: len(whole) // 2], "length")
