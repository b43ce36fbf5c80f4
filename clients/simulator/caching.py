"""The prompt cache: prefixes that were marked, kept for their lifetime."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass

from .exchange import Ask

LEAST_TOKENS = 1_024  # a shorter prefix is not cached
_LONG_S = 3_600.0
_MOST_PREFIXES = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheUse:
    """Input tokens read from the cache and written to it; `write_1h_tokens` are those written for an hour."""

    read_tokens: int = 0
    write_tokens: int = 0
    write_1h_tokens: int = 0


NOTHING = CacheUse()


class PromptCache:
    def __init__(self) -> None:
        self._until: dict[tuple[str, int, int], float] = {}

    def use(self, ask: Ask, now: float, count: Callable[[str], int]) -> CacheUse:
        """Read the longest marked prefix that is known, write what is marked beyond it."""
        if not ask.marks:
            return NOTHING
        marks = [(prefix, lifetime_s, count(prefix)) for prefix, lifetime_s in ask.marks]
        marks = [mark for mark in marks if mark[2] >= LEAST_TOKENS]
        read = written = 0
        for prefix, lifetime_s, tokens in marks:
            key = (ask.model, len(prefix), zlib.crc32(prefix.encode("utf-8", "surrogatepass")))
            if self._until.get(key, now) > now:
                read = max(read, tokens)
            self._until.pop(key, None)
            self._until[key] = now + lifetime_s
        while len(self._until) > _MOST_PREFIXES:
            del self._until[next(iter(self._until))]
        longest = max((tokens for _, _, tokens in marks), default=0)
        written = max(0, longest - read)
        hour = max((tokens for _, lifetime_s, tokens in marks if lifetime_s >= _LONG_S), default=0)
        return CacheUse(read_tokens=read, write_tokens=written, write_1h_tokens=max(0, min(written, hour - read)))
