"""The fingerprint of a step: the type of its job and the canonical JSON of its fields, before the picker has chosen.

Canonical: keys sorted, a field that has its default left out (so a field added later, with a default, changes nothing),
sets in order, arrays by their digest. A class goes by its name alone, so moving it to another module changes nothing.
What cannot be written counts by its type only. A dataclass leaves a field out with `field(compare=False)`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from functools import lru_cache
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from interlock.errors import UnencodableError

from ..job import Job, job_name

if TYPE_CHECKING:
    from collections.abc import Callable

_PLAIN = frozenset((str, int, bool, type(None)))


def fingerprint_of(job: Job[Any]) -> str:
    """`Name:digest`, and `@limit` behind it for a call that declares its answer's limit: an answer cut off is an
    outcome of that limit."""
    identity, limit = job._identity(), job._answer_limit()
    with _told_of(job_name(job)):
        fixed = _digest(_fields(job)) if identity is None else _digest(canonical(identity))
    return f"{job_name(job)}:{fixed}@{limit}" if limit else f"{job_name(job)}:{fixed}"


def fingerprint(name: str, *values: Any) -> str:
    with _told_of(name):
        return f"{name}:{digest(values)}"


@contextmanager
def _told_of(name: str) -> Iterator[None]:
    """How deep is too deep depends on who asks, so it cannot count as something else that is the same every time."""
    try:
        yield
    except RecursionError:
        raise UnencodableError(
            f"what {name} is called with holds itself, or is nested too deep: the journal cannot tell it from others"
        ) from None
    except ValueError as error:  # a whole number of more digits than Python writes
        raise UnencodableError(f"what {name} is called with cannot be written as JSON: {error}") from None


def without_limit(text: str) -> str:
    return text.partition("@")[0]


def digest(value: Any) -> str:
    """32 hexadecimal digits of the canonical JSON."""
    return _digest(canonical(value))


def _digest(data: Any) -> str:
    written = json.dumps(data, sort_keys=True, separators=(",", ":"))
    return sha256(written.encode()).hexdigest()[:32]


def canonical(value: Any) -> Any:
    kind = type(value)
    if kind in _PLAIN:
        return value
    if kind is float:
        return value if value == value and abs(value) != float("inf") else repr(value)
    if kind in (list, tuple):
        return [canonical(item) for item in value]
    if kind in (set, frozenset):
        return ["set", *sorted((canonical(item) for item in value), key=lambda item: json.dumps(item, sort_keys=True))]
    if isinstance(value, Enum):
        return [kind.__qualname__, value.name]
    if isinstance(value, Mapping):
        pairs = [[canonical(key), canonical(item)] for key, item in value.items()]
        return {"of": sorted(pairs, key=lambda pair: json.dumps(pair[0], sort_keys=True))}
    if isinstance(value, type):
        return ["type", value.__qualname__]
    if is_dataclass(value) or hasattr(kind, "model_fields"):
        return [kind.__qualname__, _fields(value)]
    return _other(value)


def _fields(value: Any) -> dict[str, Any]:
    kind = type(value)
    declared = _declared(kind)  # type: ignore[arg-type, unused-ignore]
    if declared is None:  # a job of a plain class
        return {name: canonical(item) for name, item in vars(value).items() if name not in _SETTINGS}
    found: dict[str, Any] = {}
    for name, default, make in declared:
        item = getattr(value, name, None)
        if not _is(item, default() if make else default):
            found[name] = canonical(item)
    return found


_SETTINGS = frozenset(("timeout_s", "upstream_retries", "priority", "workflow", "max_wait_s", "overflow"))


def _is(item: Any, default: Any) -> bool:
    if item is default:
        return True
    try:
        return type(item) is type(default) and bool(item == default)
    except Exception:  # an array compares item by item
        return False


@lru_cache(maxsize=4096)
def _declared(kind: type[Any]) -> tuple[tuple[str, Any, bool], ...] | None:
    """(name, default, whether that is a factory) of every field that counts; None for a class without fields."""
    if hasattr(kind, "model_fields"):
        return tuple([(name, *_of_model(field)) for name, field in kind.model_fields.items()])
    if not is_dataclass(kind):
        return None
    found: list[tuple[str, Any, bool]] = []
    for field in fields(kind):
        if field.compare or kind.__dataclass_params__.eq is False:  # type: ignore[attr-defined]
            made = field.default_factory is not MISSING
            found.append((field.name, field.default_factory if made else field.default, made))
    return tuple(found)


def _of_model(field: Any) -> tuple[Any, bool]:
    made = field.default_factory is not None and not field.default_factory_takes_validated_data
    return (field.default_factory if made else field.default), made


def _other(value: Any) -> Any:
    from .codec import encode

    kind = type(value)
    if kind.__module__.partition(".")[0] == "numpy" or kind in (bytes, bytearray):
        write: Callable[..., Any] = getattr(value, "tobytes", lambda: bytes(value))
        return [kind.__qualname__, str(getattr(value, "shape", "")), sha256(write()).hexdigest()]
    try:
        return encode(value)
    except UnencodableError:
        return ["opaque", kind.__qualname__]
