"""What a decision costs beyond the model that makes it: `sparrow` called directly, and through the Runtime.

`python -m benchmarks.decisions` prints a table. The ways take turns, round by round, in one process; a figure is the
median over the rounds of a round's mean, in milliseconds of wall time and of CPU (`process_time`, the store's thread
included). One at a time every record is a commit of its own; a batch of states shares commits.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import sys
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import Any

from interlock.catalog import Catalog, ModelEntry, Prices
from interlock.catalog.words import Kind
from interlock.decisions import Choice, Noul, Score
from interlock.decisions.wire import encode_questions
from interlock.runtime import Runtime, RuntimeSettings

#: What the Runtime may add to a decision, in milliseconds.
WANTED_MS = 1.0
QUESTIONS: dict[str, Any] = {
    "team": Choice.of(
        "Which team should handle this?", {"billing": "invoices, refunds", "technical": None, "sales": None}
    ),
    "urgent": Noul.of("Does this convey urgency?"),
    "anger": Score.of("How frustrated?", "calm", "frustrated", "very angry"),
}
STATE = "I was charged twice for my March invoice and the refund I was promised last week has not arrived. " * 2
DIRECT = "sparrow, called directly"

Round = Callable[[int], Awaitable[None]]


def settings(store: str | None) -> RuntimeSettings:
    entry = ModelEntry(
        id="sparrow", kind=Kind.DECISION, provider="sparrow", wire_model_id="sparrow-decider", prices=Prices(input=0)
    )
    return RuntimeSettings(catalog=Catalog.of([entry], pins={"decision": ["sparrow"]}), store=store)


def direct(decider: Any) -> Round:
    written = encode_questions(QUESTIONS)

    async def calls(count: int) -> None:
        for number in range(count):
            decider.ask(f"{number} {STATE}", written)

    return calls


def one_by_one(runtime: Runtime) -> Round:
    async def calls(count: int) -> None:
        decisions = runtime.decisions()
        for number in range(count):
            await decisions.decide(f"{number} {STATE}", QUESTIONS)

    return calls


def in_a_batch(runtime: Runtime) -> Round:
    async def calls(count: int) -> None:
        batch = await runtime.decisions().decide_batch((f"{number} {STATE}" for number in range(count)), QUESTIONS)
        assert not batch.errors

    return calls


async def measure(rounds: int, calls: int) -> dict[str, tuple[float, float]]:
    """By way: milliseconds of wall time and of CPU a decision."""
    from sparrow_decider import Decider

    with tempfile.TemporaryDirectory() as folder:
        store = f"sqlite:///{Path(folder) / 'bench.db'}"
        async with Runtime(settings(None)) as bare, Runtime(settings(store)) as stored:
            ways = {
                DIRECT: direct(Decider.load()),
                "through the Runtime, no store": one_by_one(bare),
                "through the Runtime, SQLite": one_by_one(stored),
                "in a batch, no store": in_a_batch(bare),
                "in a batch, SQLite": in_a_batch(stored),
            }
            taken: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
            for number in range(rounds + 1):
                for name, way in ways.items():
                    gc.collect()
                    wall, cpu = perf_counter(), process_time()
                    await way(calls)
                    spent = (perf_counter() - wall, process_time() - cpu)
                    if number:  # the first round warms up
                        taken[name].append((spent[0] / calls * 1e3, spent[1] / calls * 1e3))
    return {name: (median(w for w, _ in each), median(c for _, c in each)) for name, each in taken.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--calls", type=int, default=200)
    given = parser.parse_args()
    found = asyncio.run(measure(given.rounds, given.calls))
    base = found[DIRECT]
    print(f"3 questions about {len(STATE)} characters; medians of {given.rounds} rounds of {given.calls} decisions")
    print(f"{'':<32} {'wall ms':>8} {'beyond':>8} {'ratio':>6} {'CPU ms':>8} {'beyond':>8}")
    for name, (wall, cpu) in found.items():
        print(f"{name:<32} {wall:8.3f} {wall - base[0]:8.3f} {wall / base[0]:6.2f} {cpu:8.3f} {cpu - base[1]:8.3f}")
    beyond = max(wall - base[0] for wall, _ in found.values())
    print(f"The Runtime adds at most {beyond:.3f} ms to a decision; wanted: {WANTED_MS:g} ms at most.")
    return int(beyond > WANTED_MS)


if __name__ == "__main__":
    sys.exit(main())
