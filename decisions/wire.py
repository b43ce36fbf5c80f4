"""The System One wire: a request as JSON, an answer read back. Pure.

Strict about what is missing, lenient about what is extra. Hosted values are rounded to two decimals, so sums may miss
by that much. No error quotes the state or anything the provider wrote: it names questions, options and numbers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from interlock.catalog.usage import Usage
from interlock.errors import MalformedResponseError

from .formulas import expected_level
from .questions import Choice, Question, Score
from .request import DecisionRequest
from .response import Answer, ChoiceAnswer, NoulAnswer, ScoreAnswer

#: Half of the last decimal a hosted model reports.
ROUNDING = 0.005
#: What a sum of probabilities may miss 1 by, however few there are.
SUM_WITHIN = 0.05
_SLACK = 1e-9


def encode(request: DecisionRequest, *, model: str) -> dict[str, Any]:
    """The body of `POST /v1/systemone`."""
    return {"model": model, "state": request.state, "questions": encode_questions(request.questions)}


def encode_questions(questions: Mapping[str, Question]) -> dict[str, dict[str, Any]]:
    return {name: encode_question(question) for name, question in questions.items()}


def encode_question(question: Question) -> dict[str, Any]:
    """One question as the wire has it."""
    encoded: dict[str, Any] = {"type": question.type, "instructions": question.question}
    if isinstance(question, Choice):
        encoded["criteria"] = {option.name: option.description for option in question.options}
    elif isinstance(question, Score):
        encoded["criteria"] = list(question.levels)
    else:
        sides = (("true", question.yes), ("false", question.no))
        criteria = {side: meaning for side, meaning in sides if meaning is not None}
        if criteria:
            encoded["criteria"] = criteria
    return encoded


def decode_answers(body: Any, questions: Mapping[str, Question]) -> dict[str, Answer]:
    """The answers to `questions`, in their order, from the body of a response. MalformedResponseError names what is
    missing or impossible."""
    answers = _mapping(body, "the response").get("answers")
    given = _mapping(answers, "answers")
    return {name: _decode(name, question, given) for name, question in questions.items()}


def _decode(name: str, question: Question, answers: Mapping[str, Any]) -> Answer:
    if name not in answers:
        raise MalformedResponseError(f"question {name!r} has no answer")
    answer = _mapping(answers[name], f"the answer to {name!r}")
    if answer.get("type") != question.type:
        raise MalformedResponseError(f"the answer to {name!r} is not of type {question.type}")
    if isinstance(question, Choice):
        return _choice(name, question, answer)
    if isinstance(question, Score):
        return _score(name, question, answer)
    return NoulAnswer(noul=_probability(answer.get("noul"), f"noul of {name!r}"))


def _choice(name: str, question: Choice, answer: Mapping[str, Any]) -> ChoiceAnswer:
    probabilities = _distribution(answer.get("probabilities"), question.names, name, "option")
    choice = answer.get("choice")
    if not isinstance(choice, str) or choice not in probabilities:
        raise MalformedResponseError(f"the choice of {name!r} is not one of its {len(probabilities)} options")
    best = max(probabilities.values())
    if best - probabilities[choice] > ROUNDING + _SLACK:
        raise MalformedResponseError(
            f"the choice of {name!r} is {choice!r} with {probabilities[choice]:g}, and another option has {best:g}"
        )
    return ChoiceAnswer(
        choice=choice, probabilities=probabilities, reported_confidence=_confidence(answer.get("confidence"))
    )


def _score(name: str, question: Score, answer: Mapping[str, Any]) -> ScoreAnswer:
    keys = [str(level) for level in range(len(question.levels))]
    probabilities = tuple(_distribution(answer.get("probabilities"), keys, name, "level").values())
    legend = answer.get("legend")
    if isinstance(legend, Mapping) and any(key not in legend for key in keys):
        # A legend that counts from 1 would shift every level by one.
        raise MalformedResponseError(f"the legend of {name!r} does not name the levels 0 to {len(keys) - 1}")
    score = _number(answer.get("score"), f"the score of {name!r}")
    expected, within = expected_level(probabilities), _score_within(len(keys))
    if abs(score - expected) > within + _SLACK:
        raise MalformedResponseError(
            f"the score of {name!r} is {score:g}, and its probabilities make it {expected:.3f}"
        )
    return ScoreAnswer(
        score=min(max(score, 0.0), float(len(keys) - 1)),
        probabilities=probabilities,
        levels=question.levels,
        reported_confidence=_confidence(answer.get("confidence")),
    )


def _score_within(levels: int) -> float:
    """What rounding of the score and of each probability can add up to."""
    return 0.02 + ROUNDING * (1 + levels * (levels - 1) / 2)


def _distribution(given: Any, keys: Sequence[str], name: str, what: str) -> dict[str, float]:
    """The probability of each key, in the keys' order."""
    values = _mapping(given, f"the probabilities of {name!r}")
    missing = next((key for key in keys if key not in values), None)
    if missing is not None:
        raise MalformedResponseError(f"{what} {missing!r} of {name!r} has no probability")
    found = {key: _probability(values[key], f"the probability of {what} {key!r} of {name!r}") for key in keys}
    total, within = math.fsum(found.values()), max(SUM_WITHIN, len(keys) * ROUNDING)
    if abs(total - 1.0) > within + _SLACK:
        raise MalformedResponseError(f"the probabilities of {name!r} add up to {total:.3f}, not to 1")
    return found


def _probability(value: Any, what: str) -> float:
    number = _number(value, what)
    if not -_SLACK <= number <= 1.0 + _SLACK:
        raise MalformedResponseError(f"{what} is {number:g}, not within 0 and 1")
    return min(max(number, 0.0), 1.0)


def _number(value: Any, what: str) -> float:
    try:
        number = float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else math.nan
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise MalformedResponseError(f"{what} is not a finite number")
    return number


def _confidence(value: Any) -> float | None:
    valid = isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value <= 1
    return float(value) if valid else None


def _mapping(value: Any, what: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise MalformedResponseError(f"{what} is not an object" if value is not None else f"{what} is missing")
    return value


def decode_usage(body: Any) -> Usage | None:
    """What was consumed, where the response says so in whole numbers; None where it says nothing."""
    usage = body.get("usage") if isinstance(body, Mapping) else None
    if not isinstance(usage, Mapping):
        return None
    found = Usage(input_tokens=_count(usage.get("input_tokens")), output_tokens=_count(usage.get("output_tokens")))
    return None if found == Usage() else found


def _count(value: Any) -> int | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return int(value) if 0 <= value < 2**53 and value == int(value) else None


def decode_model(body: Any) -> str | None:
    """The name of the model that answered, where the response says it."""
    model = body.get("model") if isinstance(body, Mapping) else None
    return model if isinstance(model, str) and model else None
