"""Reading System One requests as strictly as the real server: every complaint names its place and echoes what it is
about. That echo is why a client must never log them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ..exchange import AskedDecision
from .wire import WireError

MOST_OPTIONS = 255
MOST_LEVELS = 10
_TEXTS = (str, dict, list)
_KINDS = ("noul", "choice", "score")

Complaint = dict[str, Any]


class Unprocessable(WireError):
    """A body that is not of the wire: a 422 with a list."""

    def __init__(self, complaints: list[Complaint]) -> None:
        super().__init__(422, str(complaints[0]["msg"]))
        self.complaints = complaints


def read_systemone(body: dict[str, Any], *, both_sides: bool = False) -> AskedDecision:
    """The state and the questions. Raises Unprocessable. `both_sides`: a noul that has criteria has two."""
    complaints = list(_complaints(body, both_sides))
    if complaints:
        raise Unprocessable(complaints)
    return AskedDecision(state=body["state"], questions=body["questions"])


def complaint(loc: list[Any], message: str, kind: str, given: Any) -> Complaint:
    return {"loc": ["body", *loc], "msg": message, "type": kind, "input": given}


def _complaints(body: dict[str, Any], both_sides: bool) -> Iterator[Complaint]:
    for name, kinds in (("state", _TEXTS), ("model", str), ("questions", dict)):
        if name not in body:
            yield complaint([name], "Field required", "missing", body)
        elif not isinstance(body[name], kinds):
            yield complaint([name], f"Input should be a valid {name}", "type_error", body[name])
    questions = body.get("questions")
    if not isinstance(questions, dict):
        return
    if not questions:
        yield complaint(["questions"], "Dictionary should have at least 1 item", "too_short", questions)
    for name, question in questions.items():
        yield from _question(["questions", name], question, both_sides)


def _question(loc: list[Any], question: Any, both_sides: bool) -> Iterator[Complaint]:
    if not isinstance(question, dict):
        yield complaint(loc, "Input should be a valid dictionary", "model_attributes_type", question)
        return
    kind = question.get("type")
    if kind not in _KINDS:
        yield complaint(loc, "Input tag does not match any of 'noul', 'choice', 'score'", "union_tag_invalid", question)
        return
    instructions, criteria = question.get("instructions"), question.get("criteria")
    if instructions is not None and not isinstance(instructions, _TEXTS):
        yield complaint([*loc, kind, "instructions"], "Input should be a valid string", "string_type", instructions)
    place = [*loc, kind, "criteria"]
    if kind == "choice":
        yield from _options(place, criteria)
    elif kind == "score":
        yield from _levels(place, criteria)
    elif criteria is not None:
        known = isinstance(criteria, Mapping) and not set(criteria) - {"true", "false"}
        if not known or (both_sides and len(criteria) != 2):
            yield complaint(place, "Input should be an object with 'true' and 'false'", "model_type", criteria)


def _options(place: list[Any], criteria: Any) -> Iterator[Complaint]:
    if not isinstance(criteria, Mapping):
        yield complaint(place, "Input should be a valid dictionary", "dict_type", criteria)
    elif not 1 <= len(criteria) <= MOST_OPTIONS:
        yield complaint(place, f"Dictionary should have 1 to {MOST_OPTIONS} items", "too_long", criteria)
    else:
        for name, meaning in criteria.items():
            if meaning is not None and not isinstance(meaning, _TEXTS):
                yield complaint([*place, name], "Input should be a valid string", "string_type", meaning)


def _levels(place: list[Any], criteria: Any) -> Iterator[Complaint]:
    if not isinstance(criteria, list):
        yield complaint(place, "Input should be a valid list", "list_type", criteria)
    elif not 1 <= len(criteria) <= MOST_LEVELS:
        yield complaint(place, f"List should have 1 to {MOST_LEVELS} items", "too_long", criteria)
    else:
        for at, level in enumerate(criteria):
            if not isinstance(level, _TEXTS):
                yield complaint([*place, at], "Input should be a valid string", "string_type", level)
