"""Errors of Google's APIs: a status by name, and details that say which quota and how long to wait."""

from __future__ import annotations

from typing import Any

from ..buckets import Refused
from ..script import Failure
from .wire import Refusing

_NAMES = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    409: "ABORTED",
    429: "RESOURCE_EXHAUSTED",
    499: "CANCELLED",
    500: "INTERNAL",
    501: "UNIMPLEMENTED",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}
_STATUSES = {name: status for status, name in _NAMES.items()}
_IN_STREAM = {
    "overloaded_error": "UNAVAILABLE",
    "rate_limit_error": "RESOURCE_EXHAUSTED",
    "api_error": "INTERNAL",
    "timeout_error": "DEADLINE_EXCEEDED",
}
_MESSAGES = {
    "rate_limited": "Resource has been exhausted (e.g. check quota).",
    "overloaded": "The model is overloaded. Please try again later.",
    "server_error": "An internal error has occurred. Please retry or report in "
    "https://developers.generativeai.google/guide/troubleshooting",
    "quota": "You exceeded your current quota, please check your plan and billing details. For more information on "
    "this error, head to: https://ai.google.dev/gemini-api/docs/rate-limits.",
}
_TYPES = "type.googleapis.com/google.rpc."
_SERVICE = "generativelanguage.googleapis.com"
_BY_REQUEST = ("generate_requests_per_model", "GenerateRequestsPerMinutePerProjectPerModel")
_BY_TOKEN = ("generate_content_paid_tier_input_token_count", "GenerateContentPaidTierInputTokensPerModelPerMinute")
_BY_DAY = ("generate_requests_per_model_per_day", "GenerateRequestsPerDayPerProjectPerModel")


def status_named(kind: str) -> tuple[int, str]:
    """The status and its name for a kind: a name, or one of Anthropic's words."""
    name = _IN_STREAM.get(kind, kind)
    return _STATUSES.get(name, 500), name if name in _STATUSES else "INTERNAL"


def refusing(
    status: int, message: str, name: str | None = None, reason: str | None = None, *details: dict[str, Any]
) -> Refusing:
    error: dict[str, Any] = {"code": status, "message": message, "status": _name(status, name)}
    if reason is not None:
        info = {"@type": f"{_TYPES}ErrorInfo", "reason": reason, "domain": "googleapis.com"}
        details = ({**info, "metadata": {"service": _SERVICE}}, *details)
    if details:
        error["details"] = list(details)
    return Refusing(status=status, body={"error": error})


def failing(failure: Failure, model: str) -> Refusing:
    """A scripted failure. A wait stands in the details only, as Google has no Retry-After here."""
    status = failure.status or {"overloaded": 503, "quota": 429}.get(failure.kind, 500)
    message = failure.message or _MESSAGES.get(failure.kind, f"Answered with status {status} as scripted")
    details: list[dict[str, Any]] = []
    if failure.kind == "rate_limited":
        details = [_violated(_BY_REQUEST, model, None)]
    elif failure.kind == "quota":
        details = [_violated(_BY_DAY, model, None), _retry(26.0)]
    if failure.retry_after_s is not None:
        details.append(_retry(failure.retry_after_s))
    found = refusing(status, message, None, None, *details)
    return Refusing(status=status, body=found.body, headers=failure.headers)


def limited(refused: Refused, model: str) -> Refusing:
    quota = _BY_REQUEST if refused.dimension == "requests" else _BY_TOKEN
    metric = f"{_SERVICE}/{quota[0]}"
    wait_s = refused.retry_after_s
    message = (
        f"{_MESSAGES['quota']}\n* Quota exceeded for metric: {metric}, limit: {refused.limit:.0f}, model: {model}\n"
        f"Please retry in {wait_s:.9f}s."
    )
    return refusing(429, message, None, None, _violated(quota, model, refused.limit), _retry(wait_s))


def _name(status: int, name: str | None) -> str:
    return name or _NAMES.get(status, "INTERNAL" if status >= 500 else "FAILED_PRECONDITION")


def _violated(quota: tuple[str, str], model: str, limit: float | None) -> dict[str, Any]:
    violation: dict[str, Any] = {
        "quotaMetric": f"{_SERVICE}/{quota[0]}",
        "quotaId": quota[1],
        "quotaDimensions": {"location": "global", "model": model},
    }
    if limit is not None:
        violation["quotaValue"] = f"{limit:.0f}"
    return {"@type": f"{_TYPES}QuotaFailure", "violations": [violation]}


def _retry(seconds: float) -> dict[str, Any]:
    """A duration as protobuf writes it in JSON: `26s`, `0.500s`."""
    text = f"{seconds:.0f}s" if seconds == int(seconds) else f"{seconds:.9f}s"
    return {"@type": f"{_TYPES}RetryInfo", "retryDelay": text}
