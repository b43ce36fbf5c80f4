"""Every step, on both wires, as the SDKs and raw HTTP see it."""

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
WIRES = pytest.mark.parametrize("wire", ["anthropic", "openai"])


async def post(http: httpx2.AsyncClient, wire: str, *, stream: bool = False) -> httpx2.Response:
    return await http.post(PATHS[wire], json=BODIES[wire] | ({"stream": True} if stream else {}))


def events_of(text: str) -> list[Any]:
    lines = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: ")]
    return [line if line == "[DONE]" else json.loads(line) for line in lines]


def text_of(events: list[Any]) -> str:
    parts = []
    for event in events:
        if event == "[DONE]":
            continue
        if event.get("type") == "content_block_delta":
            parts.append(event["delta"].get("text", ""))
        parts += [choice["delta"].get("content") or "" for choice in event.get("choices", ())]
    return "".join(parts)


async def read_into(got: bytearray, response: httpx2.Response) -> None:
    async for data in response.aiter_bytes():
        got += data


def is_whole(events: list[Any]) -> bool:
    return any(event == "[DONE]" or event.get("type") == "message_stop" for event in events)


@WIRES
async def test_b48_rate_limited(wire: str, http: httpx2.AsyncClient, provider: SimulatedProvider) -> None:
    provider.script(Step.rate_limited(133107), Step.rate_limited(None), Step.rate_limited(0.5, headers={"x-y": "z"}))
    first, second, third = [await post(http, wire) for _ in range(3)]
    assert [each.status_code for each in (first, second, third)] == [429] * 3
    assert first.headers["retry-after"] == "133107"
    assert "retry-after" not in second.headers
    assert (third.headers["retry-after"], third.headers["x-y"]) == ("0.5", "z")
    kind = first.json()["error"]["type"] if wire == "anthropic" else first.json()["error"]["code"]
    assert kind in ("rate_limit_error", "rate_limit_exceeded")
    assert provider.requests[0].step == "rate_limited"


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


@WIRES
async def test_any_status(wire: str, http: httpx2.AsyncClient, provider: SimulatedProvider) -> None:
    provider.script(
        Step.status(418),
        Step.status(402, {"error": {"message": "pay"}}, {"x-should-retry": "false"}),
        Step.status(502, "<h1>Bad gateway</h1>", content_type="text/html"),
        Step.status(503, b"\x00\x01"),
        Step.status(403, message="Not for you."),
    )
    own, json_body, page, data, said = [await post(http, wire) for _ in range(5)]
    assert (own.status_code, own.headers["content-type"]) == (418, "application/json")
    assert own.json()["error"]["type"] == "invalid_request_error"
    assert (json_body.status_code, json_body.json()) == (402, {"error": {"message": "pay"}})
    assert json_body.headers["x-should-retry"] == "false"
    assert (page.status_code, page.headers["content-type"], page.text) == (502, "text/html", "<h1>Bad gateway</h1>")
    assert data.content == b"\x00\x01"
    assert said.json()["error"]["message"] == "Not for you."


@WIRES
async def test_b63_bodies_that_are_no_answer(wire: str, http: httpx2.AsyncClient, provider: SimulatedProvider) -> None:
    gzip_broken = Step.body(b"not gzip", "application/json", headers={"content-encoding": "gzip"})
    provider.script(Step.html(), Step.body([]), Step.body(None), Step.body('{"a": ', "application/json"))
    provider.script(Step.status(204), gzip_broken)
    page, empty, null, torn, nothing = [await post(http, wire) for _ in range(5)]
    assert (page.status_code, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert "<h1>Sign in</h1>" in page.text
    assert (empty.json(), null.json(), torn.text) == ([], None, '{"a": ')
    assert (nothing.status_code, nothing.content) == (204, b"")
    with pytest.raises(httpx2.DecodingError):
        await post(http, wire)


@WIRES
async def test_b01_an_error_inside_a_stream(wire: str, http: httpx2.AsyncClient, provider: SimulatedProvider) -> None:
    provider.script(Step.stream_error(after_pieces=None), Step.stream_error("api_error", "Boom", after_pieces=2))
    alone = events_of((await post(http, wire, stream=True)).text)
    assert [event["error"]["type"] for event in alone] == ["overloaded_error"]
    later = events_of((await post(http, wire, stream=True)).text)
    assert (later[-1]["error"]["type"], later[-1]["error"]["message"]) == ("api_error", "Boom")
    assert text_of(later[:-1]) == TEXT[:19] + " Keywords: pa"
    assert not is_whole(later)
    assert provider.requests[1].pieces == 2


@WIRES
async def test_a_stream_error_of_an_unstreamed_request_is_a_status(
    wire: str, http: httpx2.AsyncClient, provider: SimulatedProvider
) -> None:
    provider.script(Step.stream_error("overloaded_error"), Step.stream_error("rate_limit_error"))
    assert (await post(http, wire)).status_code == {"anthropic": 529, "openai": 503}[wire]
    assert (await post(http, wire)).status_code == 429


@WIRES
async def test_b02_a_stream_that_just_ends(wire: str, http: httpx2.AsyncClient, provider: SimulatedProvider) -> None:
    provider.script(Step.cut(None), Step.cut(0), Step.cut(1), Step.cut(10_000))
    none, empty, one, all_but_the_end = [events_of((await post(http, wire, stream=True)).text) for _ in range(4)]
    assert none == []
    assert empty
    assert text_of(empty) == ""
    assert text_of(one) == TEXT[:16]
    assert text_of(all_but_the_end).startswith(TEXT[:19])
    assert not any(is_whole(events) for events in (none, empty, one, all_but_the_end))
    assert not any("finish_reason" in str(event) and "'stop'" in str(event) for event in all_but_the_end)
    assert [seen.cut for seen in provider.requests] == ["clean"] * 4


@WIRES
@pytest.mark.parametrize("how", ["close", "reset"])
async def test_b13_a_connection_that_breaks_in_mid_stream(
    wire: str, how: Any, http: httpx2.AsyncClient, provider: SimulatedProvider
) -> None:
    error = httpx2.ReadError if how == "reset" else httpx2.RemoteProtocolError
    for after_pieces in (0, 2):
        provider.script(Step.cut(after_pieces, how))
        got = bytearray()
        async with http.stream("POST", PATHS[wire], json=BODIES[wire] | {"stream": True}) as response:
            with pytest.raises(error):
                await read_into(got, response)
        assert text_of(events_of(got.decode())) == (TEXT[:19] + " Keywords: pa" if after_pieces else "")
    assert [(seen.cut, seen.status) for seen in provider.requests] == [(how, 200)] * 2


@WIRES
async def test_b21_a_connection_that_breaks_before_any_answer(
    wire: str, http: httpx2.AsyncClient, provider: SimulatedProvider
) -> None:
    for stream in (False, True):
        provider.script(Step.cut(None, "reset"), Step.cut(None, "close"))
        with pytest.raises(httpx2.ReadError):
            await post(http, wire, stream=stream)
        with pytest.raises(httpx2.RemoteProtocolError):
            await post(http, wire, stream=stream)
    assert [(seen.cut, seen.status) for seen in provider.requests] == [("reset", None), ("close", None)] * 2
    assert all(seen.input_tokens > 0 for seen in provider.requests)  # it was read, and may be billed


@WIRES
async def test_an_unstreamed_answer_is_cut_in_the_middle(
    wire: str, http: httpx2.AsyncClient, provider: SimulatedProvider
) -> None:
    provider.script(Step.cut(0), Step.cut(None), Step.cut(0, "close"), Step.cut(0, "reset"))
    half = await post(http, wire)
    assert half.status_code == 200
    with pytest.raises(json.JSONDecodeError):
        half.json()
    assert (await post(http, wire)).content == b""
    for error in (httpx2.RemoteProtocolError, httpx2.ReadError):
        with pytest.raises(error):
            await post(http, wire)


@WIRES
async def test_slow_waits_before_the_answer_and_between_pieces(
    wire: str, http: httpx2.AsyncClient, provider: SimulatedProvider, time: Any
) -> None:
    provider.script(Step.slow(3, reply="It came."), Step.slow(2, between_pieces_s=0.5))
    assert "It came." in (await post(http, wire)).text
    assert is_whole(events_of((await post(http, wire, stream=True)).text))
    assert time.slept[:2] == [3, 2]
    assert set(time.slept[2:]) == {0.5}
    assert len(time.slept[2:]) == provider.requests[1].pieces
    assert provider.requests[0].finished_at_s == provider.requests[0].at_s + 3


@WIRES
async def test_a_stall_lasts_until_the_client_leaves(
    wire: str, http: httpx2.AsyncClient, provider: SimulatedProvider
) -> None:
    provider.script(Step.stall(), Step.stall(), Step.stall(1))
    for stream in (False, True):
        with pytest.raises(httpx2.ReadTimeout):
            await http.post(PATHS[wire], json=BODIES[wire] | {"stream": stream}, timeout=0.02)
    async with http.stream("POST", PATHS[wire], json=BODIES[wire] | {"stream": True}) as response:
        got = b""
        async for data in response.aiter_bytes():
            got += data
            if b"The parcel is la" in got:
                break
    await provider.idle()
    assert [(seen.cut, seen.status, seen.pieces) for seen in provider.requests] == [
        ("client", None, 0),
        ("client", None, 0),
        ("client", 200, 1),
    ]


@WIRES
@pytest.mark.parametrize("keepalive", ["ping", "comment", "empty"])
async def test_b35_a_stall_may_keep_the_connection_alive(
    wire: str, keepalive: Any, http: httpx2.AsyncClient, provider: SimulatedProvider, time: Any
) -> None:
    provider.script(Step.stall(1, keepalive_s=0.05, keepalive=keepalive))
    expected = {
        ("anthropic", "ping"): b"event: ping",
        ("anthropic", "empty"): b'"text_delta","text":""',
        ("openai", "empty"): b'"delta":{"content":""}',
    }.get((wire, keepalive), b": keepalive\n\n")
    got = b""
    async with http.stream("POST", PATHS[wire], json=BODIES[wire] | {"stream": True}) as response:
        async for data in response.aiter_bytes():
            got += data
            if got.count(expected) > 5:
                break
    await provider.idle()
    assert set(time.slept) == {0.05}
    assert provider.requests[0].cut == "client"


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


@WIRES
async def test_b12_a_cut_off_answer(wire: str, http: httpx2.AsyncClient, provider: SimulatedProvider) -> None:
    provider.script(Step.truncated('{"a": [1, 2'), Step.truncated())
    given, halved = (await post(http, wire)).json(), (await post(http, wire)).json()
    if wire == "anthropic":
        assert [each["stop_reason"] for each in (given, halved)] == ["max_tokens"] * 2
        assert given["content"][0]["text"] == '{"a": [1, 2'
        assert halved["content"][0]["text"] in f"{TEXT[:19]} Keywords: parcel"
        assert given["usage"]["output_tokens"] == 200
    else:
        assert [each["choices"][0]["finish_reason"] for each in (given, halved)] == ["length"] * 2
        assert given["choices"][0]["message"]["content"] == '{"a": [1, 2'


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


@WIRES
async def test_a_json_answer_is_given_where_the_request_wants_it(
    wire: str, http: httpx2.AsyncClient, provider: SimulatedProvider
) -> None:
    provider.always(Step.answer(json={"a": 1}))
    plain = (await post(http, wire)).json()
    function = {"name": "f", "parameters": {"type": "object"}}
    forced: dict[str, Any] = {
        "anthropic": {
            "tools": [{"name": "f", "input_schema": {"type": "object"}}],
            "tool_choice": {"type": "tool", "name": "f"},
        },
        "openai": {"tools": [{"type": "function", "function": function}], "tool_choice": "required"},
    }
    called = (await http.post(PATHS[wire], json=BODIES[wire] | forced[wire])).json()
    if wire == "anthropic":
        assert plain["content"] == [{"type": "text", "text": '{"a": 1}'}]
        assert called["content"][0]["input"] == {"a": 1}
    else:
        assert plain["choices"][0]["message"]["content"] == '{"a": 1}'
        assert called["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"] == '{"a": 1}'


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


@WIRES
async def test_a_stream_may_lack_its_last_blank_line(
    wire: str, http: httpx2.AsyncClient, provider: SimulatedProvider
) -> None:
    provider.script(Step.answer("x", framing=Framing(final_blank_line=False)))
    text = (await post(http, wire, stream=True)).text
    assert text.endswith(("}\n", "[DONE]\n"))
    assert not text.endswith("\n\n")


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


@WIRES
async def test_exact_events_may_break_off(wire: str, http: httpx2.AsyncClient, provider: SimulatedProvider) -> None:
    errors: dict[Any, Any] = {
        "close": httpx2.RemoteProtocolError,
        "reset": httpx2.ReadError,
        "stall": httpx2.ReadTimeout,
    }
    for ending, error in errors.items():
        provider.script(Step.events({"type": "ping"}, "raw", ending=ending))
        got = bytearray()
        body = BODIES[wire] | {"stream": True}
        timeout = 0.05 if ending == "stall" else 5
        async with http.stream("POST", PATHS[wire], json=body, timeout=timeout) as response:
            with pytest.raises(error):
                await read_into(got, response)
        assert got == b'event: ping\ndata: {"type": "ping"}\n\ndata: raw\n\n'
    await provider.idle()
    assert [seen.cut for seen in provider.requests] == ["close", "reset", "client"]


async def test_an_answer_and_what_is_added_to_it(http: httpx2.AsyncClient, provider: SimulatedProvider) -> None:
    provider.script(Step.answer(Answer(text="said", output_tokens=9), stop_reason="pause_turn"), Step.answer(json=None))
    found = (await post(http, "anthropic")).json()
    assert found["content"][0]["text"] == "said"
    assert (found["stop_reason"], found["usage"]["output_tokens"]) == ("pause_turn", 9)
    assert (await post(http, "anthropic")).json()["content"][0]["text"] == "null"
