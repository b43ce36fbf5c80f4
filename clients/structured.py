"""Typed answers: the schema of what is wanted, strict parsing of what came, and the words of a correction."""

from __future__ import annotations

import json
import re
from functools import cached_property, lru_cache
from typing import Any

from pydantic import PydanticSchemaGenerationError, PydanticUserError, TypeAdapter, ValidationError

from interlock.errors import InvalidRequestError

from .answer import Answer
from .conversation import Block, Conversation, TextBlock, ToolResultBlock, ToolUseBlock
from .extract import NotOneValue, one_value
from .schema import Dialect, strict_schema

_PROBLEMS_SHOWN = 10
_NAME = re.compile(r"[^a-zA-Z0-9_-]+")


class WrongShape(ValueError):
    """The answer is not of the wanted type. The message is for the model, and never repeats its input."""


class Shape:
    """A wanted answer type: a pydantic model, a dataclass, a TypedDict, or anything a `TypeAdapter` takes.

    A type whose schema is no object (a list, a number) is asked for inside `{"value": ...}`, because tools and strict
    modes want an object.
    """

    def __init__(self, wanted: Any) -> None:
        self.name = (_NAME.sub("_", str(getattr(wanted, "__name__", ""))).strip("_") or "answer")[:60]
        try:
            self._adapter: TypeAdapter[Any] = TypeAdapter(wanted)
            inner = _rooted(self._adapter.json_schema())
        except (PydanticSchemaGenerationError, PydanticUserError) as error:
            reason = str(error).splitlines()[0][:200]
            raise InvalidRequestError(f"{wanted!r} cannot be asked for as an answer: {reason}", sent=False) from None
        self.wrapped = not _is_object(inner)
        self.schema: dict[str, Any] = _wrap(inner) if self.wrapped else inner
        self._strict: dict[str, dict[str, Any]] = {}

    @staticmethod
    def of(wanted: Any) -> Shape:
        """The shape of a type, made once. Raises `InvalidRequestError` for a type that has no schema."""
        try:
            return _shape_of(wanted)
        except TypeError:  # an unhashable annotation
            return Shape(wanted)

    @cached_property
    def schema_text(self) -> str:
        return json.dumps(self.schema, ensure_ascii=False)

    def strict(self, dialect: Dialect) -> dict[str, Any]:
        """The schema for a provider's strict mode. Raises `UnsupportedSchema`."""
        if dialect.name not in self._strict:
            self._strict[dialect.name] = strict_schema(self.schema, dialect)
        return self._strict[dialect.name]

    def parse(self, text: str) -> Any:
        """The value that a model's text holds. Raises `WrongShape`."""
        try:
            found = one_value(text)
        except NotOneValue as error:
            raise WrongShape(str(error)) from None
        return self.validate(found)

    def validate(self, found: Any) -> Any:
        """An instance of the wanted type from parsed JSON. Raises `WrongShape`."""
        if self.wrapped and isinstance(found, dict) and found.keys() == {"value"}:
            found = found["value"]
        try:
            return self._adapter.validate_python(found)
        except ValidationError as error:
            raise WrongShape(_problems(error)) from None
        except (RecursionError, OverflowError) as error:
            raise WrongShape(f"the value cannot be read ({type(error).__name__})") from None


@lru_cache(maxsize=256)
def _shape_of(wanted: Any) -> Shape:
    return Shape(wanted)


def _rooted(schema: dict[str, Any]) -> dict[str, Any]:
    """A recursive type's schema is a reference to itself; tools and strict modes want an object at the root."""
    if "$ref" not in schema:
        return schema
    definitions = schema.get("$defs", {})
    return {**definitions.get(schema["$ref"].rpartition("/")[2], {}), "$defs": definitions}


def _is_object(schema: dict[str, Any]) -> bool:
    return schema.get("type") == "object"


def _wrap(inner: dict[str, Any]) -> dict[str, Any]:
    definitions = inner.get("$defs")
    value = {key: part for key, part in inner.items() if key != "$defs"}
    outer: dict[str, Any] = {"type": "object", "properties": {"value": value}, "required": ["value"]}
    return {**outer, "$defs": definitions} if definitions else outer


def _problems(error: ValidationError) -> str:
    found = error.errors(include_input=False, include_url=False, include_context=False)
    lines = [f"{'.'.join(str(step) for step in one['loc']) or 'the answer'}: {one['msg']}" for one in found]
    more = len(lines) - _PROBLEMS_SHOWN
    return "; ".join(lines[:_PROBLEMS_SHOWN]) + (f"; and {more} more" if more > 0 else "")


def correction(conversation: Conversation, answer: Answer, problem: str) -> Conversation:
    """The caller's conversation, the wrong turn, and what was wrong with it. Every tool call of that turn gets a
    result, in its order and before any text: providers refuse the turn otherwise."""
    problems = {bad.id: bad.problem for bad in answer.bad_tool_calls}
    told = f"Your answer could not be used: {problem}. Answer again, in the form that was asked for."
    calls = [block for block in answer.blocks if isinstance(block, ToolUseBlock)]
    reply: list[Block] = [
        ToolResultBlock(tool_use_id=call.id, content=problems.get(call.id, told), is_error=True) for call in calls
    ]
    if not calls:
        reply.append(TextBlock(told))
    wrong = [block for block in answer.blocks if not (isinstance(block, TextBlock) and not block.text.strip())]
    turned = conversation.assistant(wrong) if wrong else conversation
    return turned.user(reply)
