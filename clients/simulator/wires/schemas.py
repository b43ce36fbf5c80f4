"""What providers demand of a JSON schema that is to be obeyed strictly."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any


def _objects(schema: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Mapping[str, Any]]]:
    """Every schema of an object inside `schema`, with where it stands."""
    if not isinstance(schema, Mapping):
        return
    if schema.get("type") == "object" or "properties" in schema:
        yield path, schema
    for word in ("properties", "$defs", "definitions"):
        for name, each in (schema.get(word) or {}).items():
            yield from _objects(each, (*path, word, name))
    for word in ("anyOf", "oneOf", "allOf", "prefixItems"):
        for index, each in enumerate(schema.get(word) or ()):
            yield from _objects(each, (*path, word, str(index)))
    yield from _objects(schema.get("items"), (*path, "items"))


def require_closed_objects(schema: Mapping[str, Any]) -> tuple[str, ...] | None:
    """Where an object leaves its properties open; None if none does."""
    return next((path for path, each in _objects(schema, ()) if each.get("additionalProperties") is not False), None)


def require_all_properties(schema: Mapping[str, Any]) -> tuple[tuple[str, ...], str] | None:
    """Where an object has a property that is not required, and which; None if none has."""
    for path, each in _objects(schema, ()):
        for name in each.get("properties", {}):
            if name not in each.get("required", ()):
                return path, name
    return None
