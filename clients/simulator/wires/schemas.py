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


_UNSUPPORTED = {
    "integer": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
    "number": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
    "string": ("minLength", "maxLength"),
    "array": ("maxItems", "uniqueItems"),
}


def unsupported_words(schema: Any) -> tuple[str, tuple[str, ...]] | None:
    """A type and the words beside it that a constrained answer cannot obey; None if there are none."""
    if not isinstance(schema, Mapping):
        return None
    kind = schema.get("type")
    found = tuple(word for word in _UNSUPPORTED.get(kind, ()) if word in schema) if isinstance(kind, str) else ()
    if kind == "array" and schema.get("minItems", 0) > 1:
        found = (*found, "minItems")
    if found:
        return str(kind), found
    parts = [schema.get("items"), *schema.get("anyOf", ()), *schema.get("allOf", ())]
    parts += [*schema.get("properties", {}).values(), *schema.get("$defs", {}).values()]
    return next((each for each in map(unsupported_words, parts) if each is not None), None)
