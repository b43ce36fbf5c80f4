"""Every question's figures: of the probabilities as the model gave them, at the temperature that is applied already,
and at one that is fitted now. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import Any

import numpy as np

from interlock.decisions import Calibration, Choice, Noul, Question
from interlock.decisions.calibration import FittedTemperature, fingerprint
from interlock.errors import ConfigurationError

from .fitting import FEWEST, at_its_end, at_temperature, cross_fitted, fit_temperature
from .metrics import (
    Bin,
    Floats,
    Kind,
    Threshold,
    Truths,
    accuracy,
    calibration_error,
    log_loss,
    majority,
    reliability,
    sureness,
    threshold,
)

#: Why there is no temperature, by whether the colder were always the better.
_ENDLESS = {
    True: "all is right however sure it is, so examples that are wrong are what is lacking",
    False: "it is right no more often than by chance, which no temperature mends",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """How good one question's probabilities are."""

    log_loss: float
    calibration_error: float
    bins: tuple[Bin, ...]
    threshold: Threshold | None


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionReport:
    """One question on one model. `raw` are the figures of what the model said; `applied` those at the temperature it
    has already, `fitted` those at the one fitted now (each example judged without itself)."""

    name: str
    kind: Kind
    question: Question
    model: str
    wire_model_id: str
    examples: int
    accuracy: float
    majority: float
    raw: Figures
    applied_temperature: float | None = None
    applied: Figures | None = None
    temperature: float | None = None
    fitted: Figures | None = None
    notes: tuple[str, ...] = ()

    @property
    def best(self) -> Figures:
        """The figures of what is in force: at the newest temperature."""
        return self.fitted or self.applied or self.raw


@dataclass(slots=True)
class Answers:
    """What was answered to one question of one model: a row an example."""

    question: Question
    wire_model_id: str
    rows: list[Sequence[float]] = field(default_factory=list)
    chosen: list[int] = field(default_factory=list)
    truths: list[int] = field(default_factory=list)
    temperatures: set[float | None] = field(default_factory=set)
    methods: set[str] = field(default_factory=set)

    def add(self, answer: Mapping[str, Any], truth: int) -> None:
        """One answer as `decisions.recorded.plain` writes it."""
        row = raw_probabilities(self.question, answer)
        self.rows.append(row)
        self.chosen.append(chosen(self.question, answer, row))
        self.truths.append(truth)
        self.temperatures.add(answer.get("temperature"))
        self.methods.add(answer.get("method", "reported"))


def raw_probabilities(question: Question, answer: Mapping[str, Any]) -> Sequence[float]:
    """What the model said, in the order of the question: options, levels, or yes and no."""
    given = answer["raw"] if "raw" in answer else answer.get("probabilities", answer.get("noul"))
    if isinstance(question, Noul):
        return given, 1.0 - given
    return [given[name] for name in question.names] if isinstance(question, Choice) else given


def chosen(question: Question, answer: Mapping[str, Any], row: Sequence[float]) -> int:
    """The place of what was answered. Of options that are as probable, within rounding, the model says which."""
    if isinstance(question, Choice):
        return question.names.index(answer["choice"])
    return max(range(len(row)), key=lambda place: row[place])


def evaluate(
    answered: Mapping[tuple[str, str, Question], Answers], *, precision: float, fit: bool = False
) -> tuple[QuestionReport, ...]:
    """One report for each (question's id, model, question) that has answers: a reworded question is another one."""
    return tuple(
        _report(name, model, answers, precision=precision, fit=fit)
        for (name, model, _), answers in answered.items()
        if answers.rows
    )


def _report(name: str, model: str, answers: Answers, *, precision: float, fit: bool) -> QuestionReport:
    kind, truths = answers.question.type, np.asarray(answers.truths, dtype=np.int64)
    said, best = np.asarray(answers.rows, dtype=np.float64), np.asarray(answers.chosen, dtype=np.int64)
    rows = said / np.maximum(said.sum(axis=1, keepdims=True), 1e-12)  # hosted values are rounded

    def figures(sure: Floats, losing: Floats) -> Figures:
        return _figures(*sureness(kind, sure, truths, best), log_loss(losing, truths), precision)

    notes = [f"{len(truths)} examples are few: every figure is rough"] if len(truths) < FEWEST else []
    if answers.methods - {"reported", "logprobs"}:
        notes.append("its probabilities are stated by a chat model, not measured")
    applied = next(iter(answers.temperatures)) if len(answers.temperatures) == 1 else None
    if len(answers.temperatures) > 1:
        notes.append("answers were given at several temperatures: the figures are of what the model said")
    raw = figures(said, rows)  # what is compared with a threshold is what was said, not what it adds up to
    temperature, fitted = None, None
    if fit and len(truths) < FEWEST:
        notes.append(f"no temperature was fitted: that takes {FEWEST} examples")
    elif fit:
        temperature = fit_temperature(rows, truths)
        if at_its_end(temperature):
            notes.append(f"no temperature was fitted: {_ENDLESS[temperature < 1]}")
            temperature = None
        else:
            judged = cross_fitted(rows, truths)
            fitted = figures(judged, judged)
            if fitted.log_loss > raw.log_loss:
                notes.append("its temperature makes the log-loss worse on examples that it was not fitted on")
    applied_rows = None if applied is None else at_temperature(rows, applied)
    return QuestionReport(
        name=name,
        kind=kind,
        question=answers.question,
        model=model,
        wire_model_id=answers.wire_model_id,
        examples=len(truths),
        accuracy=accuracy(best, truths),
        majority=majority(truths),
        raw=raw,
        applied_temperature=applied,
        applied=None if applied_rows is None else figures(applied_rows, applied_rows),
        temperature=temperature,
        fitted=fitted,
        notes=tuple(notes),
    )


def _figures(sure: Floats, right: Truths, loss: float, precision: float) -> Figures:
    bins = reliability(sure, right)
    return Figures(
        log_loss=loss,
        calibration_error=calibration_error(bins),
        bins=bins,
        threshold=threshold(sure, right, precision),
    )


def calibration_of(reports: Sequence[QuestionReport], known: Calibration, today: date) -> Calibration:
    """What was known, with what has been fitted now. ConfigurationError where nothing was."""
    fitted = [
        FittedTemperature(
            model=report.model,
            wire_model_id=report.wire_model_id,
            question=report.name,
            fingerprint=fingerprint(report.question),
            temperature=report.temperature,
            examples=report.examples,
            log_loss=report.raw.log_loss,
            fitted_log_loss=report.fitted.log_loss,
            fitted_at=today.isoformat(),
        )
        for report in reports
        if report.temperature is not None and report.fitted is not None
    ]
    if not fitted:
        raise ConfigurationError(
            f"nothing was fitted: a question needs {FEWEST} examples with an answer, some of them right and some wrong"
        )
    return known.plus(fitted)


def fitted_and_kept(reports: Sequence[QuestionReport], known: Calibration) -> tuple[list[str], list[str]]:
    """The questions with a temperature that was fitted now, and those that keep the one they have: what was asked
    anew gave them none."""
    before = known.temperatures
    fitted = [report.name for report in reports if report.temperature is not None]
    kept = [
        f"{report.name} (T = {before[key]:g})"
        for report in reports
        if report.temperature is None
        and (key := (report.model, report.wire_model_id, fingerprint(report.question))) in before
    ]
    return fitted, kept
