"""What a wire is to the provider."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, NamedTuple, Protocol

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


class Wire(Protocol):
    name: ClassVar[str]
    refused_counts: ClassVar[bool]  # a request refused for its tokens is spent all the same

    def read(self, body: dict[str, Any]) -> Ask: ...

    def error(self, error: WireError, request_id: str) -> dict[str, Any]: ...

    def failure(self, failure: Failure, ask: Ask, request_id: str) -> Refusing: ...

    def refused(self, refused: Refused, ask: Ask, request_id: str) -> Refusing: ...

    def headers(self, request_id: str, levels: Mapping[str, Level]) -> Headers: ...

    def start_charge(self, ask: Ask, fresh_tokens: int) -> Charge: ...

    def produced_charge(self, tokens: int) -> Charge: ...

    def settle_charge(self, ask: Ask, output_tokens: int) -> Charge: ...

    def single(self, ask: Ask, reply: Reply) -> dict[str, Any]: ...

    def events(self, ask: Ask, reply: Reply) -> Iterator[Event]: ...

    def error_event(self, kind: str, message: str) -> bytes: ...

    def status_of(self, kind: str) -> int: ...

    def keepalive(self, kind: str, reply: Reply) -> bytes: ...

    def models(self, ids: Sequence[str]) -> dict[str, Any]: ...


_ENCODER = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False)


def encode(value: Any) -> bytes:
    return _ENCODER.encode(value).encode("utf-8", "surrogatepass")


def pieces_of(text: str) -> list[str]:
    """Text cut as a stream carries it: some 16 characters each, at most 64 pieces."""
    size = max(16, len(text) // 64 + 1)
    return [text[start : start + size] for start in range(0, len(text), size)]
