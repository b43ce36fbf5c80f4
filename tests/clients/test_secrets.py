"""Keys go where they belong and nowhere else; nothing of the environment leaks in."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
import traceback

import pytest

from interlock.clients.simulator import SimulatedProvider, Step
from interlock.errors import CredentialError, TransientUpstreamError, UpstreamError

from .conftest import SECRET, WIRES, GoogleToken, asked


def everything_in(error: BaseException) -> str:
    """All that a log, a pickle or a debugger would show of an error and its chain."""
    shown = ["".join(traceback.format_exception(error))]
    chain: BaseException | None = error
    while chain is not None:
        shown += [str(chain), repr(chain), repr(chain.args), repr(vars(chain))]
        chain = chain.__cause__ or chain.__context__
    return "\n".join(shown)


ECHO = {"error": {"type": "authentication_error", "message": f"invalid x-api-key: {SECRET}"}}


@pytest.mark.parametrize(
    "step",
    [
        Step.status(401, ECHO),
        Step.status(404, f"no such key={SECRET}"),
        Step.status(503, ECHO),
        Step.html(200, f"<p>{SECRET}</p>"),
        Step.status(307, b"", {"location": f"https://elsewhere.test/?key={SECRET}"}),
        Step.stream_error(message=f"bad {SECRET}", after_pieces=None),
    ],
    ids=["401", "404", "503", "html", "redirect", "stream"],
)
@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
async def test_b30_a_key_that_a_provider_echoes_is_redacted(bench, wire, step, streamed):
    client, seat = bench.client(wire)
    bench.script(step)
    with pytest.raises(UpstreamError) as caught:
        await asked(client, "Hello.", streamed=streamed)
    error = caught.value
    assert SECRET not in everything_in(error)
    assert error.__cause__ is None
    assert error.__context__ is None
    assert SECRET not in repr(seat.last)
    assert bench.provider.count == 1, "and no redirect was followed with it"


#: Where each library looks by itself, and what it sends that is a secret.
FOUND = "a-session-token-of-nobody-elses-0123456789"
AMBIENT = {
    "anthropic-bedrock": "AWS_SESSION_TOKEN", "anthropic-bedrock-mantle": "AWS_SESSION_TOKEN",
    "bedrock-converse": "AWS_SESSION_TOKEN", "litellm-anthropic": "ANTHROPIC_API_KEY",
}  # fmt: skip


@pytest.mark.parametrize("id", [*AMBIENT, "vertex"])
@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
async def test_b30_a_secret_that_a_library_found_is_redacted_too(bench, wires, monkeypatch, id, streamed):
    wire = wires[id]
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIANOBODYSKEY00000X")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "found-secret")
    monkeypatch.setattr(GoogleToken, "token", FOUND)
    if id in AMBIENT:
        monkeypatch.setenv(AMBIENT[id], FOUND)
    bench.environ.clear()
    place = {}
    if wire.key == "litellm":  # it finds no key where the catalog says where to
        monkeypatch.setenv("ANTHROPIC_API_BASE", wire.url(bench.provider))
        place["base_url"] = None
    client, seat = bench.client(wire, settings={"credential": wire.settings.get("credential")}, **place)
    client._client.forget_ambient()
    wire.authorize(client._client)
    bench.script(Step.status(400, {"error": {"type": "invalid_request_error", "message": f"canonical: {FOUND}"}}))
    with pytest.raises(UpstreamError, match="canonical") as caught:
        await asked(client, "Hello.", streamed=streamed)
    assert FOUND not in everything_in(caught.value)
    assert FOUND not in repr(seat.last)
    client._client.forget_ambient()


async def test_b30_a_base_url_with_a_password_is_not_shown(bench, wire):
    client, _ = bench.client(wire, base_url="http://user:hunter2secret@127.0.0.1:9/v1")
    with pytest.raises(UpstreamError) as caught:
        await client.single_response("Hello.")
    assert "hunter2secret" not in everything_in(caught.value)


async def test_b60_errors_of_real_calls_survive_pickling(bench, wire):
    client, _ = bench.client(wire)
    for step in (
        Step.rate_limited(3),
        Step.quota(),
        Step.cut(1, "close"),
        Step.refusal("bio", "No."),
        Step.truncated(),
        Step.html(),
    ):
        bench.script(step)
        with pytest.raises(UpstreamError) as caught:
            await client.stream_response("Tell me a story.").finish()
        for twin in (pickle.loads(pickle.dumps(caught.value)), copy.copy(caught.value), copy.deepcopy(caught.value)):
            assert (type(twin), str(twin)) == (type(caught.value), str(caught.value))
            assert (twin.status, twin.retry_after_s, twin.usage) == (
                caught.value.status,
                caught.value.retry_after_s,
                caught.value.usage,
            )


async def test_the_environment_does_not_leak_in(bench, wire, monkeypatch):
    for name in ("ANTHROPIC", "OPENAI"):
        monkeypatch.setenv(f"{name}_BASE_URL", "http://127.0.0.1:9")
        monkeypatch.setenv(f"{name}_API_KEY", "sk-from-the-environment")
        monkeypatch.setenv(f"{name}_CUSTOM_HEADERS", "X-Leaked: yes")
    monkeypatch.setenv("ANTHROPIC_AUTH_TOKEN", "token-from-the-environment")
    monkeypatch.setenv("OPENAI_ORG_ID", "org-leaked")
    monkeypatch.setenv("OPENAI_PROJECT_ID", "project-leaked")
    monkeypatch.setenv("OPENAI_ADMIN_KEY", "admin-leaked")
    monkeypatch.setenv("AWS_BEARER_TOKEN_BEDROCK", "token-leaked")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIALEAKED")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "leaked")
    client, _ = bench.client(wire)
    async with SimulatedProvider(keys=[SECRET, bench.environ["TEST_AWS_ACCESS_KEY_ID"]]) as provider:
        other, _ = bench.client(wire, base_url=wire.url(provider))
        await other.single_response("Hello.")  # a provider that knows our key alone takes it
        await other.stream_response("Hello.").finish()
        await bench._clients[-1].aclose()
    await client.single_response("Hello.")
    headers = bench.provider.requests[-1].headers
    assert not {name for name in headers if "leaked" in name or "organization" in name or "openai-project" in name}
    assert "leaked" not in repr(headers)


async def test_a_key_is_only_asked_for_when_a_call_is_made(bench, openai):
    client, seat = bench.client(openai, settings={"credential": "other-key"})
    stream = client.stream_response("Hello.")
    for ask in (client.single_response("Hello."), stream.finish()):
        with pytest.raises(CredentialError, match="OTHER_KEY") as caught:
            await ask
        assert caught.value.sent is False
        assert caught.value.model == "the-model"
    assert bench.provider.count == 0
    assert seat.permits == []


async def test_b75_a_rotated_key_is_taken_up_after_a_401(bench, wire):
    async with SimulatedProvider(keys=["sk-the-new-key-9876543210"]) as provider:
        client, seat = bench.client(wire, base_url=wire.url(provider))
        with pytest.raises(CredentialError) as refused:
            await client.single_response("Hello.")
        assert not refused.value.retryable
        bench.environ |= dict.fromkeys(("TEST_KEY", "TEST_AWS_ACCESS_KEY_ID"), "sk-the-new-key-9876543210")
        with pytest.raises(TransientUpstreamError) as rotated:
            await client.single_response("Hello.")  # sent with the old one, which is still held
        assert rotated.value.provider_code == "credential_rotated"
        assert rotated.value.retryable
        assert (await client.single_response("Hello.")).text
        assert [record.outcome for record in seat.records] == ["credential", "llm_transient", "ok"]
        await bench._clients[-1].aclose()


async def test_a_client_keeps_no_copy_of_its_key_of_its_own(bench):
    wire = WIRES[0]
    client, _ = bench.client(wire)
    await client.single_response("Hello.")
    assert SECRET not in repr({name: value for name, value in vars(bench._clients[-1]).items() if name != "_http"})


async def test_a_server_without_a_key_gets_no_header(bench):
    wire = next(wire for wire in WIRES if wire.key == "openai-compatible")
    client, _ = bench.client(wire, settings={"credential": None})
    with pytest.raises(CredentialError):  # the simulated provider wants one, whichever it is
        await client.single_response("Hello.")
    assert "authorization" not in bench.provider.requests[-1].headers
    with pytest.raises(CredentialError):
        await client.stream_response("Hello.").finish()


def test_b20_importing_clients_loads_no_sdk():
    modules = ("abstract", "registry", "lifecycle", "stream", "measure")
    code = (
        f"import sys, {', '.join(f'interlock.clients.{module}' for module in modules)}\n"
        "heavy = {'anthropic', 'openai', 'httpx2', 'httpx', 'sqlalchemy', 'numpy', 'starlette', 'uvicorn'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
