"""Runs a row: its processes start, are let go at once, and say what they saw."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import quantiles

from .places import place
from .rows import Row

WAYS = Path(__file__).parent / "ways"


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """`count` reservations in `seconds`; waits in milliseconds; `cpu_s` of the processes that reserve, of `load` on the
    machine."""

    row: Row
    count: int
    seconds: float
    p50_ms: float
    p99_ms: float
    cpu_s: float
    load: float

    @property
    def per_s(self) -> float:
        return self.count / self.seconds


def race(row: Row, seconds: float, python: Path | None) -> Seen:
    """`python`: the peers' interpreter."""
    made = tempfile.TemporaryDirectory(prefix="interlock-bench-", ignore_cleanup_errors=True)
    with made as folder, place(row.place, Path(folder), python) as url:
        return _race(row, url, seconds, python)


def _race(row: Row, url: str, seconds: float, python: Path | None) -> Seen:
    program = str(python) if row.foreign and python else sys.executable
    command = [program, str(WAYS / f"{row.way}.py"), url, row.mode, str(row.callers // row.processes), str(seconds)]
    surroundings = {**os.environ, "PYTHONPATH": str(WAYS.parents[2])}
    processes = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=surroundings)
        for _ in range(row.processes)
    ]
    try:
        for process in processes:
            assert process.stdout is not None
            if process.stdout.readline().strip() != "ready":
                raise SystemExit(f"{row.title}: a process did not start")
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        said = [json.loads(process.stdout.readline()) for process in processes if process.stdout is not None]
    finally:
        for process in processes:
            with suppress(subprocess.TimeoutExpired):
                process.wait(timeout=20)
            process.kill()
    waits = sorted(wait for one in said for wait in one["waits_ms"])
    cuts = quantiles(waits, n=100)
    return Seen(
        row=row,
        count=sum(one["count"] for one in said),
        seconds=seconds,
        p50_ms=cuts[49],
        p99_ms=cuts[98],
        cpu_s=sum(one["cpu_s"] for one in said),
        load=os.getloadavg()[0],
    )
