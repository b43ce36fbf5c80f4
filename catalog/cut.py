"""A text cut to a number of tokens. Pure."""

from __future__ import annotations

from collections.abc import Callable


def beginning(text: str, longest: int, count: Callable[[str], int]) -> str:
    """The longest beginning of `text` of at most `longest` tokens; the whole text where it fits.

    `count` may stop counting above `longest`. The work is in proportion to what is kept, not to what is cut off.
    """
    low, high = 0, max(longest, 1)
    while high < len(text) and count(text[:high]) <= longest:
        low, high = high, high * 2
    if high >= len(text):
        if count(text) <= longest:
            return text
        high = len(text)
    while high - low > 1:  # text[:low] fits, text[:high] does not
        middle = (low + high) // 2
        low, high = (middle, high) if count(text[:middle]) <= longest else (low, middle)
    return text[:low]
