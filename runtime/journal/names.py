"""Names of classes as they stand in the journal, and back. Nothing but data classes is ever looked up by a name."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from dataclasses import is_dataclass
from enum import Enum
from functools import lru_cache
from typing import Any, TypeVar

from interlock.errors import UnencodableError

T = TypeVar("T", bound=type[Any])

_CLASSES: dict[str, type[Any]] = {}
_NAMES: dict[type[Any], str] = {}


def journaled_as(name: str) -> Callable[[T], T]:
    """Give a class a name of its own in the journal, so that it may be moved or renamed later.

        @journaled_as("acme.triage")
        @dataclass(frozen=True)
        class Triage: ...

    Without it a class goes by where it can be imported from, `module:Name`. Raises ValueError for a name with a colon
    or one that another class has.
    """

    def register(class_: T) -> T:
        if ":" in name or _CLASSES.get(name, class_) is not class_:
            raise ValueError(f"{name!r} cannot be the journal's name of {class_.__name__}: it has a colon or is taken")
        _CLASSES[name] = class_
        _NAMES[class_] = name
        return class_

    return register


def name_of(class_: type[Any]) -> str:
    """Raises UnencodableError for a class that no other process could find."""
    return _NAMES.get(class_) or _imported_name(class_)  # type: ignore[arg-type, unused-ignore]


@lru_cache(maxsize=4096)
def _imported_name(class_: type[Any]) -> str:
    module, qualified = class_.__module__, class_.__qualname__
    if module.startswith("interlock.") and getattr(sys.modules.get("interlock"), qualified, None) is class_:
        module = "interlock"  # its public name outlives the file it stands in
    found: Any = sys.modules.get(module)
    for part in qualified.split("."):
        found = getattr(found, part, None)
    if found is not class_:
        raise UnencodableError(
            f"class {module}.{qualified} cannot be found by its name, so what is written of it could not be read again:"
            " define it at the top of a module, or give it a name with journaled_as()"
        )
    return f"{module}:{qualified}"


def class_named(name: str) -> type[Any]:
    """Raises UnencodableError where there is no such class, or it is none that holds data."""
    known = _CLASSES.get(name)
    return known if known is not None else _imported(name)


@lru_cache(maxsize=4096)
def _imported(name: str) -> type[Any]:
    module, colon, qualified = name.partition(":")
    if not colon:
        raise UnencodableError(
            f"no class is registered as {name!r}: import the module that says journaled_as({name!r})"
        )
    try:
        found: Any = importlib.import_module(module)
        for part in qualified.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise UnencodableError(f"what the journal holds is of {name}, which is not there any more: {error}") from None
    if not (isinstance(found, type) and holds_data(found)):
        raise UnencodableError(f"{name} is no class that the journal reads: a dataclass, a pydantic model, an Enum")
    return found


def holds_data(class_: type[Any]) -> bool:
    return (
        is_dataclass(class_)
        or hasattr(class_, "model_fields")
        or issubclass(class_, (Enum, BaseException))
        or (issubclass(class_, tuple) and hasattr(class_, "_fields"))
    )
