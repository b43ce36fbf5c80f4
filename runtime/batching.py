"""From the texts of a corpus to batches: read as they are needed, filled under the caps of the model picked now."""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Generic, TypeAlias, TypeVar

from interlock.embeddings.packing import Filling, counter, refusal, size_of

if TYPE_CHECKING:
    from interlock.catalog.spec import ModelSpec

    from .desk import ModelDesk

Id = TypeVar("Id", bound=Hashable)

#: A text and what it is called.
Pair: TypeAlias = tuple[Id, str]
#: Which of these texts need not be embedded (again), by their ids.
Known: TypeAlias = Callable[[Sequence[Pair[Id]]], Collection[Id] | Awaitable[Collection[Id]]]

#: How many texts are read, and asked about with `known`, at once.
LOOK_UP = 1_000
#: The most texts of a batch unless the call says otherwise, whatever the model would take: of 1,024 numbers each that
#: is 2 MB of vectors.
BATCH_TEXTS = 512
#: How many batches are under way at once unless the call says otherwise, of several texts and of one.
LIMIT, LIMIT_OF_SINGLES = 16, 64


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedText(Generic[Id]):
    """A text that has no vector, and why."""

    id: Id
    reason: str


@dataclass(slots=True, eq=False)
class Batch(Generic[Id]):
    """What one call is to embed, and what is told along with it."""

    ids: list[Id] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    refused: list[RefusedText[Id]] = field(default_factory=list)
    skipped: int = 0

    def __bool__(self) -> bool:
        return bool(self.ids or self.refused or self.skipped)

    def without(self, indexes: Iterable[int], reason: str) -> Batch[Id]:
        """The same with these texts refused."""
        out = frozenset(indexes)
        stay = [index for index in range(len(self.ids)) if index not in out]
        return Batch(
            [self.ids[index] for index in stay],
            [self.texts[index] for index in stay],
            [*self.refused, *(RefusedText(id=self.ids[index], reason=reason) for index in sorted(out))],
            self.skipped,
        )

    def parts(self, most: int) -> list[Batch[Id]]:
        """The same in parts of `most` texts; what else there is to tell comes with the first."""
        starts = range(0, len(self.ids), most)
        parts = [Batch(self.ids[at : at + most], self.texts[at : at + most]) for at in starts]
        parts[0].refused, parts[0].skipped = self.refused, self.skipped
        return parts


class Packer(Generic[Id]):
    """Fills batches under the caps of the model that is picked now; each batch asks again."""

    def __init__(self, desk: ModelDesk, spec: ModelSpec, *, cuts: bool, batch_texts: int) -> None:
        self._desk, self._spec, self._cuts, self._batch_texts = desk, spec, cuts, batch_texts
        self.width = desk.catalog.embedding_width
        self._batch = Batch[Id]()
        self._begin()

    @property
    def limit(self) -> int:
        return LIMIT if self._caps.items != 1 else LIMIT_OF_SINGLES

    def add(self, id: Id, text: str) -> Batch[Id] | None:
        """Take a text in; gives the batch before it when it does not fit into that any more."""
        if not isinstance(text, str):
            raise TypeError(f"the text of {id!r} is {type(text).__name__}, not str")
        tokens, size = self._count(text), size_of(text)
        found = refusal(0, tokens, size, self._caps, len(text))
        if found is not None and (found.blank or not self._cuts):
            self._batch.refused.append(RefusedText(id=id, reason=found.reason))
            return self.close() if len(self._batch.refused) >= self._batch_texts else None
        # A text that will be cut or split has a request to itself: how much is left of it is the call's own matter.
        full = self.close() if found is not None or not self._filling.takes(tokens, size) else None
        self._filling.add(tokens, size)
        self._batch.ids.append(id)
        self._batch.texts.append(text)
        return full or None

    def skip(self) -> None:
        self._batch.skipped += 1

    def close(self) -> Batch[Id]:
        """The batch as it is; the next one begins."""
        done, self._batch = self._batch, Batch[Id]()
        self._begin()
        return done

    def _begin(self) -> None:
        entry = self._desk.bind(self._spec, 0, exact=True).entry
        self._count = counter(entry, partial(self._desk.estimator.estimate, entry.id))
        caps = self._desk.text_caps(entry)
        items = self._batch_texts if caps.items is None else min(caps.items, self._batch_texts)
        self._caps = replace(caps, items=items)
        self._filling = Filling(self._caps)


async def read_batches(
    texts: Iterable[Pair[Id]] | AsyncIterable[Pair[Id]], packer: Packer[Id], known: Known[Id] | None
) -> AsyncGenerator[Batch[Id], None]:
    async for pairs in _looked_up(texts, LOOK_UP if known is not None else 1):
        passed: Collection[Id] = ()
        if known is not None:
            answer = known(pairs)
            passed = await answer if inspect.isawaitable(answer) else answer
        for id, text in pairs:
            if id in passed:
                packer.skip()
                continue
            full = packer.add(id, text)
            if full is not None:
                yield full
    last = packer.close()
    if last:
        yield last


async def _looked_up(
    texts: Iterable[Pair[Id]] | AsyncIterable[Pair[Id]], count: int
) -> AsyncGenerator[list[Pair[Id]], None]:
    """The texts, `count` at a time."""
    held: list[Pair[Id]] = []
    if isinstance(texts, AsyncIterable):
        async for pair in texts:
            held.append(pair)
            if len(held) >= count:
                yield held
                held = []
    else:
        for pair in texts:
            held.append(pair)
            if len(held) >= count:
                yield held
                held = []
    if held:
        yield held
