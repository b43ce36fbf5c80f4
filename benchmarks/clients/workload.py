"""What every contender asks for. No import of ours: it is read in every environment."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

PROMPT = "Summarise: the quick brown fox jumps over the lazy dog. It was a fine day, and nobody minded. " * 3
MODEL, KEY, MAX_TOKENS = "bench", "sk-bench-0123456789", 2_000
PIECES = 500


@dataclass(frozen=True, slots=True)
class Ways:
    """How a library is asked: for a whole answer (gives its text), and for a streamed one (gives its pieces)."""

    whole: Callable[[], Awaitable[str]]
    streamed: Callable[[], Awaitable[int]]
