"""Texts a second on `wordllama`, end to end (a corpus through a Runtime: read, packed, admitted, embedded, fitted,
recorded), beside the library alone on the same texts."""

from __future__ import annotations

import asyncio
import time
from contextlib import aclosing
from pathlib import Path

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
    taken: dict[str, list[tuple[float, float]]] = {"64 at a time": [], "512 at a time": [], "ours": []}
    for _ in range(rounds):
        for batch in (64, 512):
            begun = time.process_time()
            took, expected = _alone(model, texts, batch)
            taken[f"{batch} at a time"].append((took, time.process_time() - begun))
        begun = time.process_time()
        took, found = asyncio.run(_through(given))
        taken["ours"].append((took, time.process_time() - begun))
        np.testing.assert_allclose(found[:, : expected.shape[1]], expected, atol=1e-5)
    best = {name: min(seconds for seconds, _ in rounds_of) for name, rounds_of in taken.items()}
    cpu = {name: min(seconds for _, seconds in rounds_of) / count * 1e6 for name, rounds_of in taken.items()}
    share = min(best["64 at a time"], best["512 at a time"]) / best["ours"]
    print(f"\nTexts a second on wordllama, {count:,} short texts (best of {rounds} rounds in turn)")
    for name in ("64 at a time", "512 at a time"):
        print(f"  the library alone, {name:<14}{count / best[name]:10,.0f}  {cpu[name]:5.1f} us of CPU a text")
    ours, spent = count / best["ours"], cpu["ours"]
    print(f"  through the runtime              {ours:10,.0f}  {spent:5.1f} us; {share:.0%} of the library's rate")
    return [] if share >= WANTED_SHARE else [f"{share:.0%} of the library's own rate, wanted {WANTED_SHARE:.0%}"]
