"""What a client costs: `python -m benchmarks.clients [TABLE ...] [--quick]`.

overhead: CPU of one call and of a stream of 500 pieces, beside the bare SDK, pydantic-ai, litellm and langchain, each
in an environment of its own, all on the same loopback provider. streams: the memory that 1,000 open streams take.
tokens: how far off the offline estimate is, before and after it has been corrected by what was reported.
"""

from __future__ import annotations

import argparse
import json
import os
from importlib.metadata import version
from pathlib import Path

from benchmarks.admission.peers.environments import cache_folder, environment, find_python

from . import memory, overhead, tokens
from .contenders import CONTENDERS, PINS

TABLES = ("overhead", "streams", "tokens")


def show(lines: list[tuple[str, ...]]) -> None:
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        print("  ".join(word.ljust(width) for word, width in zip(line, widths, strict=True)).rstrip())


def show_overhead(options: argparse.Namespace) -> list[str]:
    python = find_python(options.python)
    folder = Path(options.environments or cache_folder() / "envs")
    pythons = {one.name: environment(one, folder, python, PINS) for one in CONTENDERS}
    rounds, calls, streams = (3, 20, 2) if options.quick else (9, 100, 10)
    found = overhead.measure(pythons, rounds, calls, streams)
    sdks = f"anthropic {version('anthropic')}, openai {version('openai')}"
    print(f"\nCPU of a call and of a stream ({rounds} rounds in turn, medians; {sdks}; load {os.getloadavg()[0]:.1f})")
    show(list(overhead.rows(found)))
    if options.json:
        Path(options.json).write_text(json.dumps(found), encoding="utf-8")
    return overhead.verdict(found)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tables", nargs="*", metavar="TABLE", help=f"{', '.join(TABLES)}; all without")
    parser.add_argument("--quick", action="store_true", help="fewer rounds, to see that it runs")
    parser.add_argument("--python", help="a Python of 3.12 or later for the environments")
    parser.add_argument("--environments", help="where the environments are kept")
    parser.add_argument("--json", help="where the overheads are written")
    options = parser.parse_args()
    tables = options.tables or list(TABLES)
    if unknown := set(tables) - set(TABLES):
        parser.error(f"no table {min(unknown)}: there are {', '.join(TABLES)}")
    wrong = []
    for table in tables:
        if table == "overhead":
            wrong += show_overhead(options)
        elif table == "streams":
            wrong += memory.show(100 if options.quick else 1_000)
        else:
            show(tokens.rows())
    for line in wrong:
        print(f"not as wanted: {line}")
    return bool(wrong)


if __name__ == "__main__":
    raise SystemExit(main())
