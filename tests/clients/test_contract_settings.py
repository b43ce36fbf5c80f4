"""What a call, an entry and a deployment may set on every wire: whose word is the last, and what nobody may set."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest
from pydantic import BaseModel

from interlock.clients.options import CallOptions
from interlock.clients.simulator import SimulatedProvider, Step
from interlock.errors import CredentialError, InvalidRequestError

from .conftest import asked


class Review(BaseModel):
    stars: int


async def test_the_options_of_a_call_stand_instead_of_the_entrys(bench, wire):
    client, _ = bench.client(wire, provider_options={"one": "entry", "two": "entry"})
    options = CallOptions(provider_options={"two": "call"})
    call = client._client.prepare(client.binding, "Hello.", options, None, stream=False)
    assert b'"one":"entry"' in call.body
    assert b'"two":"call"' in call.body


#: What would change how much is made or kept, by wire.
RESERVED = {
    "openai": {"n": 2, "max_completion_tokens": 9},
    "responses": {"store": True, "background": True, "previous_response_id": "r", "max_output_tokens": 9},
    "gemini": {"generationConfig": {"candidateCount": 2}, "contents": []},
    "converse": {"inferenceConfig": {"maxTokens": 9}, "system": []},
    "invoke": {"anthropic_version": "x", "max_tokens": 9},
}


@pytest.mark.parametrize("of_entry", [False, True], ids=["call", "entry"])
async def test_what_the_reservation_depends_on_is_set_by_nobody(bench, wire, of_entry):
    for name, value in RESERVED.get(wire.speaks, {"max_tokens": 9}).items():
        given = {name: value}
        client, seat = bench.client(wire, **({"provider_options": given} if of_entry else {}))
        options = None if of_entry else CallOptions(provider_options=given)
        with pytest.raises(InvalidRequestError, match="cannot set"):
            await client.single_response("Hello.", options=options)
        assert (bench.provider.count, seat.permits) == (0, [])


@pytest.mark.parametrize("key", ["openai", "openai-chat-completions", "openai-compatible"])
async def test_a_model_that_does_not_take_parallel_calls_is_not_told_of_them(bench, wires, key):
    for unsupported in (frozenset(), frozenset({"parallel_tool_calls"})):
        client, _ = bench.client(wires[key], structured="tool", unsupported=unsupported)
        call = client._client.prepare(client.binding, "Review it.", None, Review, stream=False)
        assert (b'"parallel_tool_calls":false' in call.body) is (not unsupported)


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
async def test_a_provider_that_cannot_be_reached_is_given_up_before_the_attempts_own_time(bench, wire, streamed):
    if wire.key == "litellm":
        return  # its own handler has its own connections
    client, _ = bench.client(wire, timeout_s=300)
    times: list[Any] = []

    async def look(request: httpx2.Request) -> None:
        times.append(request.extensions["timeout"])

    client._client.ready()
    if client._client._http is None:  # made with Google's credentials
        client._client._http = client._client._make_http()
    client._client._http.event_hooks["request"].append(look)
    await asked(client, "Hello.", streamed=streamed)
    assert [(each["connect"], each["read"]) for each in times] == [(15.0, 300.0)]


async def test_another_name_of_a_default_credential_stands_for_no_other_credential(bench, gemini):
    bench.environ = {"GOOGLE_API_KEY": "AIza-of-somebody-else-0123456789"}
    client, seat = bench.client(gemini, settings={"credential": "team-two"})
    with pytest.raises(CredentialError, match="team-two"):
        await client.single_response("Hello.")
    assert bench.provider.count == 0
    assert seat.permits == []


@pytest.mark.parametrize("key", ["anthropic-direct", "openai", "openai-chat-completions", "gemini"])
async def test_a_403_is_about_access_whatever_key_there_is_by_now(bench, wires, key):
    """Another key of the account has no more of it: the call is not made again."""
    async with SimulatedProvider() as provider:
        client, seat = bench.client(wires[key], base_url=wires[key].url(provider))
        await client.single_response("Hello.")
        bench.environ |= {"TEST_KEY": "sk-another-key-0123456789"}
        said = {"error": {"code": 403, "status": "PERMISSION_DENIED", "message": "No access to this model."}}
        provider.script(Step.status(403, said))
        with pytest.raises(CredentialError, match="access to this model"):
            await client.single_response("Hello.")
        assert [record.outcome for record in seat.records] == ["ok", "credential"]
        await client._client.aclose()
