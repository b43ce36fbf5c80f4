"""Labelled examples: a state, the questions about it, and their right answers. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from interlock.decisions import Choice, DecisionRequest, Noul, Question, Score
from interlock.decisions.wire import encode_questions
from interlock.decisions.written import read_questions

_FIELDS = frozenset(("id", "state", "labels", "questions"))


@dataclass(frozen=True, slots=True)
class Example:
    """`request` asks what there is a label for; `truths` has the place of each right answer among its probabilities:
    of the option, of the level, 0 for yes and 1 for no."""

    request: DecisionRequest
    truths: Mapping[str, int]

    @property
    def arguments(self) -> dict[str, Any]:
        """The request as plain JSON."""
        return {"state": self.request.state, "questions": encode_questions(self.request.questions)}


class LabelledLines:
    """The lines of a file in their order: `{"state": ..., "labels": {"department": "billing", "is_urgent": true}}`.

    Questions are those of `questions`, or stand in a line and hold from there on: in the first line is enough.
    """

    def __init__(self, questions: Mapping[str, Question] | None = None) -> None:
        self._from: list[int] = [] if questions is None else [0]
        self._questions: list[Mapping[str, Question]] = [] if questions is None else [questions]

    def read(self, number: int, value: Any) -> Example:
        """Raises ValueError saying what is wrong with the line. Lines are read in their order the first time."""
        if not isinstance(value, Mapping):
            raise ValueError("must be an object with state and labels")
        if unknown := sorted(value.keys() - _FIELDS):
            raise ValueError(f"has {unknown[0]!r}, which is none of {', '.join(sorted(_FIELDS))}")
        for name in ("state", "labels"):
            if name not in value:
                raise ValueError(f"lacks {name}")
        if "questions" in value:
            self._hold(number, read_questions(value["questions"]))
        return _example(value["state"], value["labels"], self._asked_at(number))

    def _hold(self, number: int, questions: Mapping[str, Question]) -> None:
        if not self._from or number > self._from[-1]:
            self._from.append(number)
            self._questions.append(questions)

    def _asked_at(self, number: int) -> Mapping[str, Question]:
        place = bisect_right(self._from, number)
        if place == 0:
            raise ValueError("no questions are known yet: give --questions FILE, or `questions` in the first line")
        return self._questions[place - 1]


def _example(state: Any, labels: Any, questions: Mapping[str, Question]) -> Example:
    if not isinstance(labels, Mapping) or not labels:
        raise ValueError("labels must be an object with the right answer to at least one question")
    if unknown := next((name for name in labels if name not in questions), None):
        raise ValueError(f"has a label for {unknown!r}; the questions are {', '.join(map(repr, questions))}")
    asked = {name: question for name, question in questions.items() if name in labels}
    truths = {name: _truth(name, question, labels[name]) for name, question in asked.items()}
    return Example(DecisionRequest(state, asked), truths)


def _truth(name: str, question: Question, label: Any) -> int:
    if isinstance(question, Noul):
        if not isinstance(label, bool):
            raise ValueError(f"the label of {name!r} must be true or false, not {_told(label)}")
        return int(not label)
    if isinstance(question, Score):
        return _level(name, question, label)
    return _option(name, question, label)


def _level(name: str, question: Score, label: Any) -> int:
    if isinstance(label, str) and label in question.levels:
        return question.levels.index(label)
    if type(label) is int and 0 <= label < len(question.levels):
        return label
    last = len(question.levels) - 1
    raise ValueError(f"the label of {name!r} must be a level (its text, or 0 to {last}), not {_told(label)}")


def _option(name: str, question: Choice, label: Any) -> int:
    if not isinstance(label, str) or label not in question.names:
        some = ", ".join(question.names[:5]) + (", ..." if len(question.names) > 5 else "")
        raise ValueError(f"the label of {name!r} must be one of its options ({some}), not {_told(label)}")
    return question.names.index(label)


def _told(label: Any) -> str:
    return repr(label)[:40] if isinstance(label, (str, int, float, bool)) or label is None else type(label).__name__
