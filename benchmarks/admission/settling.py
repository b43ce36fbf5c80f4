"""Whether the throttle settles: goodput and refusals against providers that serve less than they publish.

`python -m benchmarks.admission.settling` simulates an hour of a busy pool, 20 seeds a row, through the whole admission
shell on virtual time, and prints the table. `--quick` takes 10 minutes and 3 seeds; `--plot FOLDER` draws the rate over
time; `--rows TEXT` keeps the rows with that text in their name.

goodput
    Tokens served over tokens that could have been: from minute 2 on (after the burst); or, where something changes, in
    the minute that begins 60 s after it (`at 60 s`).
refused
    Calls answered 429 over all calls that arrived, the first minutes included.
large wait
    The longest wait of a large call over what the same call would have waited in a fluid fair queue over the same
    arrivals, at the rate really served (from minute 2 on).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from math import inf
from pathlib import Path
from statistics import mean

from .fluid import Arrival, fluid_finishes
from .served import Manner, Shares, Trace, Work, run

HOUR_S, SEEDS, WARM_S = 3_600.0, 20, 120.0
CHANGE_S = 1_800.0  # where a row changes in the middle

BUSY = Work(callers=500, rate=30_000.0, tokens=(200, 1_800), large=0.002, large_tokens=180_000)
FIFTY = Work()
LOW = Work(callers=10, rate=1_500.0, tokens=(200, 1_000), large=0.005, large_tokens=9_000)
OUTPUT = Work(callers=50, rate=300.0, tokens=(500, 4_000), large=0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of the table. `changes_s`: the instant after which it is measured, None for the steady state."""

    name: str
    manner: Manner
    work: Work = FIFTY
    changes_s: float | None = None
    goodput: float = 0.0
    refused: float = 1.0


def _serves(share: float, **more: object) -> Manner:
    return Manner(shares=((0.0, share),), **more)  # type: ignore[arg-type]


STEP = Manner(shares=((0.0, 0.3), (CHANGE_S, 1.0)))
STORM = Manner(overloaded=0.05, storm_s=(CHANGE_S - 60, CHANGE_S))

ROWS = (
    Row(name="100%, 50 callers", manner=_serves(1.0), goodput=0.99, refused=0.0),
    Row(name="60%, 50 callers", manner=_serves(0.6), goodput=0.98, refused=0.005),
    Row(name="30%, 50 callers", manner=_serves(0.3), goodput=0.98, refused=0.005),
    Row(name="100%, 500 callers", manner=_serves(1.0), work=BUSY, goodput=0.99, refused=0.0),
    Row(name="60%, 500 callers", manner=_serves(0.6), work=BUSY, goodput=0.98, refused=0.005),
    Row(name="30%, 500 callers", manner=_serves(0.3), work=BUSY, goodput=0.98, refused=0.005),
    Row(name="low volume, 30%", manner=_serves(0.3), work=LOW, goodput=0.97, refused=0.005),
    Row(name="529 storm, 50 callers", manner=STORM, changes_s=CHANGE_S, goodput=0.95),
    Row(name="529 storm, 500 callers", manner=STORM, work=BUSY, changes_s=CHANGE_S, goodput=0.95),
    Row(name="step 30% to 100%, 50 callers", manner=STEP, changes_s=CHANGE_S, goodput=0.9, refused=0.01),
    Row(name="step 30% to 100%, 500 callers", manner=STEP, work=BUSY, changes_s=CHANGE_S, goodput=0.9, refused=0.01),
    Row(name="output only, a tenth", manner=_serves(1.0, output_only=True), work=OUTPUT, goodput=0.95, refused=0.005),
    Row(name="60%, no hints", manner=_serves(0.6, hint="none"), goodput=0.98, refused=0.005),
    Row(name="30%, no hints", manner=_serves(0.3, hint="none"), goodput=0.98, refused=0.005),
    Row(name="30%, exact hints", manner=_serves(0.3, hint="exact"), goodput=0.98, refused=0.005),
    Row(name="30%, hints of 0", manner=_serves(0.3, hint="zero"), goodput=0.98, refused=0.005),
    Row(name="30%, hints too short", manner=_serves(0.3, hint="short"), goodput=0.98, refused=0.005),
    Row(name="100%, refills each second", manner=_serves(1.0, tick_s=1.0), goodput=0.98, refused=0.005),
    Row(name="30%, refills each second", manner=_serves(0.3, tick_s=1.0), goodput=0.98, refused=0.005),
    Row(name="30%, honest headers", manner=_serves(0.3, headers=True), goodput=0.98, refused=0.005),
    Row(name="30%, and of the burst", manner=_serves(0.3, small_burst=True), goodput=0.98, refused=0.005),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    goodput: float
    at_60_s: float
    refused: float
    wait_p50_s: float
    wait_p99_s: float
    large_s: float
    large_ratio: float


def could(shares: Shares, rate: float, from_s: float, to_s: float) -> float:
    """Tokens that could be served in that time."""
    total, steps = 0.0, [*shares, (inf, 0.0)]
    for (at_s, share), (until_s, _) in pairwise(steps):
        total += max(min(to_s, until_s) - max(from_s, at_s), 0.0) * share * rate
    return total


def goodput(trace: Trace, row: Row, from_s: float, to_s: float) -> float:
    served = sum(tokens for at_s, tokens in trace.served if from_s <= at_s < to_s)
    return served / could(row.manner.shares, row.work.rate, from_s, to_s)


def large_waits(trace: Trace, row: Row, from_s: float) -> list[tuple[float, float]]:
    """(waited, would have waited in the fluid queue) of each large call that came after `from_s` and went, those left
    out that the fluid would have served at once: there the provider's bucket is ahead of ours by what it has saved."""
    work, manner = row.work, row.manner
    rates = [(at_s, share * work.rate) for at_s, share in manner.shares]
    finishes = fluid_finishes(
        [Arrival(*arrival) for arrival in trace.arrivals], rates, capacity=work.rate * work.burst_s
    )
    return [
        (granted - at_s, max(finish - at_s, 0.0))
        for (at_s, _, size), granted, finish in zip(trace.arrivals, trace.granted, finishes, strict=True)
        if size == work.large_tokens and at_s >= from_s and granted < inf and finish >= at_s + 1.0
    ]


def measure(row: Row, seed: int, until_s: float) -> Figures:
    trace = run(row.manner, row.work, seed=seed, until_s=until_s)
    waits = sorted(at - arrival[0] for arrival, at in zip(trace.arrivals, trace.granted, strict=True) if at < inf)
    settled_s = WARM_S if row.changes_s is None else row.changes_s
    after = settled_s + 60
    large = large_waits(trace, row, WARM_S) if not row.manner.output_only and row.changes_s is None else []
    longest = max(large, default=(0.0, 1.0))
    return Figures(
        goodput=goodput(trace, row, settled_s, until_s),
        at_60_s=goodput(trace, row, after, min(after + 60, until_s)),
        refused=len(trace.refused) / max(trace.calls, 1),
        wait_p50_s=waits[len(waits) // 2],
        wait_p99_s=waits[int(len(waits) * 0.99)],
        large_s=longest[0],
        large_ratio=longest[0] / max(longest[1], 1e-9) if large else 0.0,
    )


COLUMNS = {"goodput": 9, "(worst)": 9, "at 60 s": 9, "(worst) ": 9, "refused": 9, "p50 s": 8, "p99 s": 8, "large s": 9}
HEAD = " " * 32 + "".join(name.rjust(width) for name, width in COLUMNS.items()) + "  / turn"


def line(row: Row, seeds: Sequence[Figures]) -> str:
    good, later = [f.goodput for f in seeds], [f.at_60_s for f in seeds]
    refused = mean(f.refused for f in seeds)
    reached = (mean(good) if row.changes_s is None else mean(later)) >= row.goodput and refused <= row.refused
    large = max(f.large_s for f in seeds)
    ratio = max(f.large_ratio for f in seeds)
    return (
        f"{row.name:32}{mean(good):9.3f}{min(good):9.3f}{mean(later):9.3f}{min(later):9.3f}{refused:9.2%}"
        f"{mean(f.wait_p50_s for f in seeds):8.1f}{mean(f.wait_p99_s for f in seeds):8.1f}{large:9.1f}{ratio:8.2f}"
        f"{'' if reached else '  missed'}"
    )


def table(rows: Sequence[Row], *, seeds: int, until_s: float, workers: int) -> None:
    print(HEAD, flush=True)
    with ProcessPoolExecutor(workers) as processes:
        asked = [[processes.submit(measure, row, seed, until_s) for seed in range(seeds)] for row in rows]
        for row, futures in zip(rows, asked, strict=True):
            print(line(row, [future.result() for future in futures]), flush=True)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.admission.settling", description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--rows", default="")
    parser.add_argument("--seeds", type=int)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--plot", type=Path)
    asked = parser.parse_args(arguments)
    rows = [row for row in ROWS if asked.rows in row.name]
    if asked.plot is not None:
        from .settling_plot import draw

        draw(asked.plot)
        return
    seeds = asked.seeds or (3 if asked.quick else SEEDS)
    table(rows, seeds=seeds, until_s=HOUR_S, workers=asked.workers)


if __name__ == "__main__":
    main(sys.argv[1:])
