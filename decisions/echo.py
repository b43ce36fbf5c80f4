"""Whether a provider's words repeat the state. Pure.

Validation errors echo what they refuse, and a state is what a deployment least wants in its logs. So a provider's
message is kept only where it shares nothing of any length with the state.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

#: This many characters in common are an echo; shorter texts of the state must stand in the message whole.
_RUN = 12
_SHORTEST = 3


def repeats_state(message: str, state: Any) -> bool:
    """Whether `message` quotes a text or number of `state`. Case and blanks make no difference."""
    said = _folded(message)
    return any(_quotes(said, _folded(leaf)) for leaf in _leaves(state))


def _quotes(said: str, leaf: str) -> bool:
    if len(leaf) < _RUN:
        return len(leaf) >= _SHORTEST and leaf in said
    # Through the message, which is short; the state may be very long.
    return any(said[at : at + _RUN] in leaf for at in range(len(said) - _RUN + 1))


def _leaves(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, item in value.items():
            if len(key) >= _RUN:  # a shorter key is a field's name, and no data
                yield key
            yield from _leaves(item)
    elif isinstance(value, list):
        for item in value:
            yield from _leaves(item)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        yield str(value)


def _folded(text: str) -> str:
    return "".join(text.split()).casefold()
