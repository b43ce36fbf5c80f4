"""Steps: what happens to a request instead of, or on top of, a plain answer."""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from .exchange import UNSET, Answer, Refusal, ToolCall

FailureKind = Literal["rate_limited", "overloaded", "server_error", "quota", "status"]
CutHow = Literal["clean", "close", "reset"]
Ending = Literal["clean", "close", "reset", "stall"]
Keepalive = Literal["ping", "comment", "empty"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """An error response in place of an answer. Without a body the wire writes its own for the status."""

    kind: FailureKind
    status: int | None = None
    retry_after_s: float | None = None
    body: bytes | None = None
    content_type: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)
    message: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Raw:
    """A response as it is, each part written by itself. Parts that are not bytes are events, framed by the wire;
    without a content type it is a stream of that wire."""

    parts: tuple[Any, ...]
    content_type: str | None
    ending: Ending = "clean"
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Something that happens to an answer after `after_pieces` pieces; None: before the first byte."""

    kind: Literal["cut", "stall", "error"]
    after_pieces: int | None
    how: CutHow = "clean"
    error_kind: str = ""
    message: str = ""
    keepalive: Keepalive = "ping"
    keepalive_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Framing:
    """How the bytes of an event stream are written: what a parser must not mind.

    `bytes_per_write` cuts anywhere, inside characters too. `comments` puts a comment line before each event, `bom` a
    byte order mark before the first. Text is always raw UTF-8: U+2028 and its like are not escaped.
    """

    line_ending: Literal["\n", "\r\n", "\r"] = "\n"
    bytes_per_write: int | None = None
    bom: bool = False
    comments: bool = False
    space_after_colon: bool = True
    final_blank_line: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What happens to one request. Made by the functions below; `on` narrows it to a model or a wire."""

    name: str
    model: str | None = None
    wire: str | None = None
    failure: Failure | None = None
    raw: Raw | None = None
    reply: Answer | None = None
    fault: Fault | None = None
    framing: Framing | None = None
    is_truncated: bool = False
    delay_s: float = 0.0
    between_pieces_s: float = 0.0

    def on(self, *, model: str | None = None, wire: str | None = None) -> Step:
        """The same step for one model (as sent on the wire) or one wire only: `anthropic`, `mantle`,
        `openai` (chat), `openai-responses`, `bedrock-converse`, `bedrock-invoke`, `gemini`, `systemone`,
        `openrouter-decisions`, `openai-decisions`, `openai-embeddings`, `bedrock-titan`, `bedrock-cohere`,
        `gemini-embeddings`."""
        return replace(self, model=model, wire=wire)

    def matches(self, model: str, wire: str) -> bool:
        return self.model in (None, model) and self.wire in (None, wire)

    @staticmethod
    def rate_limited(retry_after_s: float | None = 1, *, headers: Mapping[str, str] | None = None) -> Step:
        """A 429. The hint is a header, on Gemini `RetryInfo` in the body; on Bedrock, or for None, there is none."""
        failure = Failure(kind="rate_limited", status=429, retry_after_s=retry_after_s, headers=headers or {})
        return Step(name="rate_limited", failure=failure)

    @staticmethod
    def overloaded(message: str | None = None) -> Step:
        """A 529 `overloaded_error` on the Anthropic wires, a 529 on TypeSafe's and OpenRouter's; a 503 on the others,
        which have no 529."""
        return Step(name="overloaded", failure=Failure(kind="overloaded", message=message))

    @staticmethod
    def server_error(status: int = 500, message: str | None = None) -> Step:
        return Step(name="server_error", failure=Failure(kind="server_error", status=status, message=message))

    @staticmethod
    def quota(message: str | None = None) -> Step:
        """Out of money: Anthropic's 400 about the credit balance; OpenAI's 429 `insufficient_quota`; Gemini's 429 with
        a quota per day; Bedrock's "Too many tokens per day"."""
        return Step(name="quota", failure=Failure(kind="quota", message=message))

    @staticmethod
    def status(
        code: int,
        body: Any = UNSET,
        headers: Mapping[str, str] | None = None,
        *,
        content_type: str | None = None,
        message: str | None = None,
    ) -> Step:
        """Any status. `body` is bytes, text or a JSON value; without one the wire writes its own for the status."""
        encoded, kind = (None, "application/json") if body is UNSET else _body(body)
        failure = Failure(
            kind="status",
            status=code,
            body=encoded,
            content_type=content_type or kind,
            headers=headers or {},
            message=message,
        )
        return Step(name=f"status {code}", failure=failure)

    @staticmethod
    def html(status: int = 200, text: str | None = None) -> Step:
        """A page in place of an answer: a wrong base URL, a captive proxy."""
        page = text or "<!doctype html><html><head><title>Sign in</title></head><body><h1>Sign in</h1></body></html>"
        return Step.body(page.encode(), "text/html; charset=utf-8", status=status, name="html")

    @staticmethod
    def body(
        data: Any,
        content_type: str | None = None,
        *,
        status: int = 200,
        headers: Mapping[str, str] | None = None,
        name: str = "body",
    ) -> Step:
        """These bytes (or text, or JSON value) as the whole response."""
        encoded, kind = _body(data)
        raw = Raw(parts=(encoded,), content_type=content_type or kind, status=status, headers=headers or {})
        return Step(name=name, raw=raw)

    @staticmethod
    def events(*events: Any, ending: Ending = "clean", content_type: str | None = None) -> Step:
        """A stream of exactly these events. Then the response ends, breaks off as `cut` has it, or goes silent.

        A mapping is one event, framed as the wire frames them: named after its `type`; on Bedrock named by its one key
        (`{"messageStop": {...}}`). Bytes go as they are, text is the data of an event.
        """
        return Step(name="events", raw=Raw(parts=events, content_type=content_type, ending=ending))

    @staticmethod
    def stream_error(
        kind: str = "overloaded_error", message: str = "Overloaded", *, after_pieces: int | None = 0
    ) -> Step:
        """An error inside a 200 stream; `after_pieces=None` makes it the only event. An unstreamed request gets the
        same error as a status.

        `kind` is one of Anthropic's words (`overloaded_error`, `rate_limit_error`, `api_error`), which each wire puts
        in its own, or one of the wire's: `throttlingException`, `UNAVAILABLE`. On Responses it is a flat `error` event,
        or a failed response for `response.failed` and `response.failed:CODE`.
        """
        fault = Fault(kind="error", after_pieces=after_pieces, error_kind=kind, message=message)
        return Step(name="stream_error", fault=fault)

    @staticmethod
    def cut(after_pieces: int | None = 0, how: CutHow = "clean", *, reply: Answer | str | None = None) -> Step:
        """The answer ends too early, after that many pieces; None: before the first byte of the body.

        `clean`: a whole response without its terminal marker. `close`: the connection closes in mid-body. `reset`: it
        is aborted (RST); before the first byte nothing at all is answered. An unstreamed answer is cut in the middle.
        """
        fault = Fault(kind="cut", after_pieces=after_pieces, how=how)
        return Step(name="cut", fault=fault, reply=_answer(reply))

    @staticmethod
    def stall(
        after_pieces: int | None = None, *, keepalive_s: float | None = None, keepalive: Keepalive = "ping"
    ) -> Step:
        """Goes silent until the client leaves: before the response, or after that many pieces of a stream.

        With `keepalive_s` something that says nothing is sent in between: `ping`, a `comment` line or `empty` deltas.
        """
        fault = Fault(kind="stall", after_pieces=after_pieces, keepalive=keepalive, keepalive_s=keepalive_s)
        return Step(name="stall", fault=fault)

    @staticmethod
    def slow(delay_s: float, *, between_pieces_s: float = 0.0, reply: Answer | str | None = None) -> Step:
        """Waits before the answer, and between the pieces of a stream."""
        return Step(name="slow", delay_s=delay_s, between_pieces_s=between_pieces_s, reply=_answer(reply))

    @staticmethod
    def refusal(category: str | None = None, explanation: str | None = None, *, text: str | None = None) -> Step:
        """The model refuses; `text` is what it had said before.

        `category`: `content_filter` ends an OpenAI answer without words; `guardrail` is Bedrock's; a finish reason in
        capitals is Gemini's, and `prompt:REASON` blocks its prompt.
        """
        answer = Answer(text=text, refusal=Refusal(category=category, explanation=explanation))
        return Step(name="refusal", reply=answer)

    @staticmethod
    def truncated(reply: Answer | str | None = None) -> Step:
        """Cut off by the output limit: half the answer (or all of `reply`), all of the limit reported as used."""
        return Step(name="truncated", reply=_answer(reply), is_truncated=True)

    @staticmethod
    def answer(
        reply: Answer | str | None = None,
        *,
        json: Any = UNSET,
        tool_calls: tuple[ToolCall, ...] | list[ToolCall] = (),
        thinking: str | None = None,
        framing: Framing | None = None,
        **more: Any,
    ) -> Step:
        """This answer: an `Answer`, or text and what else is given. `more` are further fields of `Answer`: pieces,
        stop_reason, token counts."""
        given = reply if isinstance(reply, Answer) else Answer(text=reply)
        said: dict[str, Any] = dict(more)
        if json is not UNSET:
            said["json"] = json
        if tool_calls:
            said["tool_calls"] = tuple(tool_calls)
        if thinking is not None:
            said["thinking"] = thinking
        given = replace(given, **said)
        return Step(name="answer", reply=given, framing=framing)


class Script:
    """Steps in order, each used once, then what holds always. May be filled from another thread."""

    def __init__(self) -> None:
        self._steps: deque[Step] = deque()
        self._always: list[Step] = []
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._steps)

    def add(self, steps: tuple[Step, ...]) -> None:
        with self._lock:
            self._steps.extend(steps)

    def always(self, steps: tuple[Step, ...]) -> None:
        with self._lock:
            self._always = list(steps)

    def clear(self) -> None:
        with self._lock:
            self._steps.clear()
            self._always = []

    def put_back(self, step: Step) -> None:
        """A step whose request never came to it stands first again."""
        with self._lock:
            if step not in self._always:
                self._steps.appendleft(step)

    def next(self, model: str, wire: str) -> Step | None:
        """The first step that matches, taken off; else the first that always holds."""
        if not self._steps and not self._always:
            return None
        with self._lock:
            for index, step in enumerate(self._steps):
                if step.matches(model, wire):
                    del self._steps[index]
                    return step
            return next((step for step in self._always if step.matches(model, wire)), None)


def _answer(reply: Answer | str | None) -> Answer | None:
    return Answer(text=reply) if isinstance(reply, str) else reply


def _body(body: Any) -> tuple[bytes, str]:
    if isinstance(body, bytes):
        return body, "application/octet-stream"
    if isinstance(body, str):
        return body.encode(), "text/plain; charset=utf-8"
    return json.dumps(body).encode(), "application/json"
