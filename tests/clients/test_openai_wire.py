"""What the chat completions wire does, as OpenAI and the servers that imitate it send it."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from interlock.admission.outcome import Dimension, OutcomeKind
from interlock.catalog.usage import Usage
from interlock.clients.response import StopReason
from interlock.clients.simulator import PublishedLimits, SimulatedProvider, Step
from interlock.clients.stream import TAIL_S
from interlock.errors import (
    InvalidRequestError,
    ProviderRefusalError,
    RateLimitedError,
    StreamInterruptedError,
    TransientUpstreamError,
    UpstreamError,
)

from .conftest import WIRES, asked

DONE = b"data: [DONE]\n\n"


def chunk(content: Any = None, finish: Any = None, *, usage: Any = ..., **more: Any) -> str:
    delta = {} if content is None else {"content": content}
    event = {"id": "c", "object": "chat.completion.chunk", "model": "served",
             "choices": [{"index": 0, "delta": delta, "finish_reason": finish}], **more}  # fmt: skip
    return json.dumps(event if usage is ... else {**event, "usage": usage})


def completion(**message: Any) -> dict[str, Any]:
    finish = message.pop("finish_reason", "stop")
    usage = message.pop("usage", {"prompt_tokens": 9, "completion_tokens": 4})
    return {
        "id": "c",
        "model": "served",
        "choices": [{"index": 0, "message": message, "finish_reason": finish}],
        "usage": usage,
    }


USAGE = {"prompt_tokens": 48, "completion_tokens": 16}


@pytest.mark.parametrize(
    ("events", "usage"),
    [
        (
            [chunk("Hi."), chunk(None, "stop"), json.dumps({"choices": [], "usage": USAGE}), DONE],
            Usage(input_tokens=48, output_tokens=16),
        ),
        (
            [
                *(chunk(f"{n} ", usage={"prompt_tokens": 48, "completion_tokens": n}) for n in range(1, 17)),
                chunk(None, "stop", usage=None),
                DONE,
            ],
            Usage(input_tokens=48, output_tokens=16),
        ),
        (
            [chunk("Hi."), chunk(None, "stop"), json.dumps({"usage": USAGE}), DONE],
            Usage(input_tokens=48, output_tokens=16),
        ),
        (
            [chunk("Hi."), chunk(None, "stop"), json.dumps({"choices": None, "usage": USAGE})],
            Usage(input_tokens=48, output_tokens=16),
        ),
        (
            [chunk("Hi.", "stop", usage={"prompt_tokens": 0, "completion_tokens": 0}), DONE],
            Usage(input_tokens=0, output_tokens=0),
        ),
    ],
    ids=["empty-choices", "every-chunk", "no-choices", "null-choices", "zero"],
)
async def test_b16_usage_chunk_shapes(bench, openai, events, usage):
    client, seat = bench.client(openai)
    bench.script(Step.events(*events))
    response = await client.stream_response("Hello.").finish()
    assert response.usage == usage
    assert seat.last.usage == usage
    assert bench.sent["stream_options"] == {"include_usage": True}


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
async def test_b16_no_usage_at_all_is_estimated_and_says_so(bench, openai, streamed):
    client, seat = bench.client(openai, input_tokens=30)
    if streamed:
        bench.script(Step.events(chunk("A few words here."), chunk(None, "stop"), DONE))
        response = await client.stream_response("Hello.").finish()
    else:
        bench.script(Step.body(completion(role="assistant", content="A few words here.", usage=None)))
        response = await client.single_response("Hello.")
    assert response.usage.estimated
    assert response.usage.input_tokens == 30
    assert 2 <= response.usage.output_tokens <= 12
    assert seat.last.cost > 0
    assert seat.permits[0].outcome.usage == response.usage


@pytest.mark.parametrize("tail", [[DONE], [], [b": bye\n\n"]], ids=["done", "nothing", "comment"])
async def test_b02_a_finish_reason_is_the_end_and_done_is_not_needed(bench, openai, tail):
    client, seat = bench.client(openai)
    bench.script(Step.events(chunk("Hi."), chunk(None, "stop"), *tail))
    assert (await client.stream_response("Hello.").finish()).text == "Hi."
    assert seat.kinds == [OutcomeKind.COMPLETED]


async def test_a_server_that_keeps_the_connection_open_after_the_end_holds_nobody_up(bench, openai, manual, until):
    client, seat = bench.client(openai, clock=manual)
    bench.script(Step.events(chunk("Hi."), chunk(None, "stop"), ending="stall"))
    task = asyncio.create_task(client.stream_response("Hello.").finish())
    await until(lambda: manual.next_instant == manual.now() + TAIL_S)
    await manual.advance(TAIL_S)
    await until(task.done)
    assert (await task).text == "Hi."
    assert seat.kinds == [OutcomeKind.COMPLETED]


async def test_b02_done_without_a_finish_reason_is_no_end(bench, openai):
    client, seat = bench.client(openai)
    bench.script(Step.events(chunk("Hi."), DONE))
    with pytest.raises(StreamInterruptedError):
        await client.stream_response("Hello.", mode="live").finish()
    bench.script(Step.events(DONE))
    with pytest.raises(TransientUpstreamError):
        await client.stream_response("Hello.").finish()
    assert seat.kinds == [OutcomeKind.UNKNOWN] * 2


@pytest.mark.parametrize(("finish", "found"), [
    ("stop", StopReason.END_TURN), ("tool_calls", StopReason.TOOL_USE), ("function_call", StopReason.TOOL_USE),
    ("eos", StopReason.END_TURN), (7, StopReason.END_TURN),
])  # fmt: skip
async def test_each_finish_reason(bench, openai, finish, found):
    client, _ = bench.client(openai)
    bench.script(Step.body(completion(content="Hi.", finish_reason=finish)))
    assert (await client.single_response("Hello.")).stop_reason is found


# B15: each way of refusing.


@pytest.mark.parametrize("body", [
    completion(role="assistant", content=None, finish_reason="content_filter"),
    completion(role="assistant", content=None, refusal="I will not."),
], ids=["content-filter", "refusal"])  # fmt: skip
async def test_b15_refusals_of_a_whole_answer(bench, openai, body):
    client, seat = bench.client(openai)
    bench.script(Step.body(body))
    with pytest.raises(ProviderRefusalError) as caught:
        await client.single_response("Hello.")
    assert caught.value.usage == Usage(input_tokens=9, output_tokens=4)
    assert seat.kinds == [OutcomeKind.COMPLETED]


@pytest.mark.parametrize(
    "events",
    [
        [chunk("Well"), chunk(None, "content_filter"), DONE],
        [json.dumps({"choices": [{"index": 0, "delta": {"refusal": part}}]}) for part in ("I will", " not.")]
        + [chunk(None, "stop"), DONE],
    ],
    ids=["content-filter", "refusal"],
)
async def test_b15_refusals_in_a_stream(bench, openai, events):
    client, _ = bench.client(openai)
    bench.script(Step.events(*events))
    with pytest.raises(ProviderRefusalError) as caught:
        await client.stream_response("Hello.").finish()
    assert caught.value.explanation in (None, "I will not.")


async def test_b15_an_azure_style_400_is_a_refusal(bench, openai):
    client, seat = bench.client(openai)
    body = {
        "error": {
            "message": "The response was filtered",
            "type": None,
            "param": "prompt",
            "code": "content_filter",
            "status": 400,
            "innererror": {"code": "ResponsibleAIPolicyViolation"},
        }
    }
    bench.script(Step.status(400, body))
    with pytest.raises(ProviderRefusalError):
        await client.single_response("Hello.")
    assert seat.kinds == [OutcomeKind.REJECTED]


# B41: errors inside a 200.

INBAND = [
    ({"error": {"code": 502, "message": "Bad gateway"}, "choices": []}, TransientUpstreamError),
    (
        {"error": {"code": 502, "message": "x"}, "choices": [{"index": 0, "delta": {}, "finish_reason": "error"}]},
        TransientUpstreamError,
    ),
    ({"error": {"code": 400, "message": "x"}}, InvalidRequestError),
    ({"error": {"code": 429, "message": "x"}}, RateLimitedError),
    ({"error": {"code": "503", "message": "x"}}, TransientUpstreamError),
    ({"error": {"type": "server_error", "message": "x"}}, TransientUpstreamError),
    ({"error": "broken"}, TransientUpstreamError),
    ({"choices": [{"index": 0, "delta": {}, "finish_reason": "error"}]}, TransientUpstreamError),
]


@pytest.mark.parametrize(("event", "class_"), INBAND, ids=range(len(INBAND)))
async def test_b41_openai_compat_inband_error(bench, openai, event, class_):
    client, seat = bench.client(openai)
    bench.script(Step.events(json.dumps(event), DONE))
    with pytest.raises(UpstreamError) as caught:
        await client.stream_response("Hello.").finish()
    assert type(caught.value) is class_
    assert seat.last.outcome == class_.code


@pytest.mark.parametrize(("body", "class_"), INBAND[:7], ids=range(7))
async def test_b41_an_error_as_the_body_of_a_200(bench, openai, body, class_):
    client, _ = bench.client(openai)
    for ask in (client.single_response, lambda text: client.stream_response(text).finish()):
        bench.script(Step.body(body))
        with pytest.raises(UpstreamError) as caught:
            await ask("Hello.")
        assert type(caught.value) is class_


async def test_b41_an_inband_error_after_text(bench, openai):
    client, seat = bench.client(openai)
    bench.script(Step.events(chunk("Some text"), json.dumps({"error": {"code": 429, "message": "slow down"}})))
    with pytest.raises(StreamInterruptedError) as caught:
        await client.stream_response("Hello.").finish()
    assert caught.value.partial == "Some text"
    assert caught.value.status == 429
    assert seat.kinds == [OutcomeKind.RATE_LIMITED]


async def test_b43_a_google_error_in_a_list(bench, openai):
    client, seat = bench.client(openai)
    details = [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "34.4s"}]
    bench.script(
        Step.status(429, [{"error": {"code": 429, "message": "x", "status": "RESOURCE_EXHAUSTED", "details": details}}])
    )
    with pytest.raises(RateLimitedError) as caught:
        await client.single_response("Hello.")
    assert caught.value.retry_after_s == 34.4
    assert seat.permits[0].outcome.retry_after_s == 34.4


# Leniency.


COUNTED = {"input_tokens": 9, "output_tokens": 4}
MESSAGE = {
    "type": "message", "model": "served", "content": [{"type": "text", "text": "All at once."}],
    "stop_reason": "end_turn", "usage": COUNTED,
}  # fmt: skip
WHOLE = {
    "openai": completion(role="assistant", content="All at once."),
    "anthropic": MESSAGE,
    "invoke": MESSAGE,
    "mantle": MESSAGE,
    "converse": {
        "output": {"message": {"role": "assistant", "content": [{"text": "All at once."}]}}, "stopReason": "end_turn",
        "usage": {"inputTokens": 9, "outputTokens": 4},
    },
    "responses": {
        "object": "response", "model": "served", "status": "completed", "usage": COUNTED,
        "output": [{"type": "message", "content": [{"type": "output_text", "text": "All at once."}]}],
    },
    "gemini": {
        "candidates": [{"content": {"parts": [{"text": "All at once."}]}, "finishReason": "STOP"}],
        "usageMetadata": {"promptTokenCount": 9, "candidatesTokenCount": 4},
    },
}  # fmt: skip


async def test_a_whole_answer_where_a_stream_was_asked_for(bench, wire):
    client, _ = bench.client(wire)
    bench.script(Step.body(WHOLE[wire.speaks]))
    async with client.stream_response("Hello.") as pieces:
        text = "".join([piece.text async for piece in pieces])
    assert text == pieces.response.text == "All at once."
    assert pieces.response.usage == Usage(input_tokens=9, output_tokens=4)


@pytest.mark.parametrize("message", [
    {"content": [{"type": "text", "text": "Two "}, {"type": "text", "text": "parts."}]},
    {"content": "Two parts.", "reasoning_content": "Hm."}, {"content": "Two parts.", "reasoning": "Hm."},
    {"content": "Two parts.", "tool_calls": None}, {"content": "Two parts.", "role": None, "extra": {"a": 1}},
], ids=range(5))  # fmt: skip
async def test_lenient_messages(bench, openai, message):
    client, _ = bench.client(openai)
    bench.script(Step.body(completion(**message)))
    response = await client.single_response("Hello.")
    assert response.text == "Two parts."
    assert response.thinking in ("", "Hm.")


async def test_a_stop_after_tool_calls_is_a_tool_use(bench, openai):
    client, _ = bench.client(openai)
    call = {"id": "t", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    bench.script(Step.body(completion(content=None, tool_calls=[call], finish_reason="stop")))
    assert (await client.single_response("Hello.")).stop_reason is StopReason.TOOL_USE


async def test_the_old_function_call(bench, openai):
    client, _ = bench.client(openai)
    bench.script(
        Step.body(
            completion(
                content=None, function_call={"name": "look", "arguments": '{"a": 1}'}, finish_reason="function_call"
            )
        )
    )
    (call,) = (await client.single_response("Hello.")).tool_calls
    assert (call.name, dict(call.input)) == ("look", {"a": 1})


async def test_only_the_first_choice_counts(bench, openai):
    client, _ = bench.client(openai)
    other = json.dumps({"choices": [{"index": 1, "delta": {"content": "Other."}, "finish_reason": "stop"}]})
    bench.script(Step.events(chunk("One."), other, chunk(None, "stop"), DONE))
    assert (await client.stream_response("Hello.").finish()).text == "One."


async def test_the_headers_limits_reach_the_permit(bench, openai):
    async with SimulatedProvider(limits=PublishedLimits(rpm=100, tpm=50_000)) as provider:
        client, seat = bench.client(openai, base_url=provider.openai_url)
        await client.single_response("Hello.")
        await bench._clients[-1].aclose()
    reported = seat.permits[0].outcome.reported
    assert (reported[Dimension.REQUESTS].limit, reported[Dimension.TOKENS].limit) == (100, 50_000)


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
async def test_a_refusal_tells_the_limits_too(bench, openai, streamed):
    async with SimulatedProvider(limits=PublishedLimits(rpm=1, tpm=50_000)) as provider:
        client, seat = bench.client(openai, base_url=provider.openai_url)
        await client.single_response("Hello.")
        with pytest.raises(RateLimitedError):
            await asked(client, "Hello.", streamed=streamed)
        await bench._clients[-1].aclose()
    reported = seat.permits[-1].outcome.reported
    assert (reported[Dimension.REQUESTS].limit, reported[Dimension.TOKENS].limit) == (1, 50_000)
    assert reported[Dimension.REQUESTS].remaining == 0


async def test_a_server_that_takes_the_schema_beside_json_object(bench):
    wire = next(wire for wire in WIRES if wire.key == "openai-compatible")

    def written(options: dict[str, Any], response_model: Any) -> Any:
        _, seat = bench.client(wire, settings={"options": options})
        call = bench._clients[-1].prepare(seat.binding, "How many?", None, response_model, stream=False)
        return json.loads(call.body).get("response_format")

    usual = written({}, int)
    assert usual["type"] == "json_schema"
    beside = written({"response_format": "json_object"}, int)
    assert beside == {"type": "json_object", "schema": usual["json_schema"]["schema"]}
    assert written({"response_format": "json_object"}, None) is None


async def test_an_index_that_is_text_is_an_index(bench, openai):
    client, _ = bench.client(openai)
    first, last = (json.dumps({**event, "choices": [{**event["choices"][0], "index": "0"}]})
                   for event in map(json.loads, (chunk("Hi."), chunk(None, "stop"))))  # fmt: skip
    bench.script(Step.events(first, last, DONE))
    assert (await client.stream_response("Hello.").finish()).text == "Hi."


async def test_b28_a_byte_order_mark_costs_no_event(bench, openai):
    client, _ = bench.client(openai)
    bench.script(Step.events(b"\xef\xbb\xbfdata: " + chunk("Hi.", "stop").encode() + b"\n\n", DONE))
    assert (await client.stream_response("Hello.").finish()).text == "Hi."
