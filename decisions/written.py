"""Questions from JSON, in the form of the System One wire. Pure.

`{"department": {"type": "choice", "instructions": "Which team?", "criteria": {"billing": "invoices", "sales": null}}}`
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .questions import Choice, Noul, Option, Question, Score

_FIELDS = frozenset(("type", "instructions", "criteria"))


def read_questions(given: Any) -> dict[str, Question]:
    """By id. Raises ValueError naming the question that is none, and why."""
    if not isinstance(given, Mapping) or not given:
        raise ValueError("questions must be an object with at least one question, by its id")
    return {name: _named(name, written) for name, written in given.items()}


def _named(name: str, written: Any) -> Question:
    try:
        return read_question(written)
    except ValueError as error:
        raise ValueError(f"question {name!r}: {error}") from None


def read_question(written: Any) -> Question:
    """Raises ValueError."""
    if not isinstance(written, Mapping):
        raise ValueError(f"a question is an object, not {type(written).__name__}")
    if unknown := sorted(written.keys() - _FIELDS, key=str):
        raise ValueError(f"it has {unknown[0]!r}, which is none of type, instructions, criteria")
    kind, instructions, criteria = written.get("type"), written.get("instructions"), written.get("criteria")
    if kind == "choice":
        if not isinstance(criteria, Mapping):
            raise ValueError("the criteria of a choice are an object: each option's name, and what it means or null")
        return Choice(instructions, tuple(Option(name, meaning) for name, meaning in criteria.items()))  # type: ignore[arg-type]
    if kind == "score":
        if not isinstance(criteria, list):
            raise ValueError("the criteria of a score are a list: its levels, the lowest first")
        return Score(instructions, tuple(criteria))  # type: ignore[arg-type]
    if kind == "noul":
        sides = {} if criteria is None else criteria
        if not isinstance(sides, Mapping) or {_side(name) for name in sides} - {"true", "false"}:
            raise ValueError("the criteria of a noul are an object with true and false, or nothing")
        named = {_side(name): meaning for name, meaning in sides.items()}
        return Noul(instructions, named.get("true"), named.get("false"))  # type: ignore[arg-type]
    raise ValueError(f"its type is {kind!r}, and must be choice, noul or score")


def _side(name: Any) -> Any:
    """In YAML a key that says true is no text."""
    return str(name).lower() if isinstance(name, bool) else name
