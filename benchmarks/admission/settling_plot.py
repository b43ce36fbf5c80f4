"""The rate over time of some rows, as PNG: `python -m benchmarks.admission.settling --plot FOLDER`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from .served import Trace, run
from .settling import CHANGE_S, ROWS, Row

GREY, BLUE, RED = "#888888", "#1f5fa8", "#c0392b"


def _rate(trace: Trace, row: Row, until_s: float, window_s: float = 10.0) -> list[float]:
    """What was served in each window, as a share of what is published."""
    served = [0.0] * int(until_s / window_s)
    for at_s, tokens in trace.served:
        if at_s < until_s:
            served[int(at_s / window_s)] += tokens
    return [tokens / window_s / row.work.rate for tokens in served]


def _draw(axes: Any, row: Row, from_s: float, until_s: float) -> None:
    trace = run(row.manner, row.work, seed=3, until_s=until_s, sampled=True)
    at_s = [at for at, _, _ in trace.rates if at >= from_s]
    axes.plot(at_s, [rate for at, rate, _ in trace.rates if at >= from_s], color=BLUE, lw=1.2, label="the pool's rate")
    shares = [*row.manner.shares, (until_s, row.manner.shares[-1][1])]
    axes.step([max(at, from_s) for at, _ in shares], [share for _, share in shares], where="post", color=GREY, ls="--",
              label="served by the provider")  # fmt: skip
    served = [(i * 10.0 + 5, share) for i, share in enumerate(_rate(trace, row, until_s)) if i * 10 >= from_s]
    axes.plot(*zip(*served, strict=True), ".", ms=3, color="black", alpha=0.5, label="tokens served, by 10 s")
    refused = [at for at in trace.refused if at >= from_s]
    axes.plot(refused, [0.02] * len(refused), "|", ms=9, color=RED, label=f"refused ({len(refused)})")
    axes.set(xlim=(from_s, until_s), ylim=(0, 1.35), title=row.name, ylabel="share of the published rate")
    axes.legend(loc="upper right", fontsize=7, ncols=2, frameon=False)


def draw(folder: Path) -> None:
    """`throttle-30.png`: half an hour at 30%. `throttle-step.png`: from 30% to 100%. `throttle-storm.png`: 529s."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    folder.mkdir(parents=True, exist_ok=True)
    by_name = {row.name: row for row in ROWS}
    pictures = {
        "throttle-30": (("30%, 500 callers", 0.0, 900.0), ("low volume, 30%", 0.0, 3_600.0)),
        "throttle-step": (
            ("step 30% to 100%, 500 callers", CHANGE_S - 200, CHANGE_S + 200),
            ("step 30% to 100%, 50 callers", CHANGE_S - 200, CHANGE_S + 200),
        ),
        "throttle-storm": (("529 storm, 500 callers", CHANGE_S - 200, CHANGE_S + 200),),
    }
    for name, parts in pictures.items():
        figure, axes = pyplot.subplots(len(parts), 1, figsize=(8, 3.1 * len(parts)), squeeze=False)
        for axis, (row, from_s, until_s) in zip(axes[:, 0], parts, strict=True):
            _draw(axis, by_name[row], from_s, until_s)
        axes[-1, 0].set_xlabel("seconds")
        figure.tight_layout()
        figure.savefig(folder / f"{name}.png", dpi=110)
        pyplot.close(figure)
