"""AbstractEmbeddingsClient: the template. A provider subclass sends one request; everything else is here."""

from __future__ import annotations

import asyncio
import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import partial
from typing import Any, ClassVar, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from interlock.admission.outcome import Dimension, ReportedLimit
from interlock.catalog.cut import beginning
from interlock.catalog.entry import ModelEntry
from interlock.catalog.spec import ModelBinding
from interlock.catalog.tokens import estimate_text
from interlock.catalog.usage import Usage
from interlock.catalog.words import Kind
from interlock.clients.environment import ClientEnvironment
from interlock.clients.exchange import exchange
from interlock.clients.lifecycle import CallAttempt
from interlock.clients.record import CallRecord, CallSeat

from .align import align
from .packing import Batch, Caps, Packing, plan_requests, require_possible
from .purpose import EmbeddingPurpose
from .response import EmbeddingsResponse
from .vectors import Float32, fit

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
    one text; `MAX_REQUEST_BYTES` of the wire), takes a permit for each request, puts the vectors back in order, fits
    them to the catalog's one width, and records.
    """

    #: The most bytes of text one request may carry; None where the wire has no such cap.
    MAX_REQUEST_BYTES: ClassVar[int | None] = None
    UPSTREAM_RETRIES: ClassVar[int] = 3

    def __init__(self, entry: ModelEntry, environment: ClientEnvironment) -> None:
        self.entry, self.environment = entry, environment

    @abstractmethod
    async def send(self, texts: Sequence[str], purpose: EmbeddingPurpose) -> EmbeddingAnswer:
        """Send one request, once, without any retry. Raises UpstreamError subclasses."""

    async def aclose(self) -> None:
        """Close what was opened. The client is not used afterwards."""
        return

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

    def estimate(self, text: str) -> int:
        """Tokens of a text, as the reservation counts them."""
        estimator = self.environment.estimator
        return estimate_text(text) if estimator is None else estimator.estimate(self.entry.id, text)

    def plan(self, texts: Sequence[str]) -> Packing:
        return plan_requests(self.entry, texts, count=self.estimate, max_bytes=self.MAX_REQUEST_BYTES)


@dataclass(slots=True)
class _Total:
    """What the requests of one call add up to."""

    vectors: Float32
    usage: Usage = field(default_factory=lambda: Usage(input_tokens=0, output_tokens=0))
    records: list[CallRecord] = field(default_factory=list)

    def add(self, record: CallRecord) -> None:
        self.usage += record.usage
        self.records.append(record)


class BoundEmbeddingsClient:
    """The template's EmbeddingsClient for one job's reservation."""

    def __init__(self, client: AbstractEmbeddingsClient, binding: ModelBinding, seat: CallSeat) -> None:
        self._client, self._binding, self._seat = client, binding, seat

    async def embed(
        self, text: str, purpose: EmbeddingPurpose = EmbeddingPurpose.DOCUMENT, *, truncate: bool = False
    ) -> EmbeddingsResponse:
        return await self.embed_batch([text], purpose, truncate=truncate)

    async def embed_batch(
        self, texts: Sequence[str], purpose: EmbeddingPurpose = EmbeddingPurpose.DOCUMENT, *, truncate: bool = False
    ) -> EmbeddingsResponse:
        client, wanted = self._client, EmbeddingPurpose(purpose)
        given = _checked(texts)
        large = sum(map(len, given)) > _CHARACTERS_INLINE
        cut_short: tuple[int, ...] = ()
        if truncate:
            given, cut_short = await _in_thread_if(large, partial(_truncated, client, given))
        packing = await _in_thread_if(large, partial(client.plan, given))
        require_possible(packing, model=client.entry.id, texts=len(given))
        total = _Total(vectors=np.zeros((len(given), client.environment.embedding_width), dtype=np.float32))
        for batch in packing.batches:
            await self._request(batch, [given[index] for index in batch.indexes], wanted, total)
        return self._response(total, cut_short)

    def get_upstream_retries(self) -> int:
        return self._client.UPSTREAM_RETRIES

    embedBatch = embed_batch
    getUpstreamRetries = get_upstream_retries

    async def _request(self, batch: Batch, texts: list[str], purpose: EmbeddingPurpose, total: _Total) -> None:
        client = self._client
        attempt = CallAttempt(
            self._seat,
            client.entry,
            client.environment,
            Kind.EMBEDDINGS,
            batch.tokens,
            0,
            _request_hash(client.entry.wire_model_id, purpose, texts),
        )

        async def read(answer: EmbeddingAnswer) -> Float32:
            rows: list[Any] = align(cast("Sequence[Any]", answer.vectors), answer.indexes, expected=len(texts))
            declared, width = client.declared_dimensions, client.environment.embedding_width
            fitting = partial(fit, rows, declared=declared, width=width, indexes=batch.indexes)
            return await _in_thread_if(len(rows) * declared > _NUMBERS_INLINE, fitting)

        vectors, record = await exchange(
            attempt,
            partial(client.send, texts, purpose),
            read,
            timeout_s=client.timeout_s,
            redactor=client.environment.redactor,
        )
        total.vectors[list(batch.indexes)] = vectors
        total.add(record)
        self._observe(batch, record)

    def _observe(self, batch: Batch, record: CallRecord) -> None:
        estimator, reported = self._client.environment.estimator, record.usage.input_tokens
        if estimator is not None and reported is not None and not record.usage.estimated:
            estimator.observe(self._client.entry.id, batch.raw_tokens, reported)

    def _response(self, total: _Total, cut_short: tuple[int, ...]) -> EmbeddingsResponse:
        entry, records = self._client.entry, total.records
        costs = [record.cost for record in records]
        known = [cost for cost in costs if cost is not None]
        return EmbeddingsResponse(
            vectors=total.vectors,
            usage=total.usage,
            model=entry.id,
            provider=entry.provider,
            served_model=records[-1].served_model if records else None,
            request_ids=tuple(record.request_id for record in records if record.request_id is not None),
            requests=len(records),
            cost=sum(known, Decimal(0)) if known and len(known) == len(costs) else None,
            currency=entry.prices.currency if entry.prices is not None else None,
            latency_s=sum(record.latency_s for record in records),
            truncated=cut_short,
        )


def _checked(texts: Sequence[str]) -> list[str]:
    if isinstance(texts, str):
        raise TypeError("embed_batch takes a list of texts; embed takes one text")
    given = list(texts)
    for index, text in enumerate(given):
        if not isinstance(text, str):
            raise TypeError(f"text {index} is {type(text).__name__}, not str")
    return given


def _truncated(client: AbstractEmbeddingsClient, texts: list[str]) -> tuple[list[str], tuple[int, ...]]:
    longest = Caps.of(client.entry).longest_text
    if longest is None:
        return texts, ()
    kept = [beginning(text, longest, client.estimate) for text in texts]
    return kept, tuple(index for index, text in enumerate(texts) if len(kept[index]) < len(text))


async def _in_thread_if(large: bool, work: Callable[[], T]) -> T:
    return await asyncio.to_thread(work) if large else work()


def _request_hash(wire_model_id: str, purpose: EmbeddingPurpose, texts: list[str]) -> str:
    return hashlib.sha256(json.dumps([wire_model_id, str(purpose), texts]).encode()).hexdigest()
