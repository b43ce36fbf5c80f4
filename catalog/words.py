"""The closed vocabularies of the catalog: grades, kinds, inputs, depths, output sizes."""

from __future__ import annotations

from enum import Enum, StrEnum


class Grade(Enum):
    """How strong a model must be: a floor, ordered. CEILING is the strongest there is."""

    MICRO = 1
    SMALL = 2
    MEDIUM = 3
    LARGE = 4
    XL = 5
    MEGA = 6
    CEILING = 7

    def __lt__(self, other: Grade) -> bool:
        return self.value < other.value

    def __le__(self, other: Grade) -> bool:
        return self.value <= other.value


class Kind(StrEnum):
    """What a model does."""

    CHAT = "chat"
    EMBEDDINGS = "embeddings"
    DECISION = "decision"


class Input(StrEnum):
    """What a model can be sent besides text."""

    TEXT = "text"
    IMAGES = "image"
    DOCUMENTS = "document"


class Depth(StrEnum):
    """How much a model may think before it answers: a share of its output ceiling (see `output_limit`)."""

    IMMEDIATE = "immediate"
    QUICK = "quick"
    STANDARD = "standard"
    THOROUGH = "thorough"


class OutputSize(Enum):
    """Answer limits by name, in tokens. MAX is the model's own ceiling."""

    VERDICT = 1_024
    COMPACT = 4_096
    STANDARD = 16_384
    EXTENDED = 32_768
    MAX = 0


class Status(StrEnum):
    """Whether an entry may be picked. A closed entry still prices past calls."""

    OPEN = "open"
    DISABLED = "disabled"
    DEPRECATED = "deprecated"
    UNLISTED = "unlisted"
    UNREACHABLE = "unreachable"
