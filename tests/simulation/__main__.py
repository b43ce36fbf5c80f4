"""Replay seeds and print what happened: `PYTHONPATH=src:tests python -m simulation 1234`."""

from __future__ import annotations

import sys

from .world import simulate


def main(seeds: list[str]) -> None:
    for seed in seeds:
        print(f"seed {seed}")
        for event in simulate(int(seed)):
            print(" ", *event)


if __name__ == "__main__":
    main(sys.argv[1:])
