"""A string that matches a regular expression, for the expressions that schemas use.

The pattern is parsed by Python's own parser and walked; look-around is left to the check at the end. What cannot be
found in a few tries is None.
"""

from __future__ import annotations

import re
import string
import warnings
from collections.abc import Iterator
from typing import Any

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from re import _constants, _parser  # type: ignore[attr-defined]

_TRIES = 24
_ALPHABET = string.ascii_lowercase + string.digits + string.ascii_uppercase + "-_. "


def matching(pattern: str, choice: int, least: int = 0, most: int | None = None) -> str | None:
    """A string that `pattern` finds itself in, of a length between `least` and `most`; None if none was found."""
    try:
        parsed, check = _parser.parse(pattern), re.compile(pattern)
    except (re.error, RecursionError, OverflowError):
        return None
    for attempt in range(_TRIES):
        found = _Sampler(choice + attempt * 7919, extra=attempt).text(parsed)
        if not pattern.endswith("$") and len(found) < least:
            found = found.ljust(least, "a")
        if most is not None and len(found) > most and not pattern.endswith("$"):
            found = found[:most]
        if least <= len(found) and (most is None or len(found) <= most) and check.search(found):
            return found
    return None


class _Sampler:
    def __init__(self, choice: int, *, extra: int) -> None:
        self._state = choice & 0xFFFFFFFF
        self._extra = extra  # how much longer than needed repeats may be
        self._groups: dict[int, str] = {}

    def _next(self, count: int) -> int:
        self._state = (self._state * 1664525 + 1013904223) & 0xFFFFFFFF
        return (self._state >> 8) % count

    def text(self, parsed: Any) -> str:
        return "".join(self._parts(parsed))

    def _parts(self, parsed: Any) -> Iterator[str]:
        for op, value in parsed:
            name = str(op)
            if name == "LITERAL":
                yield chr(value)
            elif name == "NOT_LITERAL":
                yield self._one_of(char for char in _ALPHABET if char != chr(value))
            elif name == "ANY":
                yield self._one_of(string.ascii_lowercase)
            elif name == "IN":
                yield self._one_of(_class(value))
            elif name == "BRANCH":
                yield self.text(value[1][self._next(len(value[1]))])
            elif name == "SUBPATTERN":
                found = self.text(value[3])
                if value[0] is not None:
                    self._groups[value[0]] = found
                yield found
            elif name in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"):
                yield from self._repeated(*value)
            elif name == "GROUPREF":
                yield self._groups.get(value, "")
            elif name == "ATOMIC_GROUP":
                yield self.text(value)

    def _repeated(self, low: int, high: Any, parsed: Any) -> Iterator[str]:
        room = self._extra if high is _constants.MAXREPEAT else min(self._extra, high - low)
        for _ in range(low + self._next(room + 1)):
            yield self.text(parsed)

    def _one_of(self, chars: Any) -> str:
        choices = list(chars)
        return choices[self._next(len(choices))] if choices else ""


def _class(items: Any) -> list[str]:
    """The characters of a class, those of a small alphabet where it is open."""
    if str(items[0][0]) == "NEGATE":
        refused = set(_class(items[1:]))
        return [char for char in _ALPHABET if char not in refused]
    found: list[str] = []
    for op, value in items:
        name = str(op)
        if name == "LITERAL":
            found.append(chr(value))
        elif name == "RANGE":
            found.extend(chr(code) for code in range(value[0], min(value[1], value[0] + 200) + 1))
        elif name == "CATEGORY":
            found.extend(_CATEGORIES.get(str(value), ""))
    return found


_CATEGORIES = {
    "CATEGORY_DIGIT": string.digits,
    "CATEGORY_NOT_DIGIT": string.ascii_lowercase,
    "CATEGORY_WORD": string.ascii_lowercase + string.digits + "_",
    "CATEGORY_NOT_WORD": "-. ",
    "CATEGORY_SPACE": " ",
    "CATEGORY_NOT_SPACE": string.ascii_lowercase + string.digits,
}
