"""A provider's words are kept out of errors where they repeat the state."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, strategies as st

from interlock.decisions.echo import _quotes, repeats_state
from interlock.decisions.providers.systemone import read_detail

STATE = {"ticket": "My card 4111 1111 1111 1111 was charged twice on Monday", "name": "Zoë", "iban": 370400440532013000}


@pytest.mark.parametrize(
    "message",
    [
        "input 'My card 4111 1111 1111 1111 was...' is not valid",
        "MY CARD 4111111111111111",
        "unexpected value Zoë",
        "value 370400440532013000 out of range",
        "...was charged\n twice on...",
    ],
)
def test_a_quote_is_seen(message: str) -> None:
    assert repeats_state(message, STATE)


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ({"name": "Zoë Müller"}, json.dumps({"name": "Zoë Müller"})),
        ({"name": "Zoë Müller"}, json.dumps(json.dumps({"name": "Zoë Müller"}))),
        ({"name": "Zoë Müller"}, "bad 'Zo\\xeb M\\xfcller'"),
        (["Клиент жалуется на двойное списание"], ascii("Клиент жалуется на двойное списание")),
        (["𠮷野家で二重に請求された件"], json.dumps("𠮷野家で二重に請求された件")),
        ("line one\nline two\nthree", json.dumps("line one\nline two\nthree")),
        ({"by": "O'Brien"}, "bad value O\\'Brien"),
        ({"by": "O'Brien & Sons"}, "bad value O&#x27;Brien &amp; Sons"),
        ("My card 4111 1111", "path /My%20card%204111%201111"),
        ({"card": "4111-1111-1111-1111"}, "bad card 4111111111111111"),
        ({"amount": 1234567.0}, "bad amount 1234567"),
        ({"amount": 1234567}, "bad amount 1,234,567"),
        ({"a@b.io": 1}, "unexpected key a@b.io"),
    ],
)
def test_a_quote_is_seen_however_it_is_written(state: Any, message: str) -> None:
    assert repeats_state(message, state)


def test_a_long_message_about_a_long_state_is_judged_at_once() -> None:
    """By as many looks at the state as the message has halves of a run, not letters."""
    looks = 0

    class Counting(str):
        __slots__ = ()

        def __contains__(self, part: str) -> bool:  # type: ignore[override]
            nonlocal looks
            looks += 1
            return super().__contains__(part)

    assert not _quotes("x" * 600, Counting("word" * 100))
    assert looks == 100
    assert _quotes("x" * 5 + "wordwordword" + "x" * 9, Counting("word" * 100))


@pytest.mark.parametrize("message", ["", "Unknown model: jev-9", "ticket: Input should be a valid string", "slow down"])
def test_a_plain_message_is_no_quote(message: str) -> None:
    assert not repeats_state(message, STATE)


@given(st.text(min_size=12, max_size=80).filter(lambda text: len("".join(text.split()).casefold()) >= 12), st.data())
def test_any_run_of_the_state_is_seen(text: str, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(text) - 1))
    quoted = text[start:]
    if len("".join(quoted.split()).casefold()) >= 24:
        assert repeats_state(f"error near {quoted}", [{"deep": [text]}])


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"detail": {"error_type": "System_Overloaded", "message": "later"}}, ("system_overloaded", "later")),
        ({"detail": "plain words"}, (None, "plain words")),
        ({"detail": {"type": "bad", "message": "m"}}, ("bad", "m")),
        ({"detail": {"error_type": 3, "message": ["x"]}}, (None, "")),
        (
            {"detail": [{"loc": ["body", "state", 0], "msg": "an echo", "input": "echo", "type": "str_type"}]},
            ("validation_error", "body.state.0: str_type"),
        ),
        (
            {"detail": [{"loc": ["body", "state", "Zoë", 3, "dict[str,any]"], "type": "str_type"}]},
            ("validation_error", "body.state.3: str_type"),
        ),
        (
            {"detail": [{}, 3, {"loc": "x", "type": None}]},
            ("validation_error", "somewhere: invalid; somewhere: invalid"),
        ),
        ({"detail": []}, ("validation_error", "")),
        ({}, (None, "")),
        ([], (None, "")),
        (None, (None, "")),
        ("text", (None, "")),
    ],
)
def test_details_of_every_shape_are_read(body: Any, expected: tuple[str | None, str]) -> None:
    assert read_detail(body) == expected
