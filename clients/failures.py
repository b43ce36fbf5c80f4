"""How providers say no, read into our errors. Pure: what it decides depends on the answer and on `now` alone.

The order matters: quota before rate limited, overloaded before 5xx, refusal and window before a plain bad request.
`x-should-retry` decides before the status does.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from interlock.errors import (
    ContextWindowExceededError,
    CredentialError,
    InvalidRequestError,
    OverloadedError,
    ProviderRefusalError,
    QuotaExhaustedError,
    RateLimitedError,
    TransientUpstreamError,
    UpstreamError,
)

from .hints import retry_hint

#: A provider's own words in our messages are cut to this many characters.
DETAIL_LIMIT = 500

_QUOTA_WORDS = frozenset(
    {
        "insufficient_quota",
        "billing_hard_limit_reached",
        "billing_not_active",
        "billing_error",
        "billing_disabled",
        "credit_balance_exhausted",
        "organization_spend_limit_exceeded",
        "project_spend_limit_exceeded",
        "enforced_spend_limit_reached",
        "contract_spend_limit_reached",
        "servicequotaexceededexception",
    }
)
_DAY_PHRASES = ("tokens per day", "requests per day")
_QUOTA_PHRASES = ("credit balance is too low", *_DAY_PHRASES, "exceeded your current quota")
_QUOTA_ID = re.compile(r"per[-_ ]?day", re.IGNORECASE)
_RATE_WORDS = frozenset(
    {"rate_limit_error", "rate_limit_exceeded", "slow_down", "ramp_limit_exceeded", "throttlingexception"}
)
#: AWS's words for a model that cannot be reached just now; one of them comes with a 429 that is no rate limit.
_TRANSIENT_WORDS = frozenset(
    {"modelnotreadyexception", "modeltimeoutexception", "modelerrorexception", "modelstreamerrorexception"}
)
_OVERLOAD_WORDS = frozenset(
    {"overloaded_error", "overloaded", "system_overloaded", "engine_overloaded", "server_is_overloaded"}
)
_WINDOW_WORDS = frozenset({"context_length_exceeded", "model_context_window_exceeded"})
_WINDOW_PHRASES = (
    "prompt is too long",
    "maximum context length",
    "input is too long",
    "exceeds the maximum number of tokens",
    "exceed context limit",
    "context window",
)
_REFUSAL_WORDS = frozenset({"invalid_prompt", "content_filter", "responsibleaipolicyviolation", "bio_policy"})
_KEY_WORDS = frozenset(
    {
        "authentication_error",
        "permission_error",
        "invalid_api_key",
        "api_key_invalid",
        "expiredtoken",
        "expiredtokenexception",
        "unrecognizedclientexception",
        "invalidsignatureexception",
        "incompletesignatureexception",
        "missingauthenticationtokenexception",
        "accessdeniedexception",
    }
)
_TRANSIENT_STATUSES = frozenset({408, 409, 424, 425, 499})

#: What an error's type stands for where no status tells it: inside a stream that began with 200.
STATUS_OF_WORD: Mapping[str, int] = {
    "overloaded_error": 529,
    "rate_limit_error": 429,
    "rate_limit_exceeded": 429,
    "insufficient_quota": 429,
    "slow_down": 429,
    "api_error": 500,
    "server_error": 500,
    "server_is_overloaded": 503,
    "internal_error": 500,
    "internal_server_error": 500,
    "timeout_error": 504,
    "service_unavailable": 503,
    "authentication_error": 401,
    "invalid_api_key": 401,
    "permission_error": 403,
    "billing_error": 402,
    "not_found_error": 404,
    "request_too_large": 413,
    "invalid_request_error": 400,
    "context_length_exceeded": 400,
    "content_filter": 400,
    # Inside a response of OpenAI's that failed: what it was given cannot be used, now or later.
    "data_residency_mismatch": 400,
    "empty_image_file": 400,
    "failed_to_download_image": 400,
    "image_file_not_found": 400,
    "image_file_too_large": 400,
    "image_parse_error": 400,
    "image_too_large": 400,
    "image_too_small": 400,
    "invalid_base64_image": 400,
    "invalid_image": 400,
    "invalid_image_format": 400,
    "invalid_image_mode": 400,
    "invalid_image_url": 400,
    "unsupported_image_media_type": 400,
    "vector_store_timeout": 504,
    # Bedrock's exceptions, as they come inside a stream.
    "throttlingexception": 429,
    "serviceunavailableexception": 503,
    "internalserverexception": 500,
    "modeltimeoutexception": 408,
    "modelstreamerrorexception": 424,
    "modelerrorexception": 424,
    "modelnotreadyexception": 503,
    "validationexception": 400,
    "accessdeniedexception": 403,
    "resourcenotfoundexception": 404,
    "unrecognizedclientexception": 401,
    "expiredtokenexception": 401,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A provider's no, as its wire said it. `words` are its type and codes, lower case; `quota_ids` name limits."""

    status: int | None
    words: frozenset[str] = frozenset()
    message: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    request_id: str | None = None
    quota_ids: tuple[str, ...] = ()
    body: Any = None
    #: The message decides what is raised, and is not told: it repeats what it was sent.
    echoes: bool = False

    @property
    def word(self) -> str | None:
        """The most telling of its words, for the error's `provider_code`."""
        return min(self.words, key=lambda word: (word.endswith("_error"), word.isdigit(), word), default=None)


def read_refusal(
    status: int | None, body: Any, headers: Mapping[str, str] | None = None, request_id: str | None = None
) -> Refusal:
    """Find what an error body says, whatever its wire: `{"error": {...}}`, bare, in a list, a string, HTML."""
    outer = body[0] if isinstance(body, list) and body else body
    inner = outer.get("error", outer) if isinstance(outer, dict) else outer
    source = inner if isinstance(inner, dict) else {}
    words = frozenset(_words(source)) | _aws_words(headers or {})
    return Refusal(
        status=_effective_status(status, source, words),
        words=words,
        message=_message(inner, outer),
        headers=headers or {},
        request_id=request_id or _text(outer.get("request_id") if isinstance(outer, dict) else None),
        quota_ids=tuple(_quota_ids(source)),
        body=body,
    )


def error_class(refusal: Refusal) -> type[UpstreamError]:
    """Which of our errors a provider's no is."""
    if _is_quota(refusal):
        return QuotaExhaustedError
    should_retry = refusal.headers.get("x-should-retry", "").strip().lower()
    found = _by_words(refusal) or _by_status(refusal.status)
    if should_retry == "true" and not found.retryable:
        return TransientUpstreamError
    if should_retry == "false" and found.retryable:
        return QuotaExhaustedError if found is RateLimitedError else UpstreamError
    return found


def upstream_error(
    refusal: Refusal, *, model: str, provider: str, credential: str | None, now: datetime
) -> UpstreamError:
    """The typed error, with everything the wire told. Its message is not redacted yet: the template does that."""
    class_ = error_class(refusal)
    said = "" if refusal.echoes else refusal.message.strip()[:DETAIL_LIMIT]
    status = "an error" if refusal.status is None else f"HTTP {refusal.status}"
    what = f"{provider} answered {status} for {model}" + (f": {said}" if said else "")
    known: dict[str, Any] = {
        "model": model,
        "provider": provider,
        "status": refusal.status,
        "retry_after_s": retry_hint(refusal.headers, refusal.body, now=now),
        "request_id": refusal.request_id,
        "provider_code": refusal.word,
    }
    if class_ is CredentialError:
        access = "; look at the key and at its access to this model" if refusal.status == 403 else ""
        return CredentialError(f"{what} (credential {credential!r}{access})", credential=credential, **known)
    if class_ is QuotaExhaustedError:
        return QuotaExhaustedError(what, per_day=_is_per_day(refusal), **known)
    if class_ is ProviderRefusalError:
        return ProviderRefusalError(what, category=refusal.word, explanation=said or None, **known)
    return class_(what, **known)


def _by_words(refusal: Refusal) -> type[UpstreamError] | None:
    words, said, status = refusal.words, refusal.message.lower(), refusal.status
    is_caller_error = status is None or status in (400, 413, 422)
    if words & _OVERLOAD_WORDS:
        return OverloadedError
    if words & _TRANSIENT_WORDS:
        return TransientUpstreamError
    if words & _RATE_WORDS:
        return RateLimitedError
    if words & _WINDOW_WORDS or (is_caller_error and any(phrase in said for phrase in _WINDOW_PHRASES)):
        return ContextWindowExceededError
    if words & _REFUSAL_WORDS or any(word.endswith("_policy_violation") for word in words):
        return ProviderRefusalError
    if words & _KEY_WORDS:
        return CredentialError
    return None


def _by_status(status: int | None) -> type[UpstreamError]:
    if status is None:
        return TransientUpstreamError
    if status == 429:
        return RateLimitedError
    if status == 529:
        return OverloadedError
    if status >= 500 or status in _TRANSIENT_STATUSES:
        return TransientUpstreamError
    if status in (401, 403):
        return CredentialError
    return InvalidRequestError


def _is_quota(refusal: Refusal) -> bool:
    if refusal.status == 402 or refusal.words & _QUOTA_WORDS:
        return True
    named = [quota_id for quota_id in refusal.quota_ids if quota_id]
    if named:  # Google says "you exceeded your current quota" of a minute's limit too: the limit's name decides
        return any(_QUOTA_ID.search(quota_id) for quota_id in named)
    said = refusal.message.lower()
    return refusal.status in (400, 403, 429) and any(phrase in said for phrase in _QUOTA_PHRASES)


def _is_per_day(refusal: Refusal) -> bool:
    """Whether the quota is one of the day, and not money."""
    if refusal.status == 402 or refusal.words & _QUOTA_WORDS:
        return False
    said = refusal.message.lower()
    named = any(_QUOTA_ID.search(quota_id) for quota_id in refusal.quota_ids)
    return named or any(phrase in said for phrase in _DAY_PHRASES)


def _effective_status(status: int | None, source: Mapping[str, Any], words: frozenset[str]) -> int | None:
    """The status, or what stands for it in an answer that began with 200."""
    if status is not None and status >= 300:
        return status
    for name in ("code", "status", "status_code"):
        number = _status_number(source.get(name))
        if number is not None:
            return number
    known = sorted((STATUS_OF_WORD[word] for word in words if word in STATUS_OF_WORD), reverse=True)
    return known[0] if known else None


def _status_number(value: Any) -> int | None:
    text = str(value).strip() if isinstance(value, (int, str)) and not isinstance(value, bool) else ""
    return int(text) if re.fullmatch(r"[3-5][0-9]{2}", text) else None


def _words(source: Mapping[str, Any]) -> list[str]:
    details = source.get("details")
    inner = source.get("innererror")
    found = [source.get("type"), source.get("code"), source.get("status"), source.get("error_code")]
    if isinstance(details, dict):
        found.append(details.get("error_code"))
    if isinstance(inner, dict):
        found.append(inner.get("code"))
    if isinstance(details, list):  # a Google ErrorInfo
        found += [detail.get("reason") for detail in details if isinstance(detail, dict)]
    return [str(word).lower() for word in found if isinstance(word, (str, int)) and not isinstance(word, bool) and word]


def _aws_words(headers: Mapping[str, str]) -> frozenset[str]:
    """AWS says what an error is in a header, perhaps with a web address after a colon."""
    kind = headers.get("x-amzn-errortype", "").partition(":")[0].strip().lower()
    return frozenset({kind} if kind else ())


def _quota_ids(source: Mapping[str, Any]) -> list[str]:
    """The limits that a Google `QuotaFailure` names."""
    details = source.get("details")
    violations = [
        violation
        for detail in (details if isinstance(details, list) else ())
        if isinstance(detail, dict) and isinstance(detail.get("violations"), list)
        for violation in detail["violations"]
    ]
    return [str(found.get("quotaId") or "") for found in violations if isinstance(found, dict)]


def _message(inner: Any, outer: Any) -> str:
    for place in (inner, outer):
        if isinstance(place, str):
            return place
        if isinstance(place, dict):
            for name in ("message", "detail", "error_description", "error"):
                found = place.get(name)
                if isinstance(found, str) and found:
                    return found
    return ""


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None
