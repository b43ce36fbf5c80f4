"""Whether a provider's words repeat the state. Pure.

Validation errors echo what they refuse, and a state is what a deployment least wants in its logs. So a provider's
message is kept only where it shares nothing of any length with the state, however it is written: with escapes, without
blanks, with other marks between the letters.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import unquote

#: This many characters in common are an echo; shorter texts of the state must stand in the message whole.
_RUN = 12
_SHORTEST = 3
_HALF = _RUN // 2
#: As JSON and Python write what is no plain letter; with more backslashes where it was written twice.
_ESCAPE = re.compile(r"\\+(?:u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|x([0-9a-fA-F]{2})|[abfnrtv])?")
_FIELD = re.compile(r"[^\W\d][\w-]*")
_NO_LETTERS = re.compile(r"[\W_]+")


def repeats_state(message: str, state: Any) -> bool:
    """Whether `message` quotes a text or number of `state`. Case, blanks, marks and escapes make no difference."""
    return _repeats(message, state, _folded) or _repeats(_unescaped(message), state, _letters)


def _repeats(message: str, state: Any, fold: Callable[[str], str]) -> bool:
    said = fold(message)
    return any(_quotes(said, fold(leaf)) for leaf in _leaves(state))


def _quotes(said: str, leaf: str) -> bool:
    if len(leaf) < _RUN:
        return len(leaf) >= _SHORTEST and leaf in said
    # Through the message, which is short; the state may be very long. Every run holds one of these halves whole.
    halves = range(0, len(said) - _HALF + 1, _HALF)
    return any(said[at : at + _HALF] in leaf and _run_around(said, at, leaf) for at in halves)


def _run_around(said: str, half: int, leaf: str) -> bool:
    first, last = max(0, half - _HALF), min(half, len(said) - _RUN)
    return any(said[at : at + _RUN] in leaf for at in range(first, last + 1))


def _leaves(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, item in value.items():
            if len(key) >= _RUN or not _FIELD.fullmatch(key):  # a short word is a field's name, and no data
                yield key
            yield from _leaves(item)
    elif isinstance(value, list):
        for item in value:
            yield from _leaves(item)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        yield str(value)
        if isinstance(value, float) and value.is_integer():
            yield str(int(value))


def _folded(text: str) -> str:
    return "".join(text.split()).casefold()


def _letters(text: str) -> str:
    """Letters and digits alone."""
    return _NO_LETTERS.sub("", text).casefold()


def _unescaped(message: str) -> str:
    """A message with its escapes read: of JSON, Python, HTML and addresses."""
    text = _ESCAPE.sub(_meant, unquote(html.unescape(message)))
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")  # what two escapes say together


def _meant(found: re.Match[str]) -> str:
    code = found[1] or found[2] or found[3]
    number = int(code, 16) if code else 0
    return chr(number) if 0 < number < 0x110000 else " "
