"""`python -m benchmarks.admission.peers`: run the rows, then render the table and the pictures.

Every row leaves a raw file a contender; `--render` renders what there is and runs nothing; without `--again` a row that
has its files is not run a second time.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from .contenders import CONTENDERS, Contender
from .environments import cache_folder, environment, find_python
from .race import race
from .rows import ROWS, Row

QUICK_ROW, QUICK_MINUTES = "50-60", 2.5


def main() -> None:
    chosen = _arguments()
    raw = chosen.raw or cache_folder() / "raw"
    rows = [ROWS[name].lasting(chosen.minutes) for name in chosen.rows]
    if not chosen.render:
        ready = _environments(chosen.contenders, chosen.envs or cache_folder() / "envs", chosen.python)
        for row in rows:
            _run(row, ready, raw, again=chosen.again)
    _render(raw, chosen)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=list(ROWS), metavar="ROW", help=", ".join(ROWS))
    parser.add_argument(
        "--contenders", nargs="+", choices=CONTENDERS, default=list(CONTENDERS), metavar="NAME",
        help=", ".join(CONTENDERS),
    )  # fmt: skip
    parser.add_argument("--minutes", type=float, default=5.0, help="how long a steady row lasts (5)")
    parser.add_argument("--quick", action="store_true", help=f"row {QUICK_ROW} alone, {QUICK_MINUTES} minutes")
    parser.add_argument("--again", action="store_true", help="run rows that have been run")
    parser.add_argument("--render", action="store_true", help="run nothing: render the raw files there are")
    parser.add_argument("--raw", type=Path, help="where the raw files are (a cache folder)")
    parser.add_argument("--envs", type=Path, help="where the environments are (a cache folder)")
    parser.add_argument("--python", help="the Python of the environments, 3.12 or later")
    parser.add_argument("--page", type=Path, help="write the table into this page, between its marks")
    parser.add_argument("--pictures", type=Path, help="draw into this folder (needs matplotlib)")
    chosen = parser.parse_args()
    if chosen.quick:
        chosen.rows, chosen.minutes, chosen.again = [QUICK_ROW], QUICK_MINUTES, True
        chosen.raw = chosen.raw or cache_folder() / "quick"
    return chosen


def _environments(names: list[str], folder: Path, python: str | None) -> dict[str, tuple[Contender, Path]]:
    found, ready = find_python(python), {}
    for name in names:
        print(f"environment of {name}", file=sys.stderr, flush=True)
        ready[name] = (CONTENDERS[name], environment(CONTENDERS[name], folder, found))
    return ready


def _run(row: Row, ready: dict[str, tuple[Contender, Path]], raw: Path, *, again: bool) -> None:
    missing = {name: one for name, one in ready.items() if again or not (raw / row.name / f"{name}.json").exists()}
    for heat in row.heats(list(missing), {name for name, (contender, _) in ready.items() if contender.hungry}):
        print(f"{row.title}: {', '.join(heat)}", file=sys.stderr, flush=True)
        race(row, {name: missing[name] for name in heat}, raw)


def _render(raw: Path, chosen: argparse.Namespace) -> None:
    from .figures import load
    from .table import into_page, table

    results = load(raw)
    text = table(results)
    print(text)
    if chosen.page is not None:
        into_page(chosen.page, text)
    if chosen.pictures is not None:
        from .picture import draw

        draw(results, chosen.pictures)


if __name__ == "__main__":
    main()
