"""AbstractEmbeddingsClient: the template. A provider subclass sends one request; everything else is here."""

from __future__ import annotations

import asyncio
import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import partial
from typing import Any, ClassVar, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from interlock.admission.outcome import Dimension, ReportedLimit
from interlock.catalog.entry import ModelEntry
from interlock.catalog.spec import ModelBinding
from interlock.catalog.tokens import Estimate, estimate_text
from interlock.catalog.usage import Usage
from interlock.catalog.words import Kind
from interlock.clients.environment import ClientEnvironment
from interlock.clients.exchange import exchange
from interlock.clients.lifecycle import CallAttempt
from interlock.clients.record import CallRecord, CallSeat

from .align import align
from .cutting import Parts, Split, parts_of
from .packing import Batch, Caps, Packing, counter, plan_requests, require_possible
from .purpose import EmbeddingPurpose
from .response import EmbeddingsResponse
from .sending import Refusals, send_all
from .vectors import Float32, average, fit

T = TypeVar("T")

# Above these the work leaves the event loop for a thread: about a millisecond each.
_CHARACTERS_INLINE = 20_000
_NUMBERS_INLINE = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddingAnswer:
    """What a provider answered to one request.

    `vectors` as the wire has them (rows of numbers, base64, or an array); `indexes` are the results' own numbers, None
    for a wire without any. `usage` None is unknown.
    """

    vectors: Sequence[Any] | NDArray[Any]
    indexes: Sequence[object] | None = None
    usage: Usage | None = None
    request_id: str | None = None
    served_model: str | None = None
    reported: Mapping[Dimension, ReportedLimit] | None = None


class AbstractEmbeddingsClient(ABC):
    """One entry of the catalog, callable. A subclass owns `send`: one wire request, its errors and its usage.

    The template packs texts under the entry's caps (`max_batch_items`, `max_batch_tokens`, and `context_window` for
    one text; the `MAX_...` of the wire), takes a permit for each request, puts the
    vectors back in order, fits them to the catalog's one width, and records.
    """

    #: The most texts, tokens and bytes of text one request may carry, whatever the entry says; None: no cap.
    MAX_REQUEST_TEXTS: ClassVar[int | None] = None
    MAX_REQUEST_TOKENS: ClassVar[int | None] = None
    MAX_REQUEST_BYTES: ClassVar[int | None] = None
    #: The most characters of one text; None where only its tokens count.
    MAX_TEXT_CHARACTERS: ClassVar[int | None] = None
    #: How many requests of one call may be under way at once; None: as many as the pool and the connections allow.
    REQUESTS_AT_ONCE: ClassVar[int | None] = None
    UPSTREAM_RETRIES: ClassVar[int] = 3
    #: Whether the transport tells when the first byte leaves. Otherwise a request counts as sent when `send` is called.
    tells_first_byte: ClassVar[bool] = False

    def __init__(self, entry: ModelEntry, environment: ClientEnvironment) -> None:
        self.entry, self.environment = entry, environment
        #: As many requests at once as there are connections; the rest wait here, before their permit is drawn.
        self.connections = asyncio.Semaphore(environment.settings.max_connections)

    @abstractmethod
    async def send(self, texts: Sequence[str], purpose: EmbeddingPurpose) -> EmbeddingAnswer:
        """Send one request, once, without any retry. Raises UpstreamError subclasses, or what `failure` reads."""

    def failure(self, error: Exception) -> Exception:
        """What an exception of `send` means. One that is no provider's doing comes back as it is."""
        return error

    def limits_in(self, error: Exception) -> Mapping[Dimension, ReportedLimit]:
        """What an error's response says of the account's limits: a refusal carries them too."""
        return {}

    def ready(self) -> None:  # noqa: B027 - not abstract: a model in this process needs nothing
        """Make ready to send. Called before every request's permit is drawn, so that what is missing costs nothing."""

    async def aclose(self) -> None:  # noqa: B027 - not abstract: a model in this process has nothing open
        """Close what was opened. The client is not used afterwards."""

    @classmethod
    def caps(cls, entry: ModelEntry) -> Caps:
        """What one request to this entry may carry, and one text of it."""
        return Caps.of(
            entry,
            max_texts=cls.MAX_REQUEST_TEXTS,
            max_tokens=cls.MAX_REQUEST_TOKENS,
            max_bytes=cls.MAX_REQUEST_BYTES,
            text_characters=cls.MAX_TEXT_CHARACTERS,
        )

    def bound(self, binding: ModelBinding, seat: CallSeat) -> BoundEmbeddingsClient:
        return BoundEmbeddingsClient(self, binding, seat)

    @property
    def declared_dimensions(self) -> int:
        """The width the wire answers with; the catalog's own where the entry declares none."""
        entry = self.entry
        return entry.requested_dimensions or entry.dimensions or self.environment.embedding_width

    @property
    def timeout_s(self) -> float:
        return self.entry.timeout_s or self.environment.settings.timeout_s

    @property
    def at_once(self) -> int:
        """How many requests of one call are under way at once."""
        limits, settings = self.environment.limits, self.environment.settings
        bounds = (
            self.REQUESTS_AT_ONCE,
            limits.max_concurrent if limits is not None else None,
            settings.max_connections,
        )
        return min(bound for bound in bounds if bound is not None)

    def estimate(self, text: str) -> int:
        """Tokens of a text, as the reservation counts them."""
        estimator = self.environment.estimator
        return estimate_text(text) if estimator is None else estimator.estimate(self.entry.id, text)


@dataclass(slots=True)
class _Total:
    """What the requests of one call add up to."""

    vectors: Float32
    usage: Usage = field(default_factory=lambda: Usage(input_tokens=0, output_tokens=0))
    served: dict[int, CallRecord] = field(default_factory=dict)  # by the first of its parts

    def add(self, batch: Batch, record: CallRecord) -> None:
        self.usage += record.usage
        self.served[batch.indexes[0]] = record

    @property
    def records(self) -> list[CallRecord]:
        """In the order of the texts, whichever was answered first."""
        return [self.served[part] for part in sorted(self.served)]


@dataclass(frozen=True, slots=True)
class _Work:
    """The texts of one call, as they are sent."""

    texts: int
    parts: Parts
    packing: Packing
    counts: Sequence[int]


class BoundEmbeddingsClient:
    """The template's EmbeddingsClient for one job's reservation."""

    def __init__(self, client: AbstractEmbeddingsClient, binding: ModelBinding, seat: CallSeat) -> None:
        self._client, self._binding, self._seat = client, binding, seat

    async def embed(
        self,
        text: str,
        purpose: EmbeddingPurpose = EmbeddingPurpose.DOCUMENT,
        *,
        truncate: bool = False,
        split: Split | None = None,
    ) -> EmbeddingsResponse:
        return await self.embed_batch([text], purpose, truncate=truncate, split=split)

    async def embed_batch(
        self,
        texts: Sequence[str],
        purpose: EmbeddingPurpose = EmbeddingPurpose.DOCUMENT,
        *,
        truncate: bool = False,
        split: Split | None = None,
    ) -> EmbeddingsResponse:
        client, wanted = self._client, EmbeddingPurpose(purpose)
        prefix = client.entry.prefixes.get(wanted.value, "")
        given = _checked(texts)
        large = sum(map(len, given)) > _CHARACTERS_INLINE
        work = await _in_thread_if(large, partial(_planned, client, given, truncate, split))
        parts = work.parts
        require_possible(work.packing, parts.owners, model=client.entry.id, texts=len(given))
        total = _Total(np.zeros((len(parts.texts), client.environment.embedding_width), dtype=np.float32))

        async def request(batch: Batch, further: bool) -> None:
            sent = [prefix + parts.texts[index] for index in batch.indexes]
            await self._request(batch, sent, [parts.owners[index] for index in batch.indexes], wanted, total, further)

        refusals = await send_all(work.packing.batches, request, work.counts, at_once=client.at_once)
        if refusals:
            raise self._named(refusals, work, total)
        vectors = total.vectors
        if parts.split:
            vectors = await _in_thread_if(large, partial(average, vectors, parts.owners, work.counts))
        return self._response(total, vectors, cut_short=parts.cut_short, split=parts.split)

    def get_upstream_retries(self) -> int:
        return self._client.UPSTREAM_RETRIES

    embedBatch = embed_batch
    getUpstreamRetries = get_upstream_retries

    async def _request(
        self,
        batch: Batch,
        texts: list[str],
        owners: Sequence[int],
        purpose: EmbeddingPurpose,
        total: _Total,
        further: bool,
    ) -> None:
        client = self._client

        async def read(answer: EmbeddingAnswer) -> Float32:
            rows: Sequence[Any] = align(cast("Sequence[Any]", answer.vectors), answer.indexes, expected=len(texts))
            declared, width = client.declared_dimensions, client.environment.embedding_width
            fitting = partial(fit, rows, declared=declared, width=width, indexes=owners)
            return await _in_thread_if(len(rows) * declared > _NUMBERS_INLINE, fitting)

        async with client.connections:
            client.ready()
            vectors, record = await exchange(
                self._attempt(batch, texts, purpose, further),
                partial(client.send, texts, purpose),
                read,
                timeout_s=client.timeout_s,
                redactor=client.environment.redactor,
                transport=client,
            )
        total.vectors[list(batch.indexes)] = vectors
        total.add(batch, record)
        self._observe(batch, record)

    def _attempt(self, batch: Batch, texts: list[str], purpose: EmbeddingPurpose, further: bool) -> CallAttempt:
        """The permit is drawn here. A `further` request is one that nobody could have declared."""
        entry = self._client.entry
        return CallAttempt(
            self._seat,
            entry,
            self._client.environment,
            Kind.EMBEDDINGS,
            Estimate.known(batch.tokens, batch.raw_tokens),
            0,
            _request_hash(entry.wire_model_id, purpose, texts),
            continuation=further,
        )

    def _observe(self, batch: Batch, record: CallRecord) -> None:
        estimator, reported = self._client.environment.estimator, record.usage.input_tokens
        if estimator is not None and reported is not None and not record.usage.estimated:
            estimator.observe(self._client.entry.id, batch.raw_tokens, reported)

    def _named(self, refusals: Refusals, work: _Work, total: _Total) -> Exception:
        """The error that names the texts which the provider refused, with the vectors of the others."""
        owners, parts = work.parts.owners, work.parts
        refused = frozenset(owners[part] for part in refusals.parts)
        kept = tuple(index for index in range(work.texts) if index not in refused)
        response = None
        if kept:
            stay = [part for part, owner in enumerate(owners) if owner not in refused]
            place = {index: position for position, index in enumerate(kept)}
            vectors = average(
                total.vectors[stay], [place[owners[part]] for part in stay], [work.counts[part] for part in stay]
            )
            response = self._response(
                total,
                vectors,
                cut_short=tuple(place[index] for index in parts.cut_short if index in place),
                split=tuple(place[index] for index in parts.split if index in place),
            )
        return refusals.error(sorted(refused), kept=response, kept_indexes=kept)

    def _response(
        self, total: _Total, vectors: Float32, *, cut_short: tuple[int, ...], split: tuple[int, ...]
    ) -> EmbeddingsResponse:
        entry, records = self._client.entry, total.records
        cost, known = _cost(records)
        return EmbeddingsResponse(
            vectors=vectors,
            usage=total.usage,
            model=entry.id,
            provider=entry.provider,
            served_model=records[-1].served_model if records else None,
            request_ids=tuple(record.request_id for record in records if record.request_id is not None),
            requests=len(records),
            cost=cost if known else None,
            currency=entry.prices.currency if entry.prices is not None else None,
            latency_s=sum(record.latency_s for record in records),
            truncated=cut_short,
            split=split,
        )


def _planned(client: AbstractEmbeddingsClient, texts: list[str], truncate: bool, split: Split | None) -> _Work:
    caps, count = client.caps(client.entry), counter(client.entry, client.estimate)
    parts = parts_of(texts, caps, count=count, truncate=truncate, split=split)
    counts = [count(text) for text in parts.texts]
    return _Work(len(texts), parts, plan_requests(parts.texts, caps, counts), counts)


def _cost(records: Iterable[CallRecord]) -> tuple[Decimal, bool]:
    """The sum, and whether it is known: of at least one request, and of each."""
    costs = [record.cost for record in records]
    known = [cost for cost in costs if cost is not None]
    return sum(known, Decimal(0)), bool(known) and len(known) == len(costs)


def _checked(texts: Sequence[str]) -> list[str]:
    if isinstance(texts, str):
        raise TypeError("embed_batch takes a list of texts; embed takes one text")
    given = list(texts)
    for index, text in enumerate(given):
        if not isinstance(text, str):
            raise TypeError(f"text {index} is {type(text).__name__}, not str")
    return given


async def _in_thread_if(large: bool, work: Callable[[], T]) -> T:
    return await asyncio.to_thread(work) if large else work()


def _request_hash(wire_model_id: str, purpose: EmbeddingPurpose, texts: list[str]) -> str:
    return hashlib.sha256(json.dumps([wire_model_id, str(purpose), texts]).encode()).hexdigest()
