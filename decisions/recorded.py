"""Answers as plain JSON values: for records, for files of results. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .response import Answer, ChoiceAnswer, NoulAnswer
from .temperature import calibrated


def plain(answer: Answer) -> dict[str, Any]:
    """One answer. Where a temperature was applied, `raw` has the probabilities the model had given."""
    if isinstance(answer, ChoiceAnswer):
        told: dict[str, Any] = {"type": "choice", "choice": answer.choice, "probabilities": dict(answer.probabilities)}
        raw: Any = None if answer.raw_probabilities is None else dict(answer.raw_probabilities)
    elif isinstance(answer, NoulAnswer):
        told, raw = {"type": "noul", "noul": answer.noul}, answer.raw_noul
    else:
        told = {"type": "score", "score": answer.score, "probabilities": list(answer.probabilities)}
        raw = None if answer.raw_probabilities is None else list(answer.raw_probabilities)
    if answer.method != "reported":
        told["method"] = answer.method
    if answer.temperature is not None:
        told |= {"temperature": answer.temperature, "raw": raw}
    return told


def recorded(answers: Mapping[str, Answer], temperatures: Mapping[str, float]) -> dict[str, Any] | None:
    """What the record of a request keeps: the answers that a temperature is applied to, before and after. None where
    there is none."""
    kept = {
        name: plain(calibrated(answer, temperatures[name])) for name, answer in answers.items() if name in temperatures
    }
    return kept or None
