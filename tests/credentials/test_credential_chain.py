"""Credentials by id: where they are looked for, how they are read again, and what their errors say and never say."""

from __future__ import annotations

import logging
import os
import pickle
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from interlock.credentials import (
    ApiKey,
    AwsCredential,
    Chain,
    EnvironmentStore,
    FileStore,
    Redactor,
    VertexCredential,
)
from interlock.errors import CredentialError

KEY = "sk-ant-api03-abcdefghijklmnopqrst-WXYZ"


class Time:
    """A clock that stands until it is moved, in seconds."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def environment(**variables: str) -> Chain:
    return Chain(EnvironmentStore(variables))


def key_of(chain: Chain, name: str = "anthropic-api-key", **more) -> str:
    return chain.get(name, ApiKey, **more).key.get_secret_value()


def secret_file(tmp_path: Path, text: str, mode: int = 0o600) -> FileStore:
    path = tmp_path / "credentials.toml"
    path.write_text(text)
    path.chmod(mode)
    return FileStore(path)


@pytest.fixture
def refused() -> Callable[..., str]:
    """The message of a refused credential, after checking that no value is anywhere in the error."""

    def get(chain: Chain, name: str = "anthropic-api-key", shape=ApiKey, *, secret: str = KEY, **more) -> str:
        with pytest.raises(CredentialError) as caught:
            chain.get(name, shape, **more)
        error = caught.value
        assert (error.credential, error.sent) == (name, False)
        shown = "".join(traceback.format_exception(error)) + repr(error.__dict__) + repr(pickle.dumps(error))
        assert secret not in shown
        assert len(str(error).splitlines()) == 1
        return str(error)

    return get


def test_an_id_is_its_variable_in_capitals() -> None:
    assert key_of(environment(ANTHROPIC_API_KEY=KEY)) == KEY
    assert key_of(environment(MY_TEAM_KEY_2="v4lue-of-it"), "my-team.key-2") == "v4lue-of-it"


def test_a_value_is_stripped_and_never_shown() -> None:
    credential = environment(ANTHROPIC_API_KEY=f"  {KEY}\n").get("anthropic-api-key")
    assert credential.key.get_secret_value() == KEY
    assert KEY not in repr(credential) + str(credential) + credential.model_dump_json()
    with pytest.raises(ValueError, match="frozen"):
        credential.key = credential.key  # type: ignore[misc]


@pytest.mark.parametrize("variables", [{}, {"OPENAI_API_KEY": ""}, {"OPENAI_API_KEY": " \n"}])
def test_b75_unset_and_empty_are_the_same_and_named(refused, variables: dict[str, str]) -> None:
    message = refused(environment(**variables), "openai-api-key")
    assert message == "credential openai-api-key is not set: looked at environment variable OPENAI_API_KEY"


@pytest.mark.parametrize("value", ["${OPENAI_API_KEY}", "$OPENAI_API_KEY", "${A}${B}", " ${A} ", "%KEY%", "<your-key>"])
def test_b75_an_unexpanded_placeholder_is_refused_not_sent(refused, value: str) -> None:
    message = refused(environment(OPENAI_API_KEY=value), "openai-api-key", secret=value.strip())
    assert "environment variable OPENAI_API_KEY holds an unexpanded placeholder" in message


@pytest.mark.parametrize("value", ["sk-$ecret$1234567", "abc$", "$1a2b3c4d", "a${b}c-secret"])
def test_b75_a_dollar_inside_a_value_is_a_dollar(value: str) -> None:
    assert key_of(environment(OPENAI_API_KEY=value), "openai-api-key") == value


@pytest.mark.parametrize("bad", ["\n", "\r", "\t", "\x00", "\x1b", "\x7f", "\u2028", "é", "\ud800"])
def test_b75_a_control_character_inside_a_value_is_refused_without_showing_it(refused, bad: str) -> None:
    value = KEY[:10] + bad + KEY[10:]
    message = refused(environment(ANTHROPIC_API_KEY=value), secret=KEY[:10])
    assert "environment variable ANTHROPIC_API_KEY holds a" in message


def test_b75_a_rotated_key_is_taken_up_within_minutes_and_at_once_after_a_401() -> None:
    clock, variables = Time(), {"ANTHROPIC_API_KEY": "first-key-1234567"}
    chain = Chain(EnvironmentStore(variables), now=clock)
    assert key_of(chain) == "first-key-1234567"
    variables["ANTHROPIC_API_KEY"] = "second-key-123456"
    clock.now_s = 179.0
    assert key_of(chain) == "first-key-1234567"
    clock.now_s = 180.0
    assert key_of(chain) == "second-key-123456"
    variables["ANTHROPIC_API_KEY"] = "third-key-1234567"
    assert key_of(chain) == "second-key-123456"
    chain.refresh("anthropic-api-key")
    assert key_of(chain) == "third-key-1234567"


def test_b75_a_key_taken_away_is_missed_on_the_next_reading() -> None:
    variables = {"ANTHROPIC_API_KEY": KEY}
    chain = Chain(EnvironmentStore(variables), now=Time())
    assert key_of(chain) == KEY
    del variables["ANTHROPIC_API_KEY"]
    chain.refresh("anthropic-api-key")
    with pytest.raises(CredentialError, match="is not set"):
        chain.get("anthropic-api-key")


def test_b75_another_account_is_never_taken_silently(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    variables = {"ANTHROPIC_API_KEY": KEY}
    chain = Chain(
        EnvironmentStore(variables), secret_file(tmp_path, 'anthropic-api-key = "another-account-1"'), now=Time()
    )
    assert key_of(chain) == KEY
    variables["ANTHROPIC_API_KEY"] = ""
    chain.refresh("anthropic-api-key")
    with caplog.at_level(logging.WARNING):
        assert key_of(chain) == "another-account-1"
    assert "anthropic-api-key now comes from anthropic-api-key in file" in caplog.text
    assert "before from environment variable ANTHROPIC_API_KEY" in caplog.text
    assert KEY not in caplog.text


def test_further_ids_of_a_provider_are_tried_after_the_first(refused) -> None:
    chain = environment(GOOGLE_API_KEY="google-value-1")
    assert key_of(chain, "gemini-api-key", aliases=("google-api-key",)) == "google-value-1"
    both = environment(GOOGLE_API_KEY="google-value-1", GEMINI_API_KEY="gemini-value-1")
    assert key_of(both, "gemini-api-key", aliases=("google-api-key",)) == "gemini-value-1"
    message = refused(environment(), "gemini-api-key", aliases=("google-api-key",))
    assert "environment variable GEMINI_API_KEY, environment variable GOOGLE_API_KEY" in message


def test_b75_refreshed_under_a_further_id_it_is_read_again() -> None:
    environ = {"GOOGLE_API_KEY": "google-value-1"}
    chain = Chain(EnvironmentStore(environ))
    assert key_of(chain, "gemini-api-key", aliases=("google-api-key",)) == "google-value-1"
    environ["GOOGLE_API_KEY"] = "google-value-2"
    assert key_of(chain, "gemini-api-key", aliases=("google-api-key",)) == "google-value-1"
    chain.refresh("google-api-key")
    assert key_of(chain, "gemini-api-key", aliases=("google-api-key",)) == "google-value-2"


def test_the_first_store_that_has_it_wins_and_all_are_named(tmp_path: Path, refused) -> None:
    store = secret_file(tmp_path, 'anthropic-api-key = "from-the-file-1"\n[openai-api-key]\nkey = "in-a-table-1"\n')
    chain = Chain(EnvironmentStore({"ANTHROPIC_API_KEY": KEY}), store)
    assert key_of(chain) == KEY
    assert key_of(Chain(store, EnvironmentStore({"ANTHROPIC_API_KEY": KEY}))) == "from-the-file-1"
    assert key_of(chain, "openai-api-key") == "in-a-table-1"
    message = refused(chain, "absent-key")
    assert f"environment variable ABSENT_KEY, absent-key in file {tmp_path / 'credentials.toml'}" in message


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o777])
def test_a_file_that_others_can_read_is_refused(tmp_path: Path, refused, mode: int) -> None:
    message = refused(Chain(secret_file(tmp_path, f'anthropic-api-key = "{KEY}"', mode)))
    assert f"can be read by others (mode {mode:04o}): run chmod 600 on it" in message


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (f"anthropic-api-key = {KEY}", "is not TOML (at line 1"),
        (f'anthropic-api-key = "{KEY}"\nanthropic-api-key = "{KEY}"', "is not TOML (at"),
        (f'anthropic-api-key = "{KEY}', "is not TOML"),
        ("anthropic-api-key = 5", "must be a text in quotes"),
        ("anthropic-api-key = [1]", "must be a text in quotes"),
        ("\x00", "is not TOML"),
        ("anthropic-api-key = '${KEY}'", "holds an unexpanded placeholder"),
        ("anthropic-api-key = ''", "is not set"),
        ("anthropic-api-key.other = 'x'", "is not set"),
    ],
)
def test_a_file_that_is_wrong_says_where_and_shows_nothing_of_it(tmp_path: Path, refused, text: str, says: str) -> None:
    assert says in refused(Chain(secret_file(tmp_path, text)))


def test_a_file_that_is_not_there_or_no_file_or_not_text(tmp_path: Path, refused) -> None:
    assert "is not set" in refused(Chain(FileStore(tmp_path / "absent.toml")))
    assert "cannot be read" in refused(Chain(FileStore(tmp_path)))
    os.mkfifo(tmp_path / "pipe", 0o600)
    assert "is not a regular file" in refused(Chain(FileStore(tmp_path / "pipe")))
    path = tmp_path / "bytes.toml"
    path.write_bytes(b"\xff\xfe")
    path.chmod(0o600)
    assert "is not TOML" in refused(Chain(FileStore(path)))


def test_a_rewritten_file_is_read_again(tmp_path: Path) -> None:
    chain = Chain(secret_file(tmp_path, 'anthropic-api-key = "first-value-12"'), now=Time())
    assert key_of(chain) == "first-value-12"
    secret_file(tmp_path, 'anthropic-api-key = "second-value-1"')
    chain.refresh("anthropic-api-key")
    assert key_of(chain) == "second-value-1"


AWS = {"AWS_ACCESS_KEY_ID": "AKIAEXAMPLE", "AWS_SECRET_ACCESS_KEY": "wJalrXUtnFEMIK7MDENG"}


def test_aws_reads_its_usual_variables_and_a_second_account_its_own() -> None:
    chain = environment(**AWS, AWS_SESSION_TOKEN="token-value", AWS_REGION="eu-west-1", AWS_PROD_PROFILE="prod")
    first = chain.get("aws", AwsCredential)
    assert first.access_key_id is not None
    assert first.access_key_id.get_secret_value() == "AKIAEXAMPLE"
    assert (first.region, first.profile) == ("eu-west-1", None)
    second = chain.get("aws-prod", AwsCredential)
    assert (second.profile, second.access_key_id, second.region) == ("prod", None, None)


@pytest.mark.parametrize(
    ("variables", "region"),
    [
        ({"AWS_REGION": "eu-west-1"}, "eu-west-1"),
        ({"AWS_DEFAULT_REGION": "eu-west-2"}, "eu-west-2"),
        ({"AWS_REGION": "eu-west-1", "AWS_DEFAULT_REGION": "eu-west-2"}, "eu-west-1"),
        ({"AWS_PROFILE": "work"}, None),
        ({}, None),
    ],
)
def test_b73_a_region_is_read_in_the_documented_order_and_never_guessed(variables, region: str | None) -> None:
    assert environment(**variables).get("aws", AwsCredential).region == region


def test_no_record_is_the_clouds_own_way_of_finding_one() -> None:
    assert environment().get("aws", AwsCredential) == AwsCredential()
    assert environment().get("google-cloud", VertexCredential) == VertexCredential()
    variables = {"GOOGLE_CLOUD_PROJECT": "p1", "GOOGLE_CLOUD_LOCATION": "europe-west4"}
    assert environment(**variables).get("google-cloud", VertexCredential).project == "p1"


@pytest.mark.parametrize("missing", ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"])
def test_half_a_credential_is_an_error_naming_where(refused, missing: str) -> None:
    half = {name: value for name, value in AWS.items() if name != missing}
    message = refused(environment(**half), "aws", AwsCredential, secret="wJalrXUtnFEMIK7MDENG")
    assert missing.removeprefix("AWS_").lower() in message
    assert f"environment variable {next(iter(half))}" in message


def test_a_session_token_alone_is_an_error(refused) -> None:
    message = refused(environment(AWS_SESSION_TOKEN="token-value-1"), "aws", AwsCredential, secret="token-value-1")
    assert "has session_token but no access_key_id" in message


def test_who_is_calling_comes_from_one_store_and_the_region_from_any(tmp_path: Path, refused) -> None:
    store = secret_file(tmp_path, '[aws]\naccess_key_id = "AKIAFILE"\nsecret_access_key = "file-secret-value"\n')
    region_only = Chain(EnvironmentStore({"AWS_REGION": "eu-west-1"}), store).get("aws", AwsCredential)
    assert region_only.access_key_id is not None
    assert (region_only.access_key_id.get_secret_value(), region_only.region) == ("AKIAFILE", "eu-west-1")
    # A key id of the environment must not be paired with the secret of another account in the file.
    refused(
        Chain(EnvironmentStore({"AWS_ACCESS_KEY_ID": "AKIAENV"}), store), "aws", AwsCredential, secret="file-secret"
    )


def test_what_is_read_is_registered_for_redaction() -> None:
    redactor = Redactor()
    chain = Chain(EnvironmentStore({"ANTHROPIC_API_KEY": KEY, **AWS, "AWS_REGION": "eu-west-1"}), redactor=redactor)
    chain.get("anthropic-api-key")
    chain.get("aws", AwsCredential)
    shown = redactor.redact(f"{KEY} wJalrXUtnFEMIK7MDENG AKIAEXAMPLE eu-west-1")
    assert shown == "[redacted ...WXYZ] [redacted ...DENG] [redacted] eu-west-1"
    assert chain.redactor is redactor


def test_describe_says_where_and_whether_and_nothing_else(tmp_path: Path) -> None:
    chain = Chain(EnvironmentStore({"ANTHROPIC_API_KEY": KEY}), secret_file(tmp_path, "= broken"))
    said = chain.describe("anthropic-api-key")
    assert "environment variable ANTHROPIC_API_KEY (set)" in said
    assert "credentials.toml (cannot be read)" in said
    assert "AWS_REGION (not set)" in chain.describe("aws", AwsCredential)
    assert KEY not in said + repr(chain)


def test_two_shapes_of_one_id_do_not_mix() -> None:
    chain = environment(AWS="bare-value-123", AWS_REGION="eu-west-1")
    assert chain.get("aws", AwsCredential).region == "eu-west-1"
    assert key_of(chain, "aws") == "bare-value-123"


def test_the_default_chain_is_the_environment_then_the_users_file() -> None:
    assert repr(Chain.default()).startswith("Chain(EnvironmentStore(), FileStore(")


@given(st.text(max_size=60))
def test_any_value_is_read_whole_or_refused_by_name(value: str) -> None:
    chain = environment(SOME_KEY=value)
    problem = None
    try:
        got = key_of(chain, "some-key")
    except CredentialError as error:
        problem = str(error)
    if problem is None:
        assert got == value.strip()
        assert got.isascii()
        assert got.isprintable()
    else:
        assert "some-key" in problem
        assert "SOME_KEY" in problem
        if len(value.strip()) > 8:
            assert value.strip() not in problem
