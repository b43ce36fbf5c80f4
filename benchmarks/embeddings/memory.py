"""Resident memory while a million short texts are embedded on `wordllama`, each batch dropped as it comes: a curve, and
whether its second half is flat."""

from __future__ import annotations

import asyncio
import gc
import time
from contextlib import aclosing
from pathlib import Path

import psutil

from interlock.runtime import Runtime, RuntimeSettings, embed_corpus

from .texts import pairs

_MIB = 1024 * 1024
#: How much more the last quarter may take than the second, in MiB: what the allocator does not give back.
WANTED_GROWTH_MIB = 24.0
PICTURE = Path(__file__).parents[2] / "docs" / "pictures" / "embeddings-memory.png"


async def _curve(count: int) -> tuple[list[tuple[int, float]], float]:
    process, curve, done = psutil.Process(), list[tuple[int, float]](), 0
    async with Runtime(RuntimeSettings(store=None)) as runtime:
        begun = time.perf_counter()
        async with aclosing(embed_corpus(runtime, pairs(count), model="wordllama")) as batches:
            async for batch in batches:
                done += len(batch)
                if done // (count // 100) > len(curve):
                    gc.collect()
                    curve.append((done, process.memory_info().rss / _MIB))
    return curve, time.perf_counter() - begun


def show(count: int = 1_000_000, *, draw: bool = False) -> list[str]:
    curve, seconds = asyncio.run(_curve(count))
    quarters = [[mib for done, mib in curve if part < done / count * 4 <= part + 1] for part in range(4)]
    means = [sum(part) / len(part) for part in quarters]
    print(f"\nResident memory over {count:,} short texts ({seconds:.0f} s, {count / seconds:,.0f} texts a second)")
    print("  quarter by quarter, MiB: " + ", ".join(f"{mean:.0f}" for mean in means))
    print(
        f"  at the most {max(mib for _, mib in curve):.0f} MiB; the vectors alone would be {count * 4 / 1024:,.0f} MiB"
    )
    if draw:
        _draw(curve)
    growth = means[3] - means[1]
    return [] if growth <= WANTED_GROWTH_MIB else [f"{growth:.0f} MiB more in the last quarter than in the second"]


def _draw(curve: list[tuple[int, float]]) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 3))
    axes.plot([done / 1e6 for done, _ in curve], [mib for _, mib in curve])
    axes.set(xlabel="texts embedded, millions", ylabel="resident memory, MiB")
    axes.set_ylim(0, 1.15 * max(mib for _, mib in curve))
    axes.grid(alpha=0.3)
    figure.tight_layout()
    figure.savefig(PICTURE, dpi=110)
    print(f"  drawn in {PICTURE}")
