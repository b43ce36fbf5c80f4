"""What Amazon Bedrock's wires share: exceptions, limits, headers, what is charged, the lists of models.

The shapes are those of botocore's `bedrock-runtime` and `bedrock` service models. An error says what it is in the
header `x-amzn-errortype`; its body has only a message. There are no rate limit headers and no Retry-After.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from ..buckets import Charge, Level, Refused
from ..exchange import Ask, Reply
from ..script import Failure
from .eventstream import exception_frame
from .wire import Headers, Refusing, Target, WireError

_KINDS = {
    400: "ValidationException",
    403: "AccessDeniedException",
    404: "ResourceNotFoundException",
    408: "ModelTimeoutException",
    424: "ModelErrorException",
    429: "ThrottlingException",
    500: "InternalServerException",
    503: "ServiceUnavailableException",
}
_STATUSES = {kind: status for status, kind in _KINDS.items()} | {
    "ServiceQuotaExceededException": 400,
    "ModelNotReadyException": 429,
    "ModelStreamErrorException": 424,
}
_IN_STREAM = {
    "overloaded_error": "serviceUnavailableException",
    "rate_limit_error": "throttlingException",
    "api_error": "internalServerException",
    "timeout_error": "modelTimeoutException",
    "invalid_request_error": "validationException",
}
_MESSAGES = {
    "rate_limited": "Too many requests, please wait before trying again.",
    "overloaded": "Bedrock is unable to process your request.",
    "server_error": "The system encountered an unexpected error during processing. Try your request again.",
    "quota": "Too many tokens per day, please wait before trying again.",
}
_FAILURE_STATUSES = {"rate_limited": 429, "overloaded": 503, "server_error": 500, "quota": 429}
_ACCOUNT = "123456789012"
_PROFILE = re.compile(r"(us|eu|apac|jp|au|ca|global|us-gov)\.(.+)")


class BedrockWire:
    """`burndown` is how many tokens of the limit one token of output costs, once it is settled."""

    refused_counts: ClassVar[bool] = False
    id_prefixes: ClassVar[tuple[str, str]] = ("msg_bdrk_", "tooluse_")
    stream_headers: ClassVar[Headers] = [(b"content-type", b"application/vnd.amazon.eventstream")]
    binary: ClassVar[bool] = True

    def __init__(self, burndown: float) -> None:
        self._burndown = burndown

    def error(self, error: WireError, request_id: str) -> Refusing:
        kind = _capital(_IN_STREAM.get(error.kind, error.kind)) if error.kind else _kind_of(error.status)
        return _refusing(error.status, kind, error.message)

    def unauthorized(self, *, given: bool) -> WireError:
        if not given:
            return WireError(403, "Missing Authentication Token", kind="MissingAuthenticationTokenException")
        message = "The security token included in the request is invalid."
        return WireError(403, message, kind="UnrecognizedClientException")

    def unknown_model(self, model: str) -> WireError:
        return WireError(400, "The provided model identifier is invalid.")

    def too_long(self, tokens: int, window: int) -> WireError:
        return WireError(400, "Input is too long for requested model.")

    def counted(self, tokens: int) -> dict[str, Any]:
        return {"inputTokens": tokens}

    def failure(self, failure: Failure, ask: Ask, request_id: str) -> Refusing:
        status = failure.status or _FAILURE_STATUSES[failure.kind]
        message = failure.message or _MESSAGES.get(failure.kind, f"Answered with status {status} as scripted")
        return _refusing(status, _kind_of(status), message, failure.headers)

    def refused(self, refused: Refused, ask: Ask, request_id: str) -> Refusing:
        unit = "requests" if refused.dimension == "requests" else "tokens"
        return _refusing(429, "ThrottlingException", f"Too many {unit}, please wait before trying again.")

    def headers(self, request_id: str, levels: Mapping[str, Level]) -> Headers:
        return [(b"x-amzn-requestid", str(uuid.uuid5(uuid.NAMESPACE_OID, request_id)).encode())]

    def start_charge(self, ask: Ask, input_tokens: int, cached_tokens: int) -> Charge:
        """Input, cached or not, and the whole output limit; no burndown yet."""
        return Charge(1, input_tokens + (ask.max_output_tokens or 0), input_tokens, 0)

    def produced_charge(self, tokens: int) -> Charge:
        return Charge(0, 0, 0, tokens)

    def settle_charge(self, ask: Ask, output_tokens: int, cached_tokens: int) -> Charge:
        """What was read from the cache is given back; output costs its burndown, which may exceed the reservation."""
        tokens = output_tokens * self._burndown - (ask.max_output_tokens or 0) - cached_tokens
        return Charge(0, tokens, -cached_tokens, 0)

    def status_of(self, kind: str) -> int:
        return _STATUSES.get(_capital(_IN_STREAM.get(kind, kind)), 500)

    def error_event(self, kind: str, message: str, reply: Reply, sent: int) -> bytes:
        return exception_frame(_IN_STREAM.get(kind, kind), message)

    def models(self, ids: Sequence[str], target: Target) -> dict[str, Any]:
        """ListInferenceProfiles for ids with a region's prefix, ListFoundationModels for all that stand behind."""
        region = "us-east-1"
        if target.path.endswith("/inference-profiles"):
            ids, more = target.page([name for name in ids if _PROFILE.fullmatch(name)], "maxResults", "nextToken")
            profiles = [_profile(name, _PROFILE.sub(r"\2", name), region) for name in ids]
            return {"inferenceProfileSummaries": profiles, **({"nextToken": ids[-1]} if more else {})}
        bare = dict.fromkeys(_PROFILE.sub(r"\2", name) for name in ids)
        return {"modelSummaries": [_model(name, region) for name in bare]}


def _refusing(status: int, kind: str, message: str, headers: Mapping[str, str] | None = None) -> Refusing:
    return Refusing(status=status, body={"message": message}, headers={"x-amzn-errortype": kind, **(headers or {})})


def _kind_of(status: int) -> str:
    return _KINDS.get(status, "InternalServerException" if status >= 500 else "ValidationException")


def _capital(kind: str) -> str:
    return kind[:1].upper() + kind[1:]


def _model(name: str, region: str) -> dict[str, Any]:
    return {
        "modelArn": f"arn:aws:bedrock:{region}::foundation-model/{name}",
        "modelId": name,
        "modelName": name,
        "providerName": name.partition(".")[0],
        "inputModalities": ["TEXT", "IMAGE"],
        "outputModalities": ["TEXT"],
        "responseStreamingSupported": True,
        "customizationsSupported": [],
        "inferenceTypesSupported": ["ON_DEMAND"],
        "modelLifecycle": {"status": "ACTIVE"},
    }


def _profile(name: str, model: str, region: str) -> dict[str, Any]:
    return {
        "inferenceProfileName": name,
        "inferenceProfileArn": f"arn:aws:bedrock:{region}:{_ACCOUNT}:inference-profile/{name}",
        "inferenceProfileId": name,
        "models": [{"modelArn": f"arn:aws:bedrock:{region}::foundation-model/{model}"}],
        "status": "ACTIVE",
        "type": "SYSTEM_DEFINED",
    }
