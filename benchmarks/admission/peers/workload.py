"""The calls everybody makes: mixed sizes, and now and then a very large one. The same seed gives the same calls.

A text is built so that the usual ways of counting agree on its size: four characters a token, short common words.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from math import log

MAX_OUTPUT_TOKENS = 300
#: What an answer takes on average, and what only one in a hundred exceeds.
MEAN_OUTPUT_TOKENS, P99_OUTPUT_TOKENS = 100, 170
LARGE_INPUT_TOKENS = 12_000
#: One very large call in so many.
LARGE_EVERY = 100
_MEDIAN, _SIGMA, _LEAST, _MOST = 300, 0.7, 50, 3_000
_WORDS = (
    "the",
    "cat",
    "sat",
    "and",
    "saw",
    "her",
    "old",
    "red",
    "dog",
    "run",
    "far",
    "off",
    "for",
    "ten",
    "fun",
    "days",
    "but",
    "had",
    "not",
    "one",
    "big",
    "new",
    "toy",
)


def _filler() -> str:
    drawn = random.Random(7)
    sentences = [" ".join(drawn.choices(_WORDS, k=6)).capitalize() + "." for _ in range(8_000)]
    return " ".join(sentences)


_FILLER = _filler()


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """`input_tokens` as the provider counts them, `output_tokens` as it will answer, after `latency_s` seconds."""

    index: int
    input_tokens: int
    output_tokens: int
    latency_s: float

    @property
    def is_large(self) -> bool:
        return self.input_tokens == LARGE_INPUT_TOKENS

    @property
    def text(self) -> str:
        return f"Call {self.index:07d}. {_FILLER}"[: self.input_tokens * 4]


def calls(seed: int) -> Iterator[Call]:
    """Without end: whoever is faster gets further."""
    drawn = random.Random(seed)
    index = 0
    while True:
        large = index + drawn.randrange(LARGE_EVERY // 3, LARGE_EVERY)
        for _ in range(LARGE_EVERY):
            size = drawn.lognormvariate(log(_MEDIAN), _SIGMA)
            small = int(min(max(size, _LEAST), _MOST))
            yield Call(
                index=index,
                input_tokens=LARGE_INPUT_TOKENS if index == large else small,
                output_tokens=drawn.randint(30, P99_OUTPUT_TOKENS),
                latency_s=drawn.uniform(0.6, 1.4),
            )
            index += 1


def index_of(text: str) -> int:
    """Which call a text is of."""
    return int(text[5:12])
