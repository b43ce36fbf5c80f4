"""What embedding costs: `python -m benchmarks.embeddings [TABLE ...] [--quick] [--draw]`.

vectors: normalising, fitting and packing, beside a loop and beside bare memory traffic. rate: texts a second on a local
model, beside the library alone. memory: a curve over a million texts; it takes a minute or two.
"""

from __future__ import annotations

import argparse
import os

from . import memory, rate, vectors

TABLES = ("vectors", "rate", "memory")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tables", nargs="*", metavar="TABLE", help=f"{', '.join(TABLES)}; all without")
    parser.add_argument("--quick", action="store_true", help="fewer of everything, to see that it runs")
    parser.add_argument("--draw", action="store_true", help="draw the curve of memory into docs/pictures")
    options = parser.parse_args()
    tables = options.tables or list(TABLES)
    if unknown := set(tables) - set(TABLES):
        parser.error(f"no table {min(unknown)}: there are {', '.join(TABLES)}")
    print(f"load {os.getloadavg()[0]:.1f}")
    wrong: list[str] = []
    if "vectors" in tables:
        wrong += vectors.show(2, 5_000) if options.quick else vectors.show(5)
    if "rate" in tables:
        wrong += rate.show(1, 5_000) if options.quick else rate.show(5)
    if "memory" in tables:
        wrong += memory.show(50_000 if options.quick else 1_000_000, draw=options.draw)
    for line in wrong:
        print(f"MISSED: {line}")
    return bool(wrong)


if __name__ == "__main__":
    raise SystemExit(main())
