"""The keyring, and AWS Secrets Manager: through their libraries, a backend in memory, and moto on loopback."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

import boto3
import keyring
import pytest
from botocore.config import Config
from keyring.backend import KeyringBackend
from keyring.errors import KeyringLocked
from moto.server import ThreadedMotoServer

from interlock.credentials import (
    ApiKey,
    AwsCredential,
    AwsSecretsManagerStore,
    Chain,
    EnvironmentStore,
    KeyringStore,
)
from interlock.errors import ConfigurationError, CredentialError

KEY = "sk-ant-api03-abcdefghijklmnopqrst-WXYZ"
NAME = "anthropic-api-key"


class Memory(KeyringBackend):
    """A keyring that forgets everything at the end of the process."""

    priority = 1  # type: ignore[assignment]

    def __init__(self) -> None:
        super().__init__()
        self.locked, self.kept = False, dict[tuple[str, str], str]()

    def get_password(self, service: str, username: str) -> str | None:
        if self.locked:
            raise KeyringLocked("no")
        return self.kept.get((service, username))

    def set_password(self, service: str, username: str, password: str) -> None:
        self.kept[service, username] = password

    def delete_password(self, service: str, username: str) -> None:
        del self.kept[service, username]


@pytest.fixture
def memory() -> Iterator[Memory]:
    before, backend = keyring.get_keyring(), Memory()
    keyring.set_keyring(backend)
    yield backend
    keyring.set_keyring(before)


def key_of(chain: Chain, name: str = NAME) -> str:
    return chain.get(name, ApiKey).key.get_secret_value()


def test_a_key_comes_from_the_keyring(memory: Memory) -> None:
    keyring.set_password("interlock", NAME, KEY)
    assert key_of(Chain(KeyringStore())) == KEY


def test_the_fields_of_a_credential_are_names_of_their_own(memory: Memory) -> None:
    for field, value in {"access_key_id": "AKIA123", "secret_access_key": KEY, "region": "eu-west-1"}.items():
        keyring.set_password("mine", f"aws-prod.{field}", value)
    credential = Chain(KeyringStore("mine")).get("aws-prod", AwsCredential)
    assert credential.region == "eu-west-1"
    assert credential.secret_access_key is not None
    assert credential.secret_access_key.get_secret_value() == KEY


def test_what_is_not_in_the_keyring_is_named_with_its_place(memory: Memory) -> None:
    with pytest.raises(CredentialError, match=r"anthropic-api-key in the keyring's service interlock"):
        key_of(Chain(KeyringStore()))


def test_a_locked_keyring_is_said_and_only_asked_for_what_the_others_lack(memory: Memory) -> None:
    memory.locked = True
    with pytest.raises(CredentialError, match=r"cannot be read \(KeyringLocked\): unlock"):
        key_of(Chain(KeyringStore()))
    assert key_of(Chain(EnvironmentStore({"ANTHROPIC_API_KEY": KEY}), KeyringStore())) == KEY


@pytest.mark.parametrize(
    ("package", "store", "extra"),
    [("keyring", KeyringStore(), "keyring"), ("boto3", AwsSecretsManagerStore(region="eu-west-1"), "aws")],
)
def test_a_missing_package_is_one_sentence(monkeypatch, package: str, store, extra: str) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ConfigurationError, match=rf"pip install 'interlock\[{extra}\]'"):
        store.look(NAME, None)


class Secrets:
    """AWS Secrets Manager as moto plays it."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.client = boto3.client(
            "secretsmanager",
            region_name="eu-west-1",
            endpoint_url=url,
            config=Config(retries={"total_max_attempts": 1}),
        )

    def put(self, name: str, text: str) -> None:
        try:
            self.client.create_secret(Name=name, SecretString=text)
        except self.client.exceptions.ResourceExistsException:
            self.client.put_secret_value(SecretId=name, SecretString=text)

    def store(self, **changes) -> AwsSecretsManagerStore:
        return AwsSecretsManagerStore(**{"region": "eu-west-1", "endpoint_url": self.url, **changes})


@pytest.fixture(scope="module")
def moto_url() -> Iterator[str]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def secrets(moto_url: str, monkeypatch: pytest.MonkeyPatch) -> Secrets:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    return Secrets(moto_url)


@pytest.mark.parametrize("text", [KEY, json.dumps({"key": KEY})])
def test_a_secret_is_plain_text_or_a_json_object(secrets: Secrets, text: str) -> None:
    secrets.put(f"interlock/{NAME}", text)
    assert key_of(Chain(secrets.store())) == KEY


def test_a_whole_aws_credential_is_one_secret_and_one_request(secrets: Secrets) -> None:
    fields = {"access_key_id": "AKIA123", "secret_access_key": KEY, "region": "eu-west-1"}
    secrets.put("apps/aws-prod", json.dumps(fields))
    store = secrets.store(prefix="apps/", now=lambda: 0.0)
    credential = Chain(store).get("aws-prod", AwsCredential)
    assert credential.region == "eu-west-1"
    secrets.put("apps/aws-prod", json.dumps({**fields, "region": "eu-west-2"}))
    assert store.look("aws-prod", "region").value == "eu-west-1"  # of the same look
    assert secrets.store(prefix="apps/").look("aws-prod", "region").value == "eu-west-2"


def test_a_rotated_secret_is_read_again_after_a_refresh(secrets: Secrets) -> None:
    now_s = 0.0
    chain = Chain(secrets.store(now=lambda: now_s), now=lambda: now_s)
    secrets.put(f"interlock/{NAME}", KEY)
    assert key_of(chain) == KEY
    secrets.put(f"interlock/{NAME}", KEY + "-2")
    now_s = 10.0
    assert key_of(chain) == KEY
    chain.refresh(NAME)
    assert key_of(chain) == KEY + "-2"


def test_a_secret_that_is_not_there_holds_nothing(secrets: Secrets) -> None:
    chain = Chain(secrets.store(), EnvironmentStore({"OTHER": KEY}))
    assert key_of(chain, "other") == KEY
    with pytest.raises(CredentialError, match=r"not set: looked at secret interlock/none in AWS Secrets Manager"):
        key_of(Chain(secrets.store()), "none")


def test_who_may_not_read_is_told_what_is_needed(secrets: Secrets, monkeypatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "none")
    monkeypatch.setenv("AWS_CONFIG_FILE", "none")
    with pytest.raises(CredentialError, match="AWS finds no credentials of its own here"):
        key_of(Chain(secrets.store()))


def test_a_region_is_never_guessed(secrets: Secrets) -> None:
    with pytest.raises(CredentialError, match=r"name the region: AwsSecretsManagerStore\(region="):
        key_of(Chain(secrets.store(region=None)))


def test_an_aws_that_cannot_be_reached_is_an_error(secrets: Secrets, unused_port: int) -> None:
    store = secrets.store(endpoint_url=f"http://127.0.0.1:{unused_port}")
    with pytest.raises(CredentialError, match="EndpointConnectionError"):
        key_of(Chain(store))


class Refusing(BaseHTTPRequestHandler):
    """A server that is out of order, and counts who asks."""

    asked: ClassVar[list[str]] = []

    def do_POST(self) -> None:
        self.asked.append(self.path)
        self.send_response(500)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *said: object) -> None:
        pass


def test_an_aws_that_is_out_of_order_is_asked_once(secrets: Secrets) -> None:
    """The event loop waits for the answer."""
    Refusing.asked.clear()
    with ThreadingHTTPServer(("127.0.0.1", 0), Refusing) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        try:
            with pytest.raises(CredentialError, match="cannot be read"):
                key_of(Chain(secrets.store(endpoint_url=f"http://127.0.0.1:{server.server_port}")))
        finally:
            server.shutdown()
    assert Refusing.asked == ["/"]


def test_a_secret_of_bytes_is_named_and_not_taken_for_none(secrets: Secrets) -> None:
    secrets.client.create_secret(Name="interlock/bytes", SecretBinary=b"key")
    with pytest.raises(CredentialError, match="it holds bytes, not text"):
        key_of(Chain(secrets.store(), EnvironmentStore({"BYTES": KEY})), "bytes")


def test_no_secret_is_in_any_error(secrets: Secrets) -> None:
    secrets.put("interlock/broken", json.dumps({"key": {"deep": KEY}}))
    with pytest.raises(CredentialError) as caught:
        key_of(Chain(secrets.store()), "broken")
    assert KEY not in str(caught.value)
    assert caught.value.__cause__ is None
    assert KEY not in repr(secrets.store())
