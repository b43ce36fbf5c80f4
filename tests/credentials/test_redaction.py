"""B30: no secret in text, values, errors or their chains; of a long one at most the last four characters."""

from __future__ import annotations

import base64
import json
import traceback
from collections.abc import Callable
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given, strategies as st

from interlock.credentials import Redactor
from interlock.errors import TransientUpstreamError

SECRET = "AIzaSyD-verysecret+key/with=signs.9876"
REDACTOR = Redactor([SECRET, "short-pw"])


@pytest.mark.parametrize(
    "text",
    [
        f"https://host/v1beta/models/m:generateContent?key={SECRET}&alt=sse",
        f"https://host/v1beta?alt=sse&key={quote(SECRET, safe='')}",
        f"Location: https://elsewhere/?key={SECRET}",
        json.dumps({"error": {"message": f"API key not valid: {SECRET}"}}),
        f"Authorization: Bearer {SECRET}",
        f"basic {base64.b64encode(SECRET.encode()).decode()}",
        f"http.url={quote(f'https://host/?key={SECRET}', safe='')}",
        repr({"x-api-key": SECRET}),
        SECRET * 3,
    ],
)
def test_b30_a_registered_key_goes_wherever_it_is_echoed(text: str) -> None:
    shown = REDACTOR.redact(text)
    for at in range(len(SECRET) - 5):
        assert SECRET[at : at + 6] not in shown
    assert "[redacted" in shown


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("GET https://h/x?key=AbCdEf123456&a=1", "GET https://h/x?key=[redacted]&a=1"),
        ("authorization: Bearer abcdefgh12345678zzzz", "authorization: Bearer [redacted ...zzzz]"),
        ("'x-api-key': 'abc123def456'", "'x-api-key': '[redacted]'"),
        ('{"api_key": "0123456789abcdef0123"}', '{"api_key": "[redacted ...0123]"}'),
        ("token sk-ant-api03-0123456789abcdef", "token [redacted ...cdef]"),
        ("AKIAIOSFODNN7EXAMPLE is not authorized", "[redacted ...MPLE] is not authorized"),
        ("postgresql://user:hunter2@db.example/interlock", "postgresql://user:[redacted]@db.example/interlock"),
        ("aws_secret_access_key=wJalrXUtnFEMI/K7MDENG", "aws_secret_access_key=[redacted ...DENG]"),
    ],
)
def test_b30_what_looks_like_a_secret_goes_too(text: str, expected: str) -> None:
    assert Redactor().redact(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "credential anthropic-api-key: environment variable ANTHROPIC_API_KEY holds a line break",
        "credential openai-api-key is not set: looked at environment variable OPENAI_API_KEY",
        "model claude-haiku-direct is skipped: its key is not set",
        "The key=value pairs of a mapping; a bearer of news",
        "http://127.0.0.1:8080/v1/messages",
        "12 tokens, sk-1",
    ],
)
def test_b30_ordinary_words_stay(text: str) -> None:
    assert Redactor().redact(text) == text


def test_b30_at_most_four_characters_stay_and_none_of_a_short_secret() -> None:
    assert REDACTOR.redact(f"<{SECRET}>") == "<[redacted ...9876]>"
    assert REDACTOR.redact("<short-pw>") == "<[redacted]>"


def test_redacting_twice_changes_nothing_more() -> None:
    once = REDACTOR.redact(f"?key={SECRET} Bearer {SECRET} api_key={SECRET} short-pw")
    assert REDACTOR.redact(once) == once


def test_values_keep_their_shape() -> None:
    value = {"url": f"?key={SECRET}", "list": [SECRET, 5, None], "pair": (SECRET, 1.5), SECRET: True}
    assert REDACTOR.redact_value(value) == {
        "url": "?key=[redacted ...9876]",
        "list": ["[redacted ...9876]", 5, None],
        "pair": ("[redacted ...9876]", 1.5),
        "[redacted ...9876]": True,
    }


class ForeignError(Exception):
    """As an HTTP library's: it holds the request it was made for."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.request = {"headers": {"authorization": f"Bearer {SECRET}"}}


def raised_from_a_library() -> TransientUpstreamError:
    try:
        try:
            try:
                raise ValueError(f"bad header {SECRET!r}")
            except ValueError as deepest:
                raise ForeignError(f"https://h/?key={SECRET}") from deepest
        except ForeignError as cause:
            raise TransientUpstreamError(f"no answer to ?key={SECRET}", provider_code=SECRET) from cause
    except TransientUpstreamError as error:
        error.add_note(f"note {SECRET}")
        return error


def test_b30_an_error_loses_the_key_in_its_text_attributes_notes_and_chain() -> None:
    error = REDACTOR.scrub(raised_from_a_library())
    shown = "".join(traceback.format_exception(error)) + repr(vars(error)) + repr(error.args)
    chain: BaseException | None = error
    while chain is not None:
        shown += repr(chain) + repr(vars(chain)) + repr(chain.args)
        assert chain.__context__ is None or chain.__context__ is chain.__cause__
        chain = chain.__cause__
    assert SECRET not in shown
    assert "ForeignError: https://h/?key=[redacted ...9876]" in shown
    assert "ValueError: bad header '[redacted ...9876]'" in shown


def test_an_error_raised_while_handling_another_is_scrubbed_through_its_context() -> None:
    try:
        try:
            raise ForeignError(SECRET)
        except ForeignError:
            raise TransientUpstreamError("second") from None
    except TransientUpstreamError as error:
        hidden = REDACTOR.scrub(error)
    assert hidden.__context__ is None
    first, second = TransientUpstreamError("a"), TransientUpstreamError(SECRET)
    first.__context__, second.__context__ = second, first
    assert SECRET not in str(REDACTOR.scrub(first).__context__)


@given(st.text(min_size=6, max_size=60), st.text(max_size=40), st.text(max_size=40))
def test_a_registered_secret_never_survives(secret: str, before: str, after: str) -> None:
    redactor = Redactor([secret])
    shown = redactor.redact(before + secret + after)
    assert "[redacted" in shown
    assert secret not in shown


@given(st.text(max_size=300))
def test_any_text_can_be_redacted(text: str) -> None:
    assert isinstance(REDACTOR.redact(text), str)


def test_a_great_many_secrets_stay_bounded() -> None:
    redactor = Redactor(f"secret-number-{n:06}" for n in range(600))
    assert "599" not in redactor.redact("secret-number-000599").replace("0599]", "")
    assert redactor.redact("secret-number-000001") == "secret-number-000001"  # long rotated away


@pytest.mark.parametrize(
    "write",
    [
        lambda secret: secret,
        lambda secret: json.dumps(secret)[1:-1],
        lambda secret: quote(secret, safe=""),
        quote_plus,
        lambda secret: base64.b64encode(secret.encode()).decode(),
        lambda secret: base64.urlsafe_b64encode(secret.encode()).decode(),
    ],
    ids=["as it is", "json", "percent", "form", "base64", "base64-url"],
)
def test_b30_a_registered_secret_is_known_however_it_is_written(write: Callable[[str], str]) -> None:
    """No name stands before it, and it has no provider's prefix: only that it was registered gives it away."""
    secret = 'pa"ss\\word>with all?of it~~'
    said = f"the server said <{write(secret)}> and closed"
    shown = Redactor([secret]).redact(said)
    assert write(secret) not in shown
    assert shown.startswith("the server said <[redacted")
    assert shown.endswith("> and closed")
