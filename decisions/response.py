"""What a decision model answered, in one form for every provider."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Literal, TypeAlias, TypeVar

from interlock.catalog.usage import Usage

from .formulas import choice_confidence, score_confidence

#: Where a distribution comes from: the decision model itself; a chat model's probabilities of the next token, averaged
#: over the order of the options; or figures that a chat model wrote down, which nothing was measured for.
Method: TypeAlias = Literal["reported", "logprobs", "stated"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChoiceAnswer:
    """`choice` is the most probable option; `probabilities` covers every option and sums to 1 within rounding.

    Where a `temperature` was fitted for the question, the probabilities are those at it, and `raw_probabilities` what
    the model had said.
    """

    choice: str
    probabilities: Mapping[str, float]
    reported_confidence: float | None = None  # the provider's own figure, by whatever formula
    method: Method = "reported"
    temperature: float | None = None
    raw_probabilities: Mapping[str, float] | None = None

    @property
    def confidence(self) -> float:
        """0 (uniform) to 1 (certain), by `formulas.choice_confidence`."""
        return choice_confidence(tuple(self.probabilities.values()))

    @property
    def ranked(self) -> tuple[tuple[str, float], ...]:
        """Options and their probabilities, the most probable first."""
        return tuple(sorted(self.probabilities.items(), key=lambda item: -item[1]))


@dataclass(frozen=True, slots=True, kw_only=True)
class NoulAnswer:
    """`noul` is the probability of yes. Where the line is drawn is the caller's: `answer.noul > 0.8`.

    Where a `temperature` was fitted for the question, it is the probability at it, and `raw_noul` what the model had
    said.
    """

    noul: float
    method: Method = "reported"
    temperature: float | None = None
    raw_noul: float | None = None

    @property
    def yes(self) -> bool:
        """Whether yes is at least as probable as no."""
        return self.noul >= 0.5

    @property
    def probabilities(self) -> Mapping[str, float]:
        return {"true": self.noul, "false": 1.0 - self.noul}

    @property
    def confidence(self) -> float:
        """0 (a coin's toss) to 1 (certain): the choice formula over yes and no. The wire has none of its own."""
        return choice_confidence((self.noul, 1.0 - self.noul))


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreAnswer:
    """`score` is the expected level, 0 to the last; `probabilities[i]` belongs to `levels[i]`.

    Where a `temperature` was fitted for the question, both are those at it, and `raw_score` and `raw_probabilities`
    what the model had said.
    """

    score: float
    probabilities: tuple[float, ...]
    levels: tuple[str, ...]
    reported_confidence: float | None = None  # the provider's own figure, by whatever formula
    method: Method = "reported"
    temperature: float | None = None
    raw_score: float | None = None
    raw_probabilities: tuple[float, ...] | None = None

    @property
    def confidence(self) -> float:
        """0 (as spread out as uniform) to 1 (one level is certain), by `formulas.score_confidence`."""
        return score_confidence(self.probabilities)

    @property
    def level(self) -> int:
        """The most probable level; of several the lowest."""
        return max(range(len(self.probabilities)), key=lambda level: self.probabilities[level])


Answer: TypeAlias = ChoiceAnswer | NoulAnswer | ScoreAnswer
A = TypeVar("A", ChoiceAnswer, NoulAnswer, ScoreAnswer)


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionResponse:
    """The answers by question id.

    `model` is the catalog entry that served, `served_model` what the provider echoed; `cost` is in `currency`, None
    where the entry has no price; `latency_s` is seconds. Usage and cost are those of all `requests` it took, whose ids
    are `request_ids` (`request_id` is the first of them). `read_characters` is None where the model read the whole
    state; otherwise only that many characters of it were read, and `truncated` is true.
    """

    answers: Mapping[str, Answer]
    usage: Usage
    model: str
    provider: str
    served_model: str | None = None
    request_id: str | None = None
    cost: Decimal | None = None
    currency: str | None = None
    latency_s: float = 0.0
    read_characters: int | None = None
    requests: int = 1
    request_ids: tuple[str, ...] = ()

    @property
    def truncated(self) -> bool:
        """Whether the model read only the beginning of the state."""
        return self.read_characters is not None

    def choice(self, id: str) -> ChoiceAnswer:
        """The answer to a Choice. KeyError: no such question. TypeError: it was of another kind."""
        return self._answer(id, ChoiceAnswer)

    def noul(self, id: str) -> NoulAnswer:
        """The answer to a Noul. KeyError: no such question. TypeError: it was of another kind."""
        return self._answer(id, NoulAnswer)

    def score(self, id: str) -> ScoreAnswer:
        """The answer to a Score. KeyError: no such question. TypeError: it was of another kind."""
        return self._answer(id, ScoreAnswer)

    def _answer(self, id: str, kind: type[A]) -> A:
        answer = self.answers.get(id)
        if answer is None:
            raise KeyError(f"no question {id!r} was asked; there are {', '.join(map(repr, self.answers))}")
        if not isinstance(answer, kind):
            asked, wanted = _name(type(answer)), _name(kind)
            raise TypeError(f"question {id!r} is a {asked}, not a {wanted}: read .{asked}({id!r})")
        return answer


def _name(kind: type[Answer]) -> str:
    return kind.__name__.removesuffix("Answer").lower()
