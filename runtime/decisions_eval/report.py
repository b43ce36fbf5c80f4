"""The figures as tables and as JSON."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from ..printable import cell
from .evaluation import Figures, QuestionReport

_BAR = 20


def as_json(reports: Sequence[QuestionReport], *, precision: float) -> dict[str, Any]:
    """Plain values under stable names."""
    return {"precision": precision, "questions": [_plain(report) for report in reports]}


def _plain(report: QuestionReport) -> dict[str, Any]:
    told = {
        "question": report.name,
        "kind": report.kind,
        "model": report.model,
        "examples": report.examples,
        "accuracy": report.accuracy,
        "majority": report.majority,
        "raw": asdict(report.raw),
    }
    if report.applied is not None:
        told["applied"] = {"temperature": report.applied_temperature, **asdict(report.applied)}
    if report.fitted is not None:
        told["fitted"] = {"temperature": report.temperature, **asdict(report.fitted)}
    return {**told, "notes": list(report.notes)}


def render(reports: Sequence[QuestionReport], *, precision: float) -> Group:
    """Everything: one row a question and what was measured of it, then how sure it was and how often right."""
    parts: list[Any] = [_summary(reports, precision)]
    for report in reports:
        parts += [Text(), _bins(report)]
    notes = [cell(f"{report.name}: {note}.") for report in reports for note in report.notes]
    return Group(*parts, *([Text(), *notes] if notes else []))


def sides(report: QuestionReport) -> Iterator[tuple[str, Figures]]:
    """What was measured of a question, by what it is called."""
    yield "as the model says", report.raw
    if report.applied is not None:
        yield f"applied, T = {report.applied_temperature:g}", report.applied
    if report.fitted is not None:
        yield f"fitted, T = {report.temperature:g}", report.fitted


def _summary(reports: Sequence[QuestionReport], precision: float) -> Table:
    table = Table(title="Answers against labels", title_justify="left", title_style="bold")
    table.add_column("question")
    table.add_column("probabilities")
    for name in ("examples", "accuracy", "always the same", "log-loss", "calibration error"):
        table.add_column(name, justify="right")
    table.add_column(f"right {precision * 100:g}% of the time", justify="right")
    table.add_column("of the answers", justify="right")
    for report in reports:
        for place, (name, figures) in enumerate(sides(report)):
            head = (report.name, f"{report.examples:,}", f"{report.accuracy:.1%}", f"{report.majority:.1%}")
            first, examples, right, same = head if place == 0 else ("", "", "", "")
            losses = (f"{figures.log_loss:.3f}", f"{figures.calibration_error:.3f}")
            table.add_row(cell(first), name, examples, right, same, *losses, *_threshold(figures))
    return table


def _threshold(figures: Figures) -> tuple[str, str]:
    found = figures.threshold
    if found is None:
        return "never", ""
    return f"from {_from(found.value)}", f"{found.covered:.0%}" if found.covered >= 0.01 else "under 1%"


def _from(value: float) -> str:
    """Never more than the value itself, or the answers that are just as sure would be left out; and hardly less."""
    digits = f"{math.floor(value * 10_000 + 1e-6) / 10_000:.4f}".rstrip("0")
    return digits.ljust(4, "0")


def _bins(report: QuestionReport) -> Table:
    """How sure, how many, and how often right. The bar is how often; the mark is how sure."""
    sure = "probability of yes" if report.kind == "noul" else "probability of the answer"
    was = "was yes" if report.kind == "noul" else "was right"
    table = Table(title=cell(f"{report.name}: {list(sides(report))[-1][0]}"), title_justify="left", title_style="bold")
    table.add_column(sure)
    for name in ("answers", "said", was):
        table.add_column(name, justify="right")
    table.add_column("")
    for each in report.best.bins:
        bar = list(("#" * round(each.was * _BAR)).ljust(_BAR))
        bar[min(round(each.said * _BAR), _BAR - 1)] = "|"
        table.add_row(
            f"{each.low:.1f} to {each.high:.1f}", f"{each.count:,}", f"{each.said:.2f}", f"{each.was:.2f}", "".join(bar)
        )
    return table
