"""Step identity: where in a pipeline a step stands, given when the context is called and before anything is awaited.

A step id is its scope's path and then its key or its ordinal: `3` is the fourth thing the pipeline asked for, `3/0` the
first child of that gather, `k:ticket-42` a step with a key, `b:audit/0` the first step of a branch. So it does not
depend on the order in which anything finishes.
"""

from __future__ import annotations

import asyncio
from typing import Any

_ESCAPES = str.maketrans({"%": "%25", "/": "%2F"})


def key_segment(key: str) -> str:
    return "k:" + _name(key, "the key of a step")


def _name(name: object, what: str) -> str:
    if not isinstance(name, str):
        raise TypeError(
            f"{what} is text, not {type(name).__name__}: make a text of it, the same in every life of a run"
        )
    return name.translate(_ESCAPES)


class Scope:
    """One line of steps, walked by one task. `take` gives the next step id."""

    __slots__ = ("_keys", "_next", "_owner", "path")

    def __init__(self, path: tuple[str, ...] = ()) -> None:
        self.path = path
        self._next = 0
        self._keys: set[str] | None = None
        self._owner: asyncio.Task[Any] | None = None

    def take(self, key: str | None = None) -> tuple[str, ...]:
        """The path of the next step. Raises RuntimeError from a second task, ValueError for a key used twice."""
        self._check_task()
        if key is None:
            segment = str(self._next)
            self._next += 1
            return (*self.path, segment)
        return (*self.path, self._once(key_segment(key), f"the key {key!r}"))

    def branch(self, name: str) -> Scope:
        """A scope of its own for another task. Its name is part of the step ids, so it may be used once."""
        return Scope((*self.path, self._once("b:" + _name(name, "the name of a branch"), f"the branch {name!r}")))

    def _once(self, segment: str, what: str) -> str:
        self._keys = set() if self._keys is None else self._keys
        if segment in self._keys:
            raise ValueError(f"{what} was used twice in one scope of the pipeline; a step's identity must be its own")
        self._keys.add(segment)
        return segment

    def _check_task(self) -> None:
        task = asyncio.current_task()
        if self._owner is None:
            self._owner = task
        elif task is not self._owner:
            raise RuntimeError(
                "a pipeline's context was used from a second task, so the order of its steps would be a matter of luck:"
                " give that task a scope of its own with ctx.branch(name)"
            )


def step_id(path: tuple[str, ...]) -> str:
    return "/".join(path)
