"""From the schemas of OpenAPI 3.0, as Gemini has them, to JSON schema."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_SAME = ("title", "description", "enum", "format", "required", "pattern", "default", "minimum", "maximum")
_NUMBERS = ("minItems", "maxItems", "minLength", "maxLength", "minProperties", "maxProperties")  # int64 is text in JSON


def json_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {name: schema[name] for name in _SAME if name in schema}
    found |= {name: int(schema[name]) for name in _NUMBERS if name in schema}
    kind = str(schema.get("type", "")).lower()
    if kind and kind != "type_unspecified":
        found["type"] = [kind, "null"] if schema.get("nullable") else kind
    if "properties" in schema:
        found["properties"] = {name: json_schema(each) for name, each in schema["properties"].items()}
    if "items" in schema:
        found["items"] = json_schema(schema["items"])
    if "anyOf" in schema:
        found["anyOf"] = [json_schema(each) for each in schema["anyOf"]]
    return found
