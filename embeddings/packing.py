"""Which texts share a request: greedy, in order, under every cap of the entry. Pure.

A text no request can carry is set apart by its index and does not hinder the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from interlock.catalog.entry import ModelEntry

from .errors import BlankTextError, TextTooLongError


@dataclass(frozen=True, slots=True, kw_only=True)
class Caps:
    """What one request may carry, and one text of it. None is no cap. Bytes are of UTF-8."""

    items: int | None = None
    tokens: int | None = None
    bytes: int | None = None
    item_tokens: int | None = None
    item_characters: int | None = None

    @staticmethod
    def of(
        entry: ModelEntry,
        *,
        max_texts: int | None = None,
        max_tokens: int | None = None,
        max_bytes: int | None = None,
        text_characters: int | None = None,
    ) -> Caps:
        """The entry's, and no more than the wire's own."""
        return Caps(
            items=_smaller(entry.max_batch_items, max_texts),
            tokens=_smaller(entry.max_batch_tokens, max_tokens),
            bytes=max_bytes,
            item_tokens=entry.context_window,
            item_characters=text_characters,
        )

    @property
    def longest_text(self) -> int | None:
        """The most tokens one text may have."""
        return _smaller(self.item_tokens, self.tokens)


def _smaller(one: int | None, other: int | None) -> int | None:
    return min((cap for cap in (one, other) if cap is not None), default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """One request: the indexes of its texts, ascending, and their tokens together.

    `raw_tokens` is the estimate before its model's correction, which is what a report corrects further.
    """

    indexes: tuple[int, ...]
    tokens: int
    raw_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Impossible:
    """A text that fits no request, and why."""

    index: int
    reason: str
    blank: bool = False  # whatever the caps: there is nothing that could be sent


@dataclass(frozen=True, slots=True, kw_only=True)
class Packing:
    """Every text is in exactly one batch or impossible."""

    batches: tuple[Batch, ...]
    impossible: tuple[Impossible, ...] = ()

    @property
    def calls(self) -> int:
        return len(self.batches)

    @property
    def tokens(self) -> int:
        return sum(batch.tokens for batch in self.batches)

    @property
    def largest_tokens(self) -> int:
        """Tokens of the largest request: what one call has to declare."""
        return max((batch.tokens for batch in self.batches), default=0)

    @property
    def largest_raw_tokens(self) -> int:
        """The same before the model's correction, which may have moved when the call is made."""
        return max((batch.raw_tokens for batch in self.batches), default=0)


class Filling:
    """A request that is being filled: what it holds so far, and whether one more text fits beside that."""

    __slots__ = ("_caps", "bytes", "items", "raw_tokens", "tokens")

    def __init__(self, caps: Caps) -> None:
        self._caps = caps
        self.empty()

    def empty(self) -> None:
        self.items = self.tokens = self.raw_tokens = self.bytes = 0

    def takes(self, tokens: int, size: int, items: int = 1) -> bool:
        """Whether this fits too. An empty one takes anything: what is too large for every request is no matter here."""
        caps = self._caps
        return not self.items or not (
            (caps.items is not None and self.items + items > caps.items)
            or (caps.tokens is not None and self.tokens + tokens > caps.tokens)
            or (caps.bytes is not None and self.bytes + size > caps.bytes)
        )

    def add(self, tokens: int, size: int, items: int = 1) -> None:
        self.items += items
        self.tokens += tokens
        self.raw_tokens += getattr(tokens, "raw", tokens)
        self.bytes += size


def pack(tokens: Sequence[int], sizes: Sequence[int], caps: Caps, lengths: Sequence[int] | None = None) -> Packing:
    """Batches for texts of these token counts and byte sizes (and lengths in characters), in order: a batch is closed
    when the next text would not fit. 0 bytes is an empty text, which no provider embeds; less than 0 is a text that is
    no valid Unicode."""
    batches: list[Batch] = []
    impossible: list[Impossible] = []
    held: list[int] = []
    filling = Filling(caps)

    def close() -> None:
        if held:
            batches.append(Batch(indexes=tuple(held), tokens=filling.tokens, raw_tokens=filling.raw_tokens))
            held.clear()
            filling.empty()

    for index, (count, size) in enumerate(zip(tokens, sizes, strict=True)):
        found = refusal(index, count, size, caps, 0 if lengths is None else lengths[index])
        if found is not None:
            impossible.append(found)
            continue
        if not filling.takes(count, size):
            close()
        held.append(index)
        filling.add(count, size)
    close()
    return Packing(batches=tuple(batches), impossible=tuple(impossible))


def refusal(index: int, tokens: int, size: int, caps: Caps, length: int = 0) -> Impossible | None:
    """Why no request can carry a text of that many tokens, bytes and characters; None: one can."""
    if size <= 0:
        reason = "is empty" if size == 0 else "holds a lone surrogate, which is not valid Unicode"
        return Impossible(index=index, reason=reason, blank=True)
    longest = caps.longest_text
    if longest is not None and tokens > longest:
        return Impossible(index=index, reason=f"has about {tokens:,} tokens where {longest:,} are allowed")
    if caps.item_characters is not None and length > caps.item_characters:
        return Impossible(index=index, reason=f"has {length:,} characters where {caps.item_characters:,} are allowed")
    if caps.bytes is not None and size > caps.bytes:
        return Impossible(index=index, reason=f"has {size:,} bytes where {caps.bytes:,} are allowed")
    return None


def plan_requests(texts: Sequence[str], caps: Caps, counts: Sequence[int]) -> Packing:
    """The requests that `texts` of these token counts take: the one plan behind both what is reserved and what is sent.

    What is reserved is `calls` requests of at most `largest_tokens` each.
    """
    lengths = None if caps.item_characters is None else [len(text) for text in texts]
    return pack(counts, [size_of(text) for text in texts], caps, lengths)


def counter(entry: ModelEntry, estimate: Callable[[str], int]) -> Callable[[str], int]:
    """The tokens of a text as this entry sends it: with the longest of its prefixes, whatever it is sent for."""
    longest = max(entry.prefixes.values(), key=len, default="")
    return (lambda text: estimate(longest + text)) if longest else estimate


def size_of(text: str) -> int:
    """Bytes of UTF-8; less than 0 for a text that is no valid Unicode."""
    if text.isascii():
        return len(text)
    try:
        return len(text.encode())
    except UnicodeEncodeError:
        return -1


def require_possible(packing: Packing, owners: Sequence[int], *, model: str, texts: int) -> None:
    """Raise for the texts that were set apart, naming each, before anything is sent and so before anything is paid.
    `owners[k]` is the index of the text that the k-th part belongs to."""
    if not packing.impossible:
        return
    refused = {owners[item.index]: item for item in reversed(packing.impossible)}
    indexes = tuple(sorted(refused))
    shown = "; ".join(f"text {index} {refused[index].reason}" for index in indexes[:5])
    more = f"; and {len(indexes) - 5} more" if len(indexes) > 5 else ""
    message = f"{model} cannot embed {len(indexes)} of {texts} texts: {shown}{more}. Nothing was sent."
    if any(item.blank for item in refused.values()):
        raise BlankTextError(f"{message} Leave them out.", indexes=indexes, model=model)
    raise TextTooLongError(f'{message} Ask for truncate=True, or for split="average".', indexes=indexes, model=model)
