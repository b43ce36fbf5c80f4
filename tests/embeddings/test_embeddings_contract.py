"""What every embeddings provider does, whoever serves it. A new provider is one line in conftest's WIRES."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pytest

from interlock.admission.outcome import OutcomeKind
from interlock.catalog.words import Kind
from interlock.embeddings import BlankTextError, EmbeddingPurpose, TextTooLongError

from .conftest import WIRES, Bench, Wire

TEXTS = ["How do I reset my password?", "The invoice was charged twice.", "Grüße aus Köln 🎉", "x"]


@pytest.fixture(params=WIRES, ids=lambda wire: wire.id)
def wire(request: pytest.FixtureRequest) -> Wire:
    found: Wire = request.param
    return found


@pytest.fixture
def build(wire: Wire, bench: Bench) -> Any:
    def build(width: int = 1024, **fields: Any) -> Any:
        if wire.speaks is not None and "requested_dimensions" not in fields:
            fields["requested_dimensions"] = 512 if wire.speaks == "bedrock" else min(width, 512)
        embeddings, seat = bench.client(wire, width=width, **fields)
        return bench._clients[-1], embeddings, seat

    return build


async def test_vectors_are_unit_float32_of_the_one_width_in_the_order_of_the_texts(build: Any) -> None:
    client, embeddings, _ = build()
    response = await embeddings.embed_batch(TEXTS)
    assert response.vectors.shape == (4, 1024)
    assert response.vectors.dtype == np.float32
    assert np.abs(np.linalg.norm(response.vectors.astype(np.float64), axis=1) - 1).max() < 1e-6
    back = await embeddings.embed_batch(TEXTS[::-1])
    np.testing.assert_allclose(back.vectors[::-1], response.vectors, atol=1e-5)
    assert len({vector.tobytes() for vector in response.vectors}) == 4
    await client.aclose()


@pytest.mark.parametrize("width", [64, 256, 1536])
async def test_any_width_of_the_catalog(build: Any, width: int) -> None:
    _, embeddings, _ = build(width)
    response = await embeddings.embed("a text", EmbeddingPurpose.QUERY)
    assert response.vector.shape == (width,)
    assert abs(np.linalg.norm(response.vector.astype(np.float64)) - 1) < 1e-6


async def test_one_permit_and_one_record_a_request(build: Any, bench: Bench, wire: Wire) -> None:
    client, embeddings, seat = build(max_batch_items=2)
    response = await embeddings.embed_batch([*TEXTS, "five"])
    requests = 5 if wire.one_text else 3
    assert response.requests == len(seat.permits) == len(seat.records) == requests
    assert all(permit.sends >= 1 for permit in seat.permits)
    assert [[outcome.kind for outcome in permit.outcomes] for permit in seat.permits] == (
        [[OutcomeKind.COMPLETED]] * requests
    )
    if wire.speaks is not None:
        assert bench.provider.count == requests
        assert response.usage.input_tokens == sum(seen.input_tokens for seen in bench.provider.requests)
    assert all(permit.input_tokens > 0 and permit.output_tokens == 0 for permit in seat.permits)
    assert response.usage.input_tokens == sum(record.usage.input_tokens for record in seat.records) > 0
    record = seat.records[0]
    assert (record.kind, record.outcome, record.model) == (Kind.EMBEDDINGS, "ok", client.entry.id)
    assert not record.usage.estimated
    assert response.cost == response.usage.input_tokens * 2 / Decimal(1_000_000)
    assert response.currency == "USD"


async def test_batching_changes_no_vector(build: Any) -> None:
    _, whole, _ = build()
    _, parted, _ = build(max_batch_items=1)
    np.testing.assert_allclose(
        (await whole.embed_batch(TEXTS)).vectors, (await parted.embed_batch(TEXTS)).vectors, atol=1e-5
    )


async def test_a_blank_text_is_named_and_nothing_is_sent(build: Any) -> None:
    _, embeddings, seat = build()
    with pytest.raises(BlankTextError, match="text 1 is empty"):
        await embeddings.embed_batch(["a", "", "b"])
    assert not seat.permits
    assert not seat.records


async def test_too_long_is_an_error_unless_truncation_was_asked_for(build: Any) -> None:
    _, embeddings, seat = build(context_window=50)
    texts = ["short", "many words " * 200, "short too"]
    with pytest.raises(TextTooLongError, match="text 1 has about"):
        await embeddings.embed_batch(texts)
    assert not seat.permits
    response = await embeddings.embed_batch(texts, truncate=True)
    assert response.truncated == (1,)
    assert max(permit.input_tokens for permit in seat.permits) <= 150
    whole = await embeddings.embed("short")
    np.testing.assert_allclose(response.vectors[0], whole.vector, atol=1e-5)
    assert whole.truncated == ()


async def test_no_texts_are_no_request(build: Any) -> None:
    _, embeddings, seat = build()
    response = await embeddings.embed_batch([])
    assert response.vectors.shape == (0, 1024)
    assert (response.requests, response.usage.input_tokens, response.cost) == (0, 0, None)
    assert not seat.permits
    with pytest.raises(ValueError, match="0 vectors"):
        _ = response.vector


async def test_several_vectors_are_not_one(build: Any) -> None:
    _, embeddings, _ = build()
    with pytest.raises(ValueError, match="4 vectors"):
        _ = (await embeddings.embedBatch(TEXTS)).vector


@pytest.mark.parametrize("texts", ["one text", [1], [None], [b"bytes"]])
async def test_what_is_not_a_list_of_texts_is_a_type_error(build: Any, texts: Any) -> None:
    _, embeddings, seat = build()
    with pytest.raises(TypeError):
        await embeddings.embed_batch(texts)
    assert not seat.permits


def test_the_aliases_are_the_methods(build: Any) -> None:
    _, embeddings, _ = build()
    assert embeddings.getUpstreamRetries() == embeddings.get_upstream_retries() == 3
    assert type(embeddings).embedBatch is type(embeddings).embed_batch
