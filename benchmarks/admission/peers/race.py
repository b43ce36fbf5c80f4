"""One row: a provider and a process for every contender, all at once, on the same machine and the same clock."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from .contenders import Contender
from .environments import ROOT
from .rows import Row

#: Callers go on this long after the window that is measured, so that what it served has ended.
TAIL_S = 4.0
_LEAD_S, _LOOK_S, _PATIENCE_S = 1.0, 10.0, 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    contender: Contender
    provider: subprocess.Popen[str]
    client: subprocess.Popen[str]
    folder: Path


def race(row: Row, contenders: dict[str, tuple[Contender, Path]], raw: Path) -> None:
    """Run a row with everybody side by side and leave a raw file a contender in `raw`."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        homes = {name: Path(folder) / name for name in contenders}
        providers = {name: _provider(stack, row, home) for name, home in homes.items()}
        runners = []
        for name, (contender, python) in contenders.items():
            base_url = _line(providers[name], f"the provider of {name}")
            client = _client(stack, row, contender, python, base_url, homes[name])
            runners.append(Running(contender=contender, provider=providers[name], client=client, folder=homes[name]))
        for runner in runners:
            _line(runner.client, runner.contender.name)
        begins_s = time.monotonic() + _LEAD_S
        for runner in runners:
            for process in (runner.provider, runner.client):
                assert process.stdin is not None
                process.stdin.write(f"{begins_s}\n")
                process.stdin.flush()
        loads, busy = _watch(begins_s + row.until_s + TAIL_S)
        for runner in runners:
            runner.client.wait(timeout=_PATIENCE_S)
            runner.provider.communicate(timeout=_PATIENCE_S)
        _keep(row, runners, raw, loads, busy)


def _provider(stack: ExitStack, row: Row, folder: Path) -> subprocess.Popen[str]:
    folder.mkdir()
    orders = {
        "rpm": row.rpm, "tpm": row.tpm, "burst_s": row.burst_s, "shares": row.shares, "storm": row.storm,
        "seed": row.seed, "report": str(folder / "provider.json"),
    }  # fmt: skip
    return _started(stack, [sys.executable, "-m", f"{__package__}.provider", json.dumps(orders)], cwd=ROOT)


def _client(
    stack: ExitStack, row: Row, contender: Contender, python: Path, base_url: str, folder: Path
) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1]), "PYTHONSAFEPATH": "1"}
    client = _started(stack, [str(python), "-m", "peers.child"], cwd=folder, env=environment)
    assert client.stdin is not None
    client.stdin.write(json.dumps(_orders(row, contender, base_url, folder)) + "\n")
    client.stdin.flush()
    return client


def _started(stack: ExitStack, command: list[str], **more: Any) -> subprocess.Popen[str]:
    """A process that does not outlive the row."""
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, **more)
    stack.callback(_end, process)
    return process


def _end(process: subprocess.Popen[str]) -> None:
    if process.poll() is None:
        process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None and not pipe.closed:
            with suppress(BrokenPipeError):
                pipe.close()


def _orders(row: Row, contender: Contender, base_url: str, folder: Path) -> dict[str, Any]:
    return {
        "terms": {
            "base_url": base_url, "rpm": row.rpm, "tpm": row.tpm, "burst_s": row.burst_s, "callers": row.callers,
            "folder": str(folder),
        },
        "adapter": contender.adapter, "options": dict(contender.options), "packages": contender.packages,
        "seed": row.seed, "arriving_s": row.arriving_s, "lasts_s": row.until_s + TAIL_S,
        "report": str(folder / "client.json"),
    }  # fmt: skip


def _line(process: subprocess.Popen[str], name: str) -> str:
    """The next line it says. RuntimeError: it has ended instead; its own words stand above."""
    assert process.stdout is not None
    said = process.stdout.readline().strip()
    if not said:
        raise RuntimeError(f"{name} could not begin")
    return said


def _watch(until_s: float) -> tuple[list[float], float]:
    """Wait, and say how loaded the machine was: its load average now and then, and the share of its CPUs in use."""
    loads, (busy, total) = [], _cpu()
    while (left_s := until_s - time.monotonic()) > 0:
        time.sleep(min(left_s, _LOOK_S))
        loads.append(round(os.getloadavg()[0], 2))
    busy_then, total_then = _cpu()
    return loads, (busy_then - busy) / max(total_then - total, 1)


def _cpu() -> tuple[int, int]:
    """(busy, all) ticks of all CPUs since boot; zeros where the system does not say."""
    try:
        fields = [int(field) for field in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    except OSError:
        return 0, 0
    return sum(fields) - fields[3] - fields[4], sum(fields)


def _keep(row: Row, runners: list[Running], raw: Path, loads: list[float], busy: float) -> None:
    folder = raw / row.name
    folder.mkdir(parents=True, exist_ok=True)
    reports = {}
    for runner in runners:
        seen, did = (json.loads((runner.folder / f"{side}.json").read_text()) for side in ("provider", "client"))
        reports[runner.contender.name] = {
            "provider_cpu_s": seen["cpu_s"], "client_cpu_s": did["cpu_s"], "python": did["python"],
            "versions": did["versions"], "calls": did["calls"], "requests": seen["requests"],
        }  # fmt: skip
    lasts_s = row.until_s + TAIL_S
    ours = sum(report["provider_cpu_s"] + report["client_cpu_s"] for report in reports.values()) / lasts_s
    machine = {
        "date": time.strftime("%Y-%m-%d %H:%M", time.gmtime()), "cpus": os.cpu_count(), "beside": sorted(reports),
        "loads": loads, "busy": round(busy, 3), "ours_cores": round(ours, 3), "nice": os.nice(0),
    }  # fmt: skip
    for name, report in reports.items():
        text = json.dumps({"row": asdict(row), "contender": name, "machine": machine, **report})
        (folder / f"{name}.json").write_text(text, encoding="utf-8")
