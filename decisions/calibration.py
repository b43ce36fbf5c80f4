"""Calibration: the temperatures that were fitted, by model and question, and the file they are kept in.

A question is known by what it asks, not by its id: a reworded question is another one, and so is the same question put
to another model. `interlock decisions eval --fit FILE` writes the file, `ModelSettings(calibration=FILE)` applies it.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from functools import lru_cache
from pathlib import Path
from typing import Any

from interlock.catalog.entry import ModelEntry
from interlock.errors import ConfigurationError

from .questions import Question
from .wire import encode_question

#: (entry id, wire model id, fingerprint of the question) -> temperature
Temperatures = Mapping[tuple[str, str, str], float]

_VERSION = 1
#: Far beyond what is ever fitted; further out floats end.
_COLDEST, _HOTTEST = 0.001, 1_000.0


@lru_cache(maxsize=4_096)
def fingerprint(question: Question) -> str:
    """What tells a question from every other: its kind, its words, its options in their order."""
    written = json.dumps(encode_question(question), ensure_ascii=False)
    return hashlib.sha256(written.encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedTemperature:
    """One question on one model. `log_loss` is that of the examples as the model answered, `fitted_log_loss` at the
    temperature, each example judged by a temperature that was fitted without it."""

    model: str  # the entry's id
    wire_model_id: str
    question: str  # its id, for the reader
    fingerprint: str
    temperature: float
    examples: int
    log_loss: float
    fitted_log_loss: float
    fitted_at: str  # a date, ISO 8601

    @property
    def key(self) -> tuple[str, str, str]:
        return self.model, self.wire_model_id, self.fingerprint


@dataclass(frozen=True, slots=True)
class Calibration:
    """All temperatures of a deployment. Immutable: `plus` makes another."""

    fitted: tuple[FittedTemperature, ...] = ()

    @property
    def temperatures(self) -> dict[tuple[str, str, str], float]:
        return {each.key: each.temperature for each in self.fitted}

    def plus(self, fitted: Iterable[FittedTemperature]) -> Calibration:
        """With these in place of what was known of the same questions and models."""
        known = {each.key: each for each in self.fitted} | {each.key: each for each in fitted}
        return Calibration(tuple(known.values()))

    @staticmethod
    def load(path: Path | str) -> Calibration:
        """Raises ConfigurationError naming the file, and the entry in it that is wrong."""
        try:
            read = json.loads(Path(path).read_text(encoding="utf-8"))
        except OSError as error:
            raise ConfigurationError(f"the calibration {path} cannot be read: {error.strerror or error}") from None
        except (ValueError, RecursionError) as error:
            raise ConfigurationError(f"the calibration {path} is no JSON: {error}") from None
        known = isinstance(read, dict) and isinstance(read.get("temperatures"), list)
        if not known or read.get("version") != _VERSION:
            raise ConfigurationError(
                f"{path} is no calibration of version {_VERSION}: write it with `interlock decisions eval --fit {path}`"
            )
        return Calibration(tuple(_read(item, path, number) for number, item in enumerate(read["temperatures"], 1)))

    def save(self, path: Path | str) -> None:
        """In one step: who reads it meanwhile sees the old file or the new one. Raises ConfigurationError."""
        place = Path(path)
        fresh = place.with_name(f"{place.name}.new")
        body = {"version": _VERSION, "temperatures": [asdict(each) for each in self.fitted]}
        try:
            fresh.write_text(json.dumps(body, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
            os.replace(fresh, place)
        except OSError as error:
            fresh.unlink(missing_ok=True)
            raise ConfigurationError(f"{path} cannot be written: {error.strerror or error}") from None


def temperature_of(temperatures: Temperatures | None, entry: ModelEntry, question: Question) -> float | None:
    """The temperature for a question on a model; None where none was fitted."""
    if not temperatures:
        return None
    return temperatures.get((entry.id, entry.wire_model_id, fingerprint(question)))


def _read(item: Any, path: Path | str, number: int) -> FittedTemperature:
    where = f"temperature {number} of {path}"
    if not isinstance(item, dict):
        raise ConfigurationError(f"{where} is no object")
    values: dict[str, Any] = {}
    for field in fields(FittedTemperature):
        values[field.name] = value = item.get(field.name)
        wanted = {"str": str, "int": int, "float": (int, float)}[str(field.type)]
        if not isinstance(value, wanted) or isinstance(value, bool):  # type: ignore[arg-type]
            raise ConfigurationError(f"{where}: {field.name} is missing or no {field.type}")
    temperature = values["temperature"]
    if not _COLDEST <= temperature <= _HOTTEST:
        raise ConfigurationError(f"{where}: the temperature must be a number from {_COLDEST:g} to {_HOTTEST:,g}")
    return FittedTemperature(**values)
