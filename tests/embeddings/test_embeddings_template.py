"""The template against a provider that does what a test tells it: one permit, one record, one error, always."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from interlock.admission.outcome import OutcomeKind
from interlock.catalog.spec import ModelSpec
from interlock.catalog.usage import Usage
from interlock.embeddings import AbstractEmbeddingsClient, EmbeddingAnswer, EmbeddingModelGuard, EmbeddingPurpose
from interlock.errors import (
    InvalidRequestError,
    MalformedResponseError,
    ModelResolutionError,
    OverloadedError,
    RateLimitedError,
    TransientUpstreamError,
)

Script = Callable[[Sequence[str]], Any]


def vector_of(text: str) -> list[float]:
    return [float(len(text)), 1.0, float(sum(map(ord, text)) % 97)]


def answer(texts: Sequence[str], **fields: Any) -> EmbeddingAnswer:
    known = {"vectors": [vector_of(text) for text in texts], "usage": Usage(input_tokens=7, output_tokens=0)}
    return EmbeddingAnswer(**{**known, **fields})


class ScriptedClient(AbstractEmbeddingsClient):
    REQUESTS_AT_ONCE = 1

    def __init__(self, entry: Any, environment: Any, script: Script) -> None:
        super().__init__(entry, environment)
        self.script = script
        self.seen: list[tuple[list[str], EmbeddingPurpose]] = []

    async def send(self, texts: Sequence[str], purpose: EmbeddingPurpose) -> EmbeddingAnswer:
        self.seen.append((list(texts), purpose))
        result = self.script(texts)
        if asyncio.iscoroutine(result):
            result = await result
        if isinstance(result, BaseException):
            raise result
        assert isinstance(result, EmbeddingAnswer)
        return result


@pytest.fixture
def scripted(make_entry: Any, make_environment: Any, make_seat: Any) -> Any:
    def make(script: Script, width: int = 4, **fields: Any) -> Any:
        entry = make_entry(**{"dimensions": 3, **fields})
        client = ScriptedClient(entry, make_environment(embedding_width=width), script)
        seat = make_seat(entry)
        return client, client.bound(seat.binding, seat), seat

    return make


def unit(text: str) -> Any:
    vector = np.array(vector_of(text))
    return np.append(vector / np.linalg.norm(vector), 0.0)


async def test_b25_vectors_go_to_their_texts_whatever_the_order(scripted: Any) -> None:
    texts = ["a", "bb", "ccc", "dddd"]

    def shuffled(sent: Sequence[str]) -> EmbeddingAnswer:
        order = [2, 0, 3, 1]
        return answer([sent[index] for index in order], indexes=order)

    _, embeddings, _ = scripted(shuffled)
    response = await embeddings.embed_batch(texts)
    np.testing.assert_allclose(response.vectors, [unit(text) for text in texts], atol=1e-6)


@pytest.mark.parametrize(
    "indexes",
    [[0, 1, 3], [0, 1, 1, 3], [], [0, 1, 2, 4], [None, 1, 2, 3]],
    ids=["gap", "twice", "none", "off", "mixed"],
)
async def test_b25_misaligned_answers_are_errors_and_settle_to_their_usage(scripted: Any, indexes: list[Any]) -> None:
    _, embeddings, seat = scripted(lambda sent: answer(["x"] * len(indexes), indexes=indexes))
    with pytest.raises(MalformedResponseError) as caught:
        await embeddings.embed_batch(["a", "b", "c", "d"])
    assert caught.value.retryable
    assert (caught.value.model, caught.value.provider) == ("fake-entry", "fake")
    assert seat.permits[0].outcomes[0].kind is OutcomeKind.COMPLETED  # served, and billed
    assert seat.records[0].usage == Usage(input_tokens=7, output_tokens=0)
    assert seat.records[0].outcome == "malformed_response"


async def test_b37_a_server_that_enforces_its_caps_never_has_to(scripted: Any) -> None:
    def strict(sent: Sequence[str]) -> Any:
        tokens = [len(text) for text in sent]
        if len(sent) > 2048 or sum(tokens) > 300_000 or max(tokens) > 8192 or not all(sent):
            return InvalidRequestError("too large", status=400)
        return answer(sent)

    client, embeddings, seat = scripted(
        strict, max_batch_items=2048, max_batch_tokens=300_000, context_window=8192, timeout_s=60
    )
    client.estimate = len
    texts = ["x" * (number % 7 + 1) for number in range(2100)] + ["y" * 5000] * 100
    response = await embeddings.embed_batch(texts)
    assert [text for sent, _ in client.seen for text in sent] == texts
    assert response.requests == len(seat.permits) == len(client.seen)
    assert [permit.input_tokens for permit in seat.permits] == [
        sum(len(text) for text in sent) for sent, _ in client.seen
    ]
    np.testing.assert_allclose(response.vectors[2099], unit(texts[2099]), atol=1e-6)


@pytest.mark.parametrize(
    ("error", "kind", "code"),
    [
        (RateLimitedError("slow down", status=429, retry_after_s=3.0), OutcomeKind.RATE_LIMITED, "llm_rate_limited"),
        (OverloadedError("busy", status=529), OutcomeKind.OVERLOADED, "llm_overloaded"),
        (InvalidRequestError("no", status=400), OutcomeKind.REJECTED, "invalid_request"),
        (TransientUpstreamError("gone"), OutcomeKind.UNKNOWN, "llm_transient"),
        (TransientUpstreamError("no route", sent=False), OutcomeKind.UNSENT, "llm_transient"),
        (RuntimeError("a bug"), OutcomeKind.UNKNOWN, "unclassified"),
    ],
)
async def test_every_failure_closes_and_records_once(scripted: Any, error: Any, kind: OutcomeKind, code: str) -> None:
    client, embeddings, seat = scripted(lambda sent: error)
    with pytest.raises(type(error)) as caught:
        await embeddings.embed("a")
    assert caught.value is error
    assert len(client.seen) == 1  # sent once: re-runs are the runtime's, each with a reservation of its own
    assert [outcome.kind for outcome in seat.permits[0].outcomes] == [kind]
    assert [record.outcome for record in seat.records] == [code]
    assert seat.permits[0].outcomes[0].retry_after_s == getattr(error, "retry_after_s", None)


async def test_a_failure_in_a_later_request_hands_out_nothing(scripted: Any) -> None:
    sent_so_far: list[str] = []

    def second_fails(sent: Sequence[str]) -> Any:
        sent_so_far.extend(sent)
        return answer(sent) if len(sent_so_far) == 1 else OverloadedError("busy", status=529)

    _, embeddings, seat = scripted(second_fails, max_batch_items=1)
    with pytest.raises(OverloadedError):
        await embeddings.embed_batch(["a", "b", "c"])
    assert sent_so_far == ["a", "b"]
    assert [record.outcome for record in seat.records] == ["ok", "llm_overloaded"]


async def test_an_attempt_that_takes_too_long_is_transient(scripted: Any) -> None:
    client, embeddings, seat = scripted(lambda sent: asyncio.Event().wait(), timeout_s=60)
    task = asyncio.ensure_future(embeddings.embed("a"))
    await client.environment.clock.advance(59.9)
    assert not task.done()
    await client.environment.clock.advance(0.1)
    with pytest.raises(TransientUpstreamError, match=r"did not answer within 60 s"):
        await task
    assert [outcome.kind for outcome in seat.permits[0].outcomes] == [OutcomeKind.UNKNOWN]
    assert seat.records[0].usage.estimated


async def test_a_providers_own_timeout_error_is_not_ours(scripted: Any) -> None:
    _, embeddings, _ = scripted(lambda sent: TimeoutError("socket"))
    with pytest.raises(TimeoutError, match="socket"):
        await embeddings.embed("a")


async def test_a_cancelled_call_is_abandoned_and_recorded(scripted: Any) -> None:
    started = asyncio.Event()

    async def hang() -> None:
        started.set()
        await asyncio.Event().wait()

    _, embeddings, seat = scripted(lambda sent: hang())
    task = asyncio.create_task(embeddings.embed("a"))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [outcome.kind for outcome in seat.permits[0].outcomes] == [OutcomeKind.ABANDONED]
    assert [record.outcome for record in seat.records] == ["cancelled"]


async def test_an_unknown_usage_is_the_reservation_flagged(scripted: Any) -> None:
    _, embeddings, seat = scripted(lambda sent: answer(sent, usage=None))
    response = await embeddings.embed("some words here")
    assert response.usage.estimated
    assert response.usage.input_tokens == seat.permits[0].input_tokens


async def test_cost_is_the_sum_over_requests(scripted: Any) -> None:
    _, embeddings, _ = scripted(
        lambda sent: answer(sent, request_id=f"r-{sent[0]}"), max_batch_items=1, prices={"input": "0.13"}
    )
    response = await embeddings.embed_batch(["a", "b", "c"])
    assert str(response.cost.normalize()) == "0.00000273"  # 21 tokens
    assert response.request_ids == ("r-a", "r-b", "r-c")


async def test_the_estimate_learns_from_what_is_reported(scripted: Any) -> None:
    client, embeddings, _ = scripted(lambda sent: answer(sent, usage=Usage(input_tokens=200, output_tokens=0)))
    text = "word " * 80
    before = client.estimate(text)
    for _ in range(40):
        await embeddings.embed(text)
    assert before < 150
    assert client.estimate(text) == pytest.approx(200, rel=0.05)


async def test_the_purpose_reaches_the_provider(scripted: Any) -> None:
    client, embeddings, seat = scripted(answer)
    await embeddings.embed("a", EmbeddingPurpose.QUERY)
    await embeddings.embed("a")
    assert [purpose for _, purpose in client.seen] == [EmbeddingPurpose.QUERY, EmbeddingPurpose.DOCUMENT]
    assert seat.records[0].request_hash != seat.records[1].request_hash
    with pytest.raises(ValueError, match="nonsense"):
        await embeddings.embed("a", "nonsense")


async def test_requested_dimensions_are_what_the_wire_answers_with(scripted: Any) -> None:
    client, embeddings, _ = scripted(answer, dimensions=3072, requested_dimensions=3)
    assert client.declared_dimensions == 3
    assert (await embeddings.embed("a")).width == 4


async def test_a_zero_vector_names_its_text_across_batches(scripted: Any) -> None:
    def zero_for_c(sent: Sequence[str]) -> EmbeddingAnswer:
        return answer(sent, vectors=[[0.0] * 3 if text == "c" else vector_of(text) for text in sent])

    _, embeddings, _ = scripted(zero_for_c, max_batch_items=2)
    with pytest.raises(MalformedResponseError, match="vector 2 is zero"):
        await embeddings.embed_batch(["a", "b", "c", "d"])


async def test_no_secret_leaves_in_an_error(scripted: Any, make_environment: Any) -> None:
    client, embeddings, seat = scripted(lambda sent: InvalidRequestError("key sk-live-0123456789 refused", status=400))
    redactor = client.environment.redactor
    redactor.add("sk-live-0123456789")
    with pytest.raises(InvalidRequestError) as caught:
        await embeddings.embed("a")
    assert "sk-live" not in json.dumps([str(caught.value), repr(caught.value), seat.records[0].error])


def test_a_process_keeps_to_one_embedding_model(make_entry: Any) -> None:
    guard = EmbeddingModelGuard()
    first, second = make_entry("one", identity="model-a"), make_entry("two", identity="model-b")
    elsewhere = make_entry("three", identity="model-a")
    pin = ModelSpec(kind=first.kind)
    guard.admit(first, pin)
    guard.admit(elsewhere, pin)
    guard.admit(second, replace(pin, model="two-entry"))
    with pytest.raises(ModelResolutionError, match="has embedded with one-entry and would now use two-entry"):
        guard.admit(second, pin)
