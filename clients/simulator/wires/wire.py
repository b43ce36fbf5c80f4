"""What a wire is to the provider."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, NamedTuple, Protocol, runtime_checkable

from ..buckets import Charge, Level, Refused
from ..exchange import Ask, Reply
from ..script import Failure

Headers = list[tuple[bytes, bytes]]


class WireError(Exception):
    """A request that the provider refuses: status, the provider's words, and where the wire has one a parameter and
    a code."""

    def __init__(
        self, status: int, message: str, *, param: str | None = None, code: str | None = None, kind: str | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.param = param
        self.code = code
        self.kind = kind


def texts(given: Any, where: str) -> tuple[str, ...]:
    """A list of texts as a request gives it. Raises WireError for anything else."""
    if not isinstance(given, list) or not all(isinstance(each, str) for each in given):
        raise WireError(400, f"{where}: Input should be a valid list of strings")
    return tuple(given)


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What a request says outside its body: in its path, its query and its headers (lower case, no credentials).

    `model` and `streamed` are None where the wire says them in the body.
    """

    model: str | None = None
    streamed: bool | None = None
    path: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    query: Mapping[str, str] = field(default_factory=dict)

    def page(self, ids: Sequence[str], size: str, after: str) -> tuple[Sequence[str], bool]:
        """The part of a list that is asked for, by the wire's words for how many and after which; whether more come."""
        asked, last = self.query.get(size, ""), self.query.get(after)
        begin = ids.index(last) + 1 if last in ids else 0
        end = begin + int(asked) if asked.isdigit() else len(ids)
        return ids[begin:end], end < len(ids)


class Event(NamedTuple):
    """One event of a stream. A `piece` carries a part of the answer; `end` begins the terminal marker."""

    kind: Literal["start", "piece", "end"]
    data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusing:
    """An error response."""

    status: int
    body: dict[str, Any]
    headers: Mapping[str, str] = field(default_factory=dict)


SSE_HEADERS: Headers = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-cache")]


class Wire(Protocol):
    name: ClassVar[str]
    refused_counts: ClassVar[bool]  # a request refused for its tokens is spent all the same
    id_prefixes: ClassVar[tuple[str, str]]  # of the ids of messages and of tool calls
    stream_headers: ClassVar[Headers]
    binary: ClassVar[bool]  # the stream is no text

    def read(self, body: dict[str, Any], target: Target) -> Ask: ...

    def counted_body(self, body: dict[str, Any], target: Target) -> dict[str, Any]:
        """The request for an answer inside a request that only counts tokens."""
        ...

    def counted(self, tokens: int) -> dict[str, Any]: ...

    def error(self, error: WireError, request_id: str) -> Refusing: ...

    def unauthorized(self, *, given: bool) -> WireError:
        """The refusal of a request with a key that is not known, or (not `given`) without one."""
        ...

    def unknown_model(self, model: str) -> WireError: ...

    def too_long(self, tokens: int, window: int) -> WireError: ...

    def failure(self, failure: Failure, ask: Ask, request_id: str) -> Refusing: ...

    def refused(self, refused: Refused, ask: Ask, request_id: str) -> Refusing: ...

    def headers(self, request_id: str, levels: Mapping[str, Level]) -> Headers: ...

    def start_charge(self, ask: Ask, input_tokens: int, cached_tokens: int) -> Charge:
        """`cached_tokens` of the input were read from the cache."""
        ...

    def produced_charge(self, tokens: int) -> Charge: ...

    def settle_charge(self, ask: Ask, output_tokens: int, cached_tokens: int) -> Charge: ...

    def single(self, ask: Ask, reply: Reply) -> dict[str, Any]: ...

    def events(self, ask: Ask, reply: Reply) -> Iterator[Event]: ...

    def error_event(self, kind: str, message: str, reply: Reply, sent: int) -> bytes:
        """`sent` events stand before it."""
        ...

    def scripted(self, event: Any) -> bytes:
        """One event of `Step.events`, framed as this wire frames them; bytes go as they are."""
        ...

    def status_of(self, kind: str) -> int: ...

    def keepalive(self, kind: str, reply: Reply) -> bytes: ...

    def models(self, ids: Sequence[str], target: Target) -> dict[str, Any]: ...


@runtime_checkable
class CountsInHeaders(Protocol):
    """A wire whose answers say in their headers what was read."""

    def answer_headers(self, reply: Reply) -> Headers: ...


_ENCODER = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False)


def encode(value: Any) -> bytes:
    return _ENCODER.encode(value).encode("utf-8", "surrogatepass")


def sse_event(event: Any) -> bytes:
    """A server-sent event: a mapping (named after its `type`), the text of its data, or bytes as they are."""
    if isinstance(event, bytes):
        return event
    if isinstance(event, str):
        return f"data: {event}\n\n".encode()
    name = f"event: {event['type']}\n" if isinstance(event, Mapping) and "type" in event else ""
    return f"{name}data: {json.dumps(event)}\n\n".encode()


def pieces_of(text: str) -> list[str]:
    """Text cut as a stream carries it: some 16 characters each, at most 64 pieces."""
    size = max(16, len(text) // 64 + 1)
    return [text[start : start + size] for start in range(0, len(text), size)]
