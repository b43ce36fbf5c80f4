"""What is asked about a state: a choice among options, yes or no, a score on levels. Immutable, hashable values.

Malformed questions cannot be made: the constructors raise ValueError with one sentence.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias, TypeVar

MAX_OPTIONS = 255
MAX_LEVELS = 10

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Option:
    """One option of a choice: the name that is answered, and what it means where the name does not say it."""

    name: str
    description: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", _text(self.name, "an option's name"))
        if self.description is not None:
            meaning = _text(self.description, f"the description of option {self.name!r}")
            object.__setattr__(self, "description", meaning)


@dataclass(frozen=True, slots=True)
class Choice:
    """Exactly one of 2 to 255 options.

    `Choice.of("Which team?", "billing", "technical")`, or with descriptions (None: the name says enough)
    `Choice.of("Which team?", {"billing": "invoices and refunds", "technical": None})`.
    """

    question: str
    options: tuple[Option, ...]
    type: Literal["choice"] = "choice"

    def __post_init__(self) -> None:
        object.__setattr__(self, "question", _text(self.question, "the question of a choice"))
        _require_type(self.type, "choice")
        object.__setattr__(self, "options", _several(self.options, "the options of a choice"))
        strange = next((option for option in self.options if not isinstance(option, Option)), None)
        if strange is not None:
            raise ValueError(f"an option of a choice is {type(strange).__name__}: make it with Option or Choice.of")
        if not 2 <= len(self.options) <= MAX_OPTIONS:
            raise ValueError(f"a choice needs 2 to {MAX_OPTIONS} options, not {len(self.options)}")
        names = [option.name for option in self.options]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise ValueError(f"a choice has the option {twice!r} twice")

    @staticmethod
    def of(question: str, /, *options: str | Option | Mapping[str, str | None]) -> Choice:
        found: list[Option] = []
        for given in options:
            if isinstance(given, Mapping):
                found += [Option(name, description) for name, description in given.items()]
            else:
                found.append(given if isinstance(given, Option) else Option(given))
        return Choice(question, tuple(found))

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(option.name for option in self.options)


@dataclass(frozen=True, slots=True)
class Noul:
    """Yes or no, answered with the probability of yes.

    `Noul.of("Does this convey urgency?")`, with what each side means where it helps:
    `Noul.of("Is it urgent?", yes="time-sensitive", no="no time is mentioned")`.
    """

    question: str
    yes: str | None = None
    no: str | None = None
    type: Literal["noul"] = "noul"

    def __post_init__(self) -> None:
        object.__setattr__(self, "question", _text(self.question, "the question of a noul"))
        _require_type(self.type, "noul")
        for side, meaning in (("yes", self.yes), ("no", self.no)):
            if meaning is not None:
                object.__setattr__(self, side, _text(meaning, f"the meaning of {side}"))

    @staticmethod
    def of(question: str, /, *, yes: str | None = None, no: str | None = None) -> Noul:
        return Noul(question, yes, no)


@dataclass(frozen=True, slots=True)
class Score:
    """Where a state lies on 2 to 10 levels, the lowest first; level 0 is the first.

    `Score.of("How frustrated?", "calm", "frustrated", "very angry")`.
    """

    question: str
    levels: tuple[str, ...]
    type: Literal["score"] = "score"

    def __post_init__(self) -> None:
        object.__setattr__(self, "question", _text(self.question, "the question of a score"))
        _require_type(self.type, "score")
        levels = _several(self.levels, "the levels of a score")
        if not 2 <= len(levels) <= MAX_LEVELS:
            raise ValueError(f"a score needs 2 to {MAX_LEVELS} levels, not {len(levels)}")
        levels = tuple(_text(level, f"level {number}") for number, level in enumerate(levels))
        object.__setattr__(self, "levels", levels)
        twice = next((level for level in self.levels if self.levels.count(level) > 1), None)
        if twice is not None:
            raise ValueError(f"a score has the level {twice!r} twice")

    @staticmethod
    def of(question: str, /, *levels: str) -> Score:
        return Score(question, levels)


Question: TypeAlias = Choice | Noul | Score


def _require_type(given: object, kind: str) -> None:
    if given != kind:
        raise ValueError(f"the type of a {kind} is {kind!r} and nothing else")


def _several(given: Iterable[T], what: str) -> tuple[T, ...]:
    """A text is no list of its letters."""
    if isinstance(given, (str, bytes)) or not isinstance(given, Iterable):
        raise ValueError(f"{what} are several, not {type(given).__name__}")
    return tuple(given)


def _text(value: object, what: str) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{what} must be text, not {type(value).__name__}")
    if not value.strip():
        raise ValueError(f"{what} is empty")
    return plain_text(value, what)


def plain_text(value: str, what: str) -> str:
    """The text itself; of a member of an enum its value. ValueError where it is not valid Unicode."""
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{what} holds a lone surrogate, which is not valid Unicode") from None
    return str.__str__(value)  # `str` of an enum's member may be its name
