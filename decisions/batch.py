"""Many states: what came of each, in the order they were given."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from interlock.errors import InterlockError

from .questions import Question
from .request import DecisionRequest
from .response import DecisionResponse

#: States under way at a time, unless the caller says otherwise.
CONCURRENCY = 32
_MOST_NAMED = 5


class DecisionBatchError(InterlockError):
    """Some states of a batch were not decided. `errors` has what each failed with, by its place in the batch."""

    code = "decision_batch"

    def __init__(self, errors: Mapping[int, Exception], total: int) -> None:
        first = next(iter(errors))
        named = ", ".join(map(str, list(errors)[:_MOST_NAMED])) + (", ..." if len(errors) > _MOST_NAMED else "")
        super().__init__(
            f"{len(errors)} of {total} decisions failed (index {named}); the first, {first}, with: {errors[first]}"
        )
        self.errors, self.total = dict(errors), total


@dataclass(frozen=True, slots=True)
class DecisionBatch:
    """One outcome a state, in the order given: the response, or the error it failed with."""

    outcomes: tuple[DecisionResponse | Exception, ...]

    @property
    def errors(self) -> dict[int, Exception]:
        """What failed, by index."""
        return {index: each for index, each in enumerate(self.outcomes) if isinstance(each, Exception)}

    @property
    def responses(self) -> tuple[DecisionResponse, ...]:
        """All of them. Raises DecisionBatchError where one failed."""
        if errors := self.errors:
            raise DecisionBatchError(errors, len(self.outcomes))
        return tuple(each for each in self.outcomes if not isinstance(each, Exception))

    def __len__(self) -> int:
        return len(self.outcomes)

    def __iter__(self) -> Iterator[DecisionResponse | Exception]:
        return iter(self.outcomes)

    def __getitem__(self, index: int) -> DecisionResponse:
        """The response of one state; raises what that one failed with."""
        outcome = self.outcomes[index]
        if isinstance(outcome, Exception):
            raise outcome
        return outcome


def requests_of(
    states: Iterable[DecisionRequest | Any], questions: Mapping[str, Question] | None
) -> Iterator[DecisionRequest]:
    """Requests as they are, or states with the same questions. ValueError names the place of one that is neither."""
    if isinstance(states, (str, bytes, Mapping, BaseModel, DecisionRequest)):
        raise TypeError("decide_batch takes many states or requests; decide takes one")
    for index, state in enumerate(states):
        if isinstance(state, DecisionRequest) == (questions is not None):
            raise TypeError(
                f"item {index} is a DecisionRequest, which has questions of its own: give no others"
                if questions is not None
                else f"item {index} is {type(state).__name__}, and there are no questions about it"
            )
        try:
            yield state if questions is None else DecisionRequest(state, questions)
        except ValueError as error:
            raise ValueError(f"item {index}: {error}") from None
