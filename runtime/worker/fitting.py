"""Whether a pipeline can be called with these arguments: their number and names, and the types it is annotated with.

A worker would find out too, but hours later and in another process. Pydantic checks, strictly and without converting
anything, for the pipeline gets what is given: text is no number, and a mapping is no model. What an instance of a class
holds is not looked at again. Where there is no annotation, or none that can be read or checked here, all is taken.
"""

from __future__ import annotations

import datetime
import inspect
import typing
from collections.abc import Callable, Iterator
from dataclasses import is_dataclass
from functools import lru_cache
from types import SimpleNamespace, UnionType
from typing import Annotated, Any, Literal, Union

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    InstanceOf,
    PlainValidator,
    TypeAdapter,
    ValidationError,
    WrapValidator,
)
from pydantic.errors import PydanticUserError

from interlock.errors import ConfigurationError

from ..pipeline_job import PipelineJob

#: What Python takes where these are wanted, and pydantic's strict mode would not.
_WIDER: dict[Any, Any] = {int: int | bool, float: float | bool, datetime.date: datetime.date | datetime.datetime}
_INSTANCE_OF: Any = InstanceOf
#: A parameter with one of these may take what its type does not say.
_CONVERTING = (AfterValidator, BeforeValidator, PlainValidator, WrapValidator)


def check_fits(job: PipelineJob[Any]) -> None:
    """Raises ConfigurationError naming the argument, what is wanted and what it is; never its value."""
    function = job.pipeline.function
    try:
        bound = _signature(function).bind(None, *job.arguments, **job.keywords)
    except TypeError as error:
        raise ConfigurationError(f"{job.job_name} cannot be called like this: {error}") from None
    adapters = _adapters(function)
    for name, value in _given(bound):
        wrong = _wrong(adapters[name], value) if name in adapters else ""
        if wrong:
            raise ConfigurationError(f"the argument {name} of {job.job_name} does not fit: {wrong}")


@lru_cache(maxsize=1_000)
def _signature(function: Callable[..., Any]) -> inspect.Signature:
    return inspect.signature(function)


def _given(bound: inspect.BoundArguments) -> Iterator[tuple[str, Any]]:
    """Each parameter with each value that is given for it; the context left out."""
    for name, value in list(bound.arguments.items())[1:]:
        kind = bound.signature.parameters[name].kind
        if kind is inspect.Parameter.VAR_POSITIONAL:
            yield from ((name, each) for each in value)
        elif kind is inspect.Parameter.VAR_KEYWORD:
            yield from ((name, each) for each in value.values())
        else:
            yield name, value


@lru_cache(maxsize=1_000)
def _adapters(function: Callable[..., Any]) -> dict[str, TypeAdapter[Any]]:
    """By parameter. Those that say no type, or none that can be read here, are left out."""
    found = {}
    for name, parameter in list(_signature(function).parameters.items())[1:]:
        adapter = None if parameter.annotation is parameter.empty else _adapter(function, name, parameter.annotation)
        if adapter is not None:
            found[name] = adapter
    return found


def _adapter(function: Callable[..., Any], name: str, annotation: Any) -> TypeAdapter[Any] | None:
    one: Any = SimpleNamespace(__annotations__={name: annotation})
    known = getattr(function, "__globals__", None)
    try:
        whole = typing.get_type_hints(one, known, include_extras=True)[name]
        if typing.get_origin(whole) is Annotated and any(isinstance(each, _CONVERTING) for each in whole.__metadata__):
            return None
        wanted = _as_it_is(typing.get_type_hints(one, known)[name])
        try:
            return TypeAdapter(wanted)
        except PydanticUserError:
            return TypeAdapter(wanted, config=ConfigDict(arbitrary_types_allowed=True))
    except Exception:  # a name for type checkers alone, a class that pydantic makes nothing of: it may raise anything
        return None


def _as_it_is(wanted: Any) -> Any:
    """The type with every model and dataclass in it as "an instance of it", and not what could be made one."""
    origin, parts = typing.get_origin(wanted), typing.get_args(wanted)
    kind = origin or getattr(wanted, "__pydantic_generic_metadata__", {}).get("origin") or wanted
    if isinstance(kind, type) and (is_dataclass(kind) or issubclass(kind, BaseModel)):
        return _INSTANCE_OF[kind]
    if origin is None or origin is Literal or not parts:
        return _WIDER.get(wanted, wanted) if isinstance(wanted, type) else wanted
    inner = tuple(_as_it_is(part) for part in parts)
    if origin in (Union, UnionType):
        return Union[inner]  # noqa: UP007 - of a tuple
    return wanted if inner == parts else origin[inner]


def _wrong(adapter: TypeAdapter[Any], value: Any) -> str:
    """What is wrong with a value, in words; "" where it fits."""
    try:
        adapter.validate_python(value, strict=True)
    except ValidationError as error:
        problem = error.errors(include_url=False, include_context=False)[0]
        places = "".join(f"[{part}]" for part in problem["loc"] if isinstance(part, int))
        said = problem["msg"][:1].lower() + problem["msg"][1:]
        return f"{f'at {places} ' if places else ''}{said}; it is of type {type(problem['input']).__name__}"
    except Exception:  # a protocol that cannot be asked, a validator of the user's
        return ""
    return ""
