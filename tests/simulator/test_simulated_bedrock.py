"""Bedrock's wires, driven with boto3 (in threads) and Anthropic's own Bedrock clients."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from typing import Any

import anthropic as sdk
import boto3
import pytest
from anthropic import AsyncAnthropicBedrock, AsyncAnthropicBedrockMantle
from botocore.config import Config
from botocore.exceptions import ClientError, EventStreamError

from interlock.clients.simulator import Answer, PublishedLimits, SimulatedProvider, Step, ToolCall

TEXT = "My parcel was charged twice. Billing must refund one payment for the parcel."
ASKED: list[Any] = [{"role": "user", "content": [{"text": TEXT}]}]
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"team": {"enum": ["sales", "billing"]}},
    "required": ["team"],
    "additionalProperties": False,
}
TOOLS: dict[str, Any] = {"tools": [{"toolSpec": {"name": "route", "inputSchema": {"json": SCHEMA}}}]}
THINKS: dict[str, Any] = {"thinking": {"type": "enabled", "budget_tokens": 1024}}
MESSAGES: Any = {"model": "m", "max_tokens": 200, "messages": [{"role": "user", "content": TEXT}]}


def client_of(provider: SimulatedProvider, service: str = "bedrock-runtime") -> Any:
    return boto3.client(
        service,
        endpoint_url=provider.bedrock_url,
        region_name="eu-west-1",
        aws_access_key_id="AKIDEXAMPLE",
        aws_secret_access_key="secret",
        config=Config(retries={"total_max_attempts": 1, "mode": "standard"}),
    )


@pytest.fixture
def bedrock(provider: SimulatedProvider) -> Iterator[Any]:
    client = client_of(provider)
    yield client
    client.close()


@pytest.fixture
async def claude(provider: SimulatedProvider) -> AsyncIterator[AsyncAnthropicBedrock]:
    async with AsyncAnthropicBedrock(
        aws_access_key="AKIDEXAMPLE",
        aws_secret_key="secret",
        aws_region="eu-west-1",
        base_url=provider.bedrock_url,
        max_retries=0,
    ) as client:
        yield client


async def converse(client: Any, **more: Any) -> Any:
    return await asyncio.to_thread(client.converse, **{"modelId": "m", "messages": ASKED, **more})


async def stream(client: Any, **more: Any) -> list[Any]:
    def read() -> list[Any]:
        with closing(client.converse_stream(**{"modelId": "m", "messages": ASKED, **more})["stream"]) as events:
            return list(events)

    return await asyncio.to_thread(read)


def joined(events: list[Any], *path: str) -> str:
    found = []
    for event in events:
        value: Any = event.get("contentBlockDelta", {}).get("delta", {})
        for step in path:
            value = value.get(step, {}) if isinstance(value, dict) else {}
        found.append(value if isinstance(value, str) else "")
    return "".join(found)


async def test_a_stream_says_what_a_whole_answer_says(bedrock: Any, provider: SimulatedProvider) -> None:
    arn = "arn:aws:bedrock:eu-west-1:123456789012:application-inference-profile/abc123"
    limit = {"maxTokens": 3000}
    whole = await converse(bedrock, modelId=arn, inferenceConfig=limit, additionalModelRequestFields=THINKS)
    events = await stream(bedrock, modelId=arn, inferenceConfig=limit, additionalModelRequestFields=THINKS)
    reasoning, text = whole["output"]["message"]["content"]
    assert joined(events, "text") == text["text"]
    assert joined(events, "reasoningContent", "text") == reasoning["reasoningContent"]["reasoningText"]["text"]
    assert (
        joined(events, "reasoningContent", "signature") == reasoning["reasoningContent"]["reasoningText"]["signature"]
    )
    assert events[-2] == {"messageStop": {"stopReason": "end_turn"}}
    assert events[-1]["metadata"]["usage"] == whole["usage"]
    assert whole["usage"]["totalTokens"] == whole["usage"]["inputTokens"] + whole["usage"]["outputTokens"]
    seen = provider.requests[0]
    assert (seen.wire, seen.model, seen.signed_for) == ("bedrock-converse", arn, "eu-west-1/bedrock")
    assert seen.headers["authorization"] == "[redacted]"
    assert "AKIDEXAMPLE" not in repr(seen)


async def test_thinking_goes_back_byte_for_byte(bedrock: Any) -> None:
    whole = await converse(bedrock, inferenceConfig={"maxTokens": 3000}, additionalModelRequestFields=THINKS)
    turns = [*ASKED, whole["output"]["message"], {"role": "user", "content": [{"text": "Go on."}]}]
    assert (await converse(bedrock, messages=turns))["stopReason"] == "end_turn"
    turns[1]["content"][0]["reasoningContent"]["reasoningText"]["signature"] += "x"
    with pytest.raises(ClientError, match=r"The model returned.*messages\.1\.content\.0: Invalid `signature`"):
        await converse(bedrock, messages=turns)
    del turns[1]["content"][0]["reasoningContent"]["reasoningText"]["signature"]
    with pytest.raises(ClientError, match="signature: Field required"):
        await converse(bedrock, messages=turns)


async def test_tools_their_results_and_a_schema(bedrock: Any, provider: SimulatedProvider) -> None:
    forced = TOOLS | {"toolChoice": {"tool": {"name": "route"}}}
    whole = await converse(bedrock, toolConfig=forced)
    call = whole["output"]["message"]["content"][0]["toolUse"]
    assert (whole["stopReason"], call["name"], call["input"]) == ("tool_use", "route", {"team": "billing"})
    events = await stream(bedrock, toolConfig=forced)
    assert json.loads(joined(events, "toolUse", "input")) == {"team": "billing"}
    results = [{"toolResult": {"toolUseId": call["toolUseId"], "content": [{"text": "done"}, {"json": {"a": 1}}]}}]
    turns = [*ASKED, whole["output"]["message"], {"role": "user", "content": results}]
    assert (await converse(bedrock, messages=turns, toolConfig=TOOLS))["stopReason"] == "end_turn"
    assert provider.requests[-1].text == 'done\n{"a": 1}'
    form = {"type": "json_schema", "structure": {"jsonSchema": {"schema": json.dumps(SCHEMA), "name": "n"}}}
    said = await converse(bedrock, outputConfig={"textFormat": form})
    assert json.loads(said["output"]["message"]["content"][0]["text"]) == {"team": "billing"}


async def test_b44_a_call_without_arguments_has_no_delta(bedrock: Any, provider: SimulatedProvider) -> None:
    provider.script(Step.answer(tool_calls=[ToolCall(name="route")]))
    events = await stream(bedrock, toolConfig=TOOLS)
    assert [next(iter(event)) for event in events] == [
        "messageStart",
        "contentBlockStart",
        "contentBlockStop",
        "messageStop",
        "metadata",
    ]


async def test_images_and_documents_are_counted(bedrock: Any) -> None:
    image = {"image": {"format": "png", "source": {"bytes": b"png"}}}
    document = {"document": {"format": "pdf", "name": "Bill 4711", "source": {"s3Location": {"uri": "s3://bucket/b"}}}}
    plain = (await converse(bedrock))["usage"]["inputTokens"]
    turns = [{"role": "user", "content": [*ASKED[0]["content"], image, document]}]
    assert (await converse(bedrock, messages=turns))["usage"]["inputTokens"] > plain + 4_000


async def test_a_cache_point_is_written_once_and_read_after(bedrock: Any) -> None:
    system = [{"text": "Rules. " * 700}, {"cachePoint": {"type": "default", "ttl": "1h"}}]
    first, second = [(await converse(bedrock, system=system))["usage"] for _ in range(2)]
    assert (first["cacheWriteInputTokens"], first["cacheReadInputTokens"], first["inputTokens"]) == (1225, 0, 19)
    assert first["cacheDetails"] == [{"ttl": "1h", "inputTokens": 1225}]
    assert (second["cacheWriteInputTokens"], second["cacheReadInputTokens"], second["inputTokens"]) == (0, 1225, 19)
    assert first["totalTokens"] == 1225 + 19 + first["outputTokens"]


USES = {"role": "assistant", "content": [{"toolUse": {"toolUseId": "t1", "name": "route", "input": {}}}]}
RESULT = {"toolResult": {"toolUseId": "t1", "content": [{"text": "ok"}]}}
FILE = {"document": {"format": "pdf", "name": "a/b", "source": {"bytes": b"x"}}}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"messages": [*ASKED, *ASKED]}, "must alternate between user and assistant"),
        ({"messages": [{"role": "assistant", "content": [{"text": "x"}]}]}, "must start with a user message"),
        ({"messages": [{"role": "user", "content": []}]}, "content field in the Message object at messages.0 is empty"),
        ({"messages": [*ASKED, USES, {"role": "user", "content": [RESULT]}]}, "toolConfig field must be defined"),
        ({"messages": [*ASKED, USES, ASKED[0]], "toolConfig": TOOLS}, "Expected toolResult blocks.*t1"),
        ({"messages": [{"role": "user", "content": [RESULT]}], "toolConfig": TOOLS}, "exceeds the number of toolUse"),
        ({"messages": [{"role": "user", "content": [{"text": "x"}, FILE]}]}, "document file name can only contain"),
        ({"messages": [{"role": "user", "content": [{"text": " "}]}]}, "must contain non-whitespace text"),
        ({"system": [{"cachePoint": {"type": "default"}}]}, "must follow a block"),
        ({"additionalModelRequestFields": {"frobnicate": 1}}, "frobnicate: Extra inputs are not permitted"),
    ],
)
async def test_what_the_real_one_refuses_is_refused(change: dict[str, Any], said: str, bedrock: Any) -> None:
    with pytest.raises(ClientError, match=said) as refused:
        await converse(bedrock, **change)
    assert refused.value.response["Error"]["Code"] == "ValidationException"


async def test_errors_have_botocores_classes(bedrock: Any, provider: SimulatedProvider) -> None:
    steps = {
        "ThrottlingException": Step.rate_limited(),
        "ServiceUnavailableException": Step.overloaded(),
        "InternalServerException": Step.server_error(),
        "AccessDeniedException": Step.status(403),
        "ModelTimeoutException": Step.status(408),
        "ModelErrorException": Step.status(424),
        "ResourceNotFoundException": Step.status(404),
    }
    for name, step in steps.items():
        provider.script(step)
        with pytest.raises(getattr(bedrock.exceptions, name)) as failed:
            await converse(bedrock)
        assert failed.value.response["ResponseMetadata"]["RequestId"]
    provider.script(Step.quota())
    with pytest.raises(ClientError, match="Too many tokens per day"):
        await converse(bedrock)
    assert len(provider.requests) == 8  # one request each: nobody retried


async def test_b01_exceptions_inside_a_stream(bedrock: Any, provider: SimulatedProvider) -> None:
    for kind, code in (
        ("rate_limit_error", "throttlingException"),
        ("overloaded_error", "serviceUnavailableException"),
        ("modelStreamErrorException", "modelStreamErrorException"),
    ):
        provider.script(Step.stream_error(kind, "Boom", after_pieces=1))
        with pytest.raises(EventStreamError, match="Boom") as failed:
            await stream(bedrock)
        assert failed.value.response["Error"]["Code"] == code
    provider.script(Step.events({"messageStart": {"role": "assistant"}}, {"messageStop": {"stopReason": "odd"}}))
    assert await stream(bedrock) == [{"messageStart": {"role": "assistant"}}, {"messageStop": {"stopReason": "odd"}}]


async def test_b15_guardrails_and_filters(bedrock: Any, provider: SimulatedProvider) -> None:
    provider.script(Step.refusal("guardrail", "Blocked."), Step.refusal())
    blocked, filtered = await converse(bedrock), await converse(bedrock)
    assert (blocked["stopReason"], filtered["stopReason"]) == ("guardrail_intervened", "content_filtered")
    assert blocked["output"]["message"]["content"] == [{"text": "Blocked."}]
    assert filtered["usage"]["inputTokens"] > 0


async def test_tokens_are_counted_and_models_listed(provider: SimulatedProvider, bedrock: Any) -> None:
    invoked = {name: value for name, value in MESSAGES.items() if name != "model"}
    body = json.dumps(invoked | {"anthropic_version": "bedrock-2023-05-31"})
    counts = [
        await asyncio.to_thread(bedrock.count_tokens, modelId="m", input=each)
        for each in ({"converse": {"messages": ASKED}}, {"invokeModel": {"body": body}})
    ]
    assert [each["inputTokens"] for each in counts] == [19, 19]
    assert provider.count == 0
    listing = SimulatedProvider(models=["eu.anthropic.claude-a", "anthropic.claude-b"])
    async with listing:
        control = client_of(listing, "bedrock")
        found = await asyncio.to_thread(control.list_foundation_models)
        assert [each["modelId"] for each in found["modelSummaries"]] == ["anthropic.claude-a", "anthropic.claude-b"]
        profiles = await asyncio.to_thread(control.list_inference_profiles)
        assert [each["inferenceProfileId"] for each in profiles["inferenceProfileSummaries"]] == [
            "eu.anthropic.claude-a"
        ]
        control.close()


async def test_invoke_speaks_anthropic_in_bedrocks_frames(
    claude: AsyncAnthropicBedrock, provider: SimulatedProvider
) -> None:
    version = {"anthropic_version": "bedrock-2023-05-31"}
    whole = await claude.messages.create(**MESSAGES, extra_body=version)
    async with claude.messages.stream(**MESSAGES, extra_body=version) as streaming:
        streamed = await streaming.get_final_message()
    assert streamed.content[0].text == whole.content[0].text  # type: ignore[union-attr]
    assert streamed.usage == whole.usage
    assert [(seen.wire, seen.model, seen.streamed) for seen in provider.requests] == [
        ("bedrock-invoke", "m", False),
        ("bedrock-invoke", "m", True),
    ]
    assert "model" not in provider.requests[0].body
    assert provider.requests[0].signed_for == "eu-west-1/bedrock"
    provider.script(Step.stream_error("rate_limit_error", "Slow down.", after_pieces=1))
    with pytest.raises(sdk.APIStatusError, match="Slow down") as failed:
        async with claude.messages.stream(**MESSAGES) as streaming:
            await streaming.get_final_message()
    assert failed.value.type == "throttlingException"
    with pytest.raises(sdk.BadRequestError, match="Invalid API version: 1"):
        await claude.messages.create(**MESSAGES, extra_body={"anthropic_version": "1"})
    provider.script(Step.overloaded())
    with pytest.raises(sdk.InternalServerError) as busy:
        await claude.messages.create(**MESSAGES)
    assert busy.value.response.headers["x-amzn-errortype"] == "ServiceUnavailableException"


async def test_mantle_knows_projects_and_bare_ids() -> None:
    model = "anthropic.claude-x"
    provider = SimulatedProvider(mantle_sharing=["lax"], mantle_shared_only=[model])
    async with (
        provider,
        AsyncAnthropicBedrockMantle(
            api_key="k", aws_region="eu-west-1", base_url=provider.mantle_url, max_retries=0
        ) as client,
    ):
        asked = MESSAGES | {"model": model}
        message = await client.messages.create(**asked, extra_headers={"anthropic-workspace-id": "lax"})
        assert message.stop_reason == "end_turn"
        for headers in ({}, {"anthropic-workspace": "lax"}, {"anthropic-workspace-id": "strict"}):
            with pytest.raises(sdk.BadRequestError, match="data retention mode"):
                await client.messages.create(**asked, extra_headers=headers)
        with pytest.raises(sdk.NotFoundError):
            await client.messages.create(**MESSAGES | {"model": f"us.{model}"})
    assert {seen.wire for seen in provider.requests} == {"mantle"}
    assert provider.requests[0].headers["anthropic-workspace-id"] == "lax"


async def test_bedrock_reserves_the_output_limit_and_settles_by_its_burndown(time: Any) -> None:
    provider = SimulatedProvider(
        limits=PublishedLimits(tpm=10_000),
        bedrock_burndown=5,
        answer=lambda _: Answer(text="x", output_tokens=100),
        now=time.now,
    )
    async with provider:
        client = client_of(provider)
        assert await converse(client, inferenceConfig={"maxTokens": 9_000})
        with pytest.raises(client.exceptions.ThrottlingException, match="Too many tokens, please wait"):
            await converse(client, inferenceConfig={"maxTokens": 9_463})  # 10,000 - 19 - 500 are left
        assert await converse(client, inferenceConfig={"maxTokens": 9_462})
        client.close()


async def test_mantle_holds_the_output_limit_against_its_input_limit(time: Any) -> None:
    provider = SimulatedProvider(
        limits=PublishedLimits(input_tpm=1_000, output_tpm=150),
        answer=lambda _: Answer(text="x", output_tokens=100),
        now=time.now,
    )
    async with (
        provider,
        AsyncAnthropicBedrockMantle(
            api_key="k", aws_region="eu-west-1", base_url=provider.mantle_url, max_retries=0
        ) as client,
    ):
        assert await client.messages.create(**MESSAGES | {"max_tokens": 981})
        with pytest.raises(sdk.RateLimitError):
            await client.messages.create(**MESSAGES | {"max_tokens": 963})  # 1,000 - 19 are left
        assert await client.messages.create(**MESSAGES | {"max_tokens": 962})
        with pytest.raises(sdk.RateLimitError):
            await client.messages.create(**MESSAGES)
    assert [seen.refused_by for seen in provider.requests] == [None, "input-tokens", None, "output-tokens"]
