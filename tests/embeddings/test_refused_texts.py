"""A request that is refused because of one text: the text is named, and the others keep their vectors."""

from __future__ import annotations

import asyncio
import math
import pickle
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from interlock.admission.outcome import OutcomeKind
from interlock.catalog.usage import Usage
from interlock.embeddings import AbstractEmbeddingsClient, EmbeddingAnswer, EmbeddingPurpose, VectorError
from interlock.embeddings.errors import TextRefusedError, TextTooLongError, TooManyRefusedError
from interlock.embeddings.sending import MOST_REFUSALS, NAMEABLE_TEXTS
from interlock.errors import ContextWindowExceededError, InvalidRequestError, OverloadedError, ProviderRefusalError


class Picky(AbstractEmbeddingsClient):
    """Refuses every request with one of these texts in it."""

    bad: frozenset[str] = frozenset()
    error: Any = InvalidRequestError("input is not acceptable", status=400)

    def __init__(self, entry: Any, environment: Any) -> None:
        super().__init__(entry, environment)
        self.seen: list[list[str]] = []
        self.open = self.most_open = 0

    async def send(self, texts: Sequence[str], purpose: EmbeddingPurpose) -> EmbeddingAnswer:
        self.seen.append(list(texts))
        self.open += 1
        self.most_open = max(self.most_open, self.open)
        await asyncio.sleep(0)
        self.open -= 1
        if not self.bad.isdisjoint(texts):
            raise type(self.error)(str(self.error), status=self.error.status)
        return EmbeddingAnswer(
            vectors=[[float(text), 1.0] for text in texts], usage=Usage(input_tokens=len(texts), output_tokens=0)
        )


@pytest.fixture
def picky(make_entry: Any, make_environment: Any, make_seat: Any) -> Any:
    def make(bad: Sequence[int] = (), **fields: Any) -> Any:
        entry = make_entry(**{"dimensions": 2, "prices": {"input": "1"}, **fields})
        client = Picky(entry, make_environment(embedding_width=2))
        client.bad = frozenset(map(str, bad))
        seat = make_seat(entry)
        return client, client.bound(seat.binding, seat), seat

    return make


def unit(number: int) -> Any:
    return np.array([number, 1.0]) / math.hypot(number, 1)


@pytest.mark.parametrize("bad", [[0], [63], [17], [17, 18], [3, 40], [0, 63], [0, 1, 63]])
async def test_b37_the_refused_texts_are_named_and_the_rest_is_not_lost(picky: Any, bad: list[int]) -> None:
    client, embeddings, seat = picky(bad)
    with pytest.raises(TextRefusedError, match=f"text {bad[0]} is refused" if len(bad) == 1 else "texts") as caught:
        await embeddings.embed_batch([str(number) for number in range(64)])
    error = caught.value
    good = tuple(number for number in range(64) if number not in bad)
    assert (error.indexes, error.kept_indexes, error.status) == (tuple(bad), good, 400)
    np.testing.assert_allclose(error.kept.vectors, [unit(number) for number in good], atol=1e-6)
    assert len(seat.permits) == len(seat.records) == len(client.seen) <= 1 + 2 * 6 * len(bad) + 1
    # Each request is reserved at what it holds.
    sizes = [sum(map(client.estimate, texts)) for texts in client.seen]
    assert [permit.input_tokens for permit in seat.permits] == sizes
    # What was taken is paid once: a refused request costs nothing.
    assert error.kept.usage.input_tokens == len(good)
    assert error.kept.cost == sum(record.cost for record in seat.records)
    kinds = [permit.outcomes[0].kind for permit in seat.permits]
    assert kinds.count(OutcomeKind.COMPLETED) == error.kept.requests


async def test_a_text_that_the_provider_calls_too_long_is_named(picky: Any) -> None:
    client, embeddings, _ = picky([2])
    client.error = ContextWindowExceededError("maximum context length is 8192 tokens", status=400)
    with pytest.raises(TextTooLongError, match="text 2 is too long for fake-entry: maximum context") as caught:
        await embeddings.embed_batch(["0", "1", "2", "3"])
    assert caught.value.kept_indexes == (0, 1, 3)
    assert caught.value.sent


async def test_a_text_that_a_content_filter_refuses_is_named(picky: Any) -> None:
    client, embeddings, _ = picky([2])
    client.error = ProviderRefusalError("the content filter was triggered", status=400, category="content_filter")
    with pytest.raises(TextRefusedError, match="text 2 is refused: the content filter") as caught:
        await embeddings.embed_batch(["0", "1", "2", "3"])
    assert caught.value.kept_indexes == (0, 1, 3)
    with pytest.raises(ProviderRefusalError, match=r"^the content filter"):
        await embeddings.embed("2")


async def test_a_request_that_is_refused_whatever_it_holds_is_given_up_soon(picky: Any) -> None:
    client, embeddings, _ = picky(range(64))
    with pytest.raises(InvalidRequestError, match="input is not acceptable") as caught:
        await embeddings.embed_batch([str(number) for number in range(64)])
    assert not isinstance(caught.value, TextRefusedError)
    assert len(client.seen) <= 12  # down to one text, and a few to compare


async def test_a_few_requests_that_are_all_refused_keep_the_providers_error(picky: Any) -> None:
    _, embeddings, _ = picky(range(3), max_batch_items=1)
    with pytest.raises(InvalidRequestError, match=r"^input is not acceptable") as caught:
        await embeddings.embed_batch(["0", "1", "2"])
    assert not isinstance(caught.value, TextRefusedError)


async def test_very_many_refused_texts_are_bounded(picky: Any) -> None:
    client, embeddings, _ = picky(range(1, 512, 2))
    with pytest.raises(TooManyRefusedError, match="smaller batches, or set the entry's max_batch_items"):
        await embeddings.embed_batch([str(number) for number in range(512)])
    refused = [texts for texts in client.seen if not client.bad.isdisjoint(texts)]
    assert len(refused) == 1 + MOST_REFUSALS
    assert len(client.seen) <= 1 + 2 * MOST_REFUSALS


async def test_of_so_many_texts_each_can_be_named(picky: Any) -> None:
    for bad in (range(NAMEABLE_TEXTS - 1), range(0, NAMEABLE_TEXTS, 2), range(1, NAMEABLE_TEXTS, 2)):
        _, embeddings, _ = picky(bad, max_batch_items=NAMEABLE_TEXTS)
        texts = [str(number) for number in range(NAMEABLE_TEXTS, -1, -1)]  # one is taken before the others
        with pytest.raises(TextRefusedError) as caught:
            await embeddings.embed_batch(texts)
        assert {texts[index] for index in caught.value.indexes} == set(map(str, bad))


@pytest.mark.parametrize("status", [400, 413, 422])
async def test_a_request_that_is_too_large_comes_through_in_its_halves(picky: Any, status: int) -> None:
    client, embeddings, seat = picky()
    send = client.send

    async def small(texts: Sequence[str], purpose: EmbeddingPurpose) -> EmbeddingAnswer:
        if len(texts) > 8:
            client.seen.append(list(texts))
            raise InvalidRequestError("batch size > maximum allowed batch size 8", status=status)
        return await send(texts, purpose)  # type: ignore[no-any-return]

    client.send = small
    response = await embeddings.embed_batch([str(number) for number in range(512)])
    assert all(np.allclose(vector, unit(number)) for number, vector in enumerate(response.vectors))
    assert len(client.seen) == len(seat.records) == 63 + 64


@pytest.mark.parametrize("status", [401, 403, 404])
async def test_what_is_not_about_the_body_is_not_searched(picky: Any, status: int) -> None:
    client, embeddings, _ = picky([1])
    client.error = InvalidRequestError("no", status=status)
    with pytest.raises(InvalidRequestError):
        await embeddings.embed_batch(["0", "1", "2"])
    assert len(client.seen) == 1


async def test_one_text_alone_keeps_the_providers_error(picky: Any) -> None:
    _, embeddings, _ = picky([1])
    with pytest.raises(InvalidRequestError) as caught:
        await embeddings.embed("1")
    assert not isinstance(caught.value, TextRefusedError)


async def test_one_text_a_request_goes_many_at_once_and_names_the_refused(picky: Any) -> None:
    client, embeddings, seat = picky([5], max_batch_items=1)
    with pytest.raises(TextRefusedError, match="text 5 is refused") as caught:
        await embeddings.embed_batch([str(number) for number in range(40)])
    assert client.most_open > 20
    assert len(client.seen) == len(seat.records) == 40
    assert len(caught.value.kept) == 39


async def test_refusals_that_come_before_the_first_answer_name_their_texts_all_the_same(picky: Any) -> None:
    client, embeddings, _ = picky([0, 1, 2], max_batch_items=1)
    with pytest.raises(TextRefusedError, match="texts 0, 1, 2 are refused") as caught:
        await embeddings.embed_batch([str(number) for number in range(20)])
    assert caught.value.kept_indexes == tuple(range(3, 20))
    client.bad = frozenset(map(str, range(1_000)))
    with pytest.raises(InvalidRequestError) as caught:
        await embeddings.embed_batch([str(number) for number in range(1_000)])
    assert not isinstance(caught.value, TextRefusedError)
    assert len(client.seen) < 20 + 200  # noticed long before the end


async def test_at_once_is_bounded_by_the_pool_and_the_connections(picky: Any, make_environment: Any) -> None:
    from interlock.catalog.entry import Limits, ProviderSettings

    client, _, seat = picky(max_batch_items=1)
    for settings, limits, most in (
        (ProviderSettings(max_connections=3), None, 3),
        (ProviderSettings(), Limits(max_concurrent=2), 2),
    ):
        bounded = Picky(client.entry, make_environment(settings, limits=limits, embedding_width=2))
        await bounded.bound(seat.binding, seat).embed_batch([str(number) for number in range(10)])
        assert bounded.most_open == most


async def test_the_first_failure_stops_the_others_and_each_is_recorded(picky: Any) -> None:
    client, embeddings, seat = picky([7], max_batch_items=1)
    client.error = OverloadedError("busy", status=529)
    with pytest.raises(OverloadedError):
        await embeddings.embed_batch([str(number) for number in range(200)])
    assert len(client.seen) < 200
    assert all(len(permit.outcomes) == 1 for permit in seat.permits)
    assert len(seat.records) == len(seat.permits)


async def test_a_cancelled_call_leaves_nothing_running(picky: Any) -> None:
    _, embeddings, seat = picky(max_batch_items=1)
    task = asyncio.create_task(embeddings.embed_batch([str(number) for number in range(100)]))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert all(len(permit.outcomes) == 1 for permit in seat.permits)
    assert {other for other in asyncio.all_tasks() if other is not asyncio.current_task()} == set()


async def test_split_texts_are_averaged_and_told(picky: Any) -> None:
    client, embeddings, _ = picky(context_window=4)
    client.estimate = len
    response = await embeddings.embed_batch(["1", "1111222233"], split="average")
    assert client.seen == [["1", "1111", "2222", "33"]]
    parts = 4 * unit(1111) + 4 * unit(2222) + 2 * unit(33)
    np.testing.assert_allclose(response.vectors[1], parts / np.linalg.norm(parts), atol=1e-6)
    assert response.split == (1,)
    with pytest.raises(TextTooLongError, match='split="average"'):
        await embeddings.embed_batch(["1", "1111222233"])


async def test_what_was_cut_or_split_is_told_by_its_place_among_what_is_kept(picky: Any) -> None:
    client, embeddings, _ = picky([0], context_window=4)
    client.estimate = len
    for how, told in (({"truncate": True}, "truncated"), ({"split": "average"}, "split")):
        with pytest.raises(TextRefusedError) as caught:
            await embeddings.embed_batch(["0", "1", "1111222233", "2"], **how)
        kept = caught.value.kept
        assert caught.value.kept_indexes == (1, 2, 3)
        assert getattr(kept, told) == (1,)
        assert np.allclose(kept.vectors[[0, 2]], [unit(1), unit(2)])


async def test_requests_are_told_in_the_order_of_the_texts_whichever_was_answered_first(picky: Any) -> None:
    client, embeddings, _ = picky(max_batch_items=1)
    answered: list[str] = []

    async def later(texts: Sequence[str], purpose: EmbeddingPurpose) -> EmbeddingAnswer:
        for _ in range(4 - int(texts[0])):
            await asyncio.sleep(0)
        answered.append(texts[0])
        return EmbeddingAnswer(vectors=[[1.0, 1.0]], request_id=f"id-{texts[0]}", served_model=f"m-{texts[0]}")

    client.send = later
    response = await embeddings.embed_batch(["0", "1", "2", "3"])
    assert answered == ["3", "2", "1", "0"]
    assert response.request_ids == ("id-0", "id-1", "id-2", "id-3")
    assert response.served_model == "m-3"


async def test_a_part_whose_vector_is_none_is_called_by_its_text(picky: Any) -> None:
    client, embeddings, _ = picky(context_window=8)

    async def nothing(texts: Sequence[str], purpose: EmbeddingPurpose) -> EmbeddingAnswer:
        return EmbeddingAnswer(vectors=[[0.0 if "bad" in text else 1.0, 0.0] for text in texts])

    client.send = nothing
    with pytest.raises(VectorError, match="vector 1 is zero") as caught:
        await embeddings.embed_batch(["many good words " * 20, "bad"], split="average")
    assert caught.value.row == 1


async def test_the_error_survives_pickle(picky: Any) -> None:
    _, embeddings, _ = picky([1])
    with pytest.raises(TextRefusedError) as caught:
        await embeddings.embed_batch(["0", "1", "2"])
    other = pickle.loads(pickle.dumps(caught.value))
    assert (other.indexes, other.kept_indexes, str(other)) == ((1,), (0, 2), str(caught.value))
    np.testing.assert_array_equal(other.kept.vectors, caught.value.kept.vectors)
