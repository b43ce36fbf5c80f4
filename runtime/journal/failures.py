"""Errors as JSON and back. An error of Interlock's keeps its class, its code and what is known of it; a user's keeps
its class where that can be found, its arguments and what of its attributes can be written. A traceback is not kept."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from interlock.errors import InterlockError, ReplayedError, UnencodableError, code_of

from .names import class_named, name_of

_UNWRITTEN = object()

#: How far a chain of causes is kept.
LONGEST_CHAIN = 4


def encode_error(error: BaseException, depth: int = LONGEST_CHAIN) -> dict[str, Any]:
    """Never fails: what cannot be written is left out."""
    known = {name: _written(value, name) for name, value in vars(error).items()}
    written: dict[str, Any] = {
        "!": "error",
        "t": _named(type(error)),
        "code": code_of(error),
        "kind": type(error).__qualname__,
        "text": told(error),
        "args": None if (args := _written(error.args, "args")) is _UNWRITTEN else args,
        "v": {name: data for name, data in known.items() if data is not _UNWRITTEN},
    }
    cause = error.__cause__
    if cause is not None and depth > 1:
        written["cause"] = encode_error(cause, depth - 1)
    return written


def decode_error(data: Mapping[str, Any]) -> BaseException:
    from .codec import decode

    error = _made(data)
    for name, value in data["v"].items():
        try:
            setattr(error, name, decode(value))
        except (UnencodableError, AttributeError):  # a class of an attribute that is gone, a property by now
            continue
    if "cause" in data:
        error.__cause__ = decode_error(data["cause"])
    return error


def dumps_error(error: BaseException, redact: Callable[[str], str], *, pieces: Sequence[Any] = ()) -> str:
    """The JSON of an error, without a secret in any of its texts. `pieces` of a stream that had been read by then are
    read back as its attribute of that name."""
    written = _redacted(encode_error(error), redact)
    if pieces:
        written["v"]["pieces"] = _written(list(pieces), "pieces")
    return json.dumps(written, separators=(",", ":"), allow_nan=False)


def _redacted(data: Any, redact: Callable[[str], str]) -> Any:
    if type(data) is str:
        return redact(data)
    if type(data) is list:
        return [_redacted(item, redact) for item in data]
    return {key: _redacted(item, redact) for key, item in data.items()} if type(data) is dict else data


def told(error: BaseException) -> str:
    """What an error says; its class where its own `__str__` fails."""
    try:
        return str(error)
    except Exception:
        return type(error).__name__


def _named(kind: type[BaseException]) -> str | None:
    try:
        return name_of(kind)
    except UnencodableError:
        return None


def _written(value: Any, what: str) -> Any:
    from .codec import encode

    try:
        return encode(value, what)
    except Exception:  # a user's `__getattr__` may raise anything, and an error must be told whatever hangs on it
        return _UNWRITTEN


def _made(data: Mapping[str, Any]) -> BaseException:
    """An error of the recorded class without running its constructor, as unpickling does."""
    from .codec import decode

    kind = _class(data)
    args = None if data["args"] is None else decode(data["args"])
    if kind is not None and args is not None:
        error = kind.__new__(kind, *args)
        error.args = args
        return error
    if kind is not None and issubclass(kind, InterlockError):
        error = kind.__new__(kind)
        error.args = (data["text"],)
        return error
    return ReplayedError(f"{data['kind']}: {data['text']}", kind=data["kind"])


def _class(data: Mapping[str, Any]) -> type[BaseException] | None:
    try:
        found = class_named(data["t"]) if data["t"] is not None else None
    except UnencodableError:
        found = None
    if found is not None and issubclass(found, BaseException):
        return found
    return _by_code(data["code"])


@lru_cache(maxsize=256)
def _by_code(code: str) -> type[BaseException] | None:
    """A class of Interlock's that has moved or was renamed still has its code."""
    left: list[type[InterlockError]] = [InterlockError]
    while left:
        kind = left.pop()
        if kind.__dict__.get("code") == code:
            return kind
        left.extend(kind.__subclasses__())
    return None
