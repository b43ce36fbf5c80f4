"""The demo's figures as a table, and the picture in the documentation.

`python -m benchmarks.demo` runs the demo and prints its figures beside what is promised; `--picture FILE` draws what
the provider served and which connections were held over the time of the run (needs matplotlib).
"""

from __future__ import annotations

import argparse
import asyncio
from collections import Counter
from collections.abc import Callable
from itertools import accumulate
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from interlock.runtime.demo.figures import DemoReport, Side
from interlock.runtime.demo.main import DemoOptions, run_demo
from interlock.runtime.demo.provider import LIMITS

GREEN, GREY, RED = "#1b7f4d", "#8a8f98", "#c0392b"


def table(report: DemoReport) -> Table:
    side, other = report.interlock, report.baseline
    assert other is not None
    shown = Table(title="The demo", title_justify="left")
    for name in ("figure", "Interlock", "the usual way", "promised"):
        shown.add_column(name, justify="left" if name == "figure" else "right")
    ratio = side.db_connection_s / side.db_work_s
    shown.add_row("refused with a 429", str(side.rate_limited), str(other.rate_limited), "0")
    shown.add_row("goodput after the burst", _share(side), _share(other), ">= 97%")
    shown.add_row("connection seconds / the work's own", f"{ratio:.2f}", f"{_ratio(other):.1f}", "<= 1.10")
    shown.add_row("wall time, s", f"{side.wall_s:.1f}", f"{other.wall_s:.1f}", "together < 90")
    return shown


def _share(side: Side) -> str:
    return "-" if side.goodput is None else f"{side.goodput:.1%}"


def _ratio(side: Side) -> float:
    return side.db_connection_s / side.db_work_s


def per_second(side: Side, counts: Callable[[Any], float]) -> list[float]:
    """Sums over each second from the first request on."""
    first_s = min(seen.at_s for seen in side.log)
    seconds: Counter[int] = Counter()
    for seen in side.log:
        seconds[int(seen.at_s - first_s)] += counts(seen)  # type: ignore[assignment]
    return [seconds[second] for second in range(max(seconds) + 1)]


def connections(side: Side) -> tuple[list[float], list[int]]:
    """How many connections were held, at each instant that changed it."""
    first_s = min(seen.at_s for seen in side.log)
    changes = sorted(
        [(since - first_s, 1) for since, _ in side.holds] + [(until - first_s, -1) for _, until in side.holds]
    )
    return [at_s for at_s, _ in changes], list(accumulate(change for _, change in changes))


def draw(report: DemoReport, file: Path) -> None:
    import matplotlib as mpl

    mpl.use("agg")
    from matplotlib import pyplot

    assert report.baseline is not None
    figure, (served, refused, held) = pyplot.subplots(3, 1, figsize=(9, 8), sharex=True, layout="constrained")
    for side, name, colour in ((report.baseline, "the usual way", GREY), (report.interlock, "Interlock", GREEN)):
        tokens = per_second(side, lambda seen: seen.input_tokens if seen.status == 200 else 0)
        served.step(range(len(tokens)), tokens, where="post", color=colour, label=name)
        refusals = per_second(side, lambda seen: seen.status == 429)
        refused.step(range(len(refusals)), refusals, where="post", color=colour, label=name)
        held.step(*connections(side), where="post", color=colour, label=name, linewidth=0.8)
    assert LIMITS.input_tpm is not None
    served.axhline(LIMITS.input_tpm / 60, color=RED, linewidth=1, linestyle="--", label="the provider's limit")
    served.set_ylim(0, LIMITS.input_tpm / 60 * 2)
    served.set_ylabel("input tokens served\na second")
    refused.set_ylabel("refused with a 429\na second")
    held.set_ylabel("database connections\nheld")
    held.set_xlabel("seconds since the first request")
    served.legend(loc="upper right", frameon=False)
    for axes in (served, refused, held):
        axes.spines[["top", "right"]].set_visible(False)
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description="Run the demo and print its figures.")
    parser.add_argument("--picture", type=Path, help="draw the run into this file")
    parser.add_argument("--entries", type=int, default=DemoOptions.entries)
    chosen = parser.parse_args()
    report = asyncio.run(run_demo(DemoOptions(entries=chosen.entries), Console(stderr=True, quiet=True)))
    Console().print(table(report))
    if chosen.picture is not None:
        draw(report, chosen.picture)


if __name__ == "__main__":
    main()
