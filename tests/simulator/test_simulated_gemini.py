"""The Gemini wire, driven with google-genai, with an API key and as Vertex AI."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest
from google import genai
from google.auth.credentials import AnonymousCredentials
from google.genai import errors, types

from interlock.clients.simulator import PublishedLimits, SimulatedProvider, Step, ToolCall

TEXT = "My parcel was charged twice. Billing must refund one payment for the parcel."
THINKS = types.ThinkingConfig(include_thoughts=True, thinking_budget=500)
ROUTE = types.FunctionDeclaration(
    name="route",
    parameters=types.Schema(
        type=types.Type.OBJECT,
        properties={"team": types.Schema(type=types.Type.STRING, enum=["sales", "billing"])},
        required=["team"],
    ),
)
TOOLS: list[Any] = [types.Tool(function_declarations=[ROUTE])]
ANY = types.ToolConfig(function_calling_config=types.FunctionCallingConfig(mode=types.FunctionCallingConfigMode.ANY))


@asynccontextmanager
async def models_of(provider: SimulatedProvider, version: str = "v1beta", **client: Any) -> AsyncIterator[Any]:
    """Over httpx2: with aiohttp installed the SDK would take that."""
    async with httpx2.AsyncClient() as http:
        options = types.HttpOptions(base_url=provider.gemini_url, api_version=version, httpx_async_client=http)
        own = genai.Client(http_options=options, **client)
        yield own.aio.models
        await own.aio.aclose()
        own.close()


@pytest.fixture
async def models(provider: SimulatedProvider) -> AsyncIterator[Any]:
    async with models_of(provider, api_key="secret-key") as models:
        yield models


async def ask(models: Any, contents: Any = TEXT, **config: Any) -> Any:
    settings = types.GenerateContentConfig(
        automatic_function_calling=types.AutomaticFunctionCallingConfig(disable=True), **config
    )
    return await models.generate_content(model="gemini-x", contents=contents, config=settings)


async def stream(models: Any, **config: Any) -> list[Any]:
    settings = types.GenerateContentConfig(
        automatic_function_calling=types.AutomaticFunctionCallingConfig(disable=True), **config
    )
    asked = await models.generate_content_stream(model="gemini-x", contents=TEXT, config=settings)
    return [chunk async for chunk in asked]


def parts_of(chunks: list[Any]) -> list[Any]:
    return [part for chunk in chunks for part in chunk.candidates[0].content.parts]


async def test_a_stream_says_what_a_whole_answer_says(models: Any, provider: SimulatedProvider) -> None:
    whole = await ask(models, thinking_config=THINKS)
    chunks = await stream(models, thinking_config=THINKS)
    thought, said = whole.candidates[0].content.parts
    assert (thought.thought, said.text.startswith("My parcel was charged twice.")) == (True, True)
    assert "".join(part.text for part in parts_of(chunks) if part.thought) == thought.text
    assert "".join(part.text for part in parts_of(chunks) if not part.thought) == said.text
    assert [part.thought_signature for part in parts_of(chunks) if part.thought_signature] == [said.thought_signature]
    assert [chunk.candidates[0].finish_reason for chunk in chunks[-2:]] == [None, types.FinishReason.STOP]
    assert chunks[-1].usage_metadata == whole.usage_metadata
    seen = provider.requests[0]
    assert (seen.wire, seen.model, seen.text) == ("gemini", "gemini-x", TEXT)
    assert "secret-key" not in repr(seen)


async def test_b14_thoughts_are_counted_outside_the_candidates(models: Any, provider: SimulatedProvider) -> None:
    usage = (await ask(models, thinking_config=types.ThinkingConfig(thinking_budget=-1))).usage_metadata
    counts = (usage.prompt_token_count, usage.candidates_token_count, usage.thoughts_token_count)
    assert counts == (19, 20, 15)
    assert usage.total_token_count == sum(counts)
    provider.script(Step.answer(thinking="a long thought " * 40))
    eaten = await ask(models, thinking_config=THINKS, max_output_tokens=50)
    assert eaten.candidates[0].finish_reason is types.FinishReason.MAX_TOKENS
    assert eaten.usage_metadata.candidates_token_count is None
    assert eaten.usage_metadata.thoughts_token_count == 50


async def test_b71_a_candidate_may_have_no_content(models: Any, provider: SimulatedProvider) -> None:
    provider.script(Step.answer(thinking="a long thought " * 40))
    hidden = types.ThinkingConfig(thinking_budget=500)
    eaten = await ask(models, thinking_config=hidden, max_output_tokens=50)
    assert eaten.candidates[0].content is None
    assert eaten.candidates[0].finish_reason is types.FinishReason.MAX_TOKENS


async def test_functions_are_called_signed_and_answered(models: Any, provider: SimulatedProvider) -> None:
    config: dict[str, Any] = {"tools": TOOLS, "tool_config": ANY, "thinking_config": THINKS}
    whole = await ask(models, **config)
    call = whole.function_calls[0]
    assert (call.name, call.args) == ("route", {"team": "billing"})
    assert [part.function_call.args for part in parts_of(await stream(models, **config)) if part.function_call] == [
        {"team": "billing"}
    ]
    answer = types.Part.from_function_response(name="route", response={"result": "done"})
    turns = [types.UserContent(TEXT), whole.candidates[0].content, types.UserContent([answer])]
    assert (await ask(models, turns, tools=TOOLS, thinking_config=THINKS)).text
    assert "done" in provider.requests[-1].text
    signed = next(part for part in whole.candidates[0].content.parts if part.function_call)
    signed.thought_signature = signed.thought_signature[:-1] + b"x"
    with pytest.raises(errors.ClientError, match="Thought signature is not valid"):
        await ask(models, turns, tools=TOOLS, thinking_config=THINKS)
    signed.thought_signature = None
    with pytest.raises(errors.ClientError, match="missing a thought_signature in functionCall parts"):
        await ask(models, turns, tools=TOOLS, thinking_config=THINKS)
    signed.thought_signature = b"skip_thought_signature_validator"
    assert (await ask(models, turns, tools=TOOLS, thinking_config=THINKS)).text
    with pytest.raises(errors.ClientError, match="number of function response parts"):
        await ask(models, [*turns[:2], types.UserContent([answer, answer])], tools=TOOLS)


async def test_a_malformed_call_is_said_to_be_one(models: Any, provider: SimulatedProvider) -> None:
    provider.script(Step.answer(tool_calls=[ToolCall(name="route", input="{}{}")]))
    found = (await ask(models, tools=TOOLS)).candidates[0]
    assert found.finish_reason is types.FinishReason.MALFORMED_FUNCTION_CALL
    assert found.content is None


@pytest.mark.parametrize("name", ["response_schema", "response_json_schema"])
async def test_schemas_of_both_kinds_are_obeyed(name: str, models: Any) -> None:
    schema: Any = ROUTE.parameters
    if name == "response_json_schema":
        schema = {"type": "object", "properties": {"team": {"enum": ["sales", "billing"]}}, "required": ["team"]}
    whole = await ask(models, response_mime_type="application/json", **{name: schema})
    assert json.loads(whole.text) == {"team": "billing"}
    with pytest.raises(errors.ClientError, match="response mime type application/json"):
        await ask(models, **{name: schema})


async def test_logprobs_images_and_counts(models: Any) -> None:
    whole = (await ask(models, response_logprobs=True, logprobs=2)).candidates[0]
    chosen = whole.logprobs_result.chosen_candidates
    assert "".join(token.token for token in chosen) == whole.content.parts[0].text
    assert {len(each.candidates) for each in whole.logprobs_result.top_candidates} == {2}
    image = types.Part.from_bytes(data=b"png", mime_type="image/png")
    document = types.Part.from_uri(file_uri="gs://bucket/a.pdf", mime_type="application/pdf")
    assert (await ask(models, [TEXT, image, document])).usage_metadata.prompt_token_count > 4_500
    assert (await models.count_tokens(model="gemini-x", contents=TEXT)).total_tokens == 19


async def test_b15_blocked_prompts_and_candidates(models: Any, provider: SimulatedProvider) -> None:
    provider.script(Step.refusal("prompt:PROHIBITED_CONTENT", "No."), Step.refusal("RECITATION"), Step.refusal())
    blocked, recited, unsafe = [await ask(models) for _ in range(3)]
    assert blocked.candidates is None
    assert blocked.prompt_feedback.block_reason is types.BlockedReason.PROHIBITED_CONTENT
    assert blocked.usage_metadata.prompt_token_count == 19
    reasons = [each.candidates[0].finish_reason for each in (recited, unsafe)]
    assert reasons == [types.FinishReason.RECITATION, types.FinishReason.SAFETY]
    assert recited.candidates[0].content is None
    provider.script(Step.refusal("prompt:SAFETY"))
    assert [chunk.prompt_feedback.block_reason for chunk in await stream(models)] == [types.BlockedReason.SAFETY]


async def test_b43_quotas_stand_in_the_body(models: Any, provider: SimulatedProvider, time: Any) -> None:
    provider.script(Step.quota(), Step.rate_limited(34.4))
    provider.publish("gemini-x", PublishedLimits(rpm=1))
    found = []
    for _ in range(4):
        try:
            found.append(await ask(models))
        except errors.ClientError as error:
            details = {each["@type"].rpartition(".")[2]: each for each in error.details["error"]["details"]}
            quota = details["QuotaFailure"]["violations"][0]["quotaId"]
            found.append((error.code, error.status, quota, details["RetryInfo"]["retryDelay"]))
    limited = (429, "RESOURCE_EXHAUSTED")
    per_minute = "GenerateRequestsPerMinutePerProjectPerModel"
    assert found[0] == (*limited, "GenerateRequestsPerDayPerProjectPerModel", "26s")
    assert found[1] == (*limited, per_minute, "34.400000000s")
    assert found[3] == (*limited, per_minute, "60s")


async def test_the_token_limit_is_one_on_input(models: Any, provider: SimulatedProvider) -> None:
    provider.publish("gemini-x", PublishedLimits(tpm=40))
    assert (await ask(models, max_output_tokens=8_000)).text
    assert (await ask(models)).text
    with pytest.raises(errors.ClientError, match="InputTokensPerModelPerMinute"):
        await ask(models)


async def test_b01_an_error_inside_a_stream(models: Any, provider: SimulatedProvider) -> None:
    provider.script(Step.stream_error("rate_limit_error", "Slow.", after_pieces=1), Step.stream_error("INTERNAL"))
    with pytest.raises(errors.ClientError, match="429 RESOURCE_EXHAUSTED"):
        await stream(models)
    with pytest.raises(errors.ServerError, match="500 INTERNAL"):
        await stream(models)


async def test_models_are_listed_and_keys_known() -> None:
    async with SimulatedProvider(models=["gemini-a", "gemini-b"], keys=["good"]) as provider:
        async with models_of(provider, api_key="good") as models:
            assert [each.name async for each in await models.list()] == ["models/gemini-a", "models/gemini-b"]
            with pytest.raises(errors.ClientError, match="404 NOT_FOUND"):
                await ask(models)
        async with models_of(provider, api_key="bad") as models:
            with pytest.raises(errors.ClientError, match="API_KEY_INVALID"):
                await ask(models)


async def test_vertex_speaks_the_same(provider: SimulatedProvider) -> None:
    credentials = AnonymousCredentials()  # type: ignore[no-untyped-call]
    credentials.token = "token"
    async with models_of(provider, "v1", vertexai=True, project="p", location="l", credentials=credentials) as models:
        assert (await ask(models)).text
        assert (await stream(models))[-1].usage_metadata.total_token_count
        assert [each.name async for each in await models.list()] == ["publishers/google/models/simulated"]
    assert provider.requests[0].path == "/v1/projects/p/locations/l/publishers/google/models/gemini-x:generateContent"
    assert provider.requests[0].headers["authorization"] == "[redacted]"


async def test_prompts_are_cached_by_themselves_where_that_is_on(time: Any) -> None:
    async with (
        SimulatedProvider(automatic_caching=True, now=time.now) as provider,
        models_of(provider, api_key="k") as models,
    ):
        rules = "Rules. " * 700
        await ask(models, "One.", system_instruction=rules)
        usage = (await ask(models, "Two.", system_instruction=rules)).usage_metadata
        assert usage.cached_content_token_count == 1225
        assert usage.prompt_token_count == 1226


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"frobnicate": 1}, "Unknown name"),
        ({"generationConfig": {"frobnicate": 1}}, "at 'generation_config'"),
        ({"contents": []}, "contents is not specified"),
        ({"contents": [{"role": "robot", "parts": [{"text": "x"}]}]}, "valid role"),
        ({"contents": [{"role": "user", "parts": [{}]}]}, "required oneof field 'data'"),
        ({"generationConfig": {"maxOutputTokens": 0}}, "must be positive"),
        ({"cachedContent": "cachedContents/x"}, "CachedContent not found"),
    ],
)
async def test_what_the_real_one_refuses_is_refused(change: dict[str, Any], said: str, http: Any) -> None:
    body = {"contents": [{"role": "user", "parts": [{"text": TEXT}]}]} | change
    response = await http.post("/v1beta/models/m:generateContent", json=body)
    assert response.status_code in (400, 403)
    assert said in response.json()["error"]["message"]
