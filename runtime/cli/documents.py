"""The input of `interlock embed`: one document a line, checked as a whole before anything is sent.

A line is an object with the text in one member and, mostly, an id in another; the rest is kept with it. A line without
an id is known by what it says, so the same line is the same document wherever it stands, and a changed one is new. The
check keeps eight bytes a line, so an input of millions of lines is no matter.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import blake2b, sha256
from pathlib import Path
from typing import Any

from ..search.documents import Document
from .lines import BadLineError, raw_lines, value_of

#: The member that is the id where none is named. There it may be missing.
ID = "id"


@dataclass(frozen=True, kw_only=True)
class LineDocument(Document):
    """A document, and the line it is from."""

    line: int


@dataclass(slots=True)
class CheckedDocuments:
    """What the first reading found. `repeated` are lines that say the same as one before them under its id."""

    good: int = 0
    bad: dict[int, str] = field(default_factory=dict)
    repeated: set[int] = field(default_factory=set)


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentLines:
    """The documents of a file: the text in the member `text`, the id in `id` (None: in "id", or the line has none)."""

    path: Path
    text: str
    id: str | None = None

    def check(self) -> CheckedDocuments:
        """Read all of it once. ConfigurationError for a file that cannot be read."""
        import numpy as np

        checked, places = CheckedDocuments(), array("Q")
        for found in self._read():
            if isinstance(found, BadLineError):
                checked.bad[found.number] = found.reason
            else:
                checked.good += 1
                places.append(_place(found.id))
        ordered = np.sort(np.frombuffer(places, dtype=np.uint64))
        twice = set(ordered[1:][ordered[1:] == ordered[:-1]].tolist())
        if twice:
            self._tell_apart(checked, twice)
        return checked

    def _tell_apart(self, checked: CheckedDocuments, twice: set[int]) -> None:
        """Of lines with one id the first is good; another is the same again, or bad."""
        first: dict[str, LineDocument] = {}
        for found in self._read():
            if isinstance(found, BadLineError) or _place(found.id) not in twice:
                continue
            before = first.setdefault(found.id, found)
            if before is found:
                continue
            checked.good -= 1
            if (before.text, before.fields) == (found.text, found.fields):
                checked.repeated.add(found.line)
            else:
                checked.bad[found.line] = f"has the id {found.id!r} of line {before.line}, and says something else"

    def documents(self, checked: CheckedDocuments, *, limit: int | None = None) -> Iterator[LineDocument]:
        """The good ones in their order, as many as asked for."""
        left = checked.good if limit is None else min(limit, checked.good)
        for found in self._read():
            if not left:
                return
            if isinstance(found, LineDocument) and found.line not in checked.bad and found.line not in checked.repeated:
                yield found
                left -= 1

    def _read(self) -> Iterator[LineDocument | BadLineError]:
        for number, raw in raw_lines(self.path):
            try:
                yield self._document(number, value_of(number, raw))
            except BadLineError as error:
                yield error

    def _document(self, number: int, value: Any) -> LineDocument:
        if not isinstance(value, dict):
            raise BadLineError(number, f"must be an object with its text in {self.text!r}")
        text = value.get(self.text)
        if text is None:
            raise BadLineError(number, f"has no {self.text!r}")
        if not isinstance(text, str):
            raise BadLineError(number, f"its {self.text!r} is {type(text).__name__}, not text")
        if not text.strip():
            raise BadLineError(number, f"its {self.text!r} is empty")
        key = self.id or ID
        rest = {name: member for name, member in value.items() if name not in (self.text, key)}
        try:
            return LineDocument(id=self._id(number, value, key), text=text, fields=rest, line=number)
        except ValueError as error:
            raise BadLineError(number, str(error)) from None

    def _id(self, number: int, value: dict[str, Any], key: str) -> str:
        found = value.get(key)
        if found is None and self.id is None:
            return sha256(json.dumps(value, sort_keys=True).encode("utf-8", "backslashreplace")).hexdigest()[:16]
        if found is None:
            raise BadLineError(number, f"has no {key!r} to be its id")
        if isinstance(found, bool) or not isinstance(found, str | int) or found == "":
            raise BadLineError(number, f"its {key!r} is neither text nor a whole number")
        return str(found)


def _place(id: str) -> int:
    return int.from_bytes(blake2b(id.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big")
