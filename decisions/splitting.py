"""Which questions go into which request. Pure: the one plan behind both what is reserved and what is sent."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .request import DecisionRequest, question_text


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionPart:
    """One wire request: what it asks, and what it is reserved at (tokens)."""

    request: DecisionRequest
    input_tokens: int
    output_tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedCalls:
    """What a reservation is made for: so many requests, each of at most this size (tokens)."""

    calls: int
    input_tokens: int
    output_tokens: int

    @staticmethod
    def of(parts: Sequence[DecisionPart]) -> PlannedCalls:
        return PlannedCalls(
            calls=len(parts),
            input_tokens=max((part.input_tokens for part in parts), default=0),
            output_tokens=max((part.output_tokens for part in parts), default=0),
        )


def split(
    request: DecisionRequest,
    *,
    most_questions: int | None,
    most_tokens: int | None,
    count: Callable[[str], int],
) -> tuple[DecisionPart, ...]:
    """The questions in their order, as many in a request as it takes; the state goes with each of them.

    A question that does not even fit alone stands in a part of its own, which is over `most_tokens`.
    """
    tokens = count(request.text)
    few = most_questions is None or len(request.questions) <= most_questions
    if few and (most_tokens is None or tokens <= most_tokens):
        return (DecisionPart(request=request, input_tokens=tokens),)
    state = count(request.state_text)
    groups: list[list[str]] = []
    held = 0
    for name, question in request.questions.items():
        size = count(question_text(name, question)) + 1
        full = bool(groups) and (
            len(groups[-1]) == most_questions or (most_tokens is not None and state + held + size > most_tokens)
        )
        if full or not groups:
            groups.append([])
            held = 0
        groups[-1].append(name)
        held += size
    parts = [request.only(names) for names in groups]
    return tuple(DecisionPart(request=part, input_tokens=count(part.text)) for part in parts)
