"""A number that obeys a JSON schema's bounds."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

Schema = Mapping[str, Any]


def number(schema: Schema, preferred: Iterable[float], choice: int, *, whole: bool) -> int | float | None:
    """The first preferred number that fits, else one that `choice` settles; None if there is none."""
    for candidate in preferred:
        if _fits(candidate, schema) and (not whole or candidate == int(candidate)):
            return int(candidate) if whole else candidate
    for candidate in _candidates(schema, choice, whole):
        if _fits(candidate, schema):
            return int(candidate) if whole else candidate
    return None


def _candidates(schema: Schema, choice: int, whole: bool) -> Iterator[float]:
    low, high = _bounds(schema, whole)
    step = float(schema.get("multipleOf", 1 if whole else 0))
    if not step:
        shares = ((choice % 101) / 100, 0.5, 0.25, 0.75)
        yield from (round(low + (high - low) * share, 4) for share in shares)
        yield from (low + (high - low) * share for share in shares)
        return
    if whole and step != int(step):
        step *= 10 ** len(str(step).partition(".")[2])  # a whole multiple of a fraction
    first, last = math.ceil(low / step), math.floor(high / step)
    count = last - first + 1
    if count > 0:
        yield from ((first + offset) * step for offset in (choice % count, 0, 1, count - 1, count // 2))


def _bounds(schema: Schema, whole: bool) -> tuple[float, float]:
    """Where to look: the schema's bounds, or ten numbers beside the one there is."""
    lows = [schema[word] for word in ("minimum", "exclusiveMinimum") if word in schema]
    highs = [schema[word] for word in ("maximum", "exclusiveMaximum") if word in schema]
    if not lows and not highs:
        return 0, 10 if whole else 1
    width = max(10, 2 * schema.get("multipleOf", 1))
    low = max(lows) if lows else min(highs) - width
    high = min(highs) if highs else low + width
    return low, high


def _fits(candidate: float, schema: Schema) -> bool:
    step: float | None = schema.get("multipleOf")
    return (
        bool(candidate >= schema.get("minimum", -math.inf))
        and bool(candidate <= schema.get("maximum", math.inf))
        and bool(candidate > schema.get("exclusiveMinimum", -math.inf))
        and bool(candidate < schema.get("exclusiveMaximum", math.inf))
        and (step is None or math.isclose(candidate / step, round(candidate / step), rel_tol=0, abs_tol=1e-9))
    )
