"""The Anthropic wire, driven with the Anthropic SDK."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import anthropic as sdk
import httpx2
import pytest
from anthropic import AsyncAnthropic

from interlock.clients.simulator import Answer, SimulatedProvider, Step, ToolCall
from interlock.clients.simulator.replying import sign

TEXT = "My parcel was charged twice. Billing must refund one payment for the parcel."
SCHEMA = {
    "type": "object",
    "properties": {"team": {"enum": ["sales", "billing"]}, "tags": {"type": "array", "items": {"type": "string"}}},
    "required": ["team", "tags"],
    "additionalProperties": False,
}
TOOL: Any = {"name": "route", "description": "Routes a ticket.", "input_schema": SCHEMA}


def user(text: Any = TEXT) -> list[Any]:
    return [{"role": "user", "content": text}]


def schema_of(**schema: Any) -> Any:
    return {"format": {"type": "json_schema", "schema": schema}}


async def test_an_answer_comes_from_the_text(anthropic: AsyncAnthropic, provider: SimulatedProvider) -> None:
    message = await anthropic.messages.create(model="m-1", max_tokens=100, system="Be short.", messages=user())
    assert message.content[0].type == "text"
    assert message.content[0].text.startswith("My parcel was charged twice.")
    assert (message.model, message.stop_reason, message.role) == ("m-1", "end_turn", "assistant")
    assert message.usage.input_tokens == (len("Be short." + TEXT) + 3) // 4
    assert message.usage.output_tokens == (len(message.content[0].text) + 3) // 4
    seen = provider.requests[0]
    assert (seen.wire, seen.path, seen.model, seen.status, seen.streamed) == (
        "anthropic",
        "/v1/messages",
        "m-1",
        200,
        False,
    )
    assert seen.text == TEXT
    assert seen.headers["authorization"] == "[redacted]"
    assert message._request_id is not None
    assert message._request_id.startswith("req_")


async def test_a_stream_says_the_same_as_a_whole_answer(anthropic: AsyncAnthropic) -> None:
    whole = await anthropic.messages.create(model="m", max_tokens=100, messages=user())
    async with anthropic.messages.stream(model="m", max_tokens=100, messages=user()) as stream:
        kinds = [event.type async for event in stream]
        streamed = await stream.get_final_message()
    assert streamed.content == whole.content or streamed.content[0].text == whole.content[0].text  # type: ignore[union-attr]
    assert streamed.usage == whole.usage
    assert kinds[0] == "message_start"
    assert kinds[-1] == "message_stop"
    assert kinds.count("content_block_delta") > 1


async def test_the_events_of_a_stream_in_order(http: httpx2.AsyncClient) -> None:
    body = {"model": "m", "max_tokens": 100, "stream": True, "messages": user()}
    response = await http.post("/v1/messages", json=body)
    assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
    names = [line.removeprefix("event: ") for line in response.text.splitlines() if line.startswith("event: ")]
    deltas = names.count("content_block_delta")
    assert names == [
        "message_start",
        "content_block_start",
        "ping",
        *["content_block_delta"] * deltas,
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]
    data = [json.loads(line.removeprefix("data: ")) for line in response.text.splitlines() if line.startswith("data: ")]
    assert [each["type"] for each in data] == names
    assert data[0]["message"]["usage"]["output_tokens"] == 1
    assert data[-2]["usage"]["output_tokens"] > 1


async def test_a_forced_tool_is_called_with_what_its_schema_wants(anthropic: AsyncAnthropic) -> None:
    message = await anthropic.messages.create(
        model="m", max_tokens=200, messages=user(), tools=[TOOL], tool_choice={"type": "tool", "name": "route"}
    )
    call = message.content[0]
    assert call.type == "tool_use"
    assert call.input == {"team": "billing", "tags": ["parcel", "charged", "twice"]}
    assert message.stop_reason == "tool_use"


async def test_tool_arguments_are_streamed_in_parts(anthropic: AsyncAnthropic) -> None:
    async with anthropic.messages.stream(
        model="m", max_tokens=200, messages=user(), tools=[TOOL], tool_choice={"type": "any"}
    ) as stream:
        parts = [event.partial_json async for event in stream if event.type == "input_json"]
        message = await stream.get_final_message()
    assert parts[0] == ""
    assert len(parts) > 2
    assert message.content[0].type == "tool_use"
    assert message.content[0].input == json.loads("".join(parts))


async def test_tools_that_need_not_be_called_are_not(anthropic: AsyncAnthropic) -> None:
    message = await anthropic.messages.create(model="m", max_tokens=100, messages=user(), tools=[TOOL])
    assert message.stop_reason == "end_turn"


async def test_a_json_schema_is_obeyed(anthropic: AsyncAnthropic) -> None:
    form: Any = {"format": {"type": "json_schema", "schema": SCHEMA}}
    message = await anthropic.messages.create(model="m", max_tokens=200, messages=user(), output_config=form)
    assert message.content[0].type == "text"
    assert json.loads(message.content[0].text)["team"] == "billing"


async def test_thinking_is_signed_and_goes_back_byte_for_byte(anthropic: AsyncAnthropic) -> None:
    thinking: Any = {"type": "enabled", "budget_tokens": 1024}
    asked = user()
    async with anthropic.messages.stream(model="m", max_tokens=2000, messages=asked, thinking=thinking) as stream:
        message = await stream.get_final_message()
    block = message.content[0]
    assert block.type == "thinking"
    assert "parcel" in block.thinking
    assert block.signature == sign(block.thinking, 0)
    assert message.usage.output_tokens_details is not None
    assert 0 < message.usage.output_tokens_details.thinking_tokens < message.usage.output_tokens
    again: list[Any] = [*asked, {"role": "assistant", "content": [each.model_dump() for each in message.content]}]
    again[1]["content"][1].pop("parsed_output", None)
    again.append({"role": "user", "content": "Go on."})
    assert (await anthropic.messages.create(model="m", max_tokens=100, messages=again)).stop_reason == "end_turn"
    again[1]["content"][0]["thinking"] += " "
    with pytest.raises(sdk.BadRequestError, match="Invalid `signature` in `thinking` block"):
        await anthropic.messages.create(model="m", max_tokens=100, messages=again)


async def test_b71_thinking_may_eat_the_whole_output(anthropic: AsyncAnthropic, provider: SimulatedProvider) -> None:
    provider.script(Step.answer("never said", thinking="a long thought " * 40))
    message = await anthropic.messages.create(model="m", max_tokens=50, messages=user())
    assert [block.type for block in message.content] == ["thinking"]
    assert (message.stop_reason, message.usage.output_tokens) == ("max_tokens", 50)
    provider.script(Step.answer(""))
    assert (await anthropic.messages.create(model="m", max_tokens=50, messages=user())).content == []


async def test_an_answer_longer_than_its_limit_is_cut(anthropic: AsyncAnthropic) -> None:
    message = await anthropic.messages.create(model="m", max_tokens=5, messages=user())
    assert message.content[0].type == "text"
    assert (message.content[0].text, message.stop_reason) == (TEXT[:20], "max_tokens")
    assert message.usage.output_tokens == 5


async def test_a_stop_sequence_stops(anthropic: AsyncAnthropic) -> None:
    message = await anthropic.messages.create(
        model="m", max_tokens=50, messages=user(), stop_sequences=["nowhere", " twice"]
    )
    assert message.content[0].type == "text"
    assert message.content[0].text == "My parcel was charged"
    assert (message.stop_reason, message.stop_sequence) == ("stop_sequence", " twice")


async def test_a_marked_prefix_is_written_once_and_read_after(
    anthropic: AsyncAnthropic, provider: SimulatedProvider
) -> None:
    system: Any = [{"type": "text", "text": "Rules. " * 700, "cache_control": {"type": "ephemeral"}}]
    first = (await anthropic.messages.create(model="m", max_tokens=50, system=system, messages=user())).usage
    second = (await anthropic.messages.create(model="m", max_tokens=50, system=system, messages=user())).usage
    assert (first.cache_creation_input_tokens, first.cache_read_input_tokens, first.input_tokens) == (1225, 0, 19)
    assert (second.cache_creation_input_tokens, second.cache_read_input_tokens, second.input_tokens) == (0, 1225, 19)
    assert first.cache_creation is not None
    assert first.cache_creation.ephemeral_5m_input_tokens == 1225
    assert [seen.input_tokens for seen in provider.requests] == [1244, 1244]


async def test_a_cached_prefix_lives_as_long_as_its_mark_says(anthropic: AsyncAnthropic, time: Any) -> None:
    marks: list[Any] = [{"type": "ephemeral"}, {"type": "ephemeral", "ttl": "1h"}]
    for mark, name in zip(marks, ("short", "long"), strict=True):
        system: Any = [{"type": "text", "text": f"{name} " * 1000, "cache_control": mark}]
        await anthropic.messages.create(model="m", max_tokens=50, system=system, messages=user())
        time.now_s += 301
        usage = (await anthropic.messages.create(model="m", max_tokens=50, system=system, messages=user())).usage
        assert bool(usage.cache_read_input_tokens) is (name == "long")


async def test_tokens_are_counted_without_an_answer(anthropic: AsyncAnthropic, provider: SimulatedProvider) -> None:
    counted = await anthropic.messages.count_tokens(model="m", messages=user())
    message = await anthropic.messages.create(model="m", max_tokens=50, messages=user())
    assert counted.input_tokens == message.usage.input_tokens
    assert provider.count == 1
    assert [seen.kind for seen in provider.requests] == ["count", "chat"]


async def test_models_are_listed(anthropic: AsyncAnthropic) -> None:
    assert [model.id async for model in await anthropic.models.list()] == ["simulated"]


async def test_b24_every_call_of_a_turn_needs_its_result(anthropic: AsyncAnthropic) -> None:
    calls = [{"type": "tool_use", "id": f"t{index}", "name": "route", "input": {}} for index in range(3)]
    results = [{"type": "tool_result", "tool_use_id": call["id"], "content": "done"} for call in calls]
    turns: list[Any] = [*user(), {"role": "assistant", "content": calls}]
    answered = await anthropic.messages.create(model="m", max_tokens=50, messages=[*turns, *user(results)])
    assert answered.stop_reason == "end_turn"
    cases: list[tuple[list[Any], str]] = [
        ([*turns, *user(results[:2])], "messages.1: `tool_use` ids were found without `tool_result` blocks.*: t2"),
        ([*turns, *user([{"type": "text", "text": "x"}, *results])], "`tool_use` ids were found without"),
        ([*turns, *user("never mind")], "t0, t1, t2"),
        (turns, "t0, t1, t2"),
        ([*turns, *user([*results, results[0]])], "each tool_use must have a single result"),
        ([*user(results)], "unexpected `tool_use_id` found in `tool_result` blocks: t0"),
    ]
    for messages, said in cases:
        with pytest.raises(sdk.BadRequestError, match=said):
            await anthropic.messages.create(model="m", max_tokens=50, messages=messages)


async def test_b62_blocks_without_text_are_refused(anthropic: AsyncAnthropic) -> None:
    block: dict[str, Any] = {"type": "text", "text": "x"}
    assistant = {"role": "assistant", "content": "x "}
    cases: list[tuple[list[Any], str]] = [
        (user([{**block, "text": ""}]), "text content blocks must be non-empty"),
        (user([{**block, "text": " \n"}]), "text content blocks must contain non-whitespace text"),
        (user(" "), "text content blocks must contain non-whitespace text"),
        (user(""), "all messages must have non-empty content"),
        (user([]), "all messages must have non-empty content"),
        ([*user(), {"role": "assistant", "content": ""}, *user()], "all messages must have non-empty content"),
        ([*user(), assistant], "final assistant content cannot end with trailing whitespace"),
    ]
    for messages, said in cases:
        with pytest.raises(sdk.BadRequestError, match=said):
            await anthropic.messages.create(model="m", max_tokens=50, messages=messages)
    merged = [*user("a"), *user("b"), assistant, *user("c")]
    assert (await anthropic.messages.create(model="m", max_tokens=50, messages=merged)).stop_reason == "end_turn"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"max_tokens": None}, "max_tokens: Field required"),
        ({"max_tokens": "many"}, "max_tokens: Input should be a valid integer"),
        ({"max_tokens": -1}, "greater than or equal to 0"),
        ({"model": None}, "model: Field required"),
        ({"messages": None}, "messages: Field required"),
        ({"messages": []}, "at least one message is required"),
        ({"messages": [{"role": "assistant", "content": "x"}]}, 'first message must use the "user" role'),
        ({"messages": [{"role": "system", "content": "x"}]}, "messages.0.role"),
        ({"messages": user([{"type": "sound"}])}, "Input tag 'sound'"),
        ({"temperature": 0.5}, "temperature: Extra inputs are not permitted"),
        ({"top_p": 0.5}, "top_p: Extra inputs are not permitted"),
        ({"frobnicate": 1}, "frobnicate: Extra inputs are not permitted"),
        ({"system": ""}, None),
        ({"system": [{"type": "text", "text": ""}]}, "system: text content blocks must be non-empty"),
        ({"tool_choice": {"type": "any"}}, "tool_choice may only be specified while providing `tools`"),
        ({"tools": [TOOL], "tool_choice": {"type": "tool", "name": "x"}}, "Tool 'x' not found"),
        ({"tools": [TOOL], "tool_choice": "any"}, "tool_choice.type"),
        ({"tools": [TOOL, TOOL]}, "Tool names must be unique"),
        ({"tools": [{**TOOL, "name": "no spaces"}]}, "should match pattern"),
        ({"tools": [{"name": "x"}]}, "input_schema: Field required"),
        ({"thinking": {"type": "enabled", "budget_tokens": 10}}, "greater than or equal to 1024"),
        ({"thinking": {"type": "enabled", "budget_tokens": 2048}}, "must be greater than `thinking.budget_tokens`"),
        ({"thinking": {"type": "deep"}}, "thinking.type"),
        ({"output_config": {"format": {"type": "json"}}}, "output_config.format.type"),
        ({"output_config": schema_of(type="integer", minimum=1)}, "For 'integer' type, properties minimum are not"),
        ({"output_config": schema_of(type="array", items={"type": "string", "maxLength": 3})}, "maxLength are not"),
        ({"output_config": schema_of(**{"$ref": "#/$defs/x"})}, "The schema cannot be obeyed"),
        ({"output_config": {"format": {"type": "json_schema", "schema": {"type": "object"}}}}, "additionalProperties"),
        (
            {"system": [{"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}}] * 5},
            "maximum of 4 blocks",
        ),
    ],
)
async def test_what_the_real_one_refuses_is_refused(
    change: dict[str, Any], said: str | None, http: httpx2.AsyncClient, provider: SimulatedProvider
) -> None:
    body = {"model": "m", "max_tokens": 100, "messages": user()} | change
    response = await http.post("/v1/messages", json={key: value for key, value in body.items() if value is not None})
    if said is None:
        assert response.status_code == 200
        return
    found = response.json()
    assert response.status_code == 400
    assert (found["type"], found["error"]["type"]) == ("error", "invalid_request_error")
    assert said in found["error"]["message"]
    assert found["request_id"] == response.headers["request-id"]
    assert provider.requests[0].error == found["error"]["message"]


async def test_keys_models_and_windows_are_checked_where_told(time: Any) -> None:
    async with (
        SimulatedProvider(keys=["good"], models=["m"], context_window=10) as provider,
        AsyncAnthropic(api_key="bad", base_url=provider.anthropic_url, max_retries=0) as bad,
        AsyncAnthropic(api_key="good", base_url=provider.anthropic_url, max_retries=0) as good,
    ):
        with pytest.raises(sdk.AuthenticationError):
            await bad.messages.create(model="m", max_tokens=5, messages=user("hi"))
        with pytest.raises(sdk.NotFoundError, match="model: other"):
            await good.messages.create(model="other", max_tokens=5, messages=user("hi"))
        with pytest.raises(sdk.BadRequestError, match="prompt is too long: 19 tokens > 10 maximum"):
            await good.messages.create(model="m", max_tokens=5, messages=user())
        assert (await good.messages.create(model="m", max_tokens=5, messages=user("hi"))).usage.input_tokens == 1
        assert [model.id async for model in await good.models.list()] == ["m"]
        assert "good" not in repr(provider.requests)


async def test_no_key_bad_json_and_wrong_paths(http: httpx2.AsyncClient, provider: SimulatedProvider) -> None:
    assert (await http.post("/v1/messages", content=b"{")).status_code == 400
    assert (await http.post("/v1/messages", json=[1])).status_code == 400
    assert (await http.post("/v1/elsewhere", json={})).status_code == 404
    assert (await http.get("/v1/messages")).status_code == 405
    del http.headers["authorization"]
    found = await http.post("/v1/messages", json={"model": "m", "max_tokens": 5, "messages": user()})
    assert (found.status_code, found.json()["error"]["type"]) == (401, "authentication_error")
    assert [seen.status for seen in provider.requests] == [400, 400, 404, 405, 401]


async def test_answers_of_ones_own(provider: SimulatedProvider, time: Any) -> None:
    def answer(request: Any) -> Any:
        return {
            "text": "plain words",
            "json": {"value": [1, 2]},
            "answer": Answer(text="x", tool_calls=(ToolCall(name="route", input={"a": 1}, id="mine"),)),
            "counts": Answer(output_tokens=500),
        }[request.text]

    async with (
        SimulatedProvider(answer=answer) as other,
        AsyncAnthropic(api_key="k", base_url=other.anthropic_url, max_retries=0) as client,
    ):

        async def ask(text: str) -> Any:
            return await client.messages.create(model="m", max_tokens=1000, messages=user(text))

        assert (await ask("text")).content[0].text == "plain words"
        assert json.loads((await ask("json")).content[0].text) == {"value": [1, 2]}
        called = await ask("answer")
        assert [block.type for block in called.content] == ["text", "tool_use"]
        assert (called.content[1].id, called.stop_reason) == ("mine", "tool_use")
        counted = await ask("counts")
        assert counted.usage.output_tokens == 500
        assert counted.content[0].text == "counts"


async def test_the_same_seed_gives_the_same_answers_and_ids() -> None:
    def ids(seed: int) -> Any:
        async def run() -> list[str]:
            async with (
                SimulatedProvider(seed=seed) as provider,
                AsyncAnthropic(api_key="k", base_url=provider.anthropic_url, max_retries=0) as client,
            ):
                schema: Any = {"type": "json_schema", "schema": {"type": "integer"}}
                found = []
                for text in ("one", "two", "three"):
                    message = await client.messages.create(
                        model="m", max_tokens=50, messages=user(text), output_config={"format": schema}
                    )
                    found.append(f"{message.id} {message.content[0].text}")  # type: ignore[union-attr]
                return found

        return run()

    assert await ids(7) == await ids(7)
    assert await ids(7) != await ids(8)


async def test_an_answer_function_may_wait_and_may_fail(caplog: pytest.LogCaptureFixture) -> None:
    gate = asyncio.Event()

    async def answer(request: Any) -> str:
        if request.text == "fail":
            raise KeyError("no such answer")
        await gate.wait()
        return f"answered {request.text}"

    async with (
        SimulatedProvider(answer=answer) as provider,
        AsyncAnthropic(api_key="k", base_url=provider.anthropic_url, max_retries=0) as client,
    ):

        async def ask(text: str) -> Any:
            return await client.messages.create(model="m", max_tokens=100, messages=user(text))

        with pytest.raises(sdk.InternalServerError, match="no such answer"):
            await ask("fail")
        assert "the answer function failed on request 0" in caplog.text
        waiting, leaving = asyncio.ensure_future(ask("one")), asyncio.ensure_future(ask("two"))
        while provider.count < 3:  # noqa: ASYNC110
            await asyncio.sleep(0)
        leaving.cancel()
        gate.set()
        assert (await waiting).content[0].text == "answered one"
        with pytest.raises(asyncio.CancelledError):
            await leaving
