"""Texts that are longer than a model reads, cut: to their beginning, or into parts that are embedded each. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from interlock.catalog.cut import beginning

from .packing import Caps, size_of

#: What may be asked for instead of an error.
Split = Literal["average"]

# A part ends between two words where one of its last so many characters is a space.
_WORD_CHARACTERS = 100
# How much of a text is looked at for one part, to begin with.
_WINDOW_CHARACTERS = 32_768


@dataclass(frozen=True, slots=True)
class Parts:
    """What is sent for texts: `texts[k]` is a part of the text with index `owners[k]`, in order.

    `cut_short` are the indexes of texts that lost their end, `split` of those in several parts.
    """

    texts: Sequence[str]
    owners: Sequence[int]
    cut_short: tuple[int, ...] = ()
    split: tuple[int, ...] = ()


def parts_of(
    texts: Sequence[str], caps: Caps, *, count: Callable[[str], int], truncate: bool = False, split: Split | None = None
) -> Parts:
    """`texts` as they are sent. Without `truncate` and `split` each stays whole, however long it is."""
    if truncate and split is not None:
        raise ValueError("a text is cut to its beginning (truncate=True) or split, not both")
    for index, text in enumerate(texts):
        if not isinstance(text, str):
            raise TypeError(f"text {index} is {type(text).__name__}, not str")
    if split not in (None, "average"):
        raise ValueError(f'split is "average" or None, not {split!r}')
    owners: Sequence[int] = range(len(texts))
    if not truncate and split is None:
        return Parts(texts, owners)
    fits = _fitting(caps, count)
    changed = [index for index, text in enumerate(texts) if text and fits(text) > 0]
    if not changed:
        return Parts(texts, owners)
    if truncate:
        kept = list(texts)
        for index in changed:
            kept[index] = beginning(kept[index], 0, fits)
        return Parts(kept, owners, cut_short=tuple(changed))
    long, sent, owned = set(changed), list[str](), list[int]()
    for index, text in enumerate(texts):
        these = _split(text, fits) if index in long else [text]
        sent += these
        owned += [index] * len(these)
    return Parts(sent, owned, split=tuple(changed))


def _fitting(caps: Caps, count: Callable[[str], int]) -> Callable[[str], int]:
    """By how much a text is too long for a request: 0 fits. It grows with the text."""
    longest, characters, size = caps.longest_text, caps.item_characters, caps.bytes

    def over(text: str) -> int:
        most = 0
        if longest is not None:
            most = count(text) - longest
        if characters is not None:
            most = max(most, len(text) - characters)
        if size is not None:
            most = max(most, size_of(text) - size)
        return max(most, 0)

    return over


def _split(text: str, over: Callable[[str], int]) -> list[str]:
    parts: list[str] = []
    start, window = 0, _WINDOW_CHARACTERS
    while start < len(text):
        ahead = text[start : start + window]  # the rest whole, for each part, would be quadratic
        part = beginning(ahead, 0, over)
        if not part:  # not even one character fits: the packing names the text
            return [text]
        end = start + len(part)
        if part == ahead and end < len(text):
            window *= 2
            continue
        if end < len(text):
            space = max(text.rfind(blank, max(start, end - _WORD_CHARACTERS), end) for blank in " \n\t")
            end = space + 1 if space > start else end
        parts.append(text[start:end])
        start = end
    return parts
