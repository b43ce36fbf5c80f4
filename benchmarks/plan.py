"""Is a plan right? The demo on a few entries, then a forecast of all of it from that record, then all of it; repeated.

`python -m benchmarks.plan` prints forecast beside fact, and how fast calls are simulated. A goodput well below 100%
says that the machine, not a limit, held that run.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

from interlock.catalog import Catalog
from interlock.runtime.demo.figures import DemoReport
from interlock.runtime.demo.foretold import forecast_of_the_demo
from interlock.runtime.demo.main import DemoOptions, run_demo
from interlock.runtime.plan.limits import situation_of
from interlock.runtime.plan.simulate import simulate
from interlock.runtime.plan.sizes import Draws, Sizes
from interlock.runtime.plan.table import read_table
from interlock.runtime.store.reads import calls_in

FEW = 24
CALLS = "model,input_tokens,max_output_tokens,count\nclaude-haiku-direct,1200,1000,20000\n"


def demo(entries: int, folder: Path) -> DemoReport:
    return asyncio.run(run_demo(DemoOptions(entries=entries, baseline=False, keep=folder), Console(file=io.StringIO())))


def compare(entries: int, repeats: int) -> Table:
    shown = Table(title=f"The demo on {entries} entries, planned from a record of {FEW}", title_justify="left")
    for name in ("run", "time, s", "forecast, s", "off by", "goodput", "cost, USD", "forecast, USD", "off by"):
        shown.add_column(name, justify="right")
    for number in range(1, repeats + 1):
        with tempfile.TemporaryDirectory() as name:
            few, all_of_it = Path(name, "few"), Path(name, "all")
            demo(FEW, few)
            found = forecast_of_the_demo(entries, calls_in(f"sqlite:///{few / 'interlock.db'}", limit=5_000))
            report = demo(entries, all_of_it)
        wall_s, cost = report.interlock.wall_s, float(report.cost)
        time_s, money = found.finish_s.p50, found.cost["USD"].p50
        shown.add_row(
            str(number),
            f"{wall_s:.1f}",
            f"{time_s:.1f}",
            f"{time_s / wall_s - 1:+.1%}",
            f"{report.interlock.goodput or 0:.0%}",
            f"{cost:.4f}",
            f"{money:.4f}",
            f"{money / cost - 1:+.1%}",
        )
    return shown


def speed() -> str:
    with tempfile.TemporaryDirectory() as name:
        file = Path(name, "calls.csv")
        file.write_text(CALLS, encoding="utf-8")
        catalog = Catalog.default()
        workload = read_table(file, catalog)
    lines = workload.sample(workload.total)
    begun, cpu = time.perf_counter(), time.process_time()
    simulate(lines, situation_of(workload, catalog), Draws(Sizes(), {}, 0))
    wall_s, cpu_s = time.perf_counter() - begun, time.process_time() - cpu
    return f"simulated calls a second: {len(lines) / wall_s:,.0f} (of processor time: {len(lines) / cpu_s:,.0f})"


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare plans of the demo with runs of it.")
    parser.add_argument("--entries", type=int, default=DemoOptions.entries)
    parser.add_argument("--repeats", type=int, default=3)
    chosen = parser.parse_args()
    console = Console()
    console.print(speed())
    console.print(compare(chosen.entries, chosen.repeats))


if __name__ == "__main__":
    main()
