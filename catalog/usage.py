"""What a call consumed, in one normal form for every provider."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Tokens of one call. None is unknown; zero is zero.

    The four billed counts never overlap: `input_tokens` is fresh input without what was read from or written to a
    cache. `reasoning_tokens` is a part of `output_tokens`, never beside it, and `cache_write_1h_tokens` a part of
    `cache_write_tokens`: what was written to be kept for an hour. `estimated` marks counts of ours.
    """

    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_tokens: int | None = None
    cache_write_tokens: int | None = None
    reasoning_tokens: int | None = None
    cache_write_1h_tokens: int | None = None
    estimated: bool = False

    @property
    def total_input_tokens(self) -> int | None:
        """Fresh, read and written input together: what stood in the window. None if the fresh part is unknown."""
        if self.input_tokens is None:
            return None
        return self.input_tokens + (self.cache_read_tokens or 0) + (self.cache_write_tokens or 0)

    def __add__(self, other: Usage) -> Usage:
        def plus(a: int | None, b: int | None) -> int | None:
            return a if b is None else b if a is None else a + b

        return Usage(
            input_tokens=plus(self.input_tokens, other.input_tokens),
            output_tokens=plus(self.output_tokens, other.output_tokens),
            cache_read_tokens=plus(self.cache_read_tokens, other.cache_read_tokens),
            cache_write_tokens=plus(self.cache_write_tokens, other.cache_write_tokens),
            reasoning_tokens=plus(self.reasoning_tokens, other.reasoning_tokens),
            cache_write_1h_tokens=plus(self.cache_write_1h_tokens, other.cache_write_1h_tokens),
            estimated=self.estimated or other.estimated,
        )
