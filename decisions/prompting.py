"""What a chat model is asked, so that it can be read as a decision model. Pure.

Every kind of question becomes a choice among options, each with a letter before it, put in several orders: models
favour places, and the average over the orders does not.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .formulas import expected_level
from .labels import LABELS, MOST_LABELS
from .questions import Choice, Noul, Option, Question, Score
from .request import DecisionRequest
from .response import Answer, ChoiceAnswer, Method, NoulAnswer, ScoreAnswer

YES, NO = "yes", "no"
#: Orders a question is put in, unless the provider's `options: {rotations: N}` says otherwise.
ROTATIONS = 4

ASK_LABEL = (
    "You are given a text and one question about it, with lettered options. Answer with the letter of the best option "
    "and nothing else."
)
ASK_DISTRIBUTION = (
    "You are given a text and one question about it, with lettered options. Answer with one JSON object and nothing "
    'else: {"probabilities": {"A": 0.7, ...}}, which gives every letter the probability, between 0 and 1, that its '
    "option is right. The probabilities add up to 1."
)


def as_choice(question: Question) -> Choice:
    """A question as a choice: among its options, `yes` and `no`, or its levels."""
    if isinstance(question, Choice):
        return question
    if isinstance(question, Noul):
        return Choice(question.question, (Option(YES, question.yes), Option(NO, question.no)))
    return Choice(question.question, tuple(map(Option, question.levels)))


def orders(question: Question, rotations: int) -> tuple[Choice, ...]:
    """The question as a choice in at most so many orders. A choice is rotated in even steps (all its rotations put
    every option in every place); the levels of a score have an order of their own, and are put both ways."""
    choice = as_choice(question)
    options = choice.options
    if isinstance(question, Score):
        turned = [options, options[::-1]][: max(rotations, 1)]
    else:
        count = min(max(rotations, 1), len(options))
        starts = [round(at * len(options) / count) for at in range(count)]
        turned = [options[start:] + options[:start] for start in starts]
    return tuple(Choice(choice.question, each) for each in turned)


def labelled(choice: Choice) -> dict[str, str]:
    """Label -> option. More options than letters get numbers, which are only ever written, never read as one token."""
    labels = LABELS if len(choice.options) <= MOST_LABELS else tuple(map(str, range(1, len(choice.options) + 1)))
    return dict(zip(labels, choice.names, strict=False))


def prompt(request: DecisionRequest, choice: Choice) -> str:
    """The state, the question, the options with their labels."""
    lines = [request.state_text, "", f"Question: {choice.question}", "Options:"]
    for label, option in zip(labelled(choice), choice.options, strict=True):
        lines.append(f"{label}. {option.name}" + (f": {option.description}" if option.description else ""))
    return "\n".join(lines)


def distribution_schema(choice: Choice) -> dict[str, Any]:
    """The JSON schema of a distribution that is stated."""
    labels = list(labelled(choice))
    number = {"type": "number"}
    inner = {"type": "object", "properties": dict.fromkeys(labels, number), "required": labels}
    return {
        "type": "object",
        "properties": {"probabilities": {**inner, "additionalProperties": False}},
        "required": ["probabilities"],
        "additionalProperties": False,
    }


def as_answered(choice: Choice, probabilities: Mapping[str, Any]) -> dict[str, Any]:
    """A distribution by label as the answer to the choice, in the form of the System One wire."""
    by_name = {name: probabilities[label] for label, name in labelled(choice).items() if label in probabilities}
    numbers = {name: each for name, each in by_name.items() if isinstance(each, (int, float))}
    best = max(numbers, key=lambda name: numbers[name], default=None)
    return {"type": "choice", "choice": best, "probabilities": by_name}


def answer_to(question: Question, probabilities: Mapping[str, float], method: Method) -> Answer:
    """The answer to the question itself, from the distribution over the options of its choice."""
    if isinstance(question, Noul):
        return NoulAnswer(noul=min(probabilities[YES], 1.0), method=method)
    if isinstance(question, Score):
        levels = tuple(probabilities[level] for level in question.levels)
        return ScoreAnswer(score=expected_level(levels), probabilities=levels, levels=question.levels, method=method)
    ordered = {name: probabilities[name] for name in question.names}
    return ChoiceAnswer(choice=max(ordered, key=lambda name: ordered[name]), probabilities=ordered, method=method)
