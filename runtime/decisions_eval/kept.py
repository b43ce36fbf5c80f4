"""Answers as a file keeps them, and whether they are those of an example still. Pure.

An answer is worth nothing for another question: a temperature that is fitted to it would be kept under what the new
wording is called. So each is kept with a digest of what was asked.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from typing import Any

from interlock.decisions import Choice, Noul, Question

from .evaluation import chosen, raw_probabilities
from .labelled import Example


def asked(state: Any, questions: Mapping[str, Any]) -> str:
    """What tells a state with its questions, as plain JSON, from every other. The order of options counts."""
    written = json.dumps([state, questions], ensure_ascii=False)
    return hashlib.sha256(written.encode()).hexdigest()[:16]


def check_kept(example: Example, output: Any, *, model: str | None) -> None:
    """ValueError where this is no answer to the example, or not by the model that is asked now."""
    if not isinstance(output, Mapping) or not isinstance(output.get("model"), str):
        raise ValueError("is no answer of `interlock decisions eval`")
    if output.get("asked") != asked(**example.arguments):
        raise ValueError("answers something else: the state or a question has changed since")
    if model is not None and model not in (output["model"], output.get("wanted")):
        raise ValueError(f"is by {output['model']}, and {model} is asked now")
    answers, questions = output.get("answers"), example.request.questions
    if not isinstance(answers, Mapping) or answers.keys() != questions.keys():
        raise ValueError("is no answer to these questions")
    for name, question in questions.items():
        if not _fits(question, answers[name]):
            raise ValueError(f"has no probabilities for {name!r}")


def _fits(question: Question, answer: Any) -> bool:
    try:
        row = list(raw_probabilities(question, answer))
        temperature = answer.get("temperature", 1.0)
        sound = all(0 <= each <= 1 for each in row) and 0 < temperature < math.inf
        chosen(question, answer, row)
    except (AttributeError, KeyError, TypeError, ValueError):
        return False
    return sound and len(row) == _count(question)


def _count(question: Question) -> int:
    if isinstance(question, Noul):
        return 2
    return len(question.names if isinstance(question, Choice) else question.levels)
