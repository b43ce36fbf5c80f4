"""OpenAI's Decisions wire: a request as JSON, an answer put in the form of System One. Pure.

Questions and answers are lists in one order; yes or no is a `predicate`, which has no criteria: what either side means
goes into its instructions. A question that the model will not answer is a `refusal` among the answers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from interlock.catalog.usage import Usage
from interlock.errors import MalformedResponseError, ProviderRefusalError

from .questions import Choice, Noul, Question, Score
from .request import DecisionRequest

#: What the wire calls each kind of question.
KINDS = {"noul": "predicate", "choice": "choice", "score": "score"}


def encode(request: DecisionRequest, *, model: str) -> dict[str, Any]:
    """The body of `POST /v1/decisions`. A structure is sent as the JSON text it is estimated as."""
    questions = [_question(name, question) for name, question in request.questions.items()]
    return {"model": model, "input": request.state_text, "questions": questions}


def _question(name: str, question: Question) -> dict[str, Any]:
    written: dict[str, Any] = {"type": KINDS[question.type], "name": name, "instructions": question.question}
    if isinstance(question, Choice):
        written["choices"] = [_described({"value": each.name}, each.description) for each in question.options]
    elif isinstance(question, Score):
        written["levels"] = [{"label": level} for level in question.levels]
    else:
        written["instructions"] = _with_sides(question)
    return written


def _described(option: dict[str, Any], description: str | None) -> dict[str, Any]:
    return option if description is None else {**option, "description": description}


def _with_sides(question: Noul) -> str:
    sides = (("True", question.yes), ("False", question.no))
    return "\n".join([question.question, *(f"{side} when: {meaning}" for side, meaning in sides if meaning)])


def decode(body: Mapping[str, Any], questions: Mapping[str, Question], *, model: str) -> dict[str, Any]:
    """`{"answers": {...}}` as System One has it. Raises MalformedResponseError, and ProviderRefusalError where a
    question was refused: its usage counts all the same."""
    answers = body.get("answers")
    if not isinstance(answers, list) or len(answers) != len(questions):
        given = f"{len(answers)}" if isinstance(answers, list) else "no list of"
        raise MalformedResponseError(f"there are {given} answers to {len(questions)} questions")
    pairs = zip(questions.items(), answers, strict=True)
    return {"answers": {name: _answer(name, question, each, model) for (name, question), each in pairs}}


def _answer(name: str, question: Question, answer: Any, model: str) -> dict[str, Any]:
    if not isinstance(answer, Mapping):
        raise MalformedResponseError(f"the answer to {name!r} is not an object")
    if answer.get("name") not in (name, None):
        raise MalformedResponseError(f"the answer in the place of {name!r} is to another question")
    kind = answer.get("type")
    if kind == "refusal":
        raise ProviderRefusalError(
            f"{model} will not answer question {name!r}", category="refusal", explanation=None, model=model
        )
    if kind != KINDS[question.type]:
        raise MalformedResponseError(f"the answer to {name!r} is not of type {KINDS[question.type]}")
    if isinstance(question, Noul):
        return {"type": "noul", "noul": answer.get("probability")}
    listed = {"probabilities": _probabilities(name, question, answer), "confidence": answer.get("confidence")}
    if isinstance(question, Choice):
        return {"type": "choice", "choice": answer.get("choice"), **listed}
    return {"type": "score", "score": answer.get("score"), **listed}


def _probabilities(name: str, question: Question, answer: Mapping[str, Any]) -> dict[str, Any]:
    listed, found = answer.get("probabilities"), {}
    if not isinstance(listed, list):
        raise MalformedResponseError(f"the probabilities of {name!r} are no list")
    for each in listed:
        value = each.get("value") if isinstance(each, Mapping) else None
        # A boolean may stand for an option here, and True would be level 1.
        fits = isinstance(value, str) if isinstance(question, Choice) else type(value) is int
        if not fits or str(value) in found:
            raise MalformedResponseError(f"a probability of {name!r} is of no option, or of one that has another")
        found[str(value)] = each.get("probability")
    return found


def decode_usage(body: Mapping[str, Any], read_as: str = "input", written_as: str = "output") -> Usage | None:
    """Input counts include what the cache gave and took, and are taken apart here. Chat completions call the two
    `prompt` and `completion`."""
    usage = body.get("usage")
    if not isinstance(usage, Mapping):
        return None
    details = usage.get(f"{read_as}_tokens_details")
    details = details if isinstance(details, Mapping) else {}
    total, read, wrote = (
        _count(each)
        for each in (usage.get(f"{read_as}_tokens"), details.get("cached_tokens"), details.get("cache_write_tokens"))
    )
    found = Usage(
        input_tokens=None if total is None else max(total - (read or 0) - (wrote or 0), 0),
        output_tokens=_count(usage.get(f"{written_as}_tokens")),
        cache_read_tokens=read,
        cache_write_tokens=wrote,
    )
    return None if found == Usage() else found


def _count(value: Any) -> int | None:
    return value if type(value) is int and 0 <= value < 2**53 else None
