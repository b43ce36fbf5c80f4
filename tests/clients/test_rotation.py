"""Credentials that are replaced while calls are under way: each refusal is judged by what its own request was sent
with, and what Google's or AWS's library has found is found anew."""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from google.auth import exceptions as auth_errors

from interlock.admission.outcome import OutcomeKind
from interlock.catalog import Catalog, Grade, ModelEntry
from interlock.catalog.entry import ProviderSettings
from interlock.clients.simulator import SimulatedProvider, Step
from interlock.credentials import Chain, EnvironmentStore
from interlock.errors import CredentialError, TransientUpstreamError
from interlock.runtime import LLMCall, Runtime, RuntimeSettings

NEW = "sk-the-new-key-9876543210"
BEDROCK = ("anthropic-bedrock", "anthropic-bedrock-mantle", "bedrock-converse")


async def rotated(client: Any, *, streamed: bool) -> TransientUpstreamError:
    with pytest.raises(TransientUpstreamError) as caught:
        await (client.stream_response("Hello.").finish() if streamed else client.single_response("Hello."))
    assert caught.value.provider_code == "credential_rotated"
    assert caught.value.retryable
    return caught.value


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
async def test_b75_a_late_401_of_the_old_key_is_judged_by_the_old_key(bench, wire, streamed):
    """By the time it comes the others have gone on with the new one."""
    async with SimulatedProvider(keys=[NEW]) as provider:
        client, seat = bench.client(wire, base_url=wire.url(provider))
        with pytest.raises(CredentialError):
            await client.single_response("Hello.")
        bench.environ |= dict.fromkeys(("TEST_KEY", "TEST_AWS_ACCESS_KEY_ID"), NEW)
        came, release = asyncio.Event(), asyncio.Event()

        async def hold(response: Any) -> None:
            hooks.remove(hold)
            came.set()
            await release.wait()

        hooks = client._client._http.event_hooks["response"]
        hooks.append(hold)
        late = asyncio.create_task(rotated(client, streamed=streamed))
        await came.wait()
        await rotated(client, streamed=streamed)
        assert (await client.single_response("Hello.")).text
        release.set()
        await late
        assert seat.kinds == [OutcomeKind.REJECTED, OutcomeKind.UNKNOWN, OutcomeKind.UNKNOWN, OutcomeKind.COMPLETED]
        await client._client.aclose()


# AWS's own chain.


def keys_of(file: Path, key: str) -> None:
    file.write_text(f"[default]\naws_access_key_id = {key}\naws_secret_access_key = a-secret\n")


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("key", BEDROCK)
async def test_what_awss_chain_found_is_found_anew(bench, wires, monkeypatch, tmp_path, key, streamed):
    for name in [name for name in os.environ if name.startswith(("AWS_", "ANTHROPIC_"))]:
        monkeypatch.delenv(name)
    file = tmp_path / "credentials"
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(file))
    monkeypatch.setenv("AWS_CONFIG_FILE", "none")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    bench.environ.clear()
    keys_of(file, "AKIAOLD")
    client, seat = bench.client(wires[key])
    signed: list[str] = []

    async def look(request: Any) -> None:
        signed.append(re.search(r"Credential=(\w+)/", request.headers["authorization"])[1])  # type: ignore[index]

    client._client.forget_ambient()  # what another test's chain has found
    client._client.ready()
    client._client._http.event_hooks["request"].append(look)
    await client.single_response("Hello.")
    keys_of(file, "AKIANEW")
    expired = Step.status(403, {"message": "The security token included in the request is expired"},
                          {"x-amzn-errortype": "ExpiredTokenException"})  # fmt: skip
    if key == "anthropic-bedrock-mantle":
        expired = Step.status(401, {"type": "error", "error": {"type": "authentication_error", "message": "expired"}})
    bench.script(expired, expired)
    await rotated(client, streamed=streamed)
    with pytest.raises(CredentialError):  # found a moment ago, and refused: that is the answer
        await client.single_response("Hello.")
    await client.single_response("Hello.")
    assert signed == ["AKIAOLD", "AKIAOLD", "AKIANEW", "AKIANEW"]
    seat.check_books()


# Google's application default credentials.


@dataclass
class TokenServer:
    """What Google's library gets its tokens from. `refuses`: answers to come before tokens are given again."""

    url: str = ""
    given: list[str] = field(default_factory=list)
    refuses: list[bytes] = field(default_factory=list)
    expires_in: int = 3600

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(re.search(rb"content-length: (\d+)", head.lower())[1])  # type: ignore[index]
        await reader.readexactly(length)
        if self.refuses:
            body, status = self.refuses.pop(0), b"400 Bad Request"
        else:
            token = f"ya29.token-{len(self.given)}"
            self.given.append(token)
            body = json.dumps({"access_token": token, "expires_in": self.expires_in, "token_type": "Bearer"}).encode()
            status = b"200 OK"
        writer.write(b"HTTP/1.1 %s\r\nContent-Type: application/json\r\nConnection: close\r\n" % status)
        writer.write(b"Content-Length: %d\r\n\r\n" % len(body) + body)
        await writer.drain()
        writer.close()


@pytest.fixture
async def tokens() -> AsyncIterator[TokenServer]:
    made = TokenServer()
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    async with server:
        host, port = server.sockets[0].getsockname()
        made.url = f"http://{host}:{port}/token"
        yield made


@pytest.fixture(scope="module")
def pem() -> str:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


@pytest.fixture
def account(tokens: TokenServer, pem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Write a service account's file of that project."""
    file = tmp_path / "account.json"
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(file))

    def write(project: str) -> None:
        file.write_text(json.dumps({
            "type": "service_account", "project_id": project, "private_key": pem, "private_key_id": "1",
            "client_email": f"a@{project}.iam.gserviceaccount.com", "client_id": "1", "token_uri": tokens.url,
        }))  # fmt: skip

    write("first-project")
    return write


UNAUTHENTICATED = Step.status(401, {"error": {"code": 401, "status": "UNAUTHENTICATED", "message": "Expired."}})


def projects(provider: SimulatedProvider) -> list[str]:
    return [seen.path.split("/projects/")[1].split("/")[0] for seen in provider.requests if seen.kind == "chat"]


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
async def test_default_credentials_are_read_again_after_a_401_and_the_call_runs_again(
    provider: SimulatedProvider, account: Callable[[str], None], tokens: TokenServer, streamed: bool
) -> None:
    entry = ModelEntry(id="g", grade=Grade.SMALL, provider="gemini", wire_model_id="gemini-x",
                       base_url=provider.gemini_url, max_output_tokens=1_000)  # fmt: skip
    settings = ProviderSettings(options={"vertex": True}, region="global")
    catalog = Catalog.of([entry], providers={"gemini": settings})
    chain = Chain(EnvironmentStore({}))
    async with Runtime(RuntimeSettings(catalog=catalog, store=None, credentials=chain)) as runtime:

        async def ask() -> None:
            if streamed:
                async with runtime.llm("g").stream_response("Hello.") as pieces:
                    assert [piece async for piece in pieces][-1].response
            else:
                assert (await runtime.run(LLMCall("Hello.", model="g"))).text

        await ask()
        account("second-project")  # as an operator replaces the file
        provider.script(UNAUTHENTICATED)
        await ask()
        rows = await runtime.calls()
    assert [row.record.outcome for row in rows] == ["ok", "llm_transient", "ok"]
    assert projects(provider) == ["first-project", "first-project", "second-project"]
    assert len(tokens.given) == 2


async def test_default_credentials_just_read_and_refused_are_refused(bench, gemini, account, tokens):
    client, seat = bench.client(gemini, settings={"credential": None, "options": {"vertex": True}, "region": "global"})
    bench.script(UNAUTHENTICATED)
    for _ in range(2):
        with pytest.raises(CredentialError) as caught:
            await client.single_response("Hello.")
        assert caught.value.credential == "google-cloud"
        bench.script(Step.answer("Hi."), UNAUTHENTICATED, UNAUTHENTICATED)
        if bench.provider.count == 1:
            await client.single_response("Hello.")
            await rotated(client, streamed=False)
    assert bench.provider.count == 4
    assert len(tokens.given) == 3, "each time they are found anew"
    seat.check_books()


async def test_many_calls_look_for_default_credentials_once(bench, gemini, account, tokens):
    client, _ = bench.client(gemini, settings={"credential": None, "options": {"vertex": True}, "region": "global"})
    await asyncio.gather(*(client.single_response("Hello.") for _ in range(8)))
    assert len(tokens.given) == 1


async def test_a_key_that_google_no_longer_signs_for_is_read_again(bench, gemini, account, tokens):
    tokens.expires_in = 1
    client, seat = bench.client(gemini, settings={"credential": None, "options": {"vertex": True}, "region": "global"})
    await client.single_response("Hello.")
    account("second-project")
    tokens.refuses.append(b'{"error": "invalid_grant", "error_description": "Invalid JWT Signature."}')
    assert not (await rotated(client, streamed=False)).sent
    await client.single_response("Hello.")
    assert projects(bench.provider) == ["first-project", "second-project"]
    assert seat.kinds == [OutcomeKind.COMPLETED, OutcomeKind.UNSENT, OutcomeKind.COMPLETED]


async def test_a_token_server_that_fails_is_no_wrong_credential(bench, gemini):
    template = bench.template(gemini, settings={"credential": None, "options": {"vertex": True}, "region": "global"})
    failure = template.failure(auth_errors.RefreshError("internal_failure", retryable=True))
    assert isinstance(failure, TransientUpstreamError)
    assert not failure.sent
    assert isinstance(template.failure(auth_errors.RefreshError("invalid_grant")), CredentialError)
