"""What OpenAI's wires share: errors, limits, headers, what is charged."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from ..buckets import Charge, Level, Refused
from ..exchange import Ask
from ..script import Failure
from .wire import SSE_HEADERS, Headers, Refusing, Target, WireError, encode, sse_event

_KINDS = {
    400: "invalid_request_error",
    401: "invalid_request_error",
    403: "invalid_request_error",
    404: "invalid_request_error",
    409: "invalid_request_error",
    429: "requests",
}
_STATUSES = {"rate_limit_error": 429, "rate_limit_exceeded": 429, "overloaded_error": 503, "server_error": 500}


class OpenAIWire:
    refused_counts: ClassVar[bool] = True
    stream_headers: ClassVar[Headers] = SSE_HEADERS
    binary: ClassVar[bool] = False

    def unauthorized(self, *, given: bool) -> WireError:
        message = "The API key is not valid." if given else "No API key was provided."
        return WireError(401, message, code="invalid_api_key")

    def unknown_model(self, model: str) -> WireError:
        message = f"The model `{model}` does not exist or you do not have access to it."
        return WireError(404, message, code="model_not_found")

    def scripted(self, event: Any) -> bytes:
        return sse_event(event)

    def error(self, error: WireError, request_id: str) -> Refusing:
        kind = error.kind or _KINDS.get(
            error.status, "server_error" if error.status >= 500 else "invalid_request_error"
        )
        return Refusing(status=error.status, body=error_body(error.message, kind, error.code, error.param))

    def failure(self, failure: Failure, ask: Ask, request_id: str) -> Refusing:
        headers = dict(failure.headers)
        if failure.retry_after_s is not None:
            headers.setdefault("retry-after", f"{failure.retry_after_s:g}")
        if failure.kind == "rate_limited":
            message = failure.message or f"Rate limit reached for {ask.model} on requests per min (RPM)."
            return Refusing(status=429, body=error_body(message, "requests", "rate_limit_exceeded"), headers=headers)
        if failure.kind == "quota":
            message = failure.message or "You exceeded your current quota, please check your plan and billing details."
            body = error_body(message, "insufficient_quota", "insufficient_quota")
            return Refusing(status=failure.status or 429, body=body, headers=headers)
        if failure.kind == "overloaded":
            message = failure.message or "The engine is currently overloaded, please try again later"
            return Refusing(status=failure.status or 503, body=error_body(message, "server_error"), headers=headers)
        status = failure.status or 500
        message = failure.message or "The server had an error while processing your request. Sorry about that!"
        kind = _KINDS.get(status, "server_error" if status >= 500 else "invalid_request_error")
        return Refusing(status=status, body=error_body(message, kind), headers=headers)

    def refused(self, refused: Refused, ask: Ask, request_id: str) -> Refusing:
        kind, unit = ("requests", "requests per min (RPM)")
        if refused.dimension != "requests":
            kind, unit = ("tokens", "tokens per min (TPM)")
        limit = f"on {unit}: Limit {refused.limit:.0f}"
        if refused.too_large:
            message = (
                f"Request too large for {ask.model} {limit}, Requested {refused.asked:.0f}. "
                "The input or output tokens must be reduced in order to run successfully."
            )
        else:
            message = (
                f"Rate limit reached for {ask.model} {limit}, Used {refused.used:.0f}, Requested {refused.asked:.0f}. "
                f"Please try again in {duration(refused.retry_after_s)}."
            )
        wait_ms = max(1, math.ceil(refused.retry_after_s * 1000))
        headers = {"retry-after": str(max(1, math.ceil(wait_ms / 1000))), "retry-after-ms": str(wait_ms)}
        return Refusing(status=429, body=error_body(message, kind, "rate_limit_exceeded"), headers=headers)

    def headers(self, request_id: str, levels: Mapping[str, Level]) -> Headers:
        headers = [
            (b"x-request-id", request_id.encode()),
            (b"openai-organization", b"org-simulated"),
            (b"openai-version", b"2020-10-01"),
        ]
        for name in ("requests", "tokens"):
            level = levels.get(name)
            if level is not None:
                headers.append((b"x-ratelimit-limit-" + name.encode(), b"%d" % level.limit))
                headers.append((b"x-ratelimit-remaining-" + name.encode(), b"%d" % level.remaining))
                headers.append((b"x-ratelimit-reset-" + name.encode(), duration(level.full_in_s).encode()))
        return headers

    def start_charge(self, ask: Ask, input_tokens: int, cached_tokens: int) -> Charge:
        """Input, cached or not, and the whole output limit."""
        return Charge(1, input_tokens + (ask.max_output_tokens or 0), input_tokens, 0)

    def produced_charge(self, tokens: int) -> Charge:
        return Charge(0, 0, 0, tokens)

    def settle_charge(self, ask: Ask, output_tokens: int, cached_tokens: int) -> Charge:
        return Charge(0, output_tokens - (ask.max_output_tokens or 0), 0, 0)

    def status_of(self, kind: str) -> int:
        return _STATUSES.get(kind, 500)

    def models(self, ids: Sequence[str], target: Target) -> dict[str, Any]:
        data = [{"id": name, "object": "model", "created": 1_767_225_600, "owned_by": "simulated"} for name in ids]
        return {"object": "list", "data": data}


def error_body(message: str, kind: str, code: str | None = None, param: str | None = None) -> dict[str, Any]:
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def data_event(value: dict[str, Any]) -> bytes:
    return b"data: " + encode(value) + b"\n\n"


def duration(seconds: float) -> str:
    """As the reset headers have it: `17ms`, `1.5s`, `6m0s`, `1h2m3s`."""
    if seconds < 1:
        return f"{math.ceil(seconds * 1000)}ms"
    if seconds < 60:
        return f"{math.ceil(seconds * 1000) / 1000:g}s"
    whole = math.ceil(seconds)
    hours, rest = divmod(whole, 3600)
    minutes, left = divmod(rest, 60)
    return f"{hours}h{minutes}m{left}s" if hours else f"{minutes}m{left}s"
