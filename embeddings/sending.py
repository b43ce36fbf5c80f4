"""The requests of one call: several at once, and where the provider refuses one because of a text, that text found.

A refused request is halved, and halved again, until the text stands alone: for one text among n that is about
2 log2(n) requests more. A request that is refused for being too large comes through in its halves. Texts that are
refused alone, one after the other, while none has been taken say that it is not the texts: then the provider's own
error is raised.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any

from interlock.errors import ContextWindowExceededError, InvalidRequestError, ProviderRefusalError, UpstreamError

from .errors import TextRefusedError, TextTooLongError, TooManyRefusedError
from .packing import Batch
from .response import EmbeddingsResponse

#: The most refusals that one call takes to find the texts which its provider refuses. What is taken on the way is no
#: waste, and not counted.
MOST_REFUSALS = 64
#: Of a call of so many texts each can be named.
NAMEABLE_TEXTS = MOST_REFUSALS // 2
# What a provider answers where the body is at fault.
_OF_THE_BODY = frozenset({400, 413, 422})
_KNOWN = ("model", "provider", "status", "request_id", "provider_code")
# So many texts that are refused, each in a request of its own, may be a coincidence.
_FEW = 4

#: Sends one request and keeps its vectors; the flag says that it is one more than was declared.
Request = Callable[[Batch, bool], Awaitable[None]]


class Refusals:
    """The parts that the provider refuses, each with its error."""

    def __init__(self) -> None:
        self.parts: dict[int, UpstreamError] = {}
        self.accepted = 0
        self.left = MOST_REFUSALS

    def __bool__(self) -> bool:
        return bool(self.parts)

    def name(self, part: int, error: UpstreamError, *, most: int) -> None:
        """`most` refused texts and not one that was taken: it is the request, and the search ends."""
        self.parts[part] = error
        if not self.accepted and len(self.parts) >= most:
            raise next(iter(self.parts.values()))

    def error(
        self, texts: Sequence[int], *, kept: EmbeddingsResponse | None, kept_indexes: tuple[int, ...]
    ) -> UpstreamError:
        """The error that names these texts, in the words of the first refusal."""
        first = next(iter(self.parts.values()))
        shown = ", ".join(map(str, texts[:10])) + (f" and {len(texts) - 10} more" if len(texts) > 10 else "")
        which = f"text {shown} is" if len(texts) == 1 else f"texts {shown} are"
        known: dict[str, Any] = {name: getattr(first, name) for name in _KNOWN}
        known |= {"indexes": tuple(texts), "kept": kept, "kept_indexes": kept_indexes}
        if all(isinstance(error, ContextWindowExceededError) for error in self.parts.values()):
            return TextTooLongError(f"{which} too long for {first.model}: {first}", sent=True, **known)
        return TextRefusedError(f"{which} refused: {first}", **known)


def is_of_the_body(error: BaseException) -> bool:
    """Whether a provider refuses what a request holds, which may be one of its texts."""
    if not isinstance(error, (InvalidRequestError, ContextWindowExceededError, ProviderRefusalError)):
        return False
    return error.sent and error.status in _OF_THE_BODY


async def send_all(batches: Sequence[Batch], request: Request, counts: Sequence[int], *, at_once: int) -> Refusals:
    """Every batch sent, at most `at_once` at a time. The first failure stops the others and is raised; a refusal of
    the body is looked into when all have been sent. `counts` are the tokens of each part."""
    refusals, refused = Refusals(), list[tuple[Batch, UpstreamError]]()

    async def one(batch: Batch) -> None:
        error = await _refusal(batch, request, refusals, further=False)
        if error is not None and len(batch.indexes) > 1:
            refused.append((batch, error))
        elif error is not None:
            if len(batches) == 1:
                raise error
            for part in batch.indexes:  # a refusal is quicker than an answer: those under way are waited for
                refusals.name(part, error, most=max(at_once, _FEW))

    await _several(batches, one, at_once)
    for batch, error in refused:
        await _Search(batch, error, request, counts, refusals).run()
    if refusals and not refusals.accepted:  # nothing says that it is these texts
        raise next(iter(refusals.parts.values()))
    return refusals


async def _refusal(batch: Batch, request: Request, refusals: Refusals, *, further: bool) -> UpstreamError | None:
    """The provider's no to a request's body; None: it was taken."""
    try:
        await request(batch, further)
    except UpstreamError as error:
        if not is_of_the_body(error):
            raise
        return error
    refusals.accepted += 1
    return None


async def _several(batches: Sequence[Batch], one: Callable[[Batch], Awaitable[None]], at_once: int) -> None:
    if at_once < 2 or len(batches) < 2:
        for batch in batches:
            await one(batch)
        return
    waiting: Iterator[Batch] = iter(batches)

    async def worker() -> None:
        for batch in waiting:
            await one(batch)

    workers = [asyncio.ensure_future(worker()) for _ in range(min(at_once, len(batches)))]
    try:
        done, _ = await asyncio.wait(workers, return_when=asyncio.FIRST_EXCEPTION)
    finally:
        for each in workers:
            each.cancel()
        await asyncio.wait(workers)
    for each in workers:
        if each in done:
            each.result()


class _Search:
    """Finds the texts for which one request was refused, and has the others embedded on the way."""

    def __init__(
        self, batch: Batch, error: UpstreamError, request: Request, counts: Sequence[int], refusals: Refusals
    ) -> None:
        self._batch, self._error, self._request, self._counts, self._found = batch, error, request, counts, refusals
        self._done: set[int] = set()

    async def run(self) -> None:
        await self._halves(list(self._batch.indexes))

    async def _halves(self, parts: list[int]) -> None:
        """`parts` were refused together: their halves."""
        middle = len(parts) // 2
        for half in (parts[:middle], parts[middle:]):
            await self._part([part for part in half if part not in self._done])

    async def _part(self, parts: list[int]) -> None:
        if not parts:
            return
        error = await self._ask(parts)
        if error is None:
            self._done.update(parts)
        elif len(parts) > 1:
            await self._halves(parts)
        else:
            self._done.update(parts)
            self._found.name(parts[0], error, most=_FEW)
            last = self._batch.indexes[-1]
            if not self._found.accepted and last not in self._done:
                await self._part([last])  # whether anything is taken at all

    async def _ask(self, parts: list[int]) -> UpstreamError | None:
        found = self._found
        if found.left < 1:
            raise self._given_up()
        error = await _refusal(self._as_batch(parts), self._request, found, further=True)
        found.left -= error is not None
        return error

    def _as_batch(self, parts: list[int]) -> Batch:
        counts = [self._counts[part] for part in parts]
        raw = sum(getattr(count, "raw", count) for count in counts)
        return Batch(indexes=tuple(parts), tokens=sum(counts), raw_tokens=raw)

    def _given_up(self) -> UpstreamError:
        error = self._error
        known = {name: getattr(error, name) for name in _KNOWN}
        return TooManyRefusedError(
            f"{error} (more of these {len(self._batch.indexes)} texts are refused than {MOST_REFUSALS} further requests"
            " could name: send them in smaller batches, or set the entry's max_batch_items to what its provider takes)",
            **known,
        )
