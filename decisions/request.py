"""DecisionRequest: one state and the questions about it."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from pydantic import BaseModel

from .questions import Choice, Noul, Question, Score, plain_text

JsonState: TypeAlias = str | dict[str, Any] | list[Any]

_MAX_DEPTH = 100
#: Of a whole number, some 2,400 digits: Python writes none of more than 4,300.
_MAX_BITS = 8_192


@dataclass(frozen=True, slots=True, init=False)
class DecisionRequest:
    """A state and one or more questions about it, each answered on its own: in one request, or in as few as the model
    takes.

    `state` is text, a JSON structure (object or array) or a pydantic model, and is kept as a copy in plain JSON.
    ValueError: no question, an empty id, a state that JSON cannot hold. Errors never quote the state.
    """

    state: JsonState
    questions: Mapping[str, Question]

    def __init__(self, state: Any, questions: Mapping[str, Question]) -> None:
        object.__setattr__(self, "state", plain_state(state))
        object.__setattr__(self, "questions", _checked(questions))

    def __hash__(self) -> int:
        return hash((json.dumps(self.state, sort_keys=True), frozenset(self.questions.items())))

    @property
    def state_text(self) -> str:
        """The state as a model reads it: text as it is, a structure as indented JSON."""
        return self.state if isinstance(self.state, str) else json.dumps(self.state, indent=2, ensure_ascii=False)

    @property
    def text(self) -> str:
        """Everything that is sent, as one text: what the input tokens are estimated from."""
        return "\n".join([self.state_text, *(question_text(name, each) for name, each in self.questions.items())])

    def only(self, names: Iterable[str]) -> DecisionRequest:
        """The same state with these of its questions."""
        return self.asking({name: self.questions[name] for name in names})

    def asking(self, questions: Mapping[str, Question]) -> DecisionRequest:
        """The same state with other questions."""
        made = object.__new__(DecisionRequest)
        object.__setattr__(made, "state", self.state)  # was checked and copied already
        object.__setattr__(made, "questions", _checked(questions))
        return made


def question_text(name: str, question: Question) -> str:
    """A question with all that it says, as the tokens of a request are estimated."""
    return "\n".join([f"{name}: {question.type}: {question.question}", *_criteria_lines(question)])


def _criteria_lines(question: Question) -> list[str]:
    if isinstance(question, Choice):
        return [f"{option.name}: {option.description or ''}" for option in question.options]
    if isinstance(question, Score):
        return list(question.levels)
    return [f"{side}: {meaning}" for side, meaning in (("true", question.yes), ("false", question.no)) if meaning]


def _checked(questions: Mapping[str, Question]) -> dict[str, Question]:
    if not isinstance(questions, Mapping):
        raise ValueError(f"questions must be a mapping from id to question, not {type(questions).__name__}")
    if not questions:
        raise ValueError("a decision needs at least one question")
    checked: dict[str, Question] = {}
    for name, question in questions.items():
        if not isinstance(name, str) or not name.strip():
            raise ValueError("a question's id must be text that is not empty")
        if not isinstance(question, (Choice, Noul, Score)):
            raise ValueError(f"question {name!r} is {type(question).__name__}, not a Choice, Noul or Score")
        checked[plain_text(name, "a question's id")] = question
    return checked


def plain_state(state: Any) -> JsonState:
    """A copy of `state` that is text or plain JSON. ValueError where it cannot be."""
    if isinstance(state, BaseModel):
        state = _dumped(state, "the state")
    if not isinstance(state, (str, Mapping, list, tuple)):
        raise ValueError(f"a state is text, a JSON object or array, or a pydantic model, not {type(state).__name__}")
    plain: JsonState = _plain(state, "state", 0)
    return plain


def _dumped(model: BaseModel, where: str) -> Any:
    """A model as JSON values. What pydantic says of one that it cannot write quotes it, in warnings too."""
    try:
        return model.model_dump(mode="json", warnings=False)
    except RecursionError:
        why = "it contains itself, or is nested too deeply"
    except Exception as error:
        why = type(error).__name__
    raise ValueError(f"{where} is a {type(model).__name__} that JSON cannot hold ({why})")


def _plain(value: Any, where: str, depth: int) -> Any:
    if depth > _MAX_DEPTH:
        raise ValueError(f"the state is nested more than {_MAX_DEPTH} deep, or contains itself")
    if isinstance(value, BaseModel):
        value = _dumped(value, where)
    if isinstance(value, str):
        return plain_text(value, where)
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        if value.bit_length() > _MAX_BITS:
            raise ValueError(f"{where} is a number of more than {_MAX_BITS:,} bits, which nobody reads")
        return int(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"{where} is not a finite number, which JSON cannot hold")
        return float(value)
    if isinstance(value, Mapping):
        return {
            _key(key, where): _plain(item, f"{where}, item {at}", depth + 1)
            for at, (key, item) in enumerate(value.items())
        }
    if isinstance(value, (list, tuple)):
        return [_plain(item, f"{where}, item {at}", depth + 1) for at, item in enumerate(value)]
    raise ValueError(f"{where} is {type(value).__name__}, which JSON cannot hold")


def _key(key: Any, where: str) -> str:
    if not isinstance(key, str):
        raise ValueError(f"a key of {where} is {type(key).__name__}, not text")
    return plain_text(key, f"a key of {where}")
