"""The pictures: goodput beside refusals in every row, and what was served over the time of the step."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .contenders import CONTENDERS
from .figures import Result, figures, served_rate
from .rows import ROWS

GREEN, GREY, RED = "#1b7f4d", "#b4b9c1", "#c0392b"
_EVERY_S = 5.0


def draw(results: Sequence[Result], folder: Path) -> None:
    import matplotlib as mpl

    mpl.use("agg")
    folder.mkdir(parents=True, exist_ok=True)
    if results:
        _save(_bars(results), folder / "peers.png")
    step = [one for one in results if one.row.name == "step"]
    if step:
        _save(_lines(step), folder / "peers-step.png")


def _save(figure: Any, file: Path) -> None:
    figure.savefig(file, dpi=110)


def _ordered(results: Sequence[Result]) -> list[Result]:
    order = list(CONTENDERS)
    return sorted(results, key=lambda one: order.index(one.contender))


def _bars(results: Sequence[Result]) -> Any:
    """A panel a row: goodput as a bar, the share of requests refused with a 429 as a red one below it."""
    from matplotlib import pyplot

    rows = [name for name in ROWS if any(one.row.name == name for one in results)]
    across = min(3, len(rows))
    down = -(-len(rows) // across)
    figure, panels = pyplot.subplots(
        down, across, figsize=(4.2 * across, 3.3 * down), squeeze=False, sharey=True, layout="constrained"
    )
    for panel in panels.flat[len(rows) :]:
        panel.set_visible(False)
    names = [one for one in CONTENDERS if any(result.contender == one for result in results)]
    for name, panel in zip(rows, panels.flat, strict=False):
        _panel(panel, names, [one for one in results if one.row.name == name], ROWS[name].title)
    for panel in panels[:, 0]:
        panel.set_yticks(range(len(names)), [CONTENDERS[one].title for one in names])
    panels[0, 0].invert_yaxis()  # they share it
    figure.suptitle("goodput (1 is all the provider could serve); red: the share of requests refused with a 429")
    return figure


def _panel(panel: Any, names: Sequence[str], results: Sequence[Result], title: str) -> None:
    places = [names.index(one.contender) for one in results]
    found = [figures(result) for result in results]
    colours = [GREEN if one.contender == "interlock" else GREY for one in results]
    panel.barh(places, [one.goodput for one in found], height=0.5, color=colours)
    panel.barh([place + 0.36 for place in places], [one.refused_share for one in found], height=0.2, color=RED)
    panel.axvline(1.0, color="black", linewidth=0.7, linestyle="--")
    panel.set_xlim(0, 1.2)
    panel.set_title(title, fontsize=9)
    panel.spines[["top", "right"]].set_visible(False)


def _lines(results: Sequence[Result]) -> Any:
    from matplotlib import pyplot

    figure, panel = pyplot.subplots(figsize=(9, 4.2), layout="constrained")
    for result in reversed(_ordered(results)):
        ours = result.contender == "interlock"
        rates = served_rate(result, _EVERY_S)
        times = [(place + 0.5) * _EVERY_S for place in range(len(rates))]
        style: dict[str, Any] = {"color": GREEN, "linewidth": 2.2} if ours else {"linewidth": 0.9, "alpha": 0.8}
        panel.plot(times, rates, label=CONTENDERS[result.contender].title, **style)
    row = results[0].row
    edges = [*(from_s for from_s, _ in row.shares), row.until_s]
    rates = [rate for _, rate in row.rates()]
    panel.stairs(rates, edges, color="black", linewidth=1, linestyle="--", label="what the provider serves")
    panel.set_ylim(0, max(rates) * 2)
    panel.set_xlabel("seconds")
    panel.set_ylabel("tokens served a second")
    panel.legend(frameon=False, fontsize=8, ncols=2, loc="upper right")
    panel.spines[["top", "right"]].set_visible(False)
    return figure
