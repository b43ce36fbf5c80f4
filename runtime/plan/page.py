"""The levels over the time of the forecast as one HTML page that needs nothing else. Needs plotly (extra `plot`)."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from interlock.errors import ConfigurationError

from .forecast import Forecast
from .picture import GREEN, GREY, INK, RED
from .report import LIMITS, MODELS, answer, limit_rows, model_rows, problems, scope
from .series import scale, series, subtitle, times

PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>interlock plan</title>
<style>
body {{ font: 15px/1.5 system-ui, sans-serif; color: {ink}; max-width: 1100px; margin: 2rem auto; padding: 0 1rem; }}
h1 {{ font-size: 1.25rem; line-height: 1.4; }}
table {{ border-collapse: collapse; margin: 1rem 0; }}
th, td {{ text-align: right; padding: .25rem .9rem .25rem 0; border-bottom: 1px solid #e3e5e8; font-weight: normal; }}
th {{ color: #59636e; }}
th:first-child, td:first-child {{ text-align: left; }}
.problem {{ color: {red}; }}
.note, footer {{ color: #59636e; font-size: .9rem; }}
</style>
<script>{library}</script>
</head>
<body>
<h1>{answer}</h1>
{problems}
{figure}
{limits}
{models}
<footer><p>{scope}</p><ul class="note">{notes}</ul></footer>
</body>
</html>
"""


#: What may be done with the picture: look closer, move, go back, keep it as an image. Nothing is sent anywhere.
CONFIG = {"displaylogo": False, "modeBarButtons": [["zoom2d", "pan2d", "resetScale2d", "toImage"]]}


def write_page(forecast: Forecast, file: Path) -> None:
    """Write it. Raises ConfigurationError where plotly is not installed or the file cannot be written."""
    try:
        from plotly.offline import get_plotlyjs  # type: ignore[import-untyped]
    except ModuleNotFoundError:
        raise ConfigurationError("--html needs plotly: pip install 'interlock[plot]'") from None
    text = PAGE.format(
        ink=INK,
        red=RED,
        library=get_plotlyjs(),
        answer=html.escape(answer(forecast)),
        problems="".join(f'<p class="problem">{html.escape(each)}</p>' for each in problems(forecast)),
        figure=_figure(forecast).to_html(full_html=False, include_plotlyjs=False, config=CONFIG),
        limits=_table(LIMITS, limit_rows(forecast)),
        models=_table(MODELS, model_rows(forecast)),
        scope=html.escape(f"{scope(forecast)} {subtitle(forecast)} is drawn."),
        notes="".join(f"<li>{html.escape(note)}</li>" for note in forecast.notes),
    )
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigurationError(f"{file} cannot be written: {error.strerror or error}") from None


def _figure(forecast: Forecast) -> Any:
    from plotly.graph_objects import Scatter  # type: ignore[import-untyped]
    from plotly.subplots import make_subplots  # type: ignore[import-untyped]

    shown = list(series(forecast))
    unit_s, unit = scale(forecast)
    at = [each / unit_s for each in times(forecast)]
    titles = [html.escape(each.title) for each in shown]
    figure = make_subplots(rows=len(shown), cols=1, shared_xaxes=True, subplot_titles=titles, vertical_spacing=0.09)
    for row, each in enumerate(shown, start=1):
        colour = RED if each.binding else GREEN if each.capacity is not None else GREY
        figure.add_trace(
            Scatter(
                x=at,
                y=each.values,
                mode="lines",
                line={"color": colour, "width": 1.5},
                fill="tozeroy",
                fillcolor=_light(colour),
                name=each.unit,
                hovertemplate=f"%{{y:,.0f}} {each.unit}<extra></extra>",
                showlegend=False,
            ),
            row=row,
            col=1,
        )
        if each.capacity is not None:
            figure.add_trace(
                Scatter(
                    x=[at[0], at[-1]],
                    y=[each.capacity, each.capacity],
                    mode="lines",
                    line={"color": INK, "width": 1, "dash": "dash"},
                    name="most it can hold",
                    hoverinfo="skip",
                    showlegend=row == 1,
                ),
                row=row,
                col=1,
            )
        figure.update_yaxes(title_text=each.unit, title_font_size=12, row=row, col=1, tickformat=",")
    figure.update_xaxes(title_text=f"{unit} from the beginning", row=len(shown), col=1)
    figure.update_annotations(x=0, xanchor="left", font_size=13)
    figure.update_layout(
        height=120 + 210 * len(shown),
        template="plotly_white",
        hovermode="x unified",
        margin={"l": 70, "r": 20, "t": 60, "b": 50},
        legend={"orientation": "h", "x": 1, "xanchor": "right", "y": 1.02, "yanchor": "bottom"},
    )
    return figure


def _light(colour: str) -> str:
    red, green, blue = (int(colour[place : place + 2], 16) for place in (1, 3, 5))
    return f"rgba({red}, {green}, {blue}, 0.15)"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    names = "".join(f"<th>{html.escape(name)}</th>" for name in head)
    body = "".join("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><tr>{names}</tr>{body}</table>"
