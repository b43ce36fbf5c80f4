"""What Gemini's wire does, with an API key and on Vertex."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any

import google.auth
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from google.auth import exceptions as auth_errors

from interlock.admission.outcome import OutcomeKind
from interlock.catalog import Catalog
from interlock.catalog.entry import Thinking
from interlock.catalog.spec import ModelSpec
from interlock.catalog.usage import Usage
from interlock.catalog.words import Depth
from interlock.clients.conversation import Conversation, TextBlock, ThinkingBlock, ToolResultBlock, ToolUseBlock
from interlock.clients.options import CallOptions, Tool
from interlock.clients.response import StopReason
from interlock.clients.simulator import Step, ToolCall
from interlock.credentials import Chain, EnvironmentStore
from interlock.errors import (
    CredentialError,
    EmptyResponseError,
    InvalidRequestError,
    MalformedResponseError,
    OutputTruncatedError,
    ProviderRefusalError,
    QuotaExhaustedError,
    RateLimitedError,
    TransientUpstreamError,
    UpstreamError,
)
from interlock.runtime.desk import why_not

from .conftest import SECRET, GoogleToken, Wire, asked

LOOK = Tool("look", "Look.", {"type": "object", "properties": {}})
TYPES = "type.googleapis.com/google.rpc."


def answer(*parts: Any, finish: str | None = "STOP", usage: Any = None, **more: Any) -> dict[str, Any]:
    candidate = {"content": {"role": "model", "parts": list(parts)}, **({"finishReason": finish} if finish else {})}
    return {"candidates": [candidate], "modelVersion": "served", "usageMetadata": usage or {}, **more}


def error(code: int, status: str, message: str = "No.", *details: Any) -> dict[str, Any]:
    return {"error": {"code": code, "status": status, "message": message, "details": list(details)}}


def prepared(client: Any, conversation: Any, **call: Any) -> dict[str, Any]:
    made = client._client.prepare(client.binding, conversation, call.get("options"), None, stream=False)
    body: dict[str, Any] = json.loads(made.body)
    return body


@pytest.mark.parametrize(("usage", "found"), [
    ({"promptTokenCount": 20, "candidatesTokenCount": 151, "thoughtsTokenCount": 382, "totalTokenCount": 553},
     Usage(input_tokens=20, output_tokens=533, reasoning_tokens=382)),
    ({"promptTokenCount": 20, "candidatesTokenCount": 151, "totalTokenCount": 171},
     Usage(input_tokens=20, output_tokens=151)),
    ({"promptTokenCount": 20, "thoughtsTokenCount": 29, "totalTokenCount": 49},
     Usage(input_tokens=20, output_tokens=29, reasoning_tokens=29)),
    ({"promptTokenCount": 20, "totalTokenCount": 20}, Usage(input_tokens=20, output_tokens=0)),
    ({"promptTokenCount": 100, "cachedContentTokenCount": 60, "candidatesTokenCount": 4, "toolUsePromptTokenCount": 5},
     Usage(input_tokens=45, output_tokens=4, cache_read_tokens=60)),
], ids=["thoughts", "no-thoughts", "only-thoughts", "nothing-written", "cached"])  # fmt: skip
async def test_b14_gemini_thought_tokens(bench, gemini, usage, found):
    client, seat = bench.client(gemini)
    bench.script(Step.body(answer({"text": "Hi."}, usage=usage)))
    assert (await client.single_response("Hello.")).usage == found
    assert seat.last.usage == found


REFUSED = ["SAFETY", "RECITATION", "PROHIBITED_CONTENT", "BLOCKLIST", "SPII", "LANGUAGE", "MODEL_ARMOR", "IMAGE_SAFETY"]


@pytest.mark.parametrize("reason", REFUSED)
@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
async def test_b15_a_candidate_without_content(bench, gemini, reason, streamed):
    client, seat = bench.client(gemini)
    body = {"candidates": [{"finishReason": reason, "index": 0}], "usageMetadata": {"promptTokenCount": 9}}
    bench.script(Step.events(json.dumps(body)) if streamed else Step.body(body))
    with pytest.raises(ProviderRefusalError) as caught:
        await asked(client, "Hello.", streamed=streamed)
    assert caught.value.category == reason.lower()
    assert not caught.value.retryable
    assert seat.last.usage.input_tokens == 9


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
async def test_b15_a_prompt_that_is_blocked(bench, gemini, streamed):
    client, seat = bench.client(gemini)
    body = {"promptFeedback": {"blockReason": "PROHIBITED_CONTENT", "blockReasonMessage": "Not this."},
            "usageMetadata": {"promptTokenCount": 9, "totalTokenCount": 9}}  # fmt: skip
    bench.script(Step.events(json.dumps(body)) if streamed else Step.body(body))
    with pytest.raises(ProviderRefusalError) as caught:
        await asked(client, "Hello.", streamed=streamed)
    assert (caught.value.category, caught.value.explanation) == ("prohibited_content", "Not this.")
    assert seat.kinds == [OutcomeKind.COMPLETED]


@pytest.mark.parametrize("candidate", [{}, {"content": {"role": "model"}}, {"content": {"parts": [{"text": ""}]}}],
                         ids=["no-content", "no-parts", "empty-part"])  # fmt: skip
async def test_b71_thinking_eats_budget(bench, gemini, candidate):
    client, seat = bench.client(gemini)
    counted = {"promptTokenCount": 5, "thoughtsTokenCount": 29, "totalTokenCount": 34}
    for finish in ("MAX_TOKENS", "STOP"):
        bench.script(Step.body({"candidates": [{**candidate, "finishReason": finish}], "usageMetadata": counted}))
    with pytest.raises(OutputTruncatedError):
        await client.single_response("Hello.")
    with pytest.raises(EmptyResponseError):
        await client.single_response("Hello.")
    assert [record.usage.output_tokens for record in seat.records] == [29, 29]


@pytest.mark.parametrize("reason", ["MALFORMED_FUNCTION_CALL", "MALFORMED_RESPONSE", "UNEXPECTED_TOOL_CALL"])
async def test_a_slip_of_the_model_is_tried_again_and_paid(bench, gemini, reason):
    client, seat = bench.client(gemini)
    bench.script(Step.body(answer(finish=reason, usage={"promptTokenCount": 9, "totalTokenCount": 12})))
    with pytest.raises(MalformedResponseError) as caught:
        await client.single_response("Hello.")
    assert caught.value.retryable
    assert caught.value.provider_code == reason.lower()
    assert seat.last.usage.output_tokens == 3
    assert seat.kinds == [OutcomeKind.COMPLETED]


# Errors.

PER_DAY = {"@type": f"{TYPES}QuotaFailure",
           "violations": [{"quotaId": "GenerateRequestsPerDayPerProjectPerModel-FreeTier"}]}  # fmt: skip
PER_MINUTE = {"@type": f"{TYPES}QuotaFailure", "violations": [{"quotaId": "GenerateRequestsPerMinutePerProject"}]}


def retry(delay: str) -> dict[str, Any]:
    return {"@type": f"{TYPES}RetryInfo", "retryDelay": delay}


def info(reason: str) -> dict[str, Any]:
    return {"@type": f"{TYPES}ErrorInfo", "reason": reason, "domain": "googleapis.com"}


@pytest.mark.parametrize(("delay", "found"), [
    ("34.4s", 34.4), ("45.837906927s", 45.837906927), ("0s", 0), ("39s", 39), ("soon", None), ("", None),
])  # fmt: skip
@pytest.mark.parametrize("how", ["whole", "streamed", "in-stream"])
async def test_b43_gemini_retryinfo_body(bench, gemini, delay, found, how):
    client, seat = bench.client(gemini)
    body = error(429, "RESOURCE_EXHAUSTED", "You exceeded your current quota.", PER_MINUTE, retry(delay))
    bench.script(Step.events(json.dumps(body)) if how == "in-stream" else Step.body(body, status=429))
    with pytest.raises(RateLimitedError) as caught:
        await asked(client, "Hello.", streamed=how != "whole")
    assert caught.value.retry_after_s == found
    assert seat.permits[0].outcome.retry_after_s == found


@pytest.mark.parametrize(("status", "body", "class_"), [
    (429, error(429, "RESOURCE_EXHAUSTED", "Quota.", PER_DAY, retry("26s")), QuotaExhaustedError),
    (429, error(429, "RESOURCE_EXHAUSTED", "Quota.", PER_MINUTE), RateLimitedError),
    (403, error(403, "PERMISSION_DENIED", "Billing is off.", info("BILLING_DISABLED")), QuotaExhaustedError),
    (400, error(400, "INVALID_ARGUMENT", "API key not valid.", info("API_KEY_INVALID")), CredentialError),
    (403, error(403, "PERMISSION_DENIED", "No access.", info("IAM_PERMISSION_DENIED")), CredentialError),
    (503, error(503, "UNAVAILABLE", "The model is overloaded."), TransientUpstreamError),
    (500, error(500, "INTERNAL"), TransientUpstreamError),
    (400, [error(400, "INVALID_ARGUMENT", "Unknown name.")], InvalidRequestError),
    (429, {"error": {"details": "not a list"}}, RateLimitedError),
], ids=range(9))  # fmt: skip
async def test_each_error_of_google(bench, gemini, status, body, class_):
    client, _ = bench.client(gemini)
    bench.script(Step.body(body, status=status))
    with pytest.raises(UpstreamError) as caught:
        await client.single_response("Hello.")
    assert type(caught.value) is class_
    assert bench.provider.count == 1


async def test_an_error_that_comes_as_plain_json_inside_a_stream(bench, gemini):
    client, _ = bench.client(gemini)
    plain = json.dumps([error(429, "RESOURCE_EXHAUSTED", "No.", PER_MINUTE)], indent=2).encode() + b"\n"
    bench.script(Step.events(plain))
    with pytest.raises(RateLimitedError):
        await client.stream_response("Hello.").finish()


# Signatures.


async def test_signatures_go_back_on_the_parts_they_came_with(bench, gemini):
    client, _ = bench.client(gemini)
    parts = [
        {"text": "Plan.", "thought": True, "thoughtSignature": "c2lnMQ=="},
        {"text": "Let me look.", "thoughtSignature": "c2lnMg=="},
        {"functionCall": {"id": "c1", "name": "look", "args": {"a": 1}}, "thoughtSignature": "c2lnMw=="},
        {"functionCall": {"id": "c2", "name": "look", "args": {}}},
        {"text": "", "thoughtSignature": "c2lnNA=="},
    ]
    question = Conversation.of("Hello.")
    for streamed in (False, True):
        chunks = [json.dumps(answer(part, finish=None)) for part in parts] + [json.dumps(answer())]
        bench.script(Step.events(*chunks) if streamed else Step.body(answer(*parts)))
        reply = await asked(client, question, streamed=streamed, options=CallOptions(tools=(LOOK,)))
        assert (reply.thinking, reply.text, len(reply.tool_calls)) == ("Plan.", "Let me look.", 2)
        results = [ToolResultBlock(tool_use_id=call, content="seen") for call in ("c1", "c2")]
        body = prepared(client, question.assistant(reply.blocks).user(results), options=CallOptions(tools=(LOOK,)))
        assert body["contents"][1] == {"role": "model", "parts": parts}


async def test_unsigned_parts_of_a_stream_are_one_block(bench, gemini):
    client, _ = bench.client(gemini)
    parts = [{"text": "Hm, ", "thought": True}, {"text": "hm.", "thought": True}, {"text": "One "}, {"text": "two."}]
    bench.script(Step.events(*(json.dumps(answer(part, finish=None)) for part in parts), json.dumps(answer())))
    reply = await client.stream_response("Hello.").finish()
    assert reply.blocks == (ThinkingBlock(text="Hm, hm."), TextBlock("One two."))


async def test_the_simulated_provider_takes_its_signatures_back(bench, gemini):
    client, seat = bench.client(gemini, thinking_tokens=512, thinking=Thinking(mode="budget"),
                                spec=ModelSpec("m", depth=Depth.STANDARD))  # fmt: skip
    for streamed in (False, True):
        bench.script(Step.answer(thinking="Hm.", tool_calls=[ToolCall(name="look", input={})]))
        question = Conversation.of("Hello.")
        reply = await asked(client, question, streamed=streamed, options=CallOptions(tools=(LOOK,)))
        result = ToolResultBlock(tool_use_id=reply.tool_calls[0].id, content="seen")
        await client.single_response(
            question.assistant(reply.blocks).user([result]), options=CallOptions(tools=(LOOK,))
        )
    assert seat.kinds == [OutcomeKind.COMPLETED] * 4


async def test_a_call_of_another_provider_gets_the_stand_in_that_the_deployment_names(bench, gemini):
    call = ToolUseBlock(id="t1", name="look", signature="of another", signed_by="another")
    asking = Conversation.of("x").assistant([call]).user([ToolResultBlock(tool_use_id="t1", content="y")])
    for options, expected in (({}, None), ({"unsigned_calls": "skip_it"}, "skip_it")):
        client, _ = bench.client(gemini, settings={"options": options})
        assert prepared(client, asking)["contents"][1]["parts"][0].get("thoughtSignature") == expected


# Writing.


async def test_settings_inside_generation_config_join_what_stands_there(bench, gemini):
    client, _ = bench.client(gemini)
    options = CallOptions(temperature=0.5, provider_options={"generationConfig": {"topK": 5}, "labels": {"a": "b"}})
    body = prepared(client, "Hello.", options=options)
    assert body["generationConfig"] == {"maxOutputTokens": 1_000, "temperature": 0.5, "topK": 5}
    assert body["labels"] == {"a": "b"}
    for inner in ({"maxOutputTokens": 9}, {"max_output_tokens": 9}, {"candidateCount": 2}):
        with pytest.raises(InvalidRequestError, match="cannot set"):
            prepared(client, "Hello.", options=CallOptions(provider_options={"generationConfig": inner}))
    with pytest.raises(InvalidRequestError, match="no object"):
        prepared(client, "Hello.", options=CallOptions(provider_options={"generationConfig": 7}))


@pytest.mark.parametrize(("chosen", "config"), [
    ("auto", {"mode": "AUTO"}), ("any", {"mode": "ANY"}), ("none", {"mode": "NONE"}),
    ("look", {"mode": "ANY", "allowedFunctionNames": ["look"]}),
])  # fmt: skip
async def test_each_choice_of_a_tool(bench, gemini, chosen, config):
    client, _ = bench.client(gemini)
    await client.single_response("Hello.", options=CallOptions(tools=(LOOK,), tool_choice=chosen))
    assert bench.sent["toolConfig"] == {"functionCallingConfig": config}


# Vertex.


def on_vertex(bench: Any, gemini: Wire, *, authorized: bool = True, **settings: Any) -> Any:
    client, _ = bench.client(gemini, settings={"credential": None, "options": {"vertex": True}, **settings})
    if authorized:
        client._client._google = (GoogleToken(), "adc-project")
    return client


async def test_vertex_is_asked_under_its_project_and_location(bench, gemini):
    bench.environ |= {"GOOGLE_CLOUD_PROJECT": "my-project", "GOOGLE_CLOUD_LOCATION": "europe-west4"}
    await on_vertex(bench, gemini).single_response("Hello.")
    seen = bench.provider.requests[-1]
    assert seen.path.endswith(
        "/v1beta1/projects/my-project/locations/europe-west4/publishers/google/models/wire-model:generateContent"
    )
    assert "x-goog-api-key" not in seen.headers


async def test_the_project_may_come_from_the_default_credentials(bench, gemini):
    await on_vertex(bench, gemini, region="us-east5").single_response("Hello.")
    assert "/projects/adc-project/locations/us-east5/" in bench.provider.requests[-1].path


async def test_no_location_is_guessed(bench, gemini):
    bench.environ["GOOGLE_CLOUD_PROJECT"] = "my-project"
    client = on_vertex(bench, gemini)
    with pytest.raises(CredentialError, match=r"needs a location .*GOOGLE_CLOUD_LOCATION") as caught:
        await client.single_response("Hello.")
    assert caught.value.sent is False
    assert caught.value.credential == "google-cloud"
    assert bench.provider.count == 0


@pytest.mark.parametrize(("location", "host"), [
    ("global", "https://aiplatform.googleapis.com"), ("eu", "https://aiplatform.eu.rep.googleapis.com"),
    ("us-central1", "https://us-central1-aiplatform.googleapis.com"),
])  # fmt: skip
async def test_each_location_has_its_host(bench, gemini, location, host):
    client, _ = bench.client(gemini, base_url=None, settings={"credential": "google-cloud", "region": location})
    assert client._client.base_url == host


async def test_without_default_credentials_nothing_is_sent(bench, gemini, monkeypatch):
    def missing(scopes: Any) -> Any:
        raise auth_errors.DefaultCredentialsError("Your default credentials were not found.")

    monkeypatch.setattr(google.auth, "default", missing)
    client = on_vertex(bench, gemini, authorized=False, region="global")
    with pytest.raises(CredentialError, match="default credentials were not found") as caught:
        await client.single_response("Hello.")
    assert caught.value.sent is False
    assert client._seat.kinds == [OutcomeKind.UNSENT]


async def test_a_403_on_vertex_names_the_credential(bench, gemini):
    client = on_vertex(bench, gemini, region="global")
    bench.script(Step.body(error(403, "PERMISSION_DENIED", "Vertex AI API has not been used."), status=403))
    with pytest.raises(CredentialError, match="credential 'google-cloud'; look at the key and at its access"):
        await client.single_response("Hello.")


async def test_default_credentials_are_googles_own(bench, gemini, monkeypatch, tmp_path):
    """A service account's file, its signed assertion and the token that Google's library gets for it, on loopback."""
    asked_for: list[bytes] = []

    async def tokens(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(re.search(rb"content-length: (\d+)", head.lower())[1])  # type: ignore[index]
        asked_for.append(await reader.readexactly(length))
        body = json.dumps({"access_token": "ya29.fresh", "expires_in": 3600, "token_type": "Bearer"}).encode()
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n")
        writer.write(b"Content-Length: %d\r\n\r\n" % len(body) + body)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(tokens, "127.0.0.1", 0)
    async with server:
        host, port = server.sockets[0].getsockname()
        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
        file = tmp_path / "account.json"
        file.write_text(json.dumps({
            "type": "service_account", "project_id": "file-project", "private_key": pem, "private_key_id": "1",
            "client_email": "a@file-project.iam.gserviceaccount.com", "client_id": "1",
            "token_uri": f"http://{host}:{port}/token",
        }))  # fmt: skip
        monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(file))
        client = on_vertex(bench, gemini, authorized=False, region="global")
        for _ in range(2):
            assert (await client.single_response("Hello.")).text
    assert len(asked_for) == 1, "one token serves both calls"
    assert b"jwt-bearer" in asked_for[0]
    assert "/projects/file-project/locations/global/" in bench.provider.requests[-1].path
    assert bench.provider.count == 2


# The key.


async def test_the_key_is_found_under_googles_own_name_too(bench, gemini):
    client, _ = bench.client(gemini, settings={"credential": "gemini-api-key"})
    bench.environ["GOOGLE_API_KEY"] = SECRET
    assert (await client.single_response("Hello.")).text


@pytest.mark.parametrize(("settings", "environ", "callable_"), [
    ("credential: gemini-api-key", {}, False), ("credential: gemini-api-key", {"GEMINI_API_KEY": "k"}, True),
    ("credential: gemini-api-key", {"GOOGLE_API_KEY": "k"}, True),
    ("credential: other-key", {"GOOGLE_API_KEY": "k"}, False),
    ("credential: google-cloud", {}, False),
    ("credential: google-cloud, region: global", {}, True), ("options: {vertex: true}", {"GOOGLE_API_KEY": "k"}, False),
    ("options: {vertex: true}", {"GOOGLE_CLOUD_LOCATION": "us-east5"}, True),
], ids=range(8))  # fmt: skip
def test_whether_it_can_be_called_is_known_before_the_first_call(settings, environ, callable_):
    catalog = Catalog.load(
        f"providers: {{gemini: {{{settings}}}}}\nmodels: [{{id: g, grade: SMALL, provider: gemini, wire_model_id: w}}]",
        file="test",
    )
    found = why_not(catalog.entries["g"], catalog, Chain(EnvironmentStore(environ)))
    assert (found is None) is callable_


async def test_nothing_of_the_environment_leaks_in(bench, gemini, monkeypatch):
    for name, value in {"GOOGLE_GEMINI_BASE_URL": "http://127.0.0.1:1", "GOOGLE_GENAI_USE_VERTEXAI": "true",
                        "GOOGLE_GENAI_API_VERSION": "v9", "GOOGLE_API_KEY": "another"}.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    client, _ = bench.client(gemini)
    assert (await client.single_response("Hello.")).text
    assert bench.provider.requests[-1].path == "/v1/models/wire-model:generateContent"


async def test_the_stop_sequence_and_the_end_are_one_reason(bench, gemini):
    client, _ = bench.client(gemini)
    bench.script(Step.body(answer({"text": "Hi."}, finish="SOMETHING_NEW")))
    assert (await client.single_response("Hello.")).stop_reason is StopReason.END_TURN


async def test_a_result_goes_back_under_the_name_of_the_call_that_it_answers(bench, gemini):
    """Where two turns have calls with one id, as records of an earlier time may."""
    client, _ = bench.client(gemini)
    conversation = Conversation.of("Go.")
    for name in ("look", "find"):
        call = ToolUseBlock(id="call_0", name=name)
        conversation = conversation.assistant([call]).user([ToolResultBlock(tool_use_id="call_0", content="seen")])
    await client.single_response(conversation)
    parts = [part for content in bench.sent["contents"] for part in content["parts"]]
    assert [part["functionResponse"]["name"] for part in parts if "functionResponse" in part] == ["look", "find"]
