"""What is told of the work does not change it: somebody's span processor, sampler or instrument may raise."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

log = logging.getLogger("interlock.runtime")


class Telling(Protocol):
    #: What has been raised, so that it is said once.
    raised: set[tuple[str, type[Exception]]]


T = TypeVar("T", bound=Telling)


def harmless(
    instead: Callable[[], R],
) -> Callable[[Callable[Concatenate[T, P], R]], Callable[Concatenate[T, P], R]]:
    """A method that gives `instead()` where it would raise."""

    def decorate(method: Callable[Concatenate[T, P], R]) -> Callable[Concatenate[T, P], R]:
        @wraps(method)
        def told(self: T, /, *args: P.args, **kwargs: P.kwargs) -> R:
            try:
                return method(self, *args, **kwargs)
            except Exception as error:
                _say_once(self, method, error)
                return instead()

        return told

    return decorate


def nothing() -> None: ...


def _say_once(telling: Telling, method: Callable[..., Any], error: Exception) -> None:
    what = method.__qualname__, type(error)
    if what not in telling.raised:
        telling.raised.add(what)
        log.warning(
            "OpenTelemetry raised %s in %s: what it was to be told is lost, the work goes on (said once)",
            type(error).__name__,
            method.__qualname__,
        )
