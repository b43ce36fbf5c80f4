"""From one input line to the arguments of a pipeline.

A pipeline of one parameter takes the line itself where that is a model, a dataclass, a TypedDict or a mapping. Any
other takes an object with one member a parameter, or, for one parameter, the bare value. The line's `id` is left out
where the parameter has no such field. Pydantic checks and converts.
"""

from __future__ import annotations

import dataclasses
import inspect
import typing
from collections.abc import Callable, Mapping
from typing import Any

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic.errors import PydanticUserError
from typing_extensions import is_typeddict

from interlock.errors import ConfigurationError

from .lines import BadLineError, Line

_REQUIRED = inspect.Parameter.empty


class Arguments:
    """What a pipeline takes after its context."""

    def __init__(self, name: str, adapters: Mapping[str, TypeAdapter[Any]], defaults: Mapping[str, Any]) -> None:
        self._name, self._adapters, self._defaults = name, adapters, defaults
        self._sole = next(iter(adapters)) if len(adapters) == 1 else None
        self._fields: frozenset[str] | None = None
        self._takes_the_line = False

    @staticmethod
    def of(function: Callable[..., Any], name: str) -> Arguments:
        """Read from its signature. Raises ConfigurationError for one that a line cannot fill."""
        parameters = list(inspect.signature(function).parameters.values())[1:]
        try:
            hints = typing.get_type_hints(function, include_extras=True)
            types = {parameter.name: hints.get(parameter.name, Any) for parameter in parameters}
            adapters = {key: TypeAdapter(wanted) for key, wanted in types.items()}
        except (NameError, TypeError, PydanticUserError) as error:
            raise ConfigurationError(
                f"the parameters of {name} cannot be read from JSON: {str(error).splitlines()[0]}"
            ) from None
        for parameter in parameters:
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
                raise ConfigurationError(f"{name} takes {parameter}, which a line cannot fill: name its parameters")
        if not parameters:
            raise ConfigurationError(f"{name} takes nothing but its context, so there is nothing to run over lines")
        defaults = {parameter.name: parameter.default for parameter in parameters if parameter.default is not _REQUIRED}
        arguments = Arguments(name, adapters, defaults)
        if arguments._sole is not None:
            arguments._takes_the_line, arguments._fields = _shape(types[arguments._sole])
        return arguments

    def fill(self, line: Line) -> dict[str, Any]:
        """The keyword arguments. Raises BadLineError saying what does not fit."""
        if self._sole is not None and (self._takes_the_line or not self._names_the_sole(line.value)):
            return {self._sole: self._checked(line.number, self._sole, self._without_id(line.value))}
        if not isinstance(line.value, dict):
            raise BadLineError(line.number, f"must be an object with {', '.join(self._adapters)}")
        unknown = sorted(set(line.value) - set(self._adapters) - {"id"})
        if unknown:
            raise BadLineError(line.number, f"{self._name} has no parameter {', '.join(map(repr, unknown))}")
        missing = [key for key in self._adapters if key not in line.value and key not in self._defaults]
        if missing:
            raise BadLineError(line.number, f"lacks {', '.join(missing)}")
        given = {key: line.value[key] for key in self._adapters if key in line.value}
        return {key: self._checked(line.number, key, value) for key, value in given.items()}

    def _names_the_sole(self, value: Any) -> bool:
        return isinstance(value, dict) and self._sole in value

    def _without_id(self, value: Any) -> Any:
        if self._fields is None or "id" in self._fields or not isinstance(value, dict):
            return value
        return {key: member for key, member in value.items() if key != "id"}

    def _checked(self, number: int, key: str, value: Any) -> Any:
        try:
            return self._adapters[key].validate_python(value)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            place = ".".join(str(part) for part in first["loc"]) or ("" if self._takes_the_line else key)
            raise BadLineError(number, f"{place}: {first['msg']}" if place else first["msg"]) from None


def _shape(wanted: Any) -> tuple[bool, frozenset[str] | None]:
    """Whether a line is the value itself, and the fields it may have (None: any)."""
    origin = typing.get_origin(wanted) or wanted
    if not isinstance(origin, type):
        return False, None
    if issubclass(origin, BaseModel):
        names = set(origin.model_fields) | {field.alias for field in origin.model_fields.values() if field.alias}
        return True, None if origin.model_config.get("extra") == "allow" else frozenset(names)
    if dataclasses.is_dataclass(origin):
        return True, frozenset(field.name for field in dataclasses.fields(origin))
    if is_typeddict(origin):
        return True, frozenset(typing.get_type_hints(origin))
    return issubclass(origin, Mapping), None
