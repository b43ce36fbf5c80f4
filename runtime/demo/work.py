"""What is asked about every entry, however it is sent: the questions, the prompt, the shape of the answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, Field

from interlock.decisions.questions import Choice, Noul

from .corpus import Entry
from .library import to_bytes

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

AREA = Choice.of(
    "Which area of programming is this about?",
    {
        "text": "strings, parsing, formatting and markup",
        "data": "data structures, numbers, dates and algorithms",
        "files": "files, folders, archives and compression",
        "network": "sockets, HTTP, mail and the web",
        "concurrency": "threads, processes and scheduling",
        "command line": "arguments, terminals and running programs",
        "language": "the language itself: compiling, importing, typing",
        "quality": "testing, debugging, profiling and logging",
        "security": "hashing, encryption, secrets and certificates",
    },
)
DEPRECATED = Noul.of("Does this text say that it is deprecated or should no longer be used?")

SYSTEM = "You catalogue a software library. Answer with a title, a summary of one sentence, and three to six keywords."
MAX_OUTPUT_TOKENS = 400
QUESTION = "parse command line arguments"


class Card(BaseModel):
    """What the model writes about an entry."""

    title: str = Field(description="A title of at most eight words")
    summary: str = Field(description="What it does, in one sentence")
    keywords: list[str] = Field(description="Three to six keywords", min_length=1, max_length=6)


def prompt_of(entry: Entry) -> str:
    return f"The {entry.kind} `{entry.name}` of Python's standard library:\n\n{entry.text}"


def searchable(entry: Entry) -> str:
    """The text whose vector is stored."""
    return f"{entry.name}\n{entry.text}"


def state_of(entry: Entry) -> str:
    """What the questions are asked about: the beginning says it, and local models read no more."""
    return f"{entry.name}: {entry.text[:600]}"


def row_of(
    entry: Entry, area: str, deprecated: float, card: Card, likeness: float, vector: NDArray[np.float32]
) -> dict[str, Any]:
    """What is stored about it."""
    return {
        "name": entry.name,
        "module": entry.module,
        "kind": entry.kind,
        "area": area,
        "deprecated": deprecated,
        "title": card.title,
        "summary": card.summary,
        "likeness": likeness,
        "vector": to_bytes(vector),
    }
