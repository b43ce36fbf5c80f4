"""The levels over the time of the forecast, as a PNG. Needs matplotlib (the `plot` extra)."""

from __future__ import annotations

import textwrap
from pathlib import Path

from interlock.errors import ConfigurationError

from .forecast import Forecast
from .report import answer
from .series import scale, series, subtitle, times

GREEN, RED, GREY, INK = "#1b7f4d", "#c0392b", "#8a8f98", "#24292f"


def draw(forecast: Forecast, file: Path) -> None:
    """Write it. Raises ConfigurationError where matplotlib is not installed or the file cannot be written."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
        from matplotlib.ticker import FuncFormatter
    except ModuleNotFoundError:
        raise ConfigurationError("--plot needs matplotlib: pip install 'interlock[plot]'") from None
    shown = list(series(forecast))
    unit_s, unit = scale(forecast)
    at = [each / unit_s for each in times(forecast)]
    figure = Figure(figsize=(10, 1.4 + 2.0 * len(shown)), layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    figure.suptitle("\n".join(textwrap.wrap(answer(forecast), 105)), fontsize=11, color=INK, x=0.01, ha="left")
    panels = figure.subplots(len(shown), 1, sharex=True, squeeze=False)[:, 0]
    for axes, each in zip(panels, shown, strict=True):
        colour = RED if each.binding else GREEN if each.capacity is not None else GREY
        axes.plot(at, each.values, color=colour, linewidth=1.2, label=each.unit)
        axes.fill_between(at, each.values, 0, color=colour, alpha=0.15, linewidth=0)
        if each.capacity is not None:
            axes.axhline(each.capacity, color=INK, linewidth=0.9, linestyle="--", label="most it can hold")
            axes.set_ylim(min(0.0, *each.values) * 1.05, each.capacity * 1.35)
        else:
            axes.set_ylim(0, max(*each.values, 1.0) * 1.35)
        axes.set_title(each.title, fontsize=9, loc="left", color=INK, parse_math=False)
        axes.set_ylabel(each.unit, fontsize=8)
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.6g}"))
        axes.tick_params(labelsize=8)
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="y", color=GREY, alpha=0.2, linewidth=0.6)
        axes.legend(loc="upper right", fontsize=8, frameon=False, ncols=2)
        axes.margins(x=0)
    panels[-1].set_xlabel(f"{unit} from the beginning. {subtitle(forecast)}.", fontsize=8)
    try:
        figure.savefig(file, dpi=120, format=file.suffix[1:] or "png")
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"{file} cannot be written: {error}") from None
