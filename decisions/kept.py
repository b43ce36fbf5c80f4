"""Parts of a decision that were answered before another part of it failed: they are paid, and a re-run takes them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from interlock.catalog.entry import ModelEntry

from .request import DecisionRequest
from .splitting import DecisionPart
from .wire import encode_questions

if TYPE_CHECKING:
    from interlock.clients.record import CallRecord

    from .response import Answer


@dataclass(frozen=True, slots=True)
class AnsweredPart:
    """One part, answered and recorded."""

    part: DecisionPart
    answers: Mapping[str, Answer]
    record: CallRecord
    read_characters: int | None


class KeptParts:
    """One job's, over its attempts. An answer is taken once, for the same questions about the same state, put to the
    same entry and wire model: what a job decides twice is asked twice."""

    __slots__ = ("_answered",)

    def __init__(self) -> None:
        self._answered: dict[tuple[str, str], list[AnsweredPart]] = {}

    def keep(self, entry: ModelEntry, answered: Iterable[AnsweredPart]) -> None:
        for each in answered:
            self._answered.setdefault(_key(entry, each.part), []).append(each)

    def take(self, entry: ModelEntry, part: DecisionPart) -> AnsweredPart | None:
        """What was answered to it, which is forgotten here."""
        if not self._answered:
            return None
        key = _key(entry, part)
        found = self._answered.get(key)
        if found is None:
            return None
        answered = found.pop()
        if not found:
            del self._answered[key]
        return answered

    def lacking(self, entry: ModelEntry, parts: Iterable[DecisionPart]) -> list[DecisionPart]:
        """Those that have yet to be asked: what is reserved."""
        if not self._answered:
            return list(parts)
        left = {key: len(found) for key, found in self._answered.items()}
        lacking = []
        for part in parts:
            key = _key(entry, part)
            if left.get(key, 0):
                left[key] -= 1
            else:
                lacking.append(part)
        return lacking


def request_hash(entry: ModelEntry, request: DecisionRequest) -> str:
    asked = [entry.wire_model_id, request.state, encode_questions(request.questions)]
    return hashlib.sha256(json.dumps(asked, ensure_ascii=False).encode()).hexdigest()


def _key(entry: ModelEntry, part: DecisionPart) -> tuple[str, str]:
    return entry.id, request_hash(entry, part.request)
