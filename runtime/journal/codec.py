"""Values as JSON and back: what a step resulted in, what a pipeline was called with.

Plain JSON stands for itself. Everything else is an object with the key "!" that says what it is:

    {"!": "tuple", "v": [...]}                                   also set, frozenset
    {"!": "dict", "v": [[key, value], ...]}                      a mapping with keys that are no text, or the key "!"
    {"!": "decimal", "v": "0.1"}                                 also bytes, datetime, date, time, timedelta, uuid and
                                                                 path, and float for nan and the infinities
    {"!": "array", "t": "<f4", "s": [2, 1024], "v": base64}      a numpy array
    {"!": "enum", "t": "interlock:Grade", "v": "SMALL"}          by its name
    {"!": "data", "t": "acme.models:Triage", "v": {field: ...}}  a dataclass or a pydantic model; a NamedTuple too
    {"!": "type", "t": "acme.models:Triage"}                     the class itself
    {"!": "error", ...}                                          an exception (`failures`)

No pickles: a record is read by looking classes up that hold data, and by nothing else. A field that a record does not
have takes its default, a field that a class does not have any more is left out, and nothing is validated again: what
was recorded before a field existed is read back as it was.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from functools import lru_cache
from math import isfinite
from pathlib import PurePath
from typing import Any
from uuid import UUID

from interlock.errors import UnencodableError

from .names import class_named, name_of

_MARK = "!"


def dumps(value: Any, what: str) -> str:
    """The JSON of a value, ASCII only. Raises UnencodableError naming `what`, where in it, and the type."""
    try:
        return json.dumps(encode(value, what), separators=(",", ":"), allow_nan=False)
    except RecursionError:
        raise UnencodableError(
            f"{what} is of type {type(value).__qualname__} and holds itself, or is nested too deep: the journal cannot"
            " write it as JSON"
        ) from None
    except ValueError as error:  # an integer of more digits than Python writes
        raise UnencodableError(f"{what} cannot be written as JSON: {error}") from None


def loads(text: str, what: str) -> Any:
    """The value of a JSON text. Raises UnencodableError where a class is gone or has a new field without a default."""
    try:
        return decode(json.loads(text))
    except UnencodableError as error:
        raise UnencodableError(f"{what}: {error}") from None
    except RecursionError:
        raise UnencodableError(f"{what} is nested too deep to be read from here") from None


def encode(value: Any, what: str = "the value") -> Any:
    """Plain JSON data for a value."""
    kind = type(value)
    if kind in _PLAIN:
        return value
    if kind is float:
        return value if isfinite(value) else {_MARK: "float", "v": repr(value)}
    if kind is list:
        return _items(value, what)
    if kind is dict:
        return _mapping(value, what)
    if kind is tuple:
        return {_MARK: "tuple", "v": _items(value, what)}
    write = _WRITERS.get(kind) or _writer(kind)  # type: ignore[arg-type, unused-ignore]
    if write is None:
        raise UnencodableError(
            f"{what} is of type {kind.__module__}.{kind.__qualname__}, which the journal cannot write as JSON: let it"
            " be plain data, a dataclass or a pydantic model"
        )
    try:
        return write(value, what)
    except UnencodableError as error:
        raise error if str(error).startswith(what) else UnencodableError(f"{what}: {error}") from None
    except AttributeError as error:  # made without its constructor, say: a field of it was never set
        raise UnencodableError(f"{what} cannot be written as JSON: {error}") from None


_PLAIN = frozenset((str, int, bool, type(None)))


def _items(value: Any, what: str) -> list[Any]:
    if _PLAIN.issuperset(map(type, value)):
        return list(value)
    return [encode(item, f"{what}[{index}]") for index, item in enumerate(value)]


def _mapping(value: Mapping[Any, Any], what: str) -> Any:
    if all(type(key) is str for key in value) and _MARK not in value:
        return {key: encode(item, f"{what}[{key!r}]") for key, item in value.items()}
    pairs = [[encode(key, f"a key of {what}"), encode(item, f"{what}[{key!r}]")] for key, item in value.items()]
    return {_MARK: "dict", "v": pairs}


def _several(name: str) -> Callable[[Any, str], Any]:
    def write(value: Any, what: str) -> Any:
        items = [encode(item, f"an item of {what}") for item in value]
        return {_MARK: name, "v": sorted(items, key=lambda item: json.dumps(item, sort_keys=True))}

    return write


def _text(name: str, write: Callable[[Any], str]) -> Callable[[Any, str], Any]:
    return lambda value, _what: {_MARK: name, "v": write(value)}


_WRITERS: dict[type[Any], Callable[[Any, str], Any]] = {
    set: _several("set"),
    frozenset: _several("frozenset"),
    bytes: _text("bytes", lambda value: b64encode(value).decode()),
    bytearray: _text("bytes", lambda value: b64encode(value).decode()),
    Decimal: _text("decimal", str),
    datetime: _text("datetime", datetime.isoformat),
    date: _text("date", date.isoformat),
    time: _text("time", time.isoformat),
    timedelta: lambda value, _what: {_MARK: "timedelta", "v": [value.days, value.seconds, value.microseconds]},
    UUID: _text("uuid", str),
}


@lru_cache(maxsize=4096)
def _writer(kind: type[Any]) -> Callable[[Any, str], Any] | None:
    """How values of a class that is not built in are written; None where they cannot be."""
    if issubclass(kind, Enum):
        return lambda value, _what: {_MARK: "enum", "t": name_of(kind), "v": value.name}
    if is_dataclass(kind):
        names = tuple(field.name for field in fields(kind))
        return lambda value, what: _data(kind, {name: getattr(value, name) for name in names}, what)
    if hasattr(kind, "model_fields"):
        return _model
    if issubclass(kind, tuple) and hasattr(kind, "_fields"):
        return lambda value, what: _data(kind, value._asdict(), what)
    if issubclass(kind, PurePath):
        return _text("path", str)
    if issubclass(kind, BaseException):
        from .failures import encode_error

        return lambda value, _what: encode_error(value)
    if issubclass(kind, type):
        return lambda value, _what: {_MARK: "type", "t": name_of(value)}
    if kind.__module__.partition(".")[0] == "numpy":
        return _array
    if issubclass(kind, Mapping):
        return _mapping
    return None


def _data(kind: type[Any], values: Mapping[str, Any], what: str) -> Any:
    return {_MARK: "data", "t": name_of(kind), "v": {name: encode(v, f"{what}.{name}") for name, v in values.items()}}


def _model(value: Any, what: str) -> Any:
    kind = type(value)
    known = {name: getattr(value, name) for name in kind.model_fields}
    written = _data(kind, {**known, **(value.model_extra or {})}, what)
    if len(value.model_fields_set) < len(known):
        written["set"] = sorted(value.model_fields_set)
    return written


def _array(value: Any, what: str) -> Any:
    import numpy as np

    array = np.ascontiguousarray(value)
    if array.dtype.hasobject:
        raise UnencodableError(f"{what} is an array of objects, which the journal cannot write as JSON")
    little = array.astype(array.dtype.newbyteorder("<"), copy=False)
    shape = list(np.shape(value))
    written = {_MARK: "array", "t": little.dtype.str, "s": shape, "v": b64encode(little.tobytes()).decode()}
    return written if isinstance(value, np.ndarray) else {**written, "s": None}


# Reading.


def decode(data: Any) -> Any:
    """The value that plain JSON data stands for."""
    if type(data) is list:
        return [decode(item) for item in data]
    if type(data) is not dict:
        return data
    mark = data.get(_MARK)
    if mark is None:
        return {key: decode(item) for key, item in data.items()}
    read = _READERS.get(mark)
    if read is None:
        raise UnencodableError(
            f"the journal holds a {mark!r}, which this version does not know: was it written by a later one?"
        )
    return read(data)


def _read_data(data: Mapping[str, Any]) -> Any:
    kind = class_named(data["t"])
    values = {name: decode(item) for name, item in data["v"].items()}
    if hasattr(kind, "model_fields"):
        _check_complete(kind, [n for n, f in kind.model_fields.items() if f.is_required() and n not in values])
        given = set(data.get("set", values))
        if getattr(kind, "__pydantic_root_model__", False):
            return kind.model_construct(values["root"], given)
        return kind.model_construct(given, **values)
    if not is_dataclass(kind):
        named: Any = kind
        return named(**{name: values[name] for name in named._fields if name in values})
    return _read_dataclass(kind, values)


def _read_dataclass(kind: type[Any], values: Mapping[str, Any]) -> Any:
    _check_complete(kind, [f.name for f in fields(kind) if f.name not in values and not _has_default(f)])
    plain = kind.__dataclass_params__.init
    initial = {f.name: values[f.name] for f in fields(kind) if f.init and f.name in values} if plain else {}
    value = kind(**initial) if plain else object.__new__(kind)
    for field in fields(kind):
        if field.name in values and field.name not in initial:
            object.__setattr__(value, field.name, values[field.name])
        elif not plain and field.name not in values:
            object.__setattr__(value, field.name, _default(field))
    return value


def _default(field: Any) -> Any:
    return field.default if field.default is not MISSING else field.default_factory()


def _has_default(field: Any) -> bool:
    return field.default is not MISSING or field.default_factory is not MISSING or not field.init


def _check_complete(kind: type[Any], missing: list[str]) -> None:
    if missing:
        raise UnencodableError(
            f"what was recorded of {kind.__qualname__} has no {', '.join(missing)}, which it now must have: give a new"
            " field a default, so that what was written before it existed can be read"
        )


def _read_array(data: Mapping[str, Any]) -> Any:
    import numpy as np

    flat = np.frombuffer(b64decode(data["v"]), dtype=np.dtype(data["t"]))
    if data["s"] is None:
        return flat[0]
    return flat.astype(flat.dtype.newbyteorder("="), copy=True).reshape(data["s"])


def _read_error(data: Mapping[str, Any]) -> Any:
    from .failures import decode_error

    return decode_error(data)


def _read_enum(data: Mapping[str, Any]) -> Any:
    kind: Any = class_named(data["t"])
    return kind[data["v"]]


def _read_path(data: Mapping[str, Any]) -> Any:
    from pathlib import Path

    return Path(data["v"])


_READERS: dict[str, Callable[[Mapping[str, Any]], Any]] = {
    "tuple": lambda data: tuple([decode(item) for item in data["v"]]),
    "set": lambda data: {decode(item) for item in data["v"]},
    "frozenset": lambda data: frozenset(decode(item) for item in data["v"]),
    "dict": lambda data: {decode(key): decode(item) for key, item in data["v"]},
    "float": lambda data: float(data["v"]),
    "bytes": lambda data: b64decode(data["v"]),
    "decimal": lambda data: Decimal(data["v"]),
    "datetime": lambda data: datetime.fromisoformat(data["v"]),
    "date": lambda data: date.fromisoformat(data["v"]),
    "time": lambda data: time.fromisoformat(data["v"]),
    "timedelta": lambda data: timedelta(*data["v"]),
    "uuid": lambda data: UUID(data["v"]),
    "path": _read_path,
    "array": _read_array,
    "enum": _read_enum,
    "data": _read_data,
    "type": lambda data: class_named(data["t"]),
    "error": _read_error,
}
