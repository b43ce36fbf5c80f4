"""`interlock demo`: the figures as JSON on standard output, or the whole story on the screen."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path


def show_demo(*, as_json: bool, catalog: Path | None, entries: int, baseline: bool | None, keep: Path | None) -> None:
    from rich.console import Console

    from ..demo.main import DemoOptions, run_demo
    from ..demo.report import show

    options = DemoOptions(entries=entries, catalog=catalog, baseline=baseline, keep=keep)
    # With --json standard output is for the JSON alone; whoever watches still sees the bar.
    console = Console(stderr=as_json, quiet=False)
    report = asyncio.run(run_demo(options, console))
    if as_json:
        print(json.dumps(report.as_json(), indent=1))
    else:
        show(report, console)
