"""Which vector belongs to which text: a wire that numbers its results is put back in order, or refused. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from interlock.errors import MalformedResponseError

V = TypeVar("V")


def align(values: Sequence[V], indexes: Sequence[object] | None, *, expected: int) -> Sequence[V]:
    """`values` in the order of the texts that were sent.

    `indexes` are the results' own numbers, None where a result has none (or altogether, for a wire without them). All
    absent keeps the order. Anything else must be each of 0..expected-1 once, as numbers or their decimal text;
    MalformedResponseError otherwise, so no vector is ever attached to another text.
    """
    if len(values) != expected:
        raise MalformedResponseError(f"{expected} texts were sent and {len(values)} vectors came back")
    if indexes is None or all(index is None for index in indexes):
        return values
    if len(indexes) != expected:
        raise MalformedResponseError(f"{expected} vectors came with {len(indexes)} indexes")
    placed: dict[int, V] = {}
    for index, value in zip(indexes, values, strict=True):
        at = _number(index)
        if at is None or not 0 <= at < expected:
            raise MalformedResponseError(f"a vector's index is {_shown(index)}, not one of 0 to {expected - 1}")
        if at in placed:
            raise MalformedResponseError(f"two vectors carry the index {at}")
        placed[at] = value
    return [placed[at] for at in range(expected)]


def _number(index: object) -> int | None:
    if isinstance(index, bool):
        return None
    if isinstance(index, int):
        return index
    if isinstance(index, str) and index.isascii() and index.isdigit() and len(index) < 12:
        return int(index)
    return None


def _shown(index: object) -> str:
    return "missing" if index is None else repr(index)[:40]
