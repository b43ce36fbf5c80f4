"""Embeddings of every hosted provider as jobs: admitted, re-run, recorded, costed and capped like chat calls."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from decimal import Decimal
from typing import Any

import numpy as np
import pytest

from interlock.catalog import Catalog
from interlock.catalog.entry import Limits, ModelEntry, Prices, ProviderSettings
from interlock.catalog.words import Kind
from interlock.clients.simulator import PublishedLimits, SimulatedProvider, Step
from interlock.credentials import Chain, EnvironmentStore
from interlock.embeddings import TextTooLongError
from interlock.errors import CredentialError, RateLimitedError, SpendCapExceededError
from interlock.runtime import EmbeddingCall, JobRequirements, JobResources, Runtime, RuntimeSettings, embed_corpus
from interlock.runtime.job import Job

from .conftest import HOSTED, SECRET, TITAN, Wire

WIRES = [wire for wire in HOSTED if wire.id != "vertex-embeddings"]
ENVIRON = {"TEST_KEY": SECRET, "TEST_AWS_ACCESS_KEY_ID": "AKIATEST", "TEST_AWS_SECRET_ACCESS_KEY": SECRET}


@pytest.fixture(params=WIRES, ids=lambda wire: wire.id)
def wire(request: pytest.FixtureRequest) -> Wire:
    found: Wire = request.param
    return found


def settings(wire: Wire, provider: SimulatedProvider, *, limits: Limits | None = None, **given: Any) -> RuntimeSettings:
    urls = {"openai": provider.openai_url, "bedrock": provider.bedrock_url, "gemini": provider.gemini_url}
    fields: dict[str, Any] = {
        "id": "vectors", "kind": Kind.EMBEDDINGS, "provider": wire.key, "requested_dimensions": 512,
        "prices": Prices(input=Decimal(1000)), "base_url": urls[wire.speaks or ""], "limits": limits or Limits(),
        "context_window": 2_000, **wire.entry,
    }  # fmt: skip
    catalog = Catalog.of(
        [ModelEntry(**fields)],
        providers={wire.key: ProviderSettings(**{"credential": "test-key", **wire.settings})},
        embedding_width=512,
    )
    environ = given.pop("environ", ENVIRON)
    return RuntimeSettings(catalog=catalog, store=None, credentials=Chain(EnvironmentStore(environ)), **given)


async def test_a_batch_is_one_job_recorded_and_costed(wire: Wire, provider: SimulatedProvider) -> None:
    texts = [f"text number {number}" for number in range(5)]
    async with Runtime(settings(wire, provider)) as runtime:
        response = await runtime.run(EmbeddingCall(texts))
        rows = await runtime.calls()
    assert response.vectors.shape == (5, 512)
    assert len(rows) == provider.count == response.requests
    assert len({row.job_id for row in rows}) == 1
    assert response.usage.input_tokens == sum(seen.input_tokens for seen in provider.requests)
    assert response.cost == sum(row.record.cost or 0 for row in rows) == response.usage.input_tokens * Decimal("0.001")
    assert not any(row.record.undeclared for row in rows)


class LearnsMeanwhile(Job[int]):
    """Others have taught the estimate between the declaration and the call."""

    def __init__(self, texts: list[str], runtime: Runtime) -> None:
        self.texts, self.runtime = texts, runtime

    def requirements(self, needs: JobRequirements) -> None:
        needs.require_embeddings(input=self.texts)

    async def run(self, resources: JobResources) -> int:
        for _ in range(20):
            self.runtime._open().desk.estimator.observe("vectors", 1_000, 3_000)
        return len(await resources.get_embeddings_client().embed_batch(self.texts))


async def test_what_was_declared_is_not_more_because_the_estimate_has_learnt(
    wire: Wire, provider: SimulatedProvider
) -> None:
    async with Runtime(settings(wire, provider, strict_declarations=True)) as runtime:
        assert await runtime.run(LearnsMeanwhile(["plain words " * 40], runtime)) == 1
        assert [row.record.undeclared for row in await runtime.calls()] == [False]


async def test_a_cap_binds_before_anything_is_sent(wire: Wire, provider: SimulatedProvider) -> None:
    async with Runtime(settings(wire, provider)) as runtime:
        with pytest.raises(SpendCapExceededError):
            await runtime.run(EmbeddingCall(["word " * 100]), cost_cap="0.01")
        assert not provider.count
        await runtime.run(EmbeddingCall(["word"]), cost_cap="0.01")


async def test_a_429_is_run_again_with_its_own_reservation(wire: Wire, provider: SimulatedProvider) -> None:
    provider.script(Step.rate_limited(0.01))
    async with Runtime(settings(wire, provider, seed=1)) as runtime:
        response = await runtime.run(EmbeddingCall("hello"))
        outcomes = [row.record.outcome for row in await runtime.calls()]
    assert len(response) == 1
    assert outcomes == [RateLimitedError.code, "ok"]


async def test_a_text_that_is_too_long_is_named_before_the_job_waits(wire: Wire, provider: SimulatedProvider) -> None:
    texts = ["fine", "many words " * 1_500, "fine too"]
    async with Runtime(settings(wire, provider)) as runtime:
        with pytest.raises(TextTooLongError, match="text 1 has about"):
            await runtime.run(EmbeddingCall(texts))
        cut = await runtime.run(EmbeddingCall(texts, truncate=True))
        split = await runtime.embeddings().embed_batch(texts, split="average")
        assert not any(row.record.undeclared for row in await runtime.calls())
    assert (cut.truncated, split.split) == ((1,), (1,))
    assert float(cut.vectors[1] @ split.vectors[1]) > 0.9  # it says one thing all along


async def test_a_key_that_is_missing_is_said_before_anything_is_sent(wire: Wire, provider: SimulatedProvider) -> None:
    if wire.speaks == "bedrock":
        return  # AWS's own chain may still have one
    async with Runtime(settings(wire, provider, environ={})) as runtime:
        with pytest.raises(Exception, match="TEST_KEY") as caught:
            await runtime.run(EmbeddingCall("hello"))
    assert isinstance(caught.value, CredentialError) or "vectors" in str(caught.value)
    assert not provider.count


async def test_a_corpus_is_embedded_under_limits_that_bind(wire: Wire) -> None:
    """What the account publishes is never passed: no request is refused."""
    published = PublishedLimits(rpm=60_000, tpm=60_000_000, burst_s=1)
    given = [(number, f"a short text of number {number}") for number in range(300)]
    async with SimulatedProvider(limits=published) as provider:
        limits = Limits(rpm=60_000, tpm=60_000_000, burst_s=1)
        async with (
            Runtime(settings(wire, provider, limits=limits)) as runtime,
            aclosing(embed_corpus(runtime, given)) as batches,
        ):
            found = [batch async for batch in batches]
        assert not provider.refused
        requests = provider.count
    assert [id for batch in found for id in batch.ids] == list(range(300))
    assert requests == len(found)
    assert np.concatenate([batch.vectors for batch in found]).shape == (300, 512)


async def test_titans_texts_go_at_once_within_the_slots_that_the_job_holds() -> None:
    open_now = most = 0
    enough = asyncio.Event()

    async def held(seen: Any) -> Any:
        nonlocal open_now, most
        open_now += 1
        most = max(most, open_now)
        if most >= 8:
            enough.set()
        await enough.wait()
        open_now -= 1
        return ""

    async with (
        SimulatedProvider(answer=held) as provider,
        Runtime(settings(TITAN, provider, limits=Limits(max_concurrent=8))) as runtime,
    ):
        response = await runtime.run(EmbeddingCall([f"text {number}" for number in range(40)]))
        rows = await runtime.calls()
    assert most == 8
    assert response.requests == len(rows) == 40
    assert not any(row.record.undeclared for row in rows)


async def test_a_job_of_ones_own_declares_what_it_will_cut(provider: SimulatedProvider) -> None:
    class Cuts(Job[int]):
        texts = ("short", "long " * 2_500)

        def requirements(self, needs: JobRequirements) -> None:
            needs.require_embeddings(input=self.texts, split="average")

        async def run(self, resources: JobResources) -> int:
            client = resources.get_embeddings_client()
            return (await client.embed_batch(self.texts, split="average")).requests

    async with Runtime(settings(TITAN, provider, strict_declarations=True)) as runtime:
        assert await runtime.run(Cuts()) == provider.count > 2
