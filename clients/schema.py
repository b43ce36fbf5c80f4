"""JSON schemas as strict providers take them: translated without loss, or refused naming what cannot be said.

Whatever a provider's dialect cannot express about a value (a length, a range) moves into the description: the answer is
validated against the caller's own type afterwards, so nothing is lost. What it cannot express about the *structure* (a
dictionary with free keys, for one) is `UnsupportedSchema`, and the caller of these functions takes another way.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


class UnsupportedSchema(ValueError):
    """A construct that this dialect has no words for. The message names it and where it stands."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """What a provider's strict mode accepts beyond types, properties, items, enum, const, anyOf and $ref."""

    name: str
    keywords: frozenset[str]  # validation words it takes as they are
    formats: frozenset[str]
    recursion: bool
    all_required: bool  # every property must be listed as required
    const: bool = True  # knows `const`; otherwise it is an enum of one


_FORMATS = frozenset({"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"})

OPENAI = Dialect(
    name="OpenAI strict mode",
    keywords=frozenset(
        {"pattern", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minItems", "maxItems"}
    ),
    formats=_FORMATS,
    recursion=True,
    all_required=True,
)
ANTHROPIC = Dialect(
    name="Anthropic structured outputs",
    keywords=frozenset(),
    formats=_FORMATS | {"uri"},
    recursion=False,
    all_required=False,
)
GEMINI = Dialect(
    name="Gemini's response schema",
    keywords=frozenset({"minimum", "maximum", "minItems", "maxItems"}),
    formats=frozenset({"date-time", "date", "time"}),
    recursion=False,
    all_required=False,
    const=False,
)

#: Words about structure that no strict mode knows.
_NO_WORDS_FOR = (
    "patternProperties",
    "prefixItems",
    "not",
    "if",
    "dependentSchemas",
    "unevaluatedProperties",
    "contains",
)
_DROPPED = frozenset({"default", "examples", "discriminator", "$schema", "$id", "deprecated", "readOnly", "writeOnly"})
_TOO_DEEP = 100


def strict_schema(schema: Mapping[str, Any], dialect: Dialect) -> dict[str, Any]:
    """The schema in `dialect`. Raises `UnsupportedSchema`. The given one is not changed."""
    definitions = schema.get("$defs", {})
    if not dialect.recursion:
        _refuse_recursion(definitions, dialect)
    translated = _translate({key: value for key, value in schema.items() if key != "$defs"}, dialect, "$", 0)
    if definitions:
        translated["$defs"] = {
            name: _translate(definition, dialect, f"$defs.{name}", 0) for name, definition in definitions.items()
        }
    return translated


def _translate(schema: Any, dialect: Dialect, path: str, depth: int) -> dict[str, Any]:
    if not isinstance(schema, dict) or depth > _TOO_DEEP:
        raise UnsupportedSchema(f"{dialect.name} cannot express the schema at {path}")
    unsaid = next((word for word in _NO_WORDS_FOR if word in schema), None)
    if unsaid is not None:
        raise UnsupportedSchema(f"{dialect.name} has no {unsaid} (at {path})")
    if "$ref" in schema:
        return _reference(schema)
    out: dict[str, Any] = {}
    notes: dict[str, Any] = {}
    for word, value in schema.items():
        _word(word, value, schema, out, notes, dialect, path, depth)
    if not out.keys() & {"type", "anyOf", "enum", "const"}:
        raise UnsupportedSchema(f"{dialect.name} needs a type, and the value at {path} may be anything")
    if notes:
        said = [out["description"]] if out.get("description") else []
        out["description"] = " ".join([*said, f"({json.dumps(notes, default=str)[1:-1]})"])
    return out


def _reference(schema: dict[str, Any]) -> dict[str, Any]:
    """A $ref may have no neighbours in a strict mode; one that has some becomes a choice of one."""
    if "description" not in schema:
        return {"$ref": schema["$ref"]}
    return {"anyOf": [{"$ref": schema["$ref"]}], "description": schema["description"]}


def _word(
    word: str,
    value: Any,
    schema: dict[str, Any],
    out: dict[str, Any],
    notes: dict[str, Any],
    dialect: Dialect,
    path: str,
    depth: int,
) -> None:
    if word in _DROPPED or word in ("required", "additionalProperties"):
        pass
    elif word == "type" and value == "object":
        out.update(_object(schema, dialect, path, depth))
    elif word == "items":
        out["items"] = _translate(value, dialect, f"{path}[]", depth + 1)
    elif word in ("anyOf", "oneOf"):
        out["anyOf"] = [_translate(one, dialect, f"{path}.{word}[{at}]", depth + 1) for at, one in enumerate(value)]
    elif word == "allOf":
        if len(value) != 1:
            raise UnsupportedSchema(f"{dialect.name} has no allOf of several (at {path})")
        out.update(_translate(value[0], dialect, path, depth + 1))
    elif word == "const" and not dialect.const:
        out["enum"] = [value]
    elif word == "format":
        (out if value in dialect.formats else notes)["format"] = value
    elif word in ("type", "enum", "const", "title", "description") or word in dialect.keywords:
        out[word] = value
    elif word != "properties":
        notes[word] = value


def _object(schema: dict[str, Any], dialect: Dialect, path: str, depth: int) -> dict[str, Any]:
    free = schema.get("additionalProperties")
    properties = schema.get("properties")
    if isinstance(free, dict) or free is True or properties is None:
        raise UnsupportedSchema(f"{dialect.name} has no dictionary with free keys (at {path})")
    required = list(properties) if dialect.all_required else list(schema.get("required", ()))
    return {
        "type": "object",
        "properties": {
            name: _translate(value, dialect, f"{path}.{name}", depth + 1) for name, value in properties.items()
        },
        "required": required,
        "additionalProperties": False,
    }


def _refuse_recursion(definitions: Mapping[str, Any], dialect: Dialect) -> None:
    uses = {name: _references(definition) & definitions.keys() for name, definition in definitions.items()}
    for name in definitions:
        seen: set[str] = set()
        ahead = set(uses[name])
        while ahead:
            seen |= ahead
            ahead = {further for used in ahead for further in uses[used]} - seen
        if name in seen:
            raise UnsupportedSchema(f"{dialect.name} has no recursive types ({name} holds itself)")


def _references(schema: Any) -> set[str]:
    found: set[str] = set()
    ahead = [schema]
    while ahead:
        here = ahead.pop()
        if isinstance(here, dict):
            reference = here.get("$ref")
            if isinstance(reference, str):
                found.add(reference.rpartition("/")[2])
            ahead.extend(here.values())
        elif isinstance(here, list):
            ahead.extend(here)
    return found
