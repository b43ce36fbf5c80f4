"""A typed answer while it streams: the part of it that has come, as plain values."""

from __future__ import annotations

import json
from typing import Any

from pydantic_core import from_json

from .response import Piece, PieceKind
from .structured import Shape


class PartialObject:
    """Collects the pieces of one answer. Reading them costs nothing until `value` is asked for, and then time linear in
    what has come; so a reader that shows every tenth state pays for every tenth."""

    __slots__ = ("_called", "_shape", "_texts", "_value", "_weighed")

    def __init__(self, wanted: Any) -> None:
        self._shape = Shape.of(wanted)
        self._texts: list[str] = []
        self._called: list[str] = []  # the arguments of the tool that the answer may come through
        self._weighed = 0
        self._value: Any = None

    def add(self, piece: Piece) -> None:
        if piece.kind is PieceKind.TEXT:
            self._texts.append(piece.text)
        elif piece.kind is PieceKind.TOOL_JSON and piece.tool == self._shape.name:
            self._called.append(piece.text)

    @property
    def value(self) -> Any:
        """What has come so far: objects and lists as far as they go, a text that has only begun as far as it goes. Not
        validated, so fields may be missing. None before there is anything."""
        pieces = self._called or self._texts
        if len(pieces) != self._weighed:
            self._weighed = len(pieces)
            found = _begun("".join(pieces))
            if found is not None:
                self._value = found
        if self._shape.wrapped and isinstance(self._value, dict):
            return self._value.get("value")
        return self._value


def _begun(text: str) -> Any:
    """The object that a text holds or begins, whatever stands around it; None where there is none."""
    start = text.find("{")
    if start < 0:
        return None
    try:
        # Half a character, which the next piece may complete, is no reason to show nothing.
        return from_json(text[start:].encode(errors="replace"), allow_partial="trailing-strings")
    except ValueError:
        pass  # something follows it, or it is none
    try:
        return json.JSONDecoder().raw_decode(text, start)[0]
    except (ValueError, RecursionError):
        return None
