"""From documents to a collection, and from a question to what it finds: through a Runtime, so that every embedding is
admitted, recorded, costed and capped."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from interlock.catalog.spec import ModelSpec
from interlock.catalog.words import Kind
from interlock.embeddings.purpose import EmbeddingPurpose
from interlock.errors import ModelResolutionError, StoreError

from ..corpus import embed_corpus
from ..inside import dispatcher_of
from .collection import Collection, NoReplacementError
from .documents import CollectionInfo, Document, Hit, VectorModel, command_again, fields_text, require_same

if TYPE_CHECKING:
    from interlock.catalog.entry import ModelEntry

    from ..corpus import EmbeddedBatch
    from ..runtime import Runtime

#: Documents read from a store at once, to be embedded again.
PAGE = 1_000
#: Refused documents that are kept, with their texts; the others are counted.
MOST_REFUSED = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedDocument:
    """A document that has no vector, and why."""

    document: Document
    reason: str


@dataclass(slots=True, kw_only=True)
class EmbedTotals:
    """What became of the documents so far.

    `stored` got a vector, `unchanged` had one for the same text, `refused_count` cannot have one; `refused` are the
    first 1,000 of these. `tokens` and `cost` (by currency) are those of the calls; `unpriced` says that a call's cost
    is not known. `left` is how many of a collection are still to be embedded again, where that was stopped.
    """

    stored: int = 0
    unchanged: int = 0
    refused: list[RefusedDocument] = field(default_factory=list)
    refused_count: int = 0
    tokens: int = 0
    cost: dict[str, Decimal] = field(default_factory=dict)
    unpriced: bool = False
    left: int = 0

    def _add(self, batch: EmbeddedBatch[_Held]) -> None:
        self.stored += len(batch)
        self.unchanged += batch.skipped
        for one in batch.refused:
            self._refuse(one.id.document, one.reason)
        self.tokens += batch.tokens
        response, cost = batch.response, batch.cost
        if response is not None and cost is None:
            self.unpriced = True
        elif response is not None and cost is not None and response.currency is not None:
            self.cost[response.currency] = self.cost.get(response.currency, Decimal(0)) + cost

    def _refuse(self, document: Document, reason: str) -> None:
        self.refused_count += 1
        if len(self.refused) < MOST_REFUSED:
            self.refused.append(RefusedDocument(document=document, reason=reason))


@dataclass(frozen=True, slots=True, eq=False)
class _Held:
    """A document on its way, told from every other by being itself: one that comes twice is two."""

    document: Document


async def embed_documents(
    runtime: Runtime,
    collection: Collection,
    documents: Iterable[Document] | AsyncIterable[Document],
    *,
    model: ModelSpec | str | None = None,
    progress: Callable[[EmbedTotals], None] | None = None,
    stopping: Callable[[], bool] = lambda: False,
    **options: Any,
) -> EmbedTotals:
    """Embed documents and store them, batch by batch, in bounded memory; those that are stored with the same text are
    passed over. A batch is on disk before the next one is looked at, so whatever ends it, a second call goes on there.

    `model` is an entry of the catalog; without it the catalog's pin. CollectionModelError before anything is sent where
    the collection holds another model's vectors. A document that cannot be embedded is in `refused` and stops nothing.
    `progress` is called with the totals after each batch. Once `stopping()` is true no further document is begun.
    `options` are those of `embed_corpus`: `truncate`, `limit`, `workflow`, ...
    """
    totals = EmbedTotals()
    entry = embedding_entry(runtime, model)
    await _require_model(runtime, collection, entry)
    given = _until(stopping, documents)
    await _embed(runtime, collection, given, model, totals, progress, known=True, **options)
    if totals.stored:
        await collection.index()
    return totals


async def embed_again(
    runtime: Runtime,
    collection: Collection,
    *,
    model: ModelSpec | str | None = None,
    progress: Callable[[EmbedTotals], None] | None = None,
    stopping: Callable[[], bool] = lambda: False,
    **options: Any,
) -> EmbedTotals:
    """Embed every stored document again, with another model. Until the last one is done the old vectors are found;
    then the new ones take their place in one step. What was cut off goes on at the next call.

    A document that the new model refuses would be lost, so the old vectors stay where there is one: StoreError, which
    names the first.
    """
    totals = EmbedTotals()
    entry, width = embedding_entry(runtime, model), runtime.catalog.embedding_width
    await collection.begin_replacement(model=entry, width=width)
    while True:
        outdated = _until(stopping, _outdated(collection))
        try:
            await _embed(
                runtime, collection, outdated, model, totals, progress, known=False, replacement=True, **options
            )
        except NoReplacementError:
            if not await _is_done(collection, entry, width):
                raise
            return totals  # by another process, which was asked for the same
        if totals.refused:
            first = totals.refused[0]
            raise StoreError(
                f"{totals.refused_count:,} documents of {collection.name} have no vector by {entry.id}, the first "
                f"{first.document.id!r}: {first.reason}. The old vectors stay; delete those documents or choose "
                "another model, and go on with the same command"
            )
        if not stopping():
            await collection.index(replacement=True)
        totals.left = await collection.switch()
        if not totals.left or stopping():
            return totals


async def search_documents(
    runtime: Runtime, collection: Collection, question: str, *, k: int = 10, **options: Any
) -> tuple[Hit, ...]:
    """The `k` stored documents that are nearest to a question, best first: the question is embedded by the model that
    made the collection's vectors, whichever entry of the catalog serves that.

    StoreError where nothing is stored, ModelResolutionError where the catalog has no entry of that model.
    """
    info = await collection.info()
    if info is None:
        raise StoreError(f"{collection.place} has no collection {collection.name}: embed something into it first")
    stored = info.model
    entries = _serving(runtime, stored)
    if not entries:
        raise ModelResolutionError(
            f"the collection {collection.name} holds vectors of {stored.entry} ({stored.identity}), and no embedding "
            f"model of the catalog {runtime.catalog.file} is that: add an entry of that identity, or embed all of it "
            f"again with `{command_again(collection.place, collection.name, catalog=runtime.catalog.path)}`"
        )
    width = runtime.catalog.embedding_width
    given = (VectorModel.of(entries[0]), width)
    _require_same(runtime, collection, info, given, writing=False)
    for last, entry in enumerate(entries, start=1 - len(entries)):
        client = runtime.embeddings(entry.id)
        try:
            vector = (await client.embed(question, EmbeddingPurpose.QUERY, **options)).vector
        except ModelResolutionError:
            if not last:
                raise
        else:
            return await collection.search(vector, k=k, model=entry)
    raise AssertionError("there was an entry")


def embedding_entry(runtime: Runtime, model: ModelSpec | str | None) -> ModelEntry:
    """What would embed now. ModelResolutionError where nothing can."""
    spec = model if isinstance(model, ModelSpec) else ModelSpec(model, kind=Kind.EMBEDDINGS)
    return dispatcher_of(runtime).desk.bind(spec, 0, exact=True).entry


async def _require_model(runtime: Runtime, collection: Collection, entry: ModelEntry) -> None:
    info = await collection.info()
    if info is not None:
        given = (VectorModel.of(entry), runtime.catalog.embedding_width)
        _require_same(runtime, collection, info, given, writing=True)


def _require_same(
    runtime: Runtime, collection: Collection, info: CollectionInfo, given: tuple[VectorModel, int], *, writing: bool
) -> None:
    stored, catalog = (info.model, info.width), runtime.catalog.path
    require_same(collection.place, collection.name, stored, given, writing=writing, catalog=catalog)


async def _is_done(collection: Collection, entry: ModelEntry, width: int) -> bool:
    info = await collection.info()
    return info is not None and (info.model.identity, info.width) == (VectorModel.of(entry).identity, width)


async def _embed(
    runtime: Runtime,
    collection: Collection,
    documents: AsyncIterable[Document],
    model: ModelSpec | str | None,
    totals: EmbedTotals,
    progress: Callable[[EmbedTotals], None] | None,
    *,
    known: bool,
    replacement: bool = False,
    **options: Any,
) -> None:
    async def stored(pairs: Sequence[tuple[_Held, str]]) -> frozenset[_Held]:
        ids = await collection.unchanged([held.document for held, _ in pairs])
        return frozenset(held for held, _ in pairs if held.document.id in ids)

    found = embed_corpus(
        runtime, _pairs(documents, totals), model=model, known=stored if known else None, refused="keep", **options
    )
    async with aclosing(found) as batches:
        async for batch in batches:
            if batch.response is not None:
                served = runtime.catalog.entries.get(batch.response.model, batch.response.model)
                whole = [held.document for held in batch.ids]
                await collection.add(whole, batch.vectors, model=served, replacement=replacement)
            totals._add(batch)
            if progress is not None:
                progress(totals)


async def _pairs(documents: AsyncIterable[Document], totals: EmbedTotals) -> AsyncIterator[tuple[_Held, str]]:
    """What cannot be stored is refused here, before its vector is paid for."""
    async for document in documents:
        try:
            fields_text(document)
        except ValueError as error:
            totals._refuse(document, str(error))
        else:
            yield _Held(document), document.text


async def _until(
    stopping: Callable[[], bool], documents: Iterable[Document] | AsyncIterable[Document]
) -> AsyncIterator[Document]:
    if isinstance(documents, AsyncIterable):
        async for document in documents:
            if stopping():
                return
            yield document
    else:
        for document in documents:
            if stopping():
                return
            yield document


async def _outdated(collection: Collection) -> AsyncIterator[Document]:
    after = ""
    while page := await collection.outdated(after=after, limit=PAGE):
        for document in page:
            yield document
        after = page[-1].id


def _serving(runtime: Runtime, model: VectorModel) -> list[ModelEntry]:
    """The entries of that model: the one that was used first, then the others in the catalog's order."""
    entries = [
        entry
        for entry in runtime.catalog.entries.values()
        if entry.kind is Kind.EMBEDDINGS and (entry.identity or entry.id) == model.identity
    ]
    return sorted(entries, key=lambda entry: entry.id != model.entry)
