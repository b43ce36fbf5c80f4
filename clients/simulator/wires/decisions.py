"""TypeSafe's System One wire, and OpenRouter's with the same questions and answers under other errors."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

from ..buckets import Charge, Level, Refused
from ..deciding import completed, keys_of
from ..exchange import Ask, AskedDecision, Reply
from ..script import Failure
from .decision_reading import Unprocessable, read_systemone
from .wire import SSE_HEADERS, Event, Headers, Refusing, Target, WireError, encode, sse_event

_WORDS = {
    400: "api_usage_error",
    401: "authentication_error",
    403: "authentication_error",
    404: "not_found",
    413: "request_too_large",
    429: "rate_limit_error",
    529: "system_overloaded",
}


class SystemOneWire:
    name: ClassVar[str] = "systemone"
    refused_counts: ClassVar[bool] = False
    id_prefixes: ClassVar[tuple[str, str]] = ("dec_", "call_")
    stream_headers: ClassVar[Headers] = SSE_HEADERS
    binary: ClassVar[bool] = False

    def __init__(self, *, seed: int, decimals: int | None) -> None:
        self._seed, self._decimals = seed, decimals

    # What is asked.

    def read(self, body: dict[str, Any], target: Target) -> Ask:
        decision = read_systemone(body)
        return Ask(model=body["model"], text=_text(decision.state), prompt=_prompt(decision), decision=decision)

    def counted_body(self, body: dict[str, Any], target: Target) -> dict[str, Any]:
        return body

    def counted(self, tokens: int) -> dict[str, Any]:
        return {"input_tokens": tokens}

    # What is answered.

    def single(self, ask: Ask, reply: Reply) -> dict[str, Any]:
        return {
            "model": reply.model,
            "answers": self._answers(ask, reply),
            "usage": {"input_tokens": reply.input_tokens, "output_tokens": reply.output_tokens},
        }

    def _answers(self, ask: Ask, reply: Reply) -> dict[str, Any]:
        asked = ask.decision
        assert asked is not None
        values = decisions_of(asked, reply, self._seed)
        return {name: self._answer(asked.questions[name], value) for name, value in values.items()}

    def _answer(self, question: Mapping[str, Any], value: Any) -> dict[str, Any]:
        if question["type"] == "noul":
            return {"type": "noul", "noul": self.rounded(value)}
        exact = list(value.values()) if isinstance(value, Mapping) else list(value)
        keys = keys_of(question)
        probabilities = {key: self.rounded(each) for key, each in zip(keys, exact, strict=True)}
        best = max(range(len(exact)), key=lambda at: exact[at])
        if question["type"] == "choice":
            confidence = self.rounded(choice_confidence(exact))
            return {"type": "choice", "choice": keys[best], "probabilities": probabilities, "confidence": confidence}
        return {
            "type": "score",
            "score": self.rounded(sum(at * each for at, each in enumerate(exact))),
            "legend": dict(zip(keys, question["criteria"], strict=True)),
            "probabilities": probabilities,
            "confidence": self.rounded(score_confidence(exact, best)),
        }

    def rounded(self, value: float) -> float:
        return value if self._decimals is None else round(value, self._decimals)

    # What is refused.

    def error(self, error: WireError, request_id: str) -> Refusing:
        if isinstance(error, Unprocessable):
            return Refusing(status=422, body={"detail": error.complaints})
        if error.status in (404, 405) and error.kind is None:
            return Refusing(status=error.status, body={"detail": error.message})
        if error.status == 400 and error.kind is None:  # what a body is like is said before anything about it
            complaint = {"loc": ["body"], "msg": error.message, "type": "json_invalid"}
            return Refusing(status=422, body={"detail": [complaint]})
        return self._says(error.status, error.kind or _WORDS.get(error.status, "internal_error"), error.message)

    def _says(self, status: int, word: str, message: str, headers: Mapping[str, str] | None = None) -> Refusing:
        return Refusing(status=status, body={"detail": {"error_type": word, "message": message}}, headers=headers or {})

    def unauthorized(self, *, given: bool) -> WireError:
        if given:
            return WireError(401, "Cannot authenticate with the server.", kind="authentication_error")
        return WireError(403, "Must supply an API key!", kind="authentication_error")

    def unknown_model(self, model: str) -> WireError:
        return WireError(400, f"Unknown model: {model}", kind="api_usage_error")

    def too_long(self, tokens: int, window: int) -> WireError:
        return WireError(413, f"The request has {tokens} tokens, and {window} is the most.", kind="request_too_large")

    def failure(self, failure: Failure, ask: Ask, request_id: str) -> Refusing:
        headers = dict(failure.headers)
        if failure.retry_after_s is not None:
            headers.setdefault("retry-after", f"{failure.retry_after_s:g}")
        status = {"rate_limited": 429, "overloaded": 529, "quota": 402}.get(failure.kind, failure.status or 500)
        word = "insufficient_credits" if failure.kind == "quota" else _WORDS.get(status, "internal_error")
        return self._says(status, word, failure.message or f"Scripted: {word}", headers)

    def refused(self, refused: Refused, ask: Ask, request_id: str) -> Refusing:
        message = (
            f"Rate limit of {refused.limit:.0f} {refused.dimension} a minute reached: "
            f"{refused.used:.0f} used, {refused.asked:.0f} asked."
        )
        headers = {"retry-after": str(max(1, math.ceil(refused.retry_after_s)))}
        return self._says(429, "rate_limit_error", message, headers)

    def headers(self, request_id: str, levels: Mapping[str, Level]) -> Headers:
        return [(b"x-typesafe-request-id", request_id.encode())]

    # What is charged: input.

    def start_charge(self, ask: Ask, input_tokens: int, cached_tokens: int) -> Charge:
        return Charge(1, input_tokens, input_tokens, 0)

    def produced_charge(self, tokens: int) -> Charge:
        return Charge()

    def settle_charge(self, ask: Ask, output_tokens: int, cached_tokens: int) -> Charge:
        return Charge()

    # What never happens here: a stream.

    def events(self, ask: Ask, reply: Reply) -> Iterator[Event]:
        yield Event("end", encode(self.single(ask, reply)))

    def error_event(self, kind: str, message: str, reply: Reply, sent: int) -> bytes:
        return encode({"detail": message})

    def scripted(self, event: Any) -> bytes:
        return sse_event(event)

    def status_of(self, kind: str) -> int:
        return {"rate_limit_error": 429, "overloaded_error": 529}.get(kind, 500)

    def keepalive(self, kind: str, reply: Reply) -> bytes:
        return b" "

    def models(self, ids: Sequence[str], target: Target) -> dict[str, Any]:
        return {
            "models": [
                {"name": name, "description": "A simulated decision model", "release_date": "2026-11-01"}
                for name in ids
            ]
        }


class OpenRouterWire(SystemOneWire):
    """The same, with an id, a cost and OpenRouter's errors."""

    name: ClassVar[str] = "openrouter-decisions"
    id_prefixes: ClassVar[tuple[str, str]] = ("gen-dec-", "call_")

    def read(self, body: dict[str, Any], target: Target) -> Ask:
        decision = read_systemone(body, both_sides=True)
        return Ask(model=body["model"], text=_text(decision.state), prompt=_prompt(decision), decision=decision)

    def single(self, ask: Ask, reply: Reply) -> dict[str, Any]:
        body = super().single(ask, reply)
        body["usage"]["cost"] = round(reply.input_tokens * 4.2e-8, 10)
        return {**body, "id": reply.id, "provider": "Simulated"}

    def error(self, error: WireError, request_id: str) -> Refusing:
        return self._says(400 if isinstance(error, Unprocessable) else error.status, "", error.message)

    def _says(self, status: int, word: str, message: str, headers: Mapping[str, str] | None = None) -> Refusing:
        return Refusing(status=status, body={"error": {"code": status, "message": message}}, headers=headers or {})

    def unauthorized(self, *, given: bool) -> WireError:
        return WireError(401, "User not found." if given else "No cookie auth credentials found")

    def headers(self, request_id: str, levels: Mapping[str, Level]) -> Headers:
        return []


def decisions_of(asked: AskedDecision, reply: Reply, seed: int) -> dict[str, Any]:
    """What a reply decides. One that was cut off decides nothing."""
    try:
        given = json.loads(reply.text or "")
    except ValueError:
        return {}
    return completed(asked, given, seed)


def choice_confidence(probabilities: Sequence[float]) -> float:
    n = len(probabilities)
    return 1.0 if n < 2 else (max(probabilities) - 1 / n) / (1 - 1 / n)


def score_confidence(probabilities: Sequence[float], mode: int) -> float:
    n = len(probabilities)
    if n < 2:
        return 1.0
    uniform = sum(abs(level - (n - 1) / 2) for level in range(n)) / n
    return max(0.0, 1 - sum(each * abs(level - mode) for level, each in enumerate(probabilities)) / uniform)


def _text(state: Any) -> str:
    return state if isinstance(state, str) else json.dumps(state, ensure_ascii=False)


def _prompt(decision: AskedDecision) -> str:
    """All that counts as input."""
    return f"{_text(decision.state)}\n{json.dumps(dict(decision.questions), ensure_ascii=False)}"
