"""A value that obeys a JSON schema, filled from a text. Pure and deterministic."""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .formats import formatted
from .numbers import number
from .patterns import matching

_DEEP = 6  # below this only what is required is filled
_TOO_DEEP = 40

Schema = Mapping[str, Any]


class UnfillableSchemaError(ValueError):
    """No value obeys the schema, or it uses words that are not understood here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """What values are taken from. `text` is lower case, to look options up in; `seed` settles the rest."""

    sentence: str
    words: tuple[str, ...]
    numbers: tuple[float, ...]
    text: str
    seed: int


def fill(schema: Schema | bool, source: Source) -> Any:
    """A value that `schema` accepts. Raises UnfillableSchemaError, for what is no schema too."""
    try:
        return _Filler(schema if isinstance(schema, Mapping) else {}, source).value(schema, "$", 0, ())
    except (AttributeError, KeyError, TypeError) as error:
        raise UnfillableSchemaError(f"it is not a JSON schema: {error}") from error


class _Filler:
    def __init__(self, root: Schema, source: Source) -> None:
        self._root = root
        self._source = source

    def value(self, schema: Schema | bool, path: str, depth: int, refs: tuple[str, ...]) -> Any:
        if depth > _TOO_DEEP:
            raise UnfillableSchemaError(f"{path}: the schema requires itself without end")
        if schema is False:
            raise UnfillableSchemaError(f"{path}: the schema accepts nothing")
        if schema is True or not schema:
            return self._word(path)
        if not isinstance(schema, Mapping):
            raise UnfillableSchemaError(f"{path}: a schema is an object or a boolean, not {schema!r}")
        if "$ref" in schema:
            reference = schema["$ref"]
            others = {key: value for key, value in schema.items() if key != "$ref"}
            merged = _merge(self._resolve(reference, path), others)
            return self.value(merged, path, depth + 1, (*refs, reference))
        if "const" in schema:
            return schema["const"]
        if "enum" in schema:
            return self._option(schema, path)
        if "allOf" in schema:
            return self.value(self._all_of(schema, path), path, depth + 1, refs)
        for word in ("anyOf", "oneOf"):
            if word in schema:
                return self._variant(schema, word, path, depth, refs)
        return self._typed(schema, path, depth, refs)

    def _typed(self, schema: Schema, path: str, depth: int, refs: tuple[str, ...]) -> Any:
        kind = self._kind(schema, depth, refs)
        if kind == "object":
            return self._object(schema, path, depth, refs)
        if kind == "array":
            return self._array(schema, path, depth, refs)
        if kind == "string":
            return self._string(schema, path)
        if kind in ("integer", "number"):
            return self._number(schema, path, whole=kind == "integer")
        if kind == "boolean":
            return self._pick(path, 2) == 1
        if kind == "null":
            return None
        raise UnfillableSchemaError(f"{path}: unknown type {kind!r}")

    def _kind(self, schema: Schema, depth: int, refs: tuple[str, ...]) -> str:
        kind = schema.get("type")
        if isinstance(kind, list):
            small = self._is_small(depth, refs)
            real = [each for each in kind if each != "null"]
            return "null" if (small and "null" in kind) or not real else str(real[0])
        if kind is not None:
            return str(kind)
        if "properties" in schema or "additionalProperties" in schema:
            return "object"
        if "items" in schema or "prefixItems" in schema:
            return "array"
        numeric = {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}
        return "number" if numeric & schema.keys() else "string"

    def _is_small(self, depth: int, refs: tuple[str, ...]) -> bool:
        """Deep down, or inside a definition that contains itself: as little as will do."""
        return depth > _DEEP or len(set(refs)) < len(refs)

    def _resolve(self, reference: Any, path: str) -> Schema | bool:
        if not isinstance(reference, str) or not reference.startswith("#"):
            raise UnfillableSchemaError(f"{path}: only references within the schema can be followed, not {reference!r}")
        found: Any = self._root
        for part in reference.lstrip("#").strip("/").split("/"):
            name = part.replace("~1", "/").replace("~0", "~")
            if name:
                if not isinstance(found, Mapping) or name not in found:
                    raise UnfillableSchemaError(f"{path}: {reference} is not defined")
                found = found[name]
        return found  # type: ignore[no-any-return]

    def _all_of(self, schema: Schema, path: str) -> Schema:
        merged: Schema = {key: value for key, value in schema.items() if key != "allOf"}
        for part in schema["allOf"]:
            while isinstance(part, Mapping) and "$ref" in part:
                rest = {key: value for key, value in part.items() if key != "$ref"}
                part = _merge(self._resolve(part["$ref"], path), rest)
            merged = _merge(part, merged)
        return merged

    def _variant(self, schema: Schema, word: str, path: str, depth: int, refs: tuple[str, ...]) -> Any:
        rest = {key: value for key, value in schema.items() if key != word}
        variants = list(schema[word])
        small = self._is_small(depth, refs)
        variants.sort(key=lambda variant: self._rank(variant, small))  # stable: the schema's own order within a rank
        problem: UnfillableSchemaError | None = None
        for variant in variants:
            try:
                return self.value(_merge(variant, rest), path, depth + 1, refs)
            except UnfillableSchemaError as error:
                problem = problem or error
        raise problem or UnfillableSchemaError(f"{path}: no variant")

    def _rank(self, variant: Any, small: bool) -> int:
        if not isinstance(variant, Mapping):
            return 2
        if variant.get("type") == "null":
            return 0 if small else 3
        if small:
            return 2 if "$ref" in variant or variant.get("type") in ("object", "array") else 1
        return 1

    def _option(self, schema: Schema, path: str) -> Any:
        options = [option for option in schema["enum"] if _is_of_type(option, schema.get("type"))]
        if not options:
            raise UnfillableSchemaError(f"{path}: no option")
        named = [option for option in options if isinstance(option, str) and option.lower() in self._source.text]
        named = [option for option in named if option]
        if named:
            return max(named, key=len)
        real = [option for option in options if option is not None] or options
        return real[self._pick(path, len(real))]

    def _object(self, schema: Schema, path: str, depth: int, refs: tuple[str, ...]) -> dict[str, Any]:
        properties: Mapping[str, Any] = schema.get("properties", {})
        required = schema.get("required", ())
        small = self._is_small(depth, refs)
        filled: dict[str, Any] = {}
        for name, each in properties.items():
            if name in required:
                filled[name] = self.value(each, f"{path}.{name}", depth + 1, refs)
            elif not small:
                try:
                    filled[name] = self.value(each, f"{path}.{name}", depth + 1, refs)
                except UnfillableSchemaError:
                    continue  # it may be left out
        open_schema = self._open_schema(schema)
        for name in required:
            if name not in filled:
                filled[name] = self.value(open_schema, f"{path}.{name}", depth + 1, refs)
        wanted = schema.get("minProperties", 0)
        if not properties and not small and open_schema is not False and "additionalProperties" in schema:
            wanted = max(wanted, 1)
        return self._with_free_names(filled, wanted, schema, open_schema, path, depth, refs)

    @staticmethod
    def _open_schema(schema: Schema) -> Any:
        patterns = schema.get("patternProperties")
        if patterns:
            return next(iter(patterns.values()))
        return schema.get("additionalProperties", True)

    def _with_free_names(
        self,
        filled: dict[str, Any],
        wanted: int,
        schema: Schema,
        open_schema: Any,
        path: str,
        depth: int,
        refs: tuple[str, ...],
    ) -> dict[str, Any]:
        """Names that the schema leaves open, until there are enough of them."""
        patterns = schema.get("patternProperties")
        names: Any = {"pattern": next(iter(patterns))} if patterns else schema.get("propertyNames", {})
        for attempt in range(wanted * 8):
            if len(filled) >= wanted:
                break
            name = self._free_name(names, f"{path}[{attempt}]", attempt)
            if name not in filled:
                filled[name] = self.value(open_schema, f"{path}.{name}", depth + 1, refs)
        if len(filled) < wanted:
            raise UnfillableSchemaError(f"{path}: not enough properties")
        return filled

    def _free_name(self, names: Any, path: str, index: int) -> str:
        if names and names is not True:
            return str(self.value({"type": "string", **names}, path, 1, ()))
        words = self._source.words
        return words[index % len(words)] + ("" if index < len(words) else f"_{index}")

    def _array(self, schema: Schema, path: str, depth: int, refs: tuple[str, ...]) -> list[Any]:
        prefix = list(schema.get("prefixItems", ()))
        items = schema.get("items", not prefix)
        least, most = schema.get("minItems", 0), schema.get("maxItems", math.inf)
        wanted = least if self._is_small(depth, refs) else max(least, min(most, max(len(prefix), 3)))
        if items is False:
            wanted = min(wanted, len(prefix))
        filled: list[Any] = []
        keys: set[str] = set()
        for attempt in range(int(wanted) * 8 + len(prefix)):
            if len(filled) >= wanted:
                break
            each = prefix[len(filled)] if len(filled) < len(prefix) else items
            try:
                value = self.value(each, f"{path}[{attempt}]", depth + 1, refs)
            except UnfillableSchemaError:
                if len(filled) < least:
                    raise
                break
            key = json.dumps(value, sort_keys=True)
            if schema.get("uniqueItems") and key in keys:
                continue
            keys.add(key)
            filled.append(value)
        if len(filled) < least:
            raise UnfillableSchemaError(f"{path}: not enough different items")
        return filled

    def _string(self, schema: Schema, path: str) -> str:
        least, most = schema.get("minLength", 0), schema.get("maxLength")
        if "pattern" in schema:
            found = matching(schema["pattern"], self._hash(path), least, most)
            if found is None:
                raise UnfillableSchemaError(f"{path}: no string found for the pattern {schema['pattern']!r}")
            return found
        known = formatted(schema.get("format"), self._source.words[0], self._hash(path))
        if known is not None:
            return known
        text = self._text_for(path)
        if len(text) < least:
            text = (f"{text} " * (least // (len(text) + 1) + 1))[:least].ljust(least)
        return text if most is None else text[:most]

    def _text_for(self, path: str) -> str:
        name = path.rsplit(".", 1)[-1].lower()
        if "[" in name:
            return self._word(path)
        telling = (
            "summary",
            "text",
            "description",
            "reason",
            "explanation",
            "answer",
            "reply",
            "draft",
            "body",
            "note",
        )
        if any(each in name for each in telling):
            return self._source.sentence
        return self._word(path)

    def _word(self, path: str) -> str:
        words = self._source.words
        if path.endswith("]"):  # items of a list: the words in order
            index = path[path.rindex("[") + 1 : -1]
            if index.isdigit():
                return words[int(index) % len(words)] + ("" if int(index) < len(words) else f" {index}")
        return words[self._pick(path, len(words))]

    def _number(self, schema: Schema, path: str, *, whole: bool) -> int | float:
        found = number(schema, self._source.numbers, self._hash(path), whole=whole)
        if found is None:
            raise UnfillableSchemaError(f"{path}: no number in the range")
        return found

    def _hash(self, path: str) -> int:
        return zlib.crc32(path.encode(), self._source.seed)

    def _pick(self, path: str, count: int) -> int:
        return self._hash(path) % count


def _is_of_type(value: Any, kind: Any) -> bool:
    kinds = [kind] if isinstance(kind, str) else kind
    if kinds is None:
        return True
    names = {bool: ("boolean",), int: ("integer", "number"), float: ("number",), str: ("string",), list: ("array",)}
    names |= {dict: ("object",), type(None): ("null",)}
    return any(name in kinds for name in names.get(type(value), ()))


def _merge(first: Any, second: Mapping[str, Any]) -> Any:
    """Both at once, as far as filling needs it: bounds narrow, properties and required add up."""
    if first is False:
        return False
    if first is True or not first:
        return second
    merged = dict(first)
    for key, value in second.items():
        if key not in merged:
            merged[key] = value
        elif key in ("properties", "$defs"):
            merged[key] = {**merged[key], **value}
        elif key == "required":
            merged[key] = list(dict.fromkeys([*merged[key], *value]))
        elif key in ("minimum", "exclusiveMinimum", "minLength", "minItems"):
            merged[key] = max(merged[key], value)
        elif key in ("maximum", "exclusiveMaximum", "maxLength", "maxItems"):
            merged[key] = min(merged[key], value)
        elif key == "enum":
            merged[key] = [option for option in merged[key] if option in value]
    return merged
