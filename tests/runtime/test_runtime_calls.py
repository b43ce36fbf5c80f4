"""LLMCall through the whole runtime, against a provider in this process on the manual clock."""

from __future__ import annotations

from decimal import Decimal
from itertools import pairwise
from typing import Any

import pytest
from pydantic import BaseModel

from interlock.catalog import Grade, Usage
from interlock.clients.response import StopReason
from interlock.errors import (
    OutputTruncatedError,
    OverloadedError,
    ProviderRefusalError,
    QuotaExhaustedError,
    RateLimitedError,
    ResponseShapeError,
    TransientUpstreamError,
)
from interlock.runtime import LLMCall


class Triage(BaseModel):
    summary: str
    product: str


GOOD = '{"summary": "charged twice", "product": "billing"}'


async def test_a_call_is_admitted_sent_recorded_and_delivered(world: Any, runtime: Any) -> None:
    response = await world.until(runtime.run(LLMCall("Say hello.", model=Grade.SMALL, max_output_tokens=200)))
    assert response.text == "ok"
    assert response.usage == Usage(input_tokens=10, output_tokens=5)
    assert response.cost == Decimal("0.00006")
    assert world.provider.seen[0].body["max_tokens"] == 200
    (row,) = await runtime.calls()
    assert (row.record.model, row.record.outcome, row.record.request_id) == ("fake-small", "ok", "req-1")
    assert (row.job, row.attempt, row.call, row.run_id, row.step_id) == ("LLMCall", 1, 1, None, None)
    assert row.record.latency_s == 1.0


async def test_a_structured_call_gives_the_model(world: Any, runtime: Any, Step: Any) -> None:
    world.provider.script(Step(text=GOOD))
    triage = await world.until(runtime.run(LLMCall("charged twice", response_model=Triage)))
    assert triage == Triage(summary="charged twice", product="billing")


async def test_llm_without_a_pipeline(world: Any, runtime: Any) -> None:
    reply = await world.until(runtime.llm(Grade.SMALL, max_output_tokens=50).single_response("Say hello."))
    assert reply.text == "ok"
    assert world.provider.seen[0].body["max_tokens"] == 50


async def test_a_429_keeps_the_place_and_comes_back(world: Any, runtime: Any, Step: Any) -> None:
    world.provider.script(Step(error=lambda: RateLimitedError("slow down", status=429, retry_after_s=7)))
    handle = runtime.submit(LLMCall("x"))
    assert (await world.until(handle)).text == "ok"
    assert handle.attempt == 2
    assert world.provider.seen[1].at_s - (world.provider.seen[0].at_s + 1.0) >= 7
    assert [row.record.outcome for row in await runtime.calls()] == ["llm_rate_limited", "ok"]
    assert runtime.statistics().rate_limited == 1


@pytest.mark.parametrize("error", [OverloadedError, TransientUpstreamError])
async def test_a_transient_failure_is_run_again_with_growing_delays(
    world: Any, runtime: Any, Step: Any, error: type[Exception]
) -> None:
    world.provider.script(*[Step(error=lambda: error("no"), latency_s=0)] * 3)
    await world.until(runtime.run(LLMCall("x")))
    times = [seen.at_s for seen in world.provider.seen]
    delays = [later - earlier for earlier, later in pairwise(times)]
    assert len(delays) == 3
    for number, delay in enumerate(delays):
        assert 0.5 * 2**number <= delay <= 0.5 * 2 ** (number + 1)


async def test_retries_end_with_the_last_error_and_what_it_cost(world: Any, runtime: Any, Step: Any) -> None:
    world.provider.script(*[Step(error=lambda: TransientUpstreamError("gone", status=503))] * 9)
    with pytest.raises(TransientUpstreamError) as caught:
        await world.until(runtime.run(LLMCall("x", upstream_retries=2)))
    assert caught.value.attempts == world.provider.count == 3
    assert len(await runtime.calls()) == 3


async def test_quota_is_not_tried_again(world: Any, runtime: Any, Step: Any) -> None:
    world.provider.script(Step(error=lambda: QuotaExhaustedError("no money", status=402)))
    with pytest.raises(QuotaExhaustedError):
        await world.until(runtime.run(LLMCall("x")))
    assert world.provider.count == 1


async def test_a_refusal_is_final_and_its_usage_counted(world: Any, runtime: Any, Step: Any) -> None:
    world.provider.script(Step(stop=StopReason.REFUSAL, text=""))
    handle = runtime.submit(LLMCall("x"))
    with pytest.raises(ProviderRefusalError) as caught:
        await world.until(handle)
    assert caught.value.category == "policy"
    assert handle.usage.output_tokens == 5
    assert world.provider.count == 1


async def test_after_a_refusal_the_caller_can_avoid_that_model(world: Any, entry: Any) -> None:
    world.entries.append(entry("fake-other", prices=None))
    async with world.runtime() as runtime:
        response = await world.until(runtime.run(LLMCall("x", avoid={"fake-small"})))
    assert response.model == "fake-other"


async def test_b12_a_cut_off_answer_is_asked_for_once_more_at_the_ceiling(world: Any, runtime: Any, Step: Any) -> None:
    world.provider.script(Step(text='{"a": [1, 2', stop=StopReason.MAX_TOKENS), Step(text=GOOD))
    handle = runtime.submit(LLMCall("x", response_model=Triage, max_output_tokens=100, upstream_retries=0))
    assert (await world.until(handle)).product == "billing"
    assert [seen.body["max_tokens"] for seen in world.provider.seen] == [100, 8_000]
    assert handle.attempt == 2
    assert len(world.provider.seen[1].body["turns"]) == 1


async def test_a_cut_off_answer_at_the_ceiling_fails_with_all_its_usage(world: Any, runtime: Any, Step: Any) -> None:
    world.provider.script(*[Step(text="part", stop=StopReason.MAX_TOKENS)] * 3)
    with pytest.raises(OutputTruncatedError) as caught:
        await world.until(runtime.run(LLMCall("x", max_output_tokens=100)))
    assert world.provider.count == 2
    assert caught.value.limit == 8_000
    assert caught.value.usage == Usage(input_tokens=20, output_tokens=10)


@pytest.mark.parametrize("bounds", [{"context_window": 9_000}, {"context_window": None, "max_output_tokens": None}])
async def test_a_cut_off_answer_that_had_all_the_room_there_is_is_not_asked_for_again(
    world: Any, entry: Any, Step: Any, bounds: dict[str, int | None]
) -> None:
    world.entries[:] = [entry(**bounds)]
    world.provider.always = lambda seen: Step(stop=StopReason.MAX_TOKENS)
    async with world.runtime() as runtime:
        with pytest.raises(OutputTruncatedError):
            await world.until(runtime.run(LLMCall("x" * 16_000, max_output_tokens=7_000)))
    assert world.provider.count == 1


async def test_b42_corrections_add_up_and_are_counted_once(world: Any, runtime: Any, Step: Any) -> None:
    world.provider.script(Step(text="bad"), Step(text='{"summary": 1}'), Step(text=GOOD))
    handle = runtime.submit(LLMCall("x", response_model=Triage, upstream_retries=0))
    assert (await world.until(handle)).summary == "charged twice"
    assert world.provider.count == handle.requests == 3
    assert handle.usage == Usage(input_tokens=30, output_tokens=15)
    assert handle.cost == Decimal("0.00018")
    rows = await runtime.calls()
    assert {row.job_id for row in rows} == {handle.id}
    assert [row.attempt for row in rows] == [1, 2, 3]
    assert [row.record.outcome for row in rows] == ["response_shape", "response_shape", "ok"]
    turns = [len(seen.body["turns"]) for seen in world.provider.seen]
    assert turns == [1, 3, 5], "each wrong turn is followed by what was wrong with it"


@pytest.mark.parametrize(("allowed", "requests"), [(0, 1), (1, 2), (2, 3)])
async def test_b42_never_more_than_the_allowed_corrections(
    world: Any, runtime: Any, Step: Any, allowed: int, requests: int
) -> None:
    world.provider.script(*[Step(text="bad")] * 9)
    with pytest.raises(ResponseShapeError) as caught:
        await world.until(runtime.run(LLMCall("x", response_model=Triage, max_corrections=allowed)))
    assert world.provider.count == requests
    assert caught.value.usage == Usage(input_tokens=10 * requests, output_tokens=5 * requests)
    assert caught.value.attempts == requests
    assert len(caught.value.problems) >= requests


async def test_b42_the_whole_response_carries_the_usage_of_its_corrections(world: Any, runtime: Any, Step: Any) -> None:
    world.provider.script(Step(text="bad"), Step(text=GOOD))
    response = await world.until(runtime.llm(Grade.SMALL).single_response("x", response_model=Triage))
    assert response.parsed.product == "billing"
    assert response.usage == Usage(input_tokens=20, output_tokens=10)
    assert response.cost == Decimal("0.00012")
