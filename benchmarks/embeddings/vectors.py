"""Normalising, fitting and packing 100,000 vectors of 1,536: beside a loop over vectors, and beside numpy's bare memory
traffic (every number read once, and a new array of the same size written once)."""

from __future__ import annotations

import math
import struct
import time
from collections.abc import Callable

import numpy as np

from interlock.embeddings.vectors import fit

COUNT, WIDTH = 100_000, 1_536
#: Of a loop so many vectors are timed: it takes as long for each.
LOOPED = 500
WANTED_OVER_LOOP, WANTED_OVER_TRAFFIC = 20.0, 2.0


def _looped(rows: np.ndarray) -> bytearray:
    """What one would write first: each vector a list of floats, normalised, cut and packed."""
    packed = bytearray()
    for row in rows:
        vector = [float(number) for number in row]
        length = math.sqrt(sum(number * number for number in vector))
        packed += struct.pack(f"<{WIDTH}f", *(number / length for number in vector[:WIDTH]))
    return packed


def _looped_numpy(rows: np.ndarray) -> bytearray:
    packed = bytearray()
    for row in rows:
        packed += (row[:WIDTH] / np.linalg.norm(row)).astype("<f4").tobytes()
    return packed


def _packed(rows: np.ndarray) -> memoryview:
    """Ours: one array, whose memory is the packed form."""
    return memoryview(fit(rows, declared=WIDTH, width=WIDTH)).cast("B")


def _seconds(work: Callable[[], object]) -> float:
    """Of this process's CPU: all four use one thread, and what else the machine does is not theirs."""
    begun = time.process_time()
    work()
    return time.process_time() - begun


def show(rounds: int, count: int = COUNT) -> list[str]:
    rows = np.random.default_rng(0).standard_normal((count, WIDTH), dtype=np.float32)
    few = rows[:LOOPED]
    np.testing.assert_allclose(np.frombuffer(_packed(few), "<f4"), np.frombuffer(_looped(few), "<f4"), atol=1e-6)
    one = np.float32(1.000001)
    taken: dict[str, list[float]] = {"loop": [], "numpy loop": [], "traffic": [], "ours": []}
    for _ in range(rounds):  # in turn, so that whatever else the machine does falls on all of them
        taken["loop"].append(_seconds(lambda: _looped(few)) * count / LOOPED)
        taken["numpy loop"].append(_seconds(lambda: _looped_numpy(few)) * count / LOOPED)
        taken["traffic"].append(_seconds(lambda: np.multiply(rows, one)))
        taken["ours"].append(_seconds(lambda: _packed(rows)))
    best = {name: min(all_of) for name, all_of in taken.items()}
    over_traffic = best["ours"] / best["traffic"]
    print(f"\nNormalising, fitting and packing {count:,} vectors of {WIDTH:,} float32 (CPU, best of {rounds})")
    print(f"  a loop over lists       {best['loop']:8.2f} s  {best['loop'] / best['ours']:7.1f} x ours")
    print(f"  a loop over numpy rows  {best['numpy loop']:8.2f} s  {best['numpy loop'] / best['ours']:7.1f} x ours")
    print(f"  interlock               {best['ours']:8.2f} s")
    print(f"  bare memory traffic     {best['traffic']:8.2f} s; ours is {over_traffic:.2f} x that")
    wrong = []
    if best["loop"] / best["ours"] < WANTED_OVER_LOOP:
        wrong.append(f"only {best['loop'] / best['ours']:.1f} times faster than a loop, wanted {WANTED_OVER_LOOP:g}")
    if over_traffic > WANTED_OVER_TRAFFIC:
        wrong.append(f"{over_traffic:.2f} times the bare memory traffic, wanted {WANTED_OVER_TRAFFIC:g} at most")
    return wrong
