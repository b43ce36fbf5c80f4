"""What providers' headers say about time: how long to wait, and how much of a limit is left. Pure and total.

Every function gives a finite, non-negative number or None, and never raises, whatever a server sends.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from interlock.admission.outcome import Dimension, ReportedLimit

_NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|us|µs|ns|[dhms])")
_UNIT_S = {"d": 86_400.0, "h": 3_600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
#: A bare number this large is a point in time (seconds since 1970), not a duration.
_EPOCH_FROM = 1e9
_LONGEST_HEADER = 128


def seconds(value: Any) -> float | None:
    """A finite number of seconds >= 0, or None."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    if isinstance(value, str):
        text = value.strip()
        if len(text) > _LONGEST_HEADER or not _NUMBER.fullmatch(text):
            return None
        value = text
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) and number >= 0 else None


def duration(value: Any) -> float | None:
    """`6m0s`, `17ms`, `23h47m36.648s`, `12.5s`, or plain seconds."""
    plain = seconds(value)
    if plain is not None or not isinstance(value, str):
        return plain
    text = value.strip()
    if not text or len(text) > _LONGEST_HEADER:
        return None
    parts, at = 0.0, 0
    for part in _PART.finditer(text):
        if part.start() != at:
            return None
        parts += float(part[1]) * _UNIT_S[part[2]]
        at = part.end()
    return parts if at == len(text) and math.isfinite(parts) else None


def until(value: Any, *, now: datetime) -> float | None:
    """Seconds from `now` to a point in time: an HTTP date in any of its forms, RFC 3339, or an epoch. The past is 0."""
    epoch = seconds(value)
    if epoch is not None:
        return max(epoch - now.timestamp(), 0.0) if epoch >= _EPOCH_FROM else None
    if not isinstance(value, str) or len(value) > _LONGEST_HEADER:
        return None
    point = _iso(value.strip()) or _http_date(value.strip())
    if point is None:
        return None
    try:
        return max(((point if point.tzinfo else point.replace(tzinfo=UTC)) - now).total_seconds(), 0.0)
    except (OverflowError, ValueError):
        return None


def _iso(text: str) -> datetime | None:
    if not re.match(r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ]", text):
        return None
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None


def _http_date(text: str) -> datetime | None:
    try:
        return parsedate_to_datetime(text)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None


def wait(value: Any, *, now: datetime) -> float | None:
    """A `retry-after`: seconds, a duration, or a point in time."""
    number = seconds(value)
    if number is not None and number < _EPOCH_FROM:
        return number
    found = until(value, now=now)
    return found if found is not None else duration(value)


def retry_hint(headers: Mapping[str, str], body: Any = None, *, now: datetime) -> float | None:
    """How long the provider asks to wait, in seconds: `retry-after-ms`, then `retry-after`, then Google's
    `RetryInfo` in the body. None: no usable hint."""
    milliseconds = seconds(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return milliseconds / 1_000
    asked = wait(headers.get("retry-after"), now=now)
    return asked if asked is not None else _retry_info(body)


def _retry_info(body: Any) -> float | None:
    outer = body[0] if isinstance(body, list) and body else body
    error = outer.get("error", outer) if isinstance(outer, dict) else None  # an SDK may have unwrapped it
    details = error.get("details") if isinstance(error, dict) else None
    for detail in details if isinstance(details, list) else ():
        if isinstance(detail, dict) and "retryDelay" in detail:
            return duration(detail["retryDelay"])
    return None


def _reset(value: Any, *, now: datetime) -> float | None:
    found = until(value, now=now)
    return found if found is not None else duration(value)


_ANTHROPIC = {
    Dimension.REQUESTS: "requests",
    Dimension.TOKENS: "tokens",
    Dimension.INPUT_TOKENS: "input-tokens",
    Dimension.OUTPUT_TOKENS: "output-tokens",
}
_OPENAI = {Dimension.REQUESTS: "requests", Dimension.TOKENS: "tokens"}


def anthropic_limits(headers: Mapping[str, str], *, now: datetime) -> dict[Dimension, ReportedLimit]:
    """`anthropic-ratelimit-{requests,tokens,input-tokens,output-tokens}-{limit,remaining,reset}`."""
    return _limits(
        headers, now, {dimension: f"anthropic-ratelimit-{word}-{{}}" for dimension, word in _ANTHROPIC.items()}
    )


def openai_limits(headers: Mapping[str, str], *, now: datetime) -> dict[Dimension, ReportedLimit]:
    """`x-ratelimit-{limit,remaining,reset}-{requests,tokens}`."""
    return _limits(headers, now, {dimension: f"x-ratelimit-{{}}-{word}" for dimension, word in _OPENAI.items()})


def _limits(
    headers: Mapping[str, str], now: datetime, names: Mapping[Dimension, str]
) -> dict[Dimension, ReportedLimit]:
    found: dict[Dimension, ReportedLimit] = {}
    for dimension, name in names.items():
        limit, remaining = seconds(headers.get(name.format("limit"))), seconds(headers.get(name.format("remaining")))
        if limit is None and remaining is None:
            continue
        reset = _reset(headers.get(name.format("reset")), now=now)
        found[dimension] = ReportedLimit(limit=limit, remaining=remaining, reset_s=reset)
    return found
