"""The reliability diagrams as a PNG. Needs matplotlib (the `plot` extra)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from interlock.errors import ConfigurationError

from ..plan.picture import GREEN, GREY, INK, RED
from ..printable import cell
from .evaluation import QuestionReport
from .report import sides

_COLUMNS = 3


def draw(reports: Sequence[QuestionReport], file: Path) -> None:
    """Write it. Raises ConfigurationError where matplotlib is not installed or the file cannot be written."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ModuleNotFoundError:
        raise ConfigurationError("--plot needs matplotlib: pip install 'interlock[plot]'") from None
    columns = min(len(reports), _COLUMNS)
    rows = -(-len(reports) // columns)
    figure = Figure(figsize=(4.2 * columns, 4.4 * rows), layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    panels = figure.subplots(rows, columns, squeeze=False).flatten()
    for axes, report in zip(panels, reports, strict=False):
        axes.plot((0, 1), (0, 1), color=GREY, linewidth=1, linestyle="--")
        for colour, (name, figures) in zip((RED, INK, GREEN), sides(report), strict=False):
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
        axes.set_xlabel("probability of yes" if report.kind == "noul" else "probability of the answer", fontsize=8)
        axes.set_ylabel("how often it was yes" if report.kind == "noul" else "how often it was right", fontsize=8)
        axes.set_xlim(0, 1)
        axes.set_ylim(-0.02, 1.02)
        axes.tick_params(labelsize=8)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(loc="upper left", fontsize=8, frameon=False)
    for axes in panels[len(reports) :]:
        axes.set_axis_off()
    try:
        figure.savefig(file, dpi=110, format=file.suffix[1:] or "png")
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"{file} cannot be written: {error}") from None
