"""The reliability diagrams as one HTML page that needs nothing else. Needs plotly (the `plot` extra)."""

from __future__ import annotations

import html
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from interlock.errors import ConfigurationError

from ..plan.page import CONFIG
from ..plan.picture import GREEN, GREY, INK, RED
from .evaluation import QuestionReport
from .report import sides

PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>interlock decisions eval</title>
<style>
body {{ font: 15px/1.5 system-ui, sans-serif; color: {ink}; max-width: 1100px; margin: 2rem auto; padding: 0 1rem; }}
table {{ border-collapse: collapse; }}
th, td {{ text-align: right; padding: .25rem .9rem .25rem 0; border-bottom: 1px solid #e3e5e8; font-weight: normal; }}
th:first-child, td:first-child {{ text-align: left; }}
</style>
<script>{library}</script>
</head>
<body>
<h1>Answers against labels</h1>
{table}
{figures}
</body>
</html>
"""

_HEAD = ("question", "probabilities", "examples", "accuracy", "log-loss", "calibration error")


def write_page(reports: Sequence[QuestionReport], file: Path) -> None:
    """Write it. Raises ConfigurationError where plotly is not installed or the file cannot be written."""
    try:
        from plotly.offline import get_plotlyjs  # type: ignore[import-untyped]
    except ModuleNotFoundError:
        raise ConfigurationError("--html needs plotly: pip install 'interlock[plot]'") from None
    figures = [_figure(report).to_html(full_html=False, include_plotlyjs=False, config=CONFIG) for report in reports]
    text = PAGE.format(ink=INK, library=get_plotlyjs(), table=_table(reports), figures="\n".join(figures))
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigurationError(f"{file} cannot be written: {error.strerror or error}") from None


def _figure(report: QuestionReport) -> Any:
    from plotly.graph_objects import Figure, Scatter  # type: ignore[import-untyped]

    figure = Figure()
    figure.add_trace(
        Scatter(x=[0, 1], y=[0, 1], mode="lines", line={"color": GREY, "dash": "dash"}, name="as sure as right")
    )
    for colour, (name, figures) in zip((RED, INK, GREEN), sides(report), strict=False):
        figure.add_trace(
            Scatter(
                x=[each.said for each in figures.bins],
                y=[each.was for each in figures.bins],
                mode="lines+markers",
                marker={"size": [8 + 30 * each.count / report.examples for each in figures.bins], "color": colour},
                line={"color": colour, "width": 1.5},
                customdata=[each.count for each in figures.bins],
                hovertemplate="said %{x:.2f}, was %{y:.2f} (%{customdata:,} answers)<extra></extra>",
                name=html.escape(name),
            )
        )
    sure, was = (
        ("probability of yes", "was yes") if report.kind == "noul" else ("probability of the answer", "was right")
    )
    figure.update_layout(
        title=html.escape(f"{report.name} ({report.model})"), height=480, width=620, template="plotly_white",
        xaxis={"title": sure, "range": [0, 1]}, yaxis={"title": was, "range": [-0.02, 1.02]},
    )  # fmt: skip
    return figure


def _table(reports: Sequence[QuestionReport]) -> str:
    rows = [
        (
            report.name, name, f"{report.examples:,}", f"{report.accuracy:.1%}", f"{figures.log_loss:.3f}",
            f"{figures.calibration_error:.3f}",
        )
        for report in reports
        for name, figures in sides(report)
    ]  # fmt: skip
    head = "".join(f"<th>{name}</th>" for name in _HEAD)
    body = "".join("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><tr>{head}</tr>{body}</table>"
