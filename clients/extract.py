"""The one JSON value in a text that a model wrote. Strict about the value, lenient about what stands around it.

Never raises anything but `NotOneValue`, and its time is linear in the text.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any

#: How many places of a text are tried as the beginning of a value.
_TRIES = 32
_FENCE = re.compile(r"^[ \t]{0,3}(`{3,})[^`\n]*$", re.MULTILINE)


class NotOneValue(ValueError):
    """The text holds no JSON value, several, or one that JSON does not allow. The message is for the model."""


def each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An `object_pairs_hook`: of two values of one name, one would be lost unseen. Raises NotOneValue."""
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise NotOneValue(f"the key {twice[:80]!r} stands twice in one object")
    return found


def _constant(name: str) -> Any:
    raise NotOneValue(f"{name} is no JSON number")


def _number(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise NotOneValue(f"the number {text[:20]} is too large")
    return value


_DECODER = json.JSONDecoder(object_pairs_hook=each_once, parse_constant=_constant, parse_float=_number)


def one_value(text: str) -> Any:
    """The value that `text` is, or that its one code fence holds, or that stands between prose."""
    bare = text.strip()
    if not bare:
        raise NotOneValue("the answer is empty")
    value = _found(bare)
    if not is_sound(bare, value):
        raise NotOneValue("a text in the answer holds half a character (a lone surrogate)")
    return value


def strict_value(text: str) -> Any:
    """The value that `text` is, and nothing beside it. Raises ValueError."""
    return _DECODER.decode(text)


def is_sound(source: str, value: Any) -> bool:
    """Whether a value parsed from `source` can be written again: an escape can smuggle in half a character."""
    if "\\u" not in source and source.isascii():
        return True
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except (UnicodeEncodeError, RecursionError):
        return False
    return True


def _found(bare: str) -> Any:
    whole = _whole(bare)
    if whole is not _NOTHING:
        return whole
    fenced = _fenced(bare)
    if fenced is not None:
        inner = _whole(fenced.strip())
        if inner is not _NOTHING:
            return inner
        return _between(fenced)
    return _between(bare)


_NOTHING = object()


def _whole(text: str) -> Any:
    """The value, if the text is exactly one."""
    try:
        return _DECODER.decode(text)
    except NotOneValue:
        raise
    except (ValueError, RecursionError):
        return _NOTHING


def _fenced(text: str) -> str | None:
    """What the first code fence holds. It ends at a line that is only a fence of at least the same length, or, as some
    models never close it, at the end."""
    opening = _FENCE.search(text)
    if opening is None:
        return None
    closing = re.compile(rf"^[ \t]{{0,3}}`{{{len(opening[1])},}}[ \t]*$", re.MULTILINE).search(text, opening.end())
    return text[opening.end() : closing.start() if closing else len(text)]


def _between(text: str) -> Any:
    """The one object or array that stands between prose."""
    at = _next_start(text, 0)
    for _ in range(_TRIES):
        if at < 0:
            break
        try:
            value, end = _DECODER.raw_decode(text, at)
        except NotOneValue:
            raise
        except (ValueError, RecursionError):
            at = _next_start(text, at + 1)
            continue
        _refuse_a_second(text, end)
        return value
    raise NotOneValue("the answer holds no JSON value")


def _refuse_a_second(text: str, end: int) -> None:
    at = _next_start(text, end)
    for _ in range(_TRIES):
        if at < 0:
            return
        try:
            second, after = _DECODER.raw_decode(text, at)
        except (ValueError, RecursionError):
            at = _next_start(text, at + 1)
            continue
        if second:
            raise NotOneValue("the answer holds more than one JSON value")
        at = _next_start(text, after)


def _next_start(text: str, at: int) -> int:
    found = [place for place in (text.find("{", at), text.find("[", at)) if place >= 0]
    return min(found, default=-1)
