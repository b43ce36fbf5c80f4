"""The reliability diagrams as a PNG, how many answers there are below each. Needs matplotlib (the `plot` extra)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from interlock.errors import ConfigurationError

from ..plan.picture import GREEN, GREY, INK, RED
from ..printable import cell
from .evaluation import QuestionReport
from .metrics import BINS
from .report import sides

_COLUMNS = 3
_COLOURS = (RED, INK, GREEN)


def draw(reports: Sequence[QuestionReport], file: Path) -> None:
    """Write it. Raises ConfigurationError where matplotlib is not installed or the file cannot be written."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ModuleNotFoundError:
        raise ConfigurationError("--plot needs matplotlib: pip install 'interlock[plot]'") from None
    columns = min(len(reports), _COLUMNS)
    rows = -(-len(reports) // columns)
    figure = Figure(figsize=(4.2 * columns, 5.4 * rows), layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    panels = figure.subplots(2 * rows, columns, squeeze=False, height_ratios=(3, 1) * rows)
    for place in range(rows * columns):
        row, column = divmod(place, columns)
        above, below = panels[2 * row, column], panels[2 * row + 1, column]
        if place < len(reports):
            _diagram(above, reports[place])
            _counts(below, reports[place])
        else:
            above.set_axis_off()
            below.set_axis_off()
    try:
        figure.savefig(file, dpi=110, format=file.suffix[1:] or "png")
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"{file} cannot be written: {error}") from None


def _diagram(axes: Any, report: QuestionReport) -> None:
    """How often right over how sure; a point's size is its share of the answers."""
    axes.plot((0, 1), (0, 1), color=GREY, linewidth=1, linestyle="--")
    for colour, (name, figures) in zip(_COLOURS, sides(report), strict=False):
        said, was = [each.said for each in figures.bins], [each.was for each in figures.bins]
        sizes = [20 + 380 * each.count / report.examples for each in figures.bins]
        axes.plot(said, was, color=colour, linewidth=1.2, label=f"{name}: error {figures.calibration_error:.3f}")
        axes.scatter(said, was, s=sizes, color=colour, alpha=0.35, linewidths=0)
    axes.set_title(
        f"{cell(report.name).plain} ({report.model}): {report.accuracy:.0%} of {report.examples:,} right",
        fontsize=9,
        loc="left",
        parse_math=False,  # a name is no formula
    )
    axes.set_ylabel("how often it was yes" if report.kind == "noul" else "how often it was right", fontsize=8)
    axes.set_ylim(-0.02, 1.02)
    _plain(axes)
    axes.legend(loc="best", fontsize=7, framealpha=0.8, edgecolor="none")


def _counts(axes: Any, report: QuestionReport) -> None:
    """How many answers were how sure. The figures are those of the last side, which is in force."""
    shown = list(zip(_COLOURS, sides(report), strict=False))
    width = 0.8 / BINS / len(shown)
    for at, (colour, (_, figures)) in enumerate(shown):
        lefts = [each.low + 0.1 / BINS + at * width for each in figures.bins]
        bars = axes.bar(lefts, [each.count for each in figures.bins], width, align="edge", color=colour, alpha=0.6)
        if at == len(shown) - 1:
            axes.bar_label(bars, fontsize=6, fmt="{:,.0f}")
    axes.set_xlabel("probability of yes" if report.kind == "noul" else "probability of the answer", fontsize=8)
    axes.set_ylabel("answers", fontsize=8)
    axes.margins(y=0.2)
    _plain(axes)


def _plain(axes: Any) -> None:
    axes.set_xlim(0, 1)
    axes.tick_params(labelsize=8)
    axes.spines[["top", "right"]].set_visible(False)
