"""Vectors worked out from a text's words, the same every time: texts that share words are near each other. Pure.

Each word has a direction of its own, made from its hash, and a text is the sum of its words' (each counted by the root
of how often it stands there), at length 1. A cut vector is the beginning of the longer one at length 1 again, as the
real models have it.
"""

from __future__ import annotations

import base64
import re
import zlib
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_WORD = re.compile(r"\w+")
_DECIMALS = 8


def vectors_of(texts: Sequence[str], *, native: int, width: int, seed: int) -> NDArray[np.float64]:
    """Unit vectors [texts, width] of a model whose own width is `native`."""
    import numpy as np

    rows = np.stack([_sum(text, native, seed)[:width] for text in texts]) if texts else np.zeros((0, width))
    unit: NDArray[np.float64] = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return unit


def _sum(text: str, native: int, seed: int) -> NDArray[np.float64]:
    import numpy as np

    words = Counter(_WORD.findall(text.lower())) or Counter([text])  # signs alone are a word of their own
    total: NDArray[np.float64] = np.zeros(native)
    for word, times in words.items():
        total += _direction(word, native, seed) * times**0.5
    return total


@lru_cache(maxsize=4_096)
def _direction(word: str, native: int, seed: int) -> NDArray[np.float64]:
    import numpy as np

    return np.random.default_rng(zlib.crc32(word.encode("utf-8", "surrogatepass"), seed)).standard_normal(native)


def numbers(row: Any) -> list[float]:
    """A vector as JSON has it."""
    return [round(float(each), _DECIMALS) for each in row]


def base64_of(row: Any) -> str:
    """A vector as little-endian float32 in base64."""
    import numpy as np

    return base64.b64encode(np.asarray(row, dtype="<f4").tobytes()).decode()
