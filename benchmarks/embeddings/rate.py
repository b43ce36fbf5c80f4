"""Texts a second on `wordllama`, end to end (a corpus through a Runtime: read, packed, admitted, embedded, fitted,
recorded), beside the library alone on the same texts."""

from __future__ import annotations

import asyncio
import time
from contextlib import aclosing
from pathlib import Path
from statistics import median

import numpy as np

from interlock.runtime import Runtime, RuntimeSettings, embed_corpus

from .texts import pairs

WANTED_SHARE = 0.6


def _library() -> object:
    import wordllama

    return wordllama.WordLlama.load(cache_dir=Path(str(wordllama.__file__)).parent, disable_download=True)


def _alone(model: object, texts: list[str], batch: int) -> tuple[float, np.ndarray]:
    begun = time.perf_counter()
    found = np.concatenate(
        [model.embed(texts[at : at + batch], norm=True) for at in range(0, len(texts), batch)]  # type: ignore[attr-defined]
    )
    return time.perf_counter() - begun, found


async def _through(given: list[tuple[int, str]]) -> tuple[float, np.ndarray]:
    async with Runtime(RuntimeSettings(store=None)) as runtime:
        await runtime.embeddings().embed("the weights are loaded with the first call")
        begun, found = time.perf_counter(), []
        async with aclosing(embed_corpus(runtime, given, model="wordllama")) as batches:
            async for batch in batches:
                found.append(batch.vectors)
        return time.perf_counter() - begun, np.concatenate(found)


def show(rounds: int, count: int = 50_000) -> list[str]:
    model, given = _library(), list(pairs(count))
    texts = [text for _, text in given]
    _alone(model, texts[:1_000], 64)
    alone: dict[int, list[float]] = {64: [], 512: []}
    ours: list[float] = []
    for _ in range(rounds):
        for batch, seconds in alone.items():
            took, expected = _alone(model, texts, batch)
            seconds.append(took)
        took, found = asyncio.run(_through(given))
        ours.append(took)
        np.testing.assert_allclose(found[:, : expected.shape[1]], expected, atol=1e-5)
    best = min(alone, key=lambda batch: median(alone[batch]))
    share = median(a / b for a, b in zip(alone[best], ours, strict=True))
    print(f"\nTexts a second on wordllama, {count:,} short texts, {rounds} rounds in turn (medians)")
    for batch, seconds in alone.items():
        print(f"  the library alone, {batch:>3} at a time  {count / median(seconds):10,.0f}")
    print(f"  through the runtime             {count / median(ours):10,.0f}  {share:.0%} of the library's best")
    return [] if share >= WANTED_SHARE else [f"{share:.0%} of the library's own rate, wanted {WANTED_SHARE:.0%}"]
