"""What only Bedrock has: regions never guessed, who signs, projects by data retention, Converse's own rules."""

from __future__ import annotations

import os
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
from interlock.clients.environment import DataPolicy
from interlock.clients.options import CallOptions, Tool
from interlock.clients.registry import provider_class
from interlock.clients.simulator import Step
from interlock.credentials import Chain, EnvironmentStore
from interlock.errors import (
    CredentialError,
    InvalidRequestError,
    MalformedResponseError,
    ProviderRefusalError,
    QuotaExhaustedError,
    RateLimitedError,
    TransientUpstreamError,
)

from .conftest import asked

ALL = ("anthropic-bedrock", "anthropic-bedrock-mantle", "bedrock-converse")


@pytest.fixture
def aws(bench, wires, monkeypatch):
    """A client of a Bedrock key, with a clean environment."""
    for name in [name for name in os.environ if name.startswith(("AWS_", "ANTHROPIC_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "none")
    monkeypatch.setenv("AWS_CONFIG_FILE", "none")

    def make(key: str, *, policy: DataPolicy | None = None, **changes: Any):
        client, seat = bench.client(wires[key], **changes)
        if policy is not None:
            template = client._client
            object.__setattr__(template.environment, "data_policy", policy)
        return client, seat

    return make


@pytest.mark.parametrize("key", ALL)
async def test_a_region_is_never_guessed(aws, bench, key, monkeypatch) -> None:
    monkeypatch.setenv("AWS_REGION", "us-east-1")  # of another credential: not of the one that is named
    client, _ = aws(key, settings={"region": None})
    with pytest.raises(CredentialError, match="no AWS region is set, and none is guessed: set TEST_AWS_REGION"):
        await client.single_response("hello")
    assert bench.provider.count == 0


@pytest.mark.parametrize("key", ALL)
async def test_it_is_signed_with_the_credential_that_is_named(aws, bench, key, monkeypatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAOTHER")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "other")
    monkeypatch.setenv("AWS_BEARER_TOKEN_BEDROCK", "a-token-nobody-asked-for")
    seen: list[str] = []
    client, _ = aws(key)
    template = client._client
    template.ready()

    async def look(request: Any) -> None:
        seen.append(request.headers["authorization"])

    template._http.event_hooks["request"].append(look)
    await client.single_response("hello")
    service = "bedrock-mantle" if key.endswith("mantle") else "bedrock"
    assert seen[0].startswith("AWS4-HMAC-SHA256 Credential=AKIATEST/")
    assert f"/eu-west-1/{service}/aws4_request" in seen[0]


@pytest.mark.parametrize("key", ALL)
async def test_a_bearer_token_is_a_credential_by_its_id(aws, bench, key) -> None:
    bench.environ["AWS_BEARER_TOKEN_BEDROCK"] = "a-token"
    seen: list[str] = []
    client, _ = aws(key, settings={"credential": "aws-bearer-token-bedrock", "region": "eu-west-1"})
    template = client._client
    template.ready()

    async def look(request: Any) -> None:
        seen.append(request.headers["authorization"])

    template._http.event_hooks["request"].append(look)
    await client.single_response("hello")
    assert seen == ["Bearer a-token"]


@pytest.mark.parametrize("key", ALL)
async def test_without_any_credential_it_is_told_who_was_asked(aws, bench, key) -> None:
    for name in ("TEST_AWS_ACCESS_KEY_ID", "TEST_AWS_SECRET_ACCESS_KEY"):
        bench.environ.pop(name)
    client, seat = aws(key)
    with pytest.raises(CredentialError, match=r"credential 'test-aws', then AWS's own chain") as caught:
        await client.single_response("hello")
    assert not caught.value.sent
    assert bench.provider.count == 0
    seat.check_books()


def test_what_cannot_even_be_signed_is_seen_before_a_call() -> None:
    from interlock.catalog.entry import ProviderSettings

    class_ = provider_class("bedrock-converse")
    with pytest.raises(CredentialError) as caught:
        class_.check_credentials("aws", ProviderSettings(), Chain(EnvironmentStore({})))
    assert caught.value.remedy == "set AWS_REGION"
    class_.check_credentials("aws", ProviderSettings(), Chain(EnvironmentStore({"AWS_REGION": "eu-west-1"})))
    with pytest.raises(CredentialError, match="aws-bearer-token-bedrock is not set"):
        class_.check_credentials(
            "aws-bearer-token-bedrock", ProviderSettings(region="eu-west-1"), Chain(EnvironmentStore({}))
        )


STRICT, LAX = "proj-strict", "proj-lax"
POLICY = DataPolicy(mantle_strict_project=STRICT, mantle_lax_project=LAX)


@pytest.mark.parametrize(
    ("policy", "sharing", "project"),
    [(POLICY, False, STRICT), (POLICY, True, LAX), (DataPolicy(), False, None), (DataPolicy(), True, None)],
)
@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
async def test_mantle_names_the_project_by_data_retention(aws, bench, policy, sharing, project, streamed) -> None:
    client, _ = aws("anthropic-bedrock-mantle", policy=policy, data_sharing_only=sharing)
    await asked(client, "hello", streamed=streamed)
    assert bench.provider.requests[-1].headers.get("anthropic-workspace-id") == project


async def test_mantle_says_what_to_set_when_the_retention_does_not_fit(aws, bench) -> None:
    text = "The model m requires the data retention mode provider_data_share, which is not that of this project."
    bench.script(Step.status(400, {"type": "error", "error": {"type": "invalid_request_error", "message": text}}))
    client, _ = aws("anthropic-bedrock-mantle", policy=POLICY)
    with pytest.raises(CredentialError, match=r"data_sharing_only: true.*mantle_lax_project") as caught:
        await client.single_response("hello")
    assert caught.value.provider_code == "data_retention_mode"


@pytest.mark.parametrize("streamed", [False, True])
async def test_invoke_puts_the_model_into_the_path_and_the_version_into_the_body(aws, bench, streamed) -> None:
    client, _ = aws("anthropic-bedrock", wire_model_id="eu.anthropic.claude-x:0")
    if streamed:
        async with client.stream_response("hello") as pieces:
            _ = [piece async for piece in pieces]
    else:
        await client.single_response("hello")
    request = bench.provider.requests[-1]
    method = "invoke-with-response-stream" if streamed else "invoke"
    assert request.path == f"/model/eu.anthropic.claude-x:0/{method}"
    assert request.body["anthropic_version"] == "bedrock-2023-05-31"
    assert not {"model", "stream"} & request.body.keys()


@pytest.mark.parametrize(
    ("kind", "status", "error"),
    [
        ("ThrottlingException", 429, RateLimitedError),
        ("ThrottlingException:http://internal.amazon.com/coral/", 429, RateLimitedError),
        ("ModelNotReadyException", 429, TransientUpstreamError),
        ("ModelTimeoutException", 408, TransientUpstreamError),
        ("ModelErrorException", 424, TransientUpstreamError),
        ("ServiceUnavailableException", 503, TransientUpstreamError),
        ("InternalServerException", 500, TransientUpstreamError),
        ("ServiceQuotaExceededException", 400, QuotaExhaustedError),
        ("ExpiredTokenException", 403, CredentialError),
        ("UnrecognizedClientException", 403, CredentialError),
        ("AccessDeniedException", 403, CredentialError),
        ("ValidationException", 400, InvalidRequestError),
        ("ResourceNotFoundException", 404, InvalidRequestError),
    ],
)
@pytest.mark.parametrize("key", ["anthropic-bedrock", "bedrock-converse"])
async def test_an_error_is_what_its_header_says(aws, bench, key, kind, status, error) -> None:
    bench.script(Step.status(status, {"message": "no"}, {"x-amzn-errortype": kind}))
    client, seat = aws(key)
    with pytest.raises(error) as caught:
        await client.single_response("hello")
    assert type(caught.value) is error
    assert caught.value.request_id
    seat.check_books()


async def test_a_day_that_is_spent_is_no_rate_limit(aws, bench) -> None:
    bench.script(Step.quota())
    client, _ = aws("bedrock-converse")
    with pytest.raises(QuotaExhaustedError):
        await client.single_response("hello")


async def test_403_names_the_credential_and_access(aws, bench) -> None:
    bench.script(Step.status(403, {"message": "no access"}, {"x-amzn-errortype": "AccessDeniedException"}))
    client, _ = aws("bedrock-converse")
    with pytest.raises(CredentialError, match=r"credential 'test-aws'; look at the key and at its access"):
        await client.single_response("hello")


PICTURE = ImageBlock(data=b"\x89PNG", media_type="image/png")


@pytest.mark.parametrize(
    ("blocks", "why"),
    [
        ((ImageBlock(url="https://x/y.png"),), "takes the bytes of a ImageBlock, or an s3:// url"),
        ((ImageBlock(data=b"x", media_type="image/tiff"),), "takes no image/tiff"),
        (
            (DocumentBlock(data=b"x", media_type="application/zip", name="z"), TextBlock("read")),
            "takes no application/zip",
        ),
        ((DocumentBlock(data=b"x", media_type="text/plain", name="z"),), "wants a text beside a document"),
    ],
)
async def test_converse_refuses_by_name_what_it_cannot_take(aws, bench, blocks, why) -> None:
    client, _ = aws("bedrock-converse")
    with pytest.raises(InvalidRequestError, match=why):
        await client.single_response(Conversation(messages=(Message("user", blocks),)))
    assert bench.provider.count == 0


async def test_converse_has_no_tool_choice_none(aws, bench) -> None:
    client, _ = aws("bedrock-converse")
    tool = Tool("look", "Looks.", {"type": "object"})
    with pytest.raises(InvalidRequestError, match="no tool_choice 'none'"):
        await client.single_response("hello", options=CallOptions(tools=(tool,), tool_choice="none"))
    assert bench.provider.count == 0


async def test_converse_cleans_the_names_of_documents(aws, bench) -> None:
    document = DocumentBlock(data=b"text", media_type="text/plain", name="Q3: report_final.txt  (v2)")
    client, _ = aws("bedrock-converse")
    await client.single_response(Conversation(messages=(Message("user", (document, TextBlock("read"))),)))
    sent = bench.sent["messages"][0]["content"][0]["document"]
    assert (sent["name"], sent["format"]) == ("Q3 report final txt (v2)", "txt")


async def test_converse_names_the_tools_of_a_history_that_has_calls(aws, bench) -> None:
    turns = (
        Message("user", (TextBlock("look"),)),
        Message("assistant", (ToolUseBlock(id="t1", name="look", input={"at": 1}),)),
        Message("user", (ToolResultBlock(tool_use_id="t1", content=" "),)),
    )
    client, _ = aws("bedrock-converse")
    await client.single_response(Conversation(messages=turns))
    assert [tool["toolSpec"]["name"] for tool in bench.sent["toolConfig"]["tools"]] == ["look"]
    assert bench.sent["messages"][2]["content"] == [
        {"toolResult": {"toolUseId": "t1", "content": [{"text": "(no output)"}]}}
    ]


async def test_converse_thinking_goes_back_byte_for_byte_and_redacted_stays_out(aws, bench) -> None:
    client, _ = aws("bedrock-converse", output_tokens=2_000, thinking_tokens=1_024, thinking={"mode": "budget"})
    bench.script(Step.answer("Yes.", thinking="Let me see."))
    first = await client.single_response("hello")
    thought = first.message.blocks[0]
    assert isinstance(thought, ThinkingBlock)
    redacted = ThinkingBlock(text="", redacted="AAAA")
    turns = (
        Message("user", (TextBlock("hello"),)),
        Message("assistant", (redacted, *first.message.blocks)),
        Message("user", (TextBlock("and?"),)),
    )
    await client.single_response(Conversation(messages=turns))
    assert bench.sent["messages"][1]["content"] == [
        {"reasoningContent": {"reasoningText": {"text": thought.text, "signature": thought.signature}}},
        {"text": "Yes."},
    ]


@pytest.mark.parametrize("reason", ["guardrail_intervened", "content_filtered"])
async def test_converse_filters_are_refusals(aws, bench, reason) -> None:
    message = {"role": "assistant", "content": [{"text": "Blocked."}]}
    usage = {"inputTokens": 7, "outputTokens": 1, "totalTokens": 8}
    bench.script(Step.status(200, {"output": {"message": message}, "stopReason": reason, "usage": usage}))
    client, seat = aws("bedrock-converse")
    with pytest.raises(ProviderRefusalError) as caught:
        await client.single_response("hello")
    assert caught.value.category == reason
    assert seat.last.usage.input_tokens == 7


@pytest.mark.parametrize("reason", ["malformed_tool_use", "malformed_model_output"])
async def test_converse_slips_are_malformed_and_retried(aws, bench, reason) -> None:
    message = {"role": "assistant", "content": []}
    bench.script(Step.status(200, {"output": {"message": message}, "stopReason": reason, "usage": {}}))
    client, _ = aws("bedrock-converse")
    with pytest.raises(MalformedResponseError) as caught:
        await client.single_response("hello")
    assert caught.value.retryable


async def test_converse_marks_at_most_four_cache_points(aws, bench) -> None:
    blocks = tuple(TextBlock(f"part {n}", cache=True) for n in range(6))
    client, _ = aws("bedrock-converse", caching="marks")
    await client.single_response(
        Conversation(system="be brief", messages=(Message("user", blocks),)), options=CallOptions(cache=True)
    )
    points = [part for part in bench.sent["messages"][0]["content"] if "cachePoint" in part]
    assert len(points) == 4
    assert all("cachePoint" not in part for part in bench.sent["system"])
