"""The picture: reservations a second, on a scale of powers of ten."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from .race import Seen


def draw(seen: Sequence[Seen], path: Path) -> None:
    """Bars for the rows with 64 callers."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    rows = [one for one in seen if one.row.processes == 4][::-1]
    figure, axes = plt.subplots(figsize=(8, 0.5 * len(rows) + 1.4), layout="constrained")
    colours = ["#1f6f8b" if one.row.way == "ours" else "#b8b8b8" for one in rows]
    bars = axes.barh([one.row.title for one in rows], [one.per_s for one in rows], color=colours)
    axes.bar_label(bars, labels=[f" {one.per_s:,.0f}" for one in rows])
    axes.set_xscale("log")
    axes.set_xlim(10, 10 * max(one.per_s for one in rows))
    axes.set_xlabel("reservations a second, 64 callers in 4 processes on one pool")
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=110)
    plt.close(figure)
