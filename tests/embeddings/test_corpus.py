"""A corpus through a Runtime: in order, in bounded memory, resumable, nothing lost."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import aclosing
from typing import Any

import numpy as np
import pytest

from interlock.catalog import Catalog
from interlock.catalog.entry import ModelEntry, Prices
from interlock.catalog.usage import Usage
from interlock.catalog.words import Kind
from interlock.clients import registry
from interlock.embeddings import AbstractEmbeddingsClient, EmbeddingAnswer, EmbeddingPurpose, VectorError
from interlock.errors import InvalidRequestError, OverloadedError, ProviderRefusalError, SpendCapExceededError
from interlock.runtime import CorpusTextError, PipelineContext, Runtime, RuntimeSettings, embed_corpus, pipeline


class Provider:
    """What every client of the fake key shares."""

    def __init__(self) -> None:
        self.seen: list[list[str]] = []
        self.open = self.most_open = 0
        self.bad: dict[str, Any] = {}
        self.odd: dict[str, list[float]] = {}


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch) -> Provider:
    provider = Provider()

    class Fake(AbstractEmbeddingsClient):
        async def send(self, texts: Sequence[str], purpose: EmbeddingPurpose) -> EmbeddingAnswer:
            provider.seen.append(list(texts))
            provider.open += 1
            provider.most_open = max(provider.open, provider.most_open)
            await asyncio.sleep(0)
            provider.open -= 1
            for text in texts:
                if text in provider.bad:
                    raise provider.bad[text]
            vectors = [provider.odd.get(text, [float(len(text)), 1.0]) for text in texts]
            return EmbeddingAnswer(vectors=vectors, usage=Usage(input_tokens=len(texts), output_tokens=0))

    known = registry.provider_class
    monkeypatch.setattr("interlock.runtime.desk.provider_class", lambda key: Fake if key == "fake" else known(key))
    return provider


def settings(**fields: Any) -> RuntimeSettings:
    known = {
        "id": "vectors", "kind": Kind.EMBEDDINGS, "provider": "fake", "wire_model_id": "v", "dimensions": 2,
        "max_batch_items": 4, "context_window": 50, "prices": Prices(input=1),
    }  # fmt: skip
    entry = ModelEntry(**{**known, **fields})
    return RuntimeSettings(catalog=Catalog.of([entry], embedding_width=4), store=None)


async def all_of(batches: Any) -> list[Any]:
    async with aclosing(batches) as stream:
        return [batch async for batch in stream]


async def ids_into(got: list[int], batches: Any) -> None:
    async for batch in batches:
        got += batch.ids


def pairs(count: int) -> list[tuple[int, str]]:
    return [(number, "x" * (number % 9 + 1)) for number in range(count)]


async def feed(given: list[tuple[int, str]]) -> AsyncIterator[tuple[int, str]]:
    for pair in given:
        await asyncio.sleep(0)
        yield pair


@pytest.mark.parametrize("live", [False, True])
async def test_batches_come_in_order_each_one_request_and_one_job(provider: Provider, live: bool) -> None:
    given = pairs(30)
    async with Runtime(settings()) as runtime:
        batches = await all_of(embed_corpus(runtime, feed(given) if live else given, limit=3))
        calls = await runtime.calls()
    assert [(id, text) for batch in batches for id, text in zip(batch.ids, batch.texts, strict=True)] == given
    assert [len(batch) for batch in batches] == [4] * 7 + [2]
    lengths = np.array([[len(text), 1.0] for _, text in given])
    expected = np.pad(lengths / np.linalg.norm(lengths, axis=1, keepdims=True), ((0, 0), (0, 2)))
    np.testing.assert_allclose(np.concatenate([batch.vectors for batch in batches]), expected, atol=1e-6)
    assert len(calls) == len(provider.seen) == 8
    assert len({call.job_id for call in calls}) == 8
    assert provider.most_open <= 3
    assert sum(batch.tokens for batch in batches) == 30
    assert sum(batch.cost or 0 for batch in batches) == sum(call.record.cost or 0 for call in calls) > 0


async def test_only_what_can_be_under_way_is_read(provider: Provider) -> None:
    read: list[int] = []

    def endless() -> Iterator[tuple[int, str]]:
        number = 0
        while True:
            read.append(number)
            yield number, "text"
            number += 1

    async with Runtime(settings()) as runtime, aclosing(embed_corpus(runtime, endless(), limit=2)) as batches:
        async for batch in batches:
            assert len(read) - batch.ids[-1] <= 4 * 2 * 2 + 4 + 1
            if batch.ids[-1] > 400:
                break
    assert len(provider.seen) * 4 <= len(read)


@pytest.mark.parametrize("asynchronous", [False, True])
async def test_what_the_sink_has_is_passed_over(provider: Provider, asynchronous: bool) -> None:
    held = set(range(0, 2500, 2))
    asked: list[int] = []

    def known(some: Sequence[tuple[int, str]]) -> Any:
        asked.append(len(some))
        found = {id for id, _ in some if id in held}
        return asyncio.sleep(0, found) if asynchronous else found

    async with Runtime(settings()) as runtime:
        batches = await all_of(embed_corpus(runtime, pairs(2500), known=known))
        again = await all_of(embed_corpus(runtime, pairs(2500), known=lambda some: {id for id, _ in some}))
    assert [id for batch in batches for id in batch.ids] == list(range(1, 2500, 2))
    assert sum(batch.skipped for batch in batches) == 1250
    assert asked == [1000, 1000, 500]
    assert [(len(batch), batch.skipped, batch.response, batch.cost) for batch in again] == [(0, 2500, None, 0)]
    assert again[0].vectors.shape == (0, 4)


async def test_b37_a_text_without_a_vector_is_named_once_its_neighbours_are_delivered(provider: Provider) -> None:
    given = [(0, "a"), (1, ""), (2, "b"), (3, "c " * 400), (4, "d"), (5, "e")]
    got: list[int] = []
    async with Runtime(settings()) as runtime:
        with pytest.raises(CorpusTextError, match="1 is empty; 3 has about") as caught:
            await ids_into(got, embed_corpus(runtime, given))
        kept = await all_of(embed_corpus(runtime, given, refused="keep"))
    assert got == [0, 2, 4, 5]
    assert [refused.id for refused in caught.value.refused] == [1, 3]
    assert [batch.ids for batch in kept] == [(0, 2, 4, 5)]
    assert [refused.id for refused in kept[0].refused] == [1, 3]


async def test_a_text_that_the_provider_refuses_does_not_cost_its_neighbours(provider: Provider) -> None:
    provider.bad["no"] = InvalidRequestError("not this one", status=400)
    async with Runtime(settings()) as runtime:
        batches = await all_of(
            embed_corpus(runtime, [(0, "a"), (1, "b"), (2, "no"), (3, "c"), (4, "d")], refused="keep")
        )
    assert [batch.ids for batch in batches] == [(0, 1, 3), (4,)]
    assert [(refused.id, "not this one" in refused.reason) for refused in batches[0].refused] == [(2, True)]


async def test_a_text_whose_vector_is_none_does_not_cost_its_neighbours(provider: Provider) -> None:
    provider.odd = {"zero": [0.0, 0.0], "nan": [float("nan"), 1.0]}
    given = [(0, "zero"), (1, "a"), (2, "nan"), (3, "b"), (4, "c"), (5, "zero")]
    async with Runtime(settings()) as runtime:
        batches = await all_of(embed_corpus(runtime, given, refused="keep"))
    assert [batch.ids for batch in batches] == [(1, 3), (4,)]
    told = {refused.id: refused.reason for batch in batches for refused in batch.refused}
    assert sorted(told) == [0, 2, 5]
    assert "no direction" in told[0]
    assert "not a finite number" in told[2]


@pytest.mark.parametrize("vector", [[0.0, 0.0], [1.0]])
async def test_a_model_of_which_no_vector_is_one_is_given_up(provider: Provider, vector: list[float]) -> None:
    provider.odd = {"no": vector}
    async with Runtime(settings(max_batch_items=100)) as runtime:
        with pytest.raises(VectorError):
            await all_of(embed_corpus(runtime, ((number, "no") for number in range(500)), refused="keep", limit=1))
    assert len(provider.seen) <= (1 if len(vector) == 1 else 5) + 1  # one more may be under way


async def test_very_many_refused_texts_are_all_told_and_the_others_embedded(provider: Provider) -> None:
    texts = ["no" if number < 70 or number % 2 == 0 else "yes" for number in range(200)]
    provider.bad["no"] = InvalidRequestError("not this one", status=400)
    async with Runtime(settings(max_batch_items=200, context_window=None)) as runtime:
        batches = await all_of(embed_corpus(runtime, enumerate(texts), refused="keep"))
    assert [id for batch in batches for id in batch.ids] == [at for at, text in enumerate(texts) if text == "yes"]
    assert sorted(refused.id for batch in batches for refused in batch.refused) == [
        at for at, text in enumerate(texts) if text == "no"
    ]


NO = InvalidRequestError("not this one", status=400)
UNSAFE = ProviderRefusalError("the content filter was triggered", status=400, category="content_filter")


@pytest.mark.parametrize("error", [NO, UNSAFE])
@pytest.mark.parametrize("before", [0, 4])
async def test_a_batch_of_which_every_text_is_refused_does_not_end_the_corpus(
    provider: Provider, error: Any, before: int
) -> None:
    """With one that was embedded before it, and with none."""
    provider.bad["no"] = error
    given = [*((n, "a" * (9 - n)) for n in range(before)), *((n, "no") for n in range(4, 8)), (8, "b"), (9, "c")]
    async with Runtime(settings()) as runtime:
        batches = await all_of(embed_corpus(runtime, given, refused="keep"))
    assert [id for batch in batches for id in batch.ids] == [*range(before), 8, 9]
    told = [refused for batch in batches for refused in batch.refused]
    assert [refused.id for refused in told] == [4, 5, 6, 7]
    assert all(str(error) in refused.reason for refused in told)


async def test_of_a_batch_that_is_refused_where_all_are_nothing_is_called_the_texts_fault(provider: Provider) -> None:
    """What was taken before is not taken any more: it is not these texts."""

    class Every(dict[str, Any]):
        def __contains__(self, text: object) -> bool:
            return len(provider.seen) > 1

        def __missing__(self, text: str) -> Any:
            return NO

    provider.bad = Every()
    got: list[int] = []
    async with Runtime(settings(max_batch_items=100)) as runtime:
        with pytest.raises(InvalidRequestError, match="not this one") as caught:
            await ids_into(got, embed_corpus(runtime, pairs(1_000), refused="keep", limit=1))
    assert not isinstance(caught.value, CorpusTextError)
    assert got == list(range(100))
    assert len(provider.seen) < 40


async def test_a_text_in_a_batch_of_its_own_may_be_refused_too(provider: Provider) -> None:
    provider.bad["no"] = InvalidRequestError("not this one", status=400)
    given = [(0, "no"), (1, "a"), *((number, "no") for number in range(2, 30)), (30, "b")]
    async with Runtime(settings(max_batch_items=1)) as runtime:
        batches = await all_of(embed_corpus(runtime, given, refused="keep"))
    assert [id for batch in batches for id in batch.ids] == [1, 30]
    assert [refused.id for batch in batches for refused in batch.refused] == [0, *range(2, 30)]


async def test_a_corpus_of_which_nothing_is_taken_is_given_up(provider: Provider) -> None:
    provider.bad["no"] = InvalidRequestError("dimensions: not for this model", status=400)
    async with Runtime(settings(max_batch_items=1)) as runtime:
        with pytest.raises(InvalidRequestError, match="dimensions"):
            await all_of(embed_corpus(runtime, ((number, "no") for number in range(10_000)), refused="keep", limit=2))
    assert len(provider.seen) < 20


async def test_nothing_but_refused_texts_is_told_in_batches(provider: Provider) -> None:
    async with Runtime(settings()) as runtime:
        batches = await all_of(embed_corpus(runtime, [(n, "") for n in range(25)], refused="keep", batch_texts=10))
    assert [len(batch.refused) for batch in batches] == [10, 10, 5]
    assert not provider.seen


@pytest.mark.parametrize("how", [{"truncate": True}, {"split": "average"}])
async def test_long_texts_are_cut_or_split_where_that_is_asked_for(provider: Provider, how: Any) -> None:
    async with Runtime(settings()) as runtime:
        batches = await all_of(embed_corpus(runtime, [(0, "a"), (1, "long words " * 60), (2, "b")], **how))
    assert [id for batch in batches for id in batch.ids] == [0, 1, 2]
    told = [batch.response.truncated or batch.response.split for batch in batches]
    assert [len(each) for each in told] == [0, 1]


async def test_what_fails_for_good_is_raised_and_stops_the_rest(provider: Provider) -> None:
    provider.bad["xxx"] = OverloadedError("busy", status=529)
    got: list[int] = []
    async with Runtime(settings()) as runtime:
        with pytest.raises(OverloadedError):
            await ids_into(got, embed_corpus(runtime, pairs(1000), limit=2, upstream_retries=0, batch_texts=1))
        assert got == [0, 1]
        assert len(provider.seen) < 10


async def test_a_cost_cap_binds(provider: Provider) -> None:
    async with Runtime(RuntimeSettings(catalog=settings().catalog, store=None, cost_cap="0.00001")) as runtime:
        got: list[int] = []
        with pytest.raises(SpendCapExceededError):
            await ids_into(got, embed_corpus(runtime, pairs(100), limit=1))
    assert 0 < len(got) <= 10


async def test_it_runs_in_a_pipeline(provider: Provider) -> None:
    @pipeline
    async def index(ctx: PipelineContext, count: int) -> list[int]:
        return [id for batch in await all_of(embed_corpus(ctx, pairs(count))) for id in batch.ids]

    async with Runtime(settings()) as runtime:
        assert await runtime.run(index(10), run_id="one") == list(range(10))
        assert {call.run_id for call in await runtime.calls()} == {"one"}


async def test_a_strict_runtime_allows_the_search_for_a_refused_text(
    provider: Provider, caplog: pytest.LogCaptureFixture
) -> None:
    provider.bad["no"] = InvalidRequestError("not this one", status=400)
    strict = RuntimeSettings(catalog=settings().catalog, store=None, strict_declarations=True)
    with caplog.at_level(logging.WARNING):
        async with Runtime(strict) as runtime:
            (batch,) = await all_of(embed_corpus(runtime, [(0, "a"), (1, "no"), (2, "b")], refused="keep"))
            assert not any(call.record.undeclared for call in await runtime.calls())
    assert batch.ids == (0, 2)
    assert not caplog.records


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"batch_texts": 0}, ValueError),
        ({"batch_texts": True}, ValueError),
        ({"limit": 0}, ValueError),
        ({"refused": "drop"}, ValueError),
        ({"nope": 1}, TypeError),
    ],
)
async def test_wrong_arguments_are_said_before_anything_is_read(provider: Provider, wrong: Any, error: Any) -> None:
    async with Runtime(settings()) as runtime:
        with pytest.raises(error):
            await all_of(embed_corpus(runtime, pairs(3), **wrong))
    assert not provider.seen
