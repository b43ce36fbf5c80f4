"""What headers say about time and limits. Pure: `now` is an argument."""

from __future__ import annotations

import math
from datetime import UTC, datetime

import pytest
from hypothesis import given, strategies as st

from interlock.admission.outcome import Dimension
from interlock.clients.hints import anthropic_limits, duration, openai_limits, retry_hint, until, wait

NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(("value", "expected"), [
    ("0", 0), ("2", 2), ("1.5", 1.5), (" 3 ", 3), ("1e3", 1000), ("-1", None), ("", None), ("nan", None), ("inf", None),
    ("Infinity", None), ("1e999", None), ("1_000", None), ("٣", None), ("soon", None), ("9" * 400, None), (None, None),
    ("Wed, 21 Oct 2015 07:28:00 GMT", 0),                       # past
    ("Mon, 30 Nov 2026 12:00:30 GMT", 30),                      # IMF
    ("Monday, 30-Nov-26 12:00:30 GMT", 30),                     # RFC 850
    ("Mon Nov 30 12:00:30 2026", 30),                           # asctime
    ("Mon, 30 Nov 2026 12:00:30 -0000", 30),                    # no zone at all
    ("Mon, 30 Nov 2026 13:00:30 +0100", 30),
    ("2026-11-30T12:00:30Z", 30), ("2026-11-30T12:00:30", 30), ("2026-11-30 13:00:30+01:00", 30),
    ("1700000000", 0), (str(int(NOW.timestamp()) + 90), 90),    # an epoch
    ("6m0s", 360), ("17ms", 0.017), ("26s", 26), ("6m0", None), ("m", None), ("99999-01-01T00:00:00Z", None),
])  # fmt: skip
def test_b08_retry_after_forms(value, expected):
    assert wait(value, now=NOW) == (expected if expected is None else pytest.approx(expected))
    assert retry_hint({"retry-after": value} if value is not None else {}, now=NOW) == wait(value, now=NOW)


@pytest.mark.parametrize(("headers", "expected"), [
    ({"retry-after-ms": "250"}, 0.25),
    ({"retry-after-ms": "250", "retry-after": "9"}, 0.25),
    ({"retry-after-ms": "0", "retry-after": "9"}, 0),
    ({"retry-after-ms": "x", "retry-after": "9"}, 9),
    ({"retry-after-ms": "-1", "retry-after": "9"}, 9),
    ({}, None),
])  # fmt: skip
def test_b08_milliseconds_beat_seconds_where_they_can_be_read(headers, expected):
    assert retry_hint(headers, now=NOW) == expected


@pytest.mark.parametrize(("value", "expected"), [
    ("6m0s", 360), ("1.5s", 1.5), ("17ms", 0.017), ("23h47m36.648s", 85656.648), ("60", 60), ("34.4s", 34.4),
    ("45.837906927s", 45.837906927), ("0s", 0), ("1d2h", 93600), ("", None), ("s", None), ("1x", None), ("-1s", None),
    ("1s ", 1), (60, 60), (True, None), (["1s"], None), ("1s1", None),
])  # fmt: skip
def test_b08_durations(value, expected):
    assert duration(value) == (expected if expected is None else pytest.approx(expected))


@pytest.mark.parametrize(("details", "headers", "expected"), [
    ([{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "34.4s"}], {}, 34.4),
    ([{"retryDelay": "45.837906927s"}], {}, 45.837906927),
    ([{"retryDelay": "0s"}], {}, 0),
    ([{"retryDelay": "39s"}], {"retry-after": "2"}, 2),
    ([{"retryDelay": "39"}], {}, 39),
    ([{"retryDelay": "tomorrow"}], {}, None),
    ([{"retryDelay": {"seconds": 3}}], {}, None),
    ([], {}, None), ({"retryDelay": "1s"}, {}, None), ("1s", {}, None), ([7, None], {}, None),
])  # fmt: skip
@pytest.mark.parametrize("wrapped", [False, True], ids=["object", "in-a-list"])
def test_b43_retry_info_in_the_body(details, headers, expected, wrapped):
    body = {"error": {"code": 429, "details": details}}
    assert retry_hint(headers, [body] if wrapped else body, now=NOW) == expected
    assert retry_hint(headers, body["error"], now=NOW) == expected, "an SDK may have unwrapped it"


junk = st.one_of(st.text(max_size=200), st.floats(), st.integers(), st.none(), st.booleans(), st.binary(max_size=9))
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=12),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["error", "details", "retryDelay", "code", "message", "type", "status", "x"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(junk, json_values)
def test_b08_never_raises_and_never_gives_nonsense(value, body):
    for found in (
        wait(value, now=NOW),
        duration(value),
        until(value, now=NOW),
        retry_hint({"retry-after": str(value), "retry-after-ms": str(value)}, body, now=NOW),
    ):
        assert found is None or (math.isfinite(found) and found >= 0)


@given(st.floats(min_value=0, max_value=1e8, allow_nan=False))
def test_b08_a_plain_number_is_itself(number):
    assert wait(repr(number), now=NOW) == pytest.approx(number)


def test_anthropic_limit_headers():
    headers = {
        "anthropic-ratelimit-requests-limit": "1000", "anthropic-ratelimit-requests-remaining": "998",
        "anthropic-ratelimit-requests-reset": "2026-11-30T12:00:07Z",
        "anthropic-ratelimit-input-tokens-limit": "500000", "anthropic-ratelimit-input-tokens-remaining": "499000",
        "anthropic-ratelimit-input-tokens-reset": "2026-11-30T12:00:01Z",
        "anthropic-ratelimit-output-tokens-remaining": "0", "anthropic-ratelimit-tokens-limit": "many",
    }  # fmt: skip
    found = anthropic_limits(headers, now=NOW)
    assert found.keys() == {Dimension.REQUESTS, Dimension.INPUT_TOKENS, Dimension.OUTPUT_TOKENS}
    requests = found[Dimension.REQUESTS]
    assert (requests.limit, requests.remaining, requests.reset_s) == (1000, 998, 7)
    assert (found[Dimension.OUTPUT_TOKENS].limit, found[Dimension.OUTPUT_TOKENS].remaining) == (None, 0)


def test_openai_limit_headers():
    headers = {"x-ratelimit-limit-requests": "60", "x-ratelimit-remaining-requests": "59",
               "x-ratelimit-reset-requests": "1s", "x-ratelimit-limit-tokens": "150000",
               "x-ratelimit-remaining-tokens": "149984", "x-ratelimit-reset-tokens": "6m0s"}  # fmt: skip
    found = openai_limits(headers, now=NOW)
    assert (found[Dimension.REQUESTS].limit, found[Dimension.REQUESTS].reset_s) == (60, 1)
    assert (found[Dimension.TOKENS].remaining, found[Dimension.TOKENS].reset_s) == (149984, 360)
    assert openai_limits({}, now=NOW) == {}
