"""Stores to test, and what to put into them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from interlock.runtime.search import Collection, Document, open_collection

Float32 = NDArray[np.float32]


def unit(rows: Any) -> Float32:
    wide = np.asarray(rows, dtype=np.float64)
    found: Float32 = (wide / np.linalg.norm(wide, axis=-1, keepdims=True)).astype(np.float32)
    return found


def some(count: int, *, width: int = 16, seed: int = 0, first: int = 0) -> tuple[list[Document], Float32]:
    """So many documents, and a vector for each."""
    documents = [
        Document(id=f"d{number}", text=f"text {number}", fields={"number": number})
        for number in range(first, first + count)
    ]
    return documents, unit(np.random.default_rng(seed).standard_normal((count, width)))


def brute_force(vectors: Float32, question: Float32, k: int) -> list[tuple[int, float]]:
    """(index, cosine) of the nearest, in float64 and by nothing that the stores use."""
    scores = np.einsum("ij,j->i", vectors.astype(np.float64), question.astype(np.float64))
    return [(int(index), float(scores[index])) for index in sorted(range(len(scores)), key=lambda i: -scores[i])[:k]]


@dataclass(frozen=True)
class Place:
    """A store that tests open: as often as they like, each time as another process would."""

    kind: str
    url: str
    hold_mb: int

    async def open(self, name: str = "documents", **options: Any) -> Collection:
        return await open_collection(self.url, name, **{"hold_mb": self.hold_mb, **options})
