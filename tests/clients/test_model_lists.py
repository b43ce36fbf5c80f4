"""`list_models` of every provider, through its real SDK against the loopback provider, and against servers that err."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from interlock.catalog.words import Input
from interlock.clients.abstract import AbstractLLMClient
from interlock.clients.listing import ListedModel, NoModelListError
from interlock.clients.simulator import SimulatedProvider
from interlock.errors import (
    CredentialError,
    InterlockError,
    MalformedResponseError,
    TransientUpstreamError,
)

SECRETS = ("sk-a-very-secret-key-0123456789", "ya29.a-token-of-google")
PROFILES = {"anthropic-bedrock", "bedrock-converse"}  # they list what is behind a profile, too


async def listed(client: AbstractLLMClient) -> Sequence[ListedModel]:
    """As whoever asks for a list does it: an SDK's error becomes one of ours."""
    try:
        return await client.list_models()
    except InterlockError as error:
        raise client.failure(error) from None
    except Exception as error:
        raise client.failure(error) from None


def names(models: Sequence[ListedModel]) -> list[str]:
    return [model.wire_model_id for model in models]


@asynccontextmanager
async def serving(
    answer: str | Callable[[str], Any], status: str = "200 OK", kind: str = "application/json"
) -> AsyncIterator[tuple[str, list[str]]]:
    """A server with one answer to everything, or one made from the path; its address, and the paths asked for."""
    asked: list[str] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        path = (await reader.readuntil(b"\r\n\r\n")).split()[1].decode()
        asked.append(path)
        body = (answer if isinstance(answer, str) else json.dumps(answer(path))).encode()
        head = f"HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n"
        writer.write(head.encode() + body)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", asked


async def test_every_provider_gives_what_its_list_holds(wire: Any, bench: Any, provider: SimulatedProvider) -> None:
    provider._app._serving.models = ("eu.anthropic.claude-a", "claude-b")
    client = bench.template(wire)
    if wire.key == "litellm":
        with pytest.raises(NoModelListError, match="no one list"):
            await listed(client)
        return
    found = names(await listed(client))
    if wire.key == "bedrock-converse":
        assert found == ["anthropic.claude-a", "claude-b", "eu.anthropic.claude-a"]
    elif wire.key == "anthropic-bedrock":
        assert found == ["anthropic.claude-a", "eu.anthropic.claude-a"]
    else:
        assert found == ["eu.anthropic.claude-a", "claude-b"]


async def test_3000_models_come_in_pages_and_each_once(wire: Any, bench: Any, provider: SimulatedProvider) -> None:
    if wire.key == "litellm":
        return
    every = [f"eu.anthropic.model-{number}" for number in range(3_000)]
    provider._app._serving.models = tuple(every)
    found = names(await listed(bench.template(wire)))
    assert len(found) == len(set(found))
    assert set(every) <= set(found)
    requests = len(provider.requests)
    in_one = wire.speaks in ("openai", "responses")
    assert requests == (1 if in_one else 4 if wire.key in PROFILES else 3)


async def test_a_refused_key_is_a_credential_error_without_the_key(wire: Any, bench: Any, provider: Any) -> None:
    if wire.key == "litellm":
        return
    provider._app._serving.keys = frozenset({"another"})
    with pytest.raises(CredentialError) as caught:
        await listed(bench.template(wire))
    assert caught.value.status in (400, 401, 403)
    assert caught.value.credential == wire.settings.get("credential", "test-key")
    assert not any(secret in repr(caught.value) + str(caught.value) for secret in SECRETS)


@pytest.mark.parametrize(
    ("answer", "status", "kind", "error"),
    [
        ('{"error": {"message": "no access", "type": "permission_error"}}', "403 Forbidden", "application/json",
         CredentialError),
        ("<html><body>Please log in</body></html>", "200 OK", "text/html", MalformedResponseError),
        ("<html>Bad gateway</html>", "502 Bad Gateway", "text/html", TransientUpstreamError),
        ('{"hello": [1, 2]}', "200 OK", "application/json", ValueError),
        ('{"data": 3, "models": 3, "modelSummaries": 3}', "200 OK", "application/json", ValueError),
        ("[1, 2]", "200 OK", "application/json", MalformedResponseError),
    ],
)  # fmt: skip
async def test_an_answer_that_is_no_list_is_an_error(
    wire: Any, bench: Any, answer: str, status: str, kind: str, error: type[Exception]
) -> None:
    if wire.key == "litellm":
        return
    async with serving(answer, status, kind) as (url, _):
        with pytest.raises(MalformedResponseError if error is ValueError else error) as caught:
            await listed(bench.template(wire, base_url=url))
    assert not any(secret in str(caught.value) for secret in SECRETS)


async def test_a_host_that_is_not_there_was_never_sent_anything(wire: Any, bench: Any, provider: Any) -> None:
    if wire.key == "litellm":
        return
    async with serving("{}") as (url, asked):
        pass  # its port is closed by now
    with pytest.raises(TransientUpstreamError) as caught:
        await listed(bench.template(wire, base_url=url))
    assert caught.value.sent is False
    assert asked == []


async def test_without_a_key_nothing_is_sent(wire: Any, bench: Any, provider: Any) -> None:
    if wire.key in ("litellm", "openai-compatible"):
        return
    bench.environ.clear()
    client = bench.template(wire, credential="nobody-has-this", settings={"region": None, "options": {}})
    with pytest.raises(CredentialError):
        await listed(client)
    assert provider.requests == []


async def test_a_compatible_server_needs_no_key(wires: Any, bench: Any, provider: SimulatedProvider) -> None:
    provider._app._serving.models = ("local",)
    async with serving(lambda path: {"data": [{"id": "local"}]}) as (url, asked):
        client = bench.template(wires["openai-compatible"], base_url=url, settings={"credential": None})
        assert names(await listed(client)) == ["local"]
    assert asked == ["/models"]


async def test_what_a_list_tells_of_a_model_is_read(wires: Any, bench: Any) -> None:
    told = {
        "anthropic-direct": {
            "id": "m", "display_name": "M", "max_input_tokens": 1_000, "max_tokens": 100, "lifecycle": "active",
            "capabilities": {"image_input": {"supported": True}, "pdf_input": {"supported": False}},
        },
        "openai-compatible": {
            "id": "m", "name": "M", "context_length": 1_000, "top_provider": {"max_completion_tokens": 100},
            "architecture": {"input_modalities": ["text", "image"]},
        },
    }  # fmt: skip
    for key, item in told.items():
        async with serving(json.dumps({"data": [item]})) as (url, _):
            (found,) = await listed(bench.template(wires[key], base_url=url))
        assert found == ListedModel(
            wire_model_id="m", name="M", context_window=1_000, max_output_tokens=100,
            inputs=frozenset({Input.TEXT, Input.IMAGES}),
        )  # fmt: skip


async def test_what_is_retired_on_demand_or_no_chat_model_is_told_apart(wires: Any, bench: Any) -> None:
    async with serving(lambda path: {"data": [{"id": "old", "lifecycle": "retired"}]}) as (url, _):
        assert await listed(bench.template(wires["anthropic-direct"], base_url=url)) == []

    bedrock = [
        {"modelId": "a.own", "outputModalities": ["TEXT"], "inferenceTypesSupported": ["ON_DEMAND"]},
        {"modelId": "a.behind", "outputModalities": ["TEXT"], "inferenceTypesSupported": ["INFERENCE_PROFILE"]},
        {"modelId": "a.vectors", "outputModalities": ["EMBEDDING"], "inferenceTypesSupported": ["ON_DEMAND"]},
    ]
    arn = "arn:aws:bedrock:eu-west-1::foundation-model/a.behind"
    profile = {"inferenceProfileId": "eu.a.behind", "status": "ACTIVE", "models": [{"modelArn": arn}]}

    def answer(path: str) -> Any:
        lists = {"foundation-models": {"modelSummaries": bedrock}}
        return next((lists[name] for name in lists if name in path), {"inferenceProfileSummaries": [profile]})

    async with serving(answer) as (url, _):
        found = await listed(bench.template(wires["bedrock-converse"], base_url=url))
    assert [(model.wire_model_id, model.chat) for model in found] == [
        ("a.own", True), ("a.vectors", False), ("eu.a.behind", True),
    ]  # fmt: skip

    google = {"models": [
        {"name": "models/gemini-x", "supportedGenerationMethods": ["generateContent"]},
        {"name": "models/gemini-x-tts", "supportedGenerationMethods": ["generateContent"]},
        {"name": "models/vectors", "supportedGenerationMethods": ["embedContent"]},
    ]}  # fmt: skip
    async with serving(lambda path: google) as (url, _):
        found = await listed(bench.template(wires["gemini"], base_url=url))
    assert {model.wire_model_id: model.chat for model in found} == {
        "gemini-x": True, "gemini-x-tts": False, "vectors": False,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("listed_as", "called", "same"),
    [
        ("claude-haiku-4-5-20251001", "claude-haiku-4-5", True),
        ("gpt-6-2026-08-07", "gpt-6", True),
        ("m", "m", True),
        ("gpt-6-mini", "gpt-6", False),
        ("gpt-6", "gpt-6-2026-08-07", False),
    ],
)
def test_a_dated_snapshot_is_the_model_of_its_name(listed_as: str, called: str, same: bool) -> None:
    assert (called in ListedModel(wire_model_id=listed_as).names) is same


async def test_the_simulated_provider_in_this_process_has_no_list(wires: Any, bench: Any) -> None:
    with pytest.raises(NoModelListError, match="runs in this process"):
        await listed(bench.template(wires["simulated"], base_url=None))


@pytest.mark.parametrize("name", [5, None, "", "a\0b", "\ud800", "n" * 3_000])
def test_an_id_that_is_no_name_is_no_model(name: Any) -> None:
    with pytest.raises(ValueError, match="under an id that is no name"):
        ListedModel(wire_model_id=name)
