"""Which texts share a request: greedy, in order, under every cap of the entry. Pure.

A text no request can carry is set apart by its index and does not hinder the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from interlock.catalog.entry import ModelEntry
from interlock.errors import ContextWindowExceededError, InvalidRequestError


@dataclass(frozen=True, slots=True, kw_only=True)
class Caps:
    """What one request may carry, and one text of it. None is no cap. Bytes are of UTF-8."""

    items: int | None = None
    tokens: int | None = None
    bytes: int | None = None
    item_tokens: int | None = None

    @staticmethod
    def of(entry: ModelEntry, *, max_bytes: int | None = None) -> Caps:
        return Caps(
            items=entry.max_batch_items,
            tokens=entry.max_batch_tokens,
            bytes=max_bytes,
            item_tokens=entry.context_window,
        )

    @property
    def longest_text(self) -> int | None:
        """The most tokens one text may have."""
        caps = [cap for cap in (self.item_tokens, self.tokens) if cap is not None]
        return min(caps, default=None)


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


class BlankTextError(InvalidRequestError):
    """A text without a character, or that is no valid Unicode, has no vector. `indexes` (0-based) are all texts that
    could not be sent."""

    code = "blank_text"

    def __init__(self, message: str, *, indexes: tuple[int, ...] = (), model: str | None = None) -> None:
        super().__init__(message, model=model, sent=False)
        self.indexes = indexes


class TextTooLongError(ContextWindowExceededError):
    """A text is longer than one request of the model may be. `indexes` (0-based) are all that could not be sent."""

    code = "text_too_long"

    def __init__(self, message: str, *, indexes: tuple[int, ...] = (), model: str | None = None) -> None:
        super().__init__(message, model=model, sent=False)
        self.indexes = indexes


def pack(tokens: Sequence[int], sizes: Sequence[int], caps: Caps) -> Packing:
    """Batches for texts of these token counts and byte sizes, in order: a batch is closed when the next text would not
    fit. 0 bytes is an empty text, which no provider embeds; less than 0 is a text that is no valid Unicode."""
    batches: list[Batch] = []
    impossible: list[Impossible] = []
    held: list[int] = []
    held_tokens = held_bytes = 0

    def close() -> None:
        if held:
            raw = sum(getattr(tokens[index], "raw", tokens[index]) for index in held)
            batches.append(Batch(indexes=tuple(held), tokens=held_tokens, raw_tokens=raw))

    for index, (count, size) in enumerate(zip(tokens, sizes, strict=True)):
        refusal = _refusal(index, count, size, caps)
        if refusal is not None:
            impossible.append(refusal)
            continue
        if _over(caps, len(held) + 1, held_tokens + count, held_bytes + size):
            close()
            held, held_tokens, held_bytes = [], 0, 0
        held.append(index)
        held_tokens += count
        held_bytes += size
    close()
    return Packing(batches=tuple(batches), impossible=tuple(impossible))


def _over(caps: Caps, items: int, tokens: int, size: int) -> bool:
    return any(
        cap is not None and amount > cap
        for cap, amount in ((caps.items, items), (caps.tokens, tokens), (caps.bytes, size))
    )


def _refusal(index: int, tokens: int, size: int, caps: Caps) -> Impossible | None:
    if size <= 0:
        reason = "is empty" if size == 0 else "holds a lone surrogate, which is not valid Unicode"
        return Impossible(index=index, reason=reason, blank=True)
    longest = caps.longest_text
    if longest is not None and tokens > longest:
        return Impossible(index=index, reason=f"has about {tokens:,} tokens where {longest:,} are allowed")
    if caps.bytes is not None and size > caps.bytes:
        return Impossible(index=index, reason=f"has {size:,} bytes where {caps.bytes:,} are allowed")
    return None


def plan_requests(
    entry: ModelEntry,
    texts: Sequence[str],
    *,
    count: Callable[[str], int],
    max_bytes: int | None = None,
    truncate: bool = False,
) -> Packing:
    """The requests that `texts` take on this entry: the one plan behind both what is reserved and what is sent.

    `count` gives the tokens of a text. What is reserved is `calls` requests of at most `largest_tokens` each. With
    `truncate` a text that is too long counts as much as will be left of it.
    """
    caps = Caps.of(entry, max_bytes=max_bytes)
    tokens, longest = [count(text) for text in texts], caps.longest_text
    if truncate and longest is not None:
        tokens = [min(each, longest) for each in tokens]
    return pack(tokens, [_size(text) for text in texts], caps)


def _size(text: str) -> int:
    try:
        return len(text.encode())
    except UnicodeEncodeError:
        return -1


def require_possible(packing: Packing, *, model: str, texts: int) -> None:
    """Raise for the texts that were set apart, naming each, before anything is sent and so before anything is paid."""
    refused = packing.impossible
    if not refused:
        return
    shown = "; ".join(f"text {item.index} {item.reason}" for item in refused[:5])
    more = f"; and {len(refused) - 5} more" if len(refused) > 5 else ""
    indexes = tuple(item.index for item in refused)
    message = f"{model} cannot embed {len(refused)} of {texts} texts: {shown}{more}. Nothing was sent."
    if any(item.blank for item in refused):
        raise BlankTextError(f"{message} Leave them out.", indexes=indexes, model=model)
    raise TextTooLongError(f"{message} Split them, or ask for truncate=True.", indexes=indexes, model=model)
