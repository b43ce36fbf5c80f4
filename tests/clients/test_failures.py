"""How a provider's no becomes one of our errors. Pure."""

from __future__ import annotations

import asyncio
import copy
import pickle
from datetime import UTC, datetime

import pytest
from hypothesis import given, strategies as st

from interlock.admission.outcome import OutcomeKind
from interlock.catalog.usage import Usage
from interlock.clients.failures import error_class, read_refusal, upstream_error
from interlock.clients.outcomes import outcome_of
from interlock.errors import (
    AdmissionTimeoutError,
    ContextWindowExceededError,
    CredentialError,
    EmptyResponseError,
    InvalidRequestError,
    MalformedResponseError,
    OutputTruncatedError,
    OverloadedError,
    ProviderRefusalError,
    QuotaExhaustedError,
    RateLimitedError,
    ResponseShapeError,
    StreamBufferError,
    StreamInterruptedError,
    TransientUpstreamError,
    UpstreamError,
)

NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)


def anthropic_body(kind: str, message: str = "No.", **details: object) -> dict[str, object]:
    return {"type": "error", "error": {"type": kind, "message": message, "details": details or None}, "request_id": "r"}


def openai_body(code: object = None, message: str = "No.", type_: object = None) -> dict[str, object]:
    return {"error": {"code": code, "message": message, "type": type_, "param": None}}


def google_body(quota_id: str, delay: str | None = None, said: str = "Quota exceeded.") -> dict[str, object]:
    details: list[object] = [{"@type": "QuotaFailure", "violations": [{"quotaId": quota_id}]}]
    details += [{"retryDelay": delay}] if delay else []
    return {"error": {"code": 429, "message": said, "status": "RESOURCE_EXHAUSTED", "details": details}}


PER_DAY, PER_MINUTE = "GenerateRequestsPerDayPerProjectPerModel-FreeTier", "GenerateRequestsPerMinutePerProjectPerModel"

TABLE = [
    # quota before rate limited
    (429, openai_body("insufficient_quota"), QuotaExhaustedError),
    (429, openai_body(None, type_="insufficient_quota"), QuotaExhaustedError),
    (403, openai_body("billing_hard_limit_reached"), QuotaExhaustedError),
    (429, openai_body("project_spend_limit_exceeded"), QuotaExhaustedError),
    (429, openai_body("organization_spend_limit_exceeded"), QuotaExhaustedError),
    (429, openai_body("credit_balance_exhausted"), QuotaExhaustedError),
    (402, {}, QuotaExhaustedError),
    (
        400,
        anthropic_body("invalid_request_error", "Your credit balance is too low to access the API."),
        QuotaExhaustedError,
    ),
    (429, anthropic_body("rate_limit_error", error_code="enforced_spend_limit_reached"), QuotaExhaustedError),
    (429, anthropic_body("rate_limit_error", error_code="contract_spend_limit_reached"), QuotaExhaustedError),
    (429, google_body(PER_DAY, "26s"), QuotaExhaustedError),
    (429, [google_body(PER_DAY)], QuotaExhaustedError),
    (429, openai_body(None, "Limit of tokens per day reached (TPD)"), QuotaExhaustedError),
    # rate limited
    (429, google_body(PER_MINUTE, "26s"), RateLimitedError),
    (429, [google_body(PER_MINUTE, "34.4s", "You exceeded your current quota.")], RateLimitedError),
    (429, openai_body("rate_limit_exceeded"), RateLimitedError),
    (429, anthropic_body("rate_limit_error"), RateLimitedError),
    (429, "slow down", RateLimitedError),
    (503, openai_body("slow_down"), RateLimitedError),
    (429, openai_body("ramp_limit_exceeded"), RateLimitedError),
    (429, openai_body(None, "The tokens in your context window per minute are used up"), RateLimitedError),
    (None, anthropic_body("rate_limit_error"), RateLimitedError),
    # overloaded before 5xx
    (529, None, OverloadedError),
    (529, anthropic_body("overloaded_error"), OverloadedError),
    (200, anthropic_body("overloaded_error"), OverloadedError),
    (503, openai_body(None, type_="overloaded"), OverloadedError),
    # transient
    (408, None, TransientUpstreamError),
    (409, None, TransientUpstreamError),
    (424, None, TransientUpstreamError),
    (500, "<html>", TransientUpstreamError),
    (502, None, TransientUpstreamError),
    (500, openai_body(None, "The maximum context length could not be read"), TransientUpstreamError),
    (503, openai_body(None, "Cannot tell whether you exceeded your current quota"), TransientUpstreamError),
    (504, {}, TransientUpstreamError),
    (None, {"error": {"message": "odd"}}, TransientUpstreamError),
    (200, anthropic_body("api_error"), TransientUpstreamError),
    (None, {"error": {"code": "503"}}, TransientUpstreamError),
    (None, {"error": {"code": 502}}, TransientUpstreamError),
    # refused
    (400, openai_body("invalid_prompt"), ProviderRefusalError),
    (400, openai_body("content_policy_violation"), ProviderRefusalError),
    (400, openai_body("content_filter", "The response was filtered"), ProviderRefusalError),
    (400, {"error": {"code": 400, "innererror": {"code": "ResponsibleAIPolicyViolation"}}}, ProviderRefusalError),
    # window
    (400, openai_body("context_length_exceeded"), ContextWindowExceededError),
    (
        400,
        anthropic_body("invalid_request_error", "prompt is too long: 1 tokens > 0 maximum"),
        ContextWindowExceededError,
    ),
    (400, openai_body(None, "This model's maximum context length is 8192 tokens"), ContextWindowExceededError),
    (400, {"message": "Input is too long for requested model."}, ContextWindowExceededError),
    (413, anthropic_body("request_too_large", "Request exceeds the maximum size"), InvalidRequestError),
    (413, openai_body(None, "This model's maximum context length is 8192 tokens"), ContextWindowExceededError),
    # keys
    (401, None, CredentialError),
    (403, None, CredentialError),
    (400, openai_body("API_KEY_INVALID"), CredentialError),
    (
        400,
        {"error": {"code": 400, "status": "INVALID_ARGUMENT", "details": [{"reason": "API_KEY_INVALID"}]}},
        CredentialError,
    ),
    (401, anthropic_body("authentication_error"), CredentialError),
    # the rest of 4xx
    (400, openai_body("invalid_value"), InvalidRequestError),
    (404, None, InvalidRequestError),
    (422, {"detail": [{"msg": "field required"}]}, InvalidRequestError),
    (400, [], InvalidRequestError),
    (302, None, InvalidRequestError),
]


@pytest.mark.parametrize(("status", "body", "class_"), TABLE, ids=range(len(TABLE)))
def test_b11_quota_vs_throttle_and_every_other_class(status, body, class_):
    assert error_class(read_refusal(status, body)) is class_


@pytest.mark.parametrize(("status", "verdict", "class_"), [
    (500, "false", UpstreamError), (429, "false", QuotaExhaustedError), (400, "true", TransientUpstreamError),
    (429, "true", RateLimitedError), (529, "true", OverloadedError), (400, "false", InvalidRequestError),
    (500, "perhaps", TransientUpstreamError),
])  # fmt: skip
def test_should_retry_decides_before_the_status(status, verdict, class_):
    assert error_class(read_refusal(status, None, {"x-should-retry": verdict})) is class_


def test_the_error_says_what_is_known():
    refusal = read_refusal(429, anthropic_body("rate_limit_error", "Too many."), {"retry-after": "9"})
    error = upstream_error(refusal, model="m", provider="p", credential="k", now=NOW)
    assert isinstance(error, RateLimitedError)
    assert str(error) == "p answered HTTP 429 for m: Too many."
    assert (error.model, error.provider, error.status, error.retry_after_s) == ("m", "p", 429, 9)
    assert (error.request_id, error.provider_code) == ("r", "rate_limit_error")


def test_a_refused_key_names_the_credential():
    error = upstream_error(read_refusal(403, None), model="m", provider="p", credential="my-key", now=NOW)
    assert isinstance(error, CredentialError)
    assert error.credential == "my-key"
    assert "'my-key'" in str(error)
    assert "access to this model" in str(error)


def test_long_bodies_are_clipped():
    error = upstream_error(read_refusal(500, "x" * 100_000), model="m", provider="p", credential=None, now=NOW)
    assert len(str(error)) < 700


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
        st.sampled_from(["error", "details", "code", "message", "type", "status", "detail", "violations", "quotaId",
                         "innererror", "error_code", "request_id"]), inner, max_size=5),
    max_leaves=16,
)  # fmt: skip
statuses = st.none() | st.integers(min_value=100, max_value=999)


@given(statuses, json_values, st.dictionaries(st.sampled_from(["retry-after", "x-should-retry"]), st.text(max_size=20)))
def test_any_error_body_becomes_a_typed_error(status, body, headers):
    error = upstream_error(read_refusal(status, body, headers), model="m", provider="p", credential=None, now=NOW)
    assert isinstance(error, UpstreamError)
    assert pickle.loads(pickle.dumps(error)).code == error.code
    assert outcome_of(error)[0] in OutcomeKind


# What an end means to admission and to the record.

USED = Usage(input_tokens=1, output_tokens=1)


@pytest.mark.parametrize(("error", "kind", "code"), [
    (RateLimitedError(""), OutcomeKind.RATE_LIMITED, "llm_rate_limited"),
    (OverloadedError(""), OutcomeKind.OVERLOADED, "llm_overloaded"),
    (TransientUpstreamError(""), OutcomeKind.UNKNOWN, "llm_transient"),
    (TransientUpstreamError("", sent=False), OutcomeKind.UNSENT, "llm_transient"),
    (MalformedResponseError(""), OutcomeKind.UNKNOWN, "malformed_response"),
    (MalformedResponseError("", usage=USED), OutcomeKind.COMPLETED, "malformed_response"),
    (EmptyResponseError("", usage=USED), OutcomeKind.COMPLETED, "empty_response"),
    (QuotaExhaustedError(""), OutcomeKind.REJECTED, "quota_exhausted"),
    (CredentialError(""), OutcomeKind.REJECTED, "credential"),
    (InvalidRequestError(""), OutcomeKind.REJECTED, "invalid_request"),
    (InvalidRequestError("", sent=False), OutcomeKind.UNSENT, "invalid_request"),
    (ProviderRefusalError("", usage=USED), OutcomeKind.COMPLETED, "provider_refusal"),
    (ProviderRefusalError("", status=400), OutcomeKind.REJECTED, "provider_refusal"),
    (OutputTruncatedError("", usage=USED), OutcomeKind.COMPLETED, "output_truncated"),
    (ResponseShapeError("", usage=USED), OutcomeKind.COMPLETED, "response_shape"),
    (ContextWindowExceededError("", status=400), OutcomeKind.REJECTED, "context_window_exceeded"),
    (ContextWindowExceededError("", usage=USED), OutcomeKind.COMPLETED, "context_window_exceeded"),
    (StreamInterruptedError("", usage=USED), OutcomeKind.UNKNOWN, "stream_interrupted"),
    (StreamBufferError(""), OutcomeKind.ABANDONED, "stream_buffer"),
    (asyncio.CancelledError(), OutcomeKind.ABANDONED, "cancelled"),
    (GeneratorExit(), OutcomeKind.ABANDONED, "cancelled"),
    (AdmissionTimeoutError(""), OutcomeKind.UNKNOWN, "admission_timeout"),
    (ZeroDivisionError(), OutcomeKind.UNKNOWN, "unclassified"),
], ids=str)  # fmt: skip
def test_outcome_of_each_end(error, kind, code):
    assert outcome_of(error) == (kind, code)


@pytest.mark.parametrize(("status", "body", "class_"), TABLE[::3], ids=range(len(TABLE[::3])))
def test_b60_exception_pickling(status, body, class_):
    refusal = read_refusal(status, body, {"retry-after": "3", "request-id": "req_1"}, "req_1")
    error = upstream_error(refusal, model="m", provider="p", credential="k", now=NOW)
    for twin in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):
        assert type(twin) is class_
        assert (str(twin), twin.status, twin.retry_after_s, twin.request_id) == (
            str(error),
            error.status,
            3,
            error.request_id,
        )


@pytest.mark.parametrize(
    ("status", "body", "per_day"),
    [
        (429, google_body(PER_DAY, "26s"), True),
        (429, openai_body(None, "Limit of tokens per day reached (TPD)"), True),
        (429, openai_body("insufficient_quota"), False),
        (402, {}, False),
        (402, {"message": "Your requests per day are not paid for."}, False),
        (429, openai_body("insufficient_quota", "Pay, or wait: tokens per day are used up."), False),
    ],
)
def test_a_quota_of_the_day_says_so_and_money_does_not(status: int, body: object, per_day: bool) -> None:
    refusal = read_refusal(status, body)
    error = upstream_error(refusal, model="m", provider="p", credential=None, now=datetime(2026, 11, 30, tzinfo=UTC))
    assert isinstance(error, QuotaExhaustedError)
    assert error.per_day is per_day


def test_aws_may_put_an_address_behind_the_word_in_its_header() -> None:
    words = {
        "ThrottlingException": RateLimitedError,
        "ServiceUnavailableException": TransientUpstreamError,
        "ExpiredTokenException": CredentialError,
    }
    for word, class_ in words.items():
        headers = {"x-amzn-errortype": f"{word}:http://internal.amazon.com/coral/com.amazon.coral.service/"}
        refusal = read_refusal(503 if word.startswith("Service") else 400, {"message": "No."}, headers)
        assert error_class(refusal) is class_
        assert refusal.words == {word.lower()}
