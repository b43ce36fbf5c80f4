"""A job's life: declarations, cost caps, waiting limits, stopping in two steps, threads, records."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict

from interlock.admission import CountingGate
from interlock.catalog import Grade, Limits, ModelSpec, OutputSize, Prices
from interlock.clients.response import StopReason
from interlock.errors import (
    AdmissionError,
    AdmissionTimeoutError,
    ConfigurationError,
    InterlockError,
    InvalidRequestError,
    JobCancelledError,
    NeverFitsError,
    SpendCapExceededError,
    UndeclaredResourceError,
    UnpricedModelError,
)
from interlock.runtime import (
    Job,
    JobRequirements,
    JobResources,
    JobState,
    LLMCall,
    PipelineContext,
    Runtime,
    RuntimeSettings,
    pipeline,
)
from interlock.runtime.state import MOVES, move

SPEC = ModelSpec(Grade.SMALL, max_output_tokens=100)


@dataclass(frozen=True)
class Ask(Job[str]):
    """Declares `declared` calls and makes `made`."""

    declared: int = 1
    made: int = 1
    text: str = "x"
    tokens: int = 100

    def requirements(self, needs: JobRequirements) -> None:
        needs.require_model(SPEC, input=self.tokens, calls=self.declared)

    async def run(self, resources: JobResources) -> str:
        client = resources.get_llm_client(SPEC)
        return " ".join([(await client.single_response(self.text)).text for _ in range(self.made)])


class Modelled(BaseModel, Job[int]):
    """A pydantic model is as good a job as a dataclass."""

    model_config = ConfigDict(frozen=True)
    value: int

    async def run(self, resources: JobResources) -> int:
        return self.value


async def test_a_pydantic_model_is_a_job(world: Any, runtime: Runtime) -> None:
    assert await world.until(runtime.run(Modelled(value=3))) == 3


async def test_the_missions_spellings(world: Any, runtime: Runtime) -> None:
    @dataclass(frozen=True)
    class Spelled(Job[str]):
        def requirements(self, needs: JobRequirements) -> None:
            needs.requireModel(SPEC, input="x")

        async def run(self, resources: JobResources) -> str:
            client = resources.getLLMClient(SPEC)
            assert client.getUpstreamRetries() == self.getUpstreamRetries() == 3
            return (await client.singleResponse("x")).text

    assert await world.until(runtime.run(Spelled())) == "ok"


@pytest.mark.parametrize("asked", ["binding", "grade", "id", "spec", "only"])
async def test_a_client_is_fetched_by_what_was_declared(world: Any, runtime: Runtime, asked: str) -> None:
    bindings: list[Any] = []

    @dataclass(frozen=True)
    class Fetch(Job[str]):
        def requirements(self, needs: JobRequirements) -> None:
            bindings.append(needs.require_model(Grade.SMALL, input="some words", output=OutputSize.VERDICT))

        async def run(self, resources: JobResources) -> str:
            (binding,) = bindings
            key: Any = {"binding": binding, "grade": Grade.SMALL, "id": "fake-small", "spec": binding.spec}.get(asked)
            return (await resources.get_llm_client(key).single_response("x")).text

    assert await world.until(runtime.run(Fetch())) == "ok"
    assert bindings[0].output_tokens == world.provider.seen[0].body["max_tokens"] == 1_024


async def test_a_model_never_declared_is_refused_by_name(world: Any, runtime: Runtime) -> None:
    @dataclass(frozen=True)
    class Sly(Ask):
        async def run(self, resources: JobResources) -> str:
            return (await resources.get_llm_client("gpt-nine").single_response("x")).text

    with pytest.raises(UndeclaredResourceError, match=r"gpt-nine.*declared: SMALL"):
        await world.until(runtime.run(Sly()))
    assert world.provider.count == 0


async def test_of_two_alike_the_binding_tells_which(world: Any, runtime: Runtime) -> None:
    bindings: list[Any] = []

    @dataclass(frozen=True)
    class Two(Job[list[str]]):
        def requirements(self, needs: JobRequirements) -> None:
            bindings[:] = [needs.require_model(Grade.SMALL, input=1, max_output_tokens=size) for size in (50, 60)]

        async def run(self, resources: JobResources) -> list[str]:
            with pytest.raises(UndeclaredResourceError, match=r"declared several .*binding"):
                resources.get_llm_client(Grade.SMALL)
            clients = [resources.get_llm_client(binding) for binding in bindings]
            return [(await client.single_response("x")).text for client in clients]

    assert await world.until(runtime.run(Two())) == ["ok", "ok"]
    assert [seen.body["max_tokens"] for seen in world.provider.seen] == [50, 60]


async def test_a_requirement_without_an_answer_size_is_refused(world: Any, runtime: Runtime) -> None:
    @dataclass(frozen=True)
    class Vague(Job[None]):
        def requirements(self, needs: JobRequirements) -> None:
            needs.require_model(Grade.SMALL, input="x")

    with pytest.raises(ConfigurationError, match="max_output_tokens"):
        await world.until(runtime.run(Vague()))


async def test_a_call_beyond_the_declared_is_debt_and_said_once(
    world: Any, runtime: Runtime, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "interlock.runtime"):
        await world.until(runtime.run(Ask(declared=1, made=3)))
        await world.until(runtime.run(Ask(declared=1, made=2)))
    assert [row.record.undeclared for row in await runtime.calls()] == [False, True, True, False, True]
    said = [record.getMessage() for record in caplog.records if "declared" in record.getMessage()]
    assert len(said) == 1
    assert "Ask declared 1 call(s) of fake-small with 100 input and 100 output" in said[0]


async def test_strict_declarations_refuse_it_before_it_is_sent(world: Any) -> None:
    async with world.runtime(strict_declarations=True) as runtime:
        with pytest.raises(InvalidRequestError, match="beyond"):
            await world.until(runtime.run(Ask(declared=1, made=2)))
        level = runtime.statistics().admission.account("model:fake-small:tokens")
        assert level.debt == 0
    assert world.provider.count == 1


async def test_requirements_are_declared_anew_for_every_attempt(world: Any, runtime: Runtime, Step: Any) -> None:
    from interlock.errors import TransientUpstreamError

    declared: list[int] = []

    @dataclass(frozen=True)
    class Again(Ask):
        def requirements(self, needs: JobRequirements) -> None:
            declared.append(1)
            super().requirements(needs)

        async def run(self, resources: JobResources) -> str:
            attempts.append((resources, resources.attempt))
            return await super().run(resources)

    attempts: list[Any] = []
    world.provider.script(Step(error=lambda: TransientUpstreamError("gone")))
    await world.until(runtime.run(Again()))
    assert len(declared) == 2
    assert [number for _, number in attempts] == [1, 2]
    assert attempts[0][0] is not attempts[1][0], "fresh resources"


async def test_an_exception_nobody_classified_is_not_retried(world: Any, runtime: Runtime) -> None:
    runs: list[int] = []

    @dataclass(frozen=True)
    class Bug(Job[None]):
        async def run(self, resources: JobResources) -> None:
            runs.append(1)
            raise KeyError("bug")

    with pytest.raises(KeyError):
        await world.until(runtime.run(Bug()))
    assert runs == [1]


async def test_in_a_custom_job_the_cut_off_requirement_is_raised_to_the_ceiling(
    world: Any, runtime: Runtime, Step: Any
) -> None:
    world.provider.script(Step(stop=StopReason.MAX_TOKENS))
    assert await world.until(runtime.run(Ask())) == "ok"
    assert [seen.body["max_tokens"] for seen in world.provider.seen] == [100, 8_000]


# Money.


async def test_a_cost_cap_refuses_what_could_pass_it_and_lets_the_rest_go(world: Any, runtime: Runtime) -> None:
    @pipeline
    async def spend(ctx: PipelineContext) -> str:
        await ctx.run(LLMCall("a", max_output_tokens=1_000))  # at most 0.01 and a little, really 0.00006
        await ctx.run(LLMCall("b", max_output_tokens=900))
        return (await ctx.run(LLMCall("c", max_output_tokens=5_000))).text

    with pytest.raises(SpendCapExceededError) as caught:
        await world.until(runtime.run(spend(), run_id="r", cost_cap="0.0105"))
    assert (caught.value.cap, caught.value.spent, caught.value.currency) == ("0.0105", "0.00012", "USD")
    assert Decimal(caught.value.ask) > Decimal("0.05")
    assert world.provider.count == 2


async def test_siblings_wait_for_what_others_hold_of_the_cap(world: Any, runtime: Runtime) -> None:
    @pipeline
    async def spend(ctx: PipelineContext) -> int:
        return len(await ctx.map(range(5), lambda n: LLMCall(f"{n}", max_output_tokens=1_000)))

    assert await world.until(runtime.run(spend(), cost_cap="0.015")) == 5
    assert world.provider.most_in_flight == 1, "only one worst price fits under the cap at a time"


async def test_the_deployments_cap_holds_over_all_runs(world: Any) -> None:
    async with world.runtime(cost_cap="0.0101") as runtime:
        await world.until(runtime.run(LLMCall("a", max_output_tokens=1_000)))
        with pytest.raises(SpendCapExceededError):
            await world.until(runtime.run(LLMCall("b", max_output_tokens=1_004)))
    assert world.provider.count == 1


async def test_under_a_cap_an_unpriced_model_is_refused_before_anything_is_sent(
    world: Any, runtime: Runtime, entry: Any
) -> None:
    world.entries.append(entry("unpriced", prices=None))
    async with world.runtime() as fresh:
        with pytest.raises(UnpricedModelError) as caught:
            await world.until(fresh.run(LLMCall("x", model="unpriced"), cost_cap="1"))
        assert (caught.value.sent, caught.value.model) == (False, "unpriced")
        assert (await world.until(fresh.run(LLMCall("x", model="unpriced")))).cost is None
        assert fresh.statistics().unpriced == 1
    assert world.provider.count == 1


async def test_a_call_in_another_currency_than_the_cap_is_refused_by_name(world: Any, entry: Any) -> None:
    world.entries[:] = [entry(prices=Prices(currency="EUR", input=Decimal(1), output=Decimal(10)))]
    async with world.runtime() as runtime:
        with pytest.raises(AdmissionError, match=r"EUR"):
            await world.until(runtime.run(LLMCall("x"), cost_cap="1"))
        assert await world.until(runtime.run(LLMCall("x"), cost_cap="1 EUR"))
    assert world.provider.count == 1


async def test_a_free_model_passes_any_cap(world: Any, entry: Any) -> None:
    world.entries[:] = [entry(prices=Prices(input=Decimal(0)))]
    async with world.runtime() as runtime:
        assert (await world.until(runtime.run(LLMCall("x"), cost_cap="0"))).cost == 0


async def test_a_cap_that_is_no_money_is_said_at_once(runtime: Runtime) -> None:
    with pytest.raises(ConfigurationError, match="a lot"):
        runtime.submit(LLMCall("x"), cost_cap="a lot")
    assert runtime.statistics().submitted == 0


# Waiting.


async def test_never_fits_fails_at_once(world: Any, entry: Any) -> None:
    world.entries[:] = [entry(limits=Limits(tpm=100))]
    async with world.runtime() as runtime:
        with pytest.raises(NeverFitsError) as caught:
            await world.until(runtime.run(LLMCall("x", max_output_tokens=500)), within_s=0)
    assert caught.value.limit == 100
    assert world.provider.count == 0


async def test_b58_the_wait_ends_at_max_wait_with_nothing_sent(world: Any, entry: Any) -> None:
    world.entries[:] = [entry(limits=Limits(max_concurrent=1))]
    world.provider.always = lambda seen: world.step(latency_s=5)
    async with world.runtime() as runtime:
        first = runtime.submit(LLMCall("first"))
        await world.run_until(lambda: world.provider.count == 1)
        late = runtime.submit(LLMCall("late", max_wait_s=1))
        started = world.clock.now()
        with pytest.raises(AdmissionTimeoutError) as caught:
            await world.until(late)
        assert world.clock.now() - started == pytest.approx(1.0)
        assert caught.value.max_wait_s == 1
        await world.until(first)
        await world.clock.advance(60)
        assert world.provider.count == 1, "what timed out in the line is never sent later"
        assert len(await runtime.calls()) == 1


async def test_b58_waiting_does_not_eat_the_jobs_own_timeout(world: Any, entry: Any) -> None:
    world.entries[:] = [entry(limits=Limits(max_concurrent=1))]
    world.provider.always = lambda seen: world.step(latency_s=0.9)
    async with world.runtime() as runtime:
        handles = [runtime.submit(LLMCall(f"{n}", timeout_s=1)) for n in range(4)]
        for handle in handles:
            assert (await world.until(handle)).text == "ok"
        assert (await runtime.calls())[-1].waited_s == pytest.approx(2.7)


async def test_b58_cancelled_in_the_line_it_is_not_sent_when_room_comes(world: Any, entry: Any) -> None:
    world.entries[:] = [entry(limits=Limits(max_concurrent=1))]
    async with world.runtime() as runtime:
        first, second, third = [runtime.submit(LLMCall(text)) for text in ("first", "second", "third")]
        await world.run_until(lambda: world.provider.count == 1)
        assert second.cancel()
        assert second.state is JobState.CANCELLED
        with pytest.raises(JobCancelledError):
            await second
        await world.until(first)
        await world.until(third)
    assert [seen.body["turns"][0][1][0] for seen in world.provider.seen] == ["first", "third"]


async def test_overflow_goes_unmetered_instead_of_being_refused(world: Any, entry: Any) -> None:
    world.entries[:] = [entry(limits=Limits(tpm=150))]
    async with world.runtime() as runtime:
        await world.until(runtime.run(LLMCall("a", max_output_tokens=140)))
        handle = runtime.submit(LLMCall("b", max_output_tokens=140, max_wait_s=0.5, overflow="proceed"))
        assert (await world.until(handle)).text == "ok"
        assert [row.record.unmetered for row in await runtime.calls()] == [False, True]


async def test_priority_goes_first(world: Any, entry: Any) -> None:
    world.entries[:] = [entry(limits=Limits(max_concurrent=1))]
    async with world.runtime() as runtime:
        handles = [runtime.submit(LLMCall("first"))]
        handles += [runtime.submit(LLMCall(f"p{priority}", priority=priority)) for priority in (0, 5, 9)]
        for handle in handles:
            await world.until(handle)
    assert [seen.body["turns"][0][1][0] for seen in world.provider.seen] == ["first", "p9", "p5", "p0"]


# The rest.


def test_every_state_is_in_the_table_and_the_ends_are_final() -> None:
    assert set(MOVES) == set(JobState)
    assert {state for state in JobState if state.done} == {JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED}
    with pytest.raises(AssertionError):
        move(JobState.SUCCEEDED, JobState.RUNNING)


async def test_the_runtime_says_when_it_is_not_open(world: Any) -> None:
    runtime = Runtime(world.settings())
    with pytest.raises(InterlockError, match="async with"):
        runtime.submit(LLMCall("x"))
    async with runtime:
        with pytest.raises(InterlockError, match="open already"):
            await runtime.__aenter__()
        await world.until(runtime.run(LLMCall("x")))
    with pytest.raises(InterlockError, match="async with"):
        await runtime.run(LLMCall("x"))
    async with runtime:
        await world.until(runtime.run(LLMCall("opened again")))
    assert world.provider.count == 2


async def test_settings_that_cannot_be_are_said_at_opening(world: Any) -> None:
    gates = (CountingGate("gpu", 1), CountingGate("gpu", 2))
    with pytest.raises(ConfigurationError, match="two accounts named 'gpu'"):
        async with world.runtime(accounts=gates):
            pass
    with pytest.raises(ConfigurationError, match="no amount of money"):
        async with world.runtime(cost_cap="much"):
            pass


async def test_statistics_add_up(world: Any, runtime: Runtime) -> None:
    for _ in range(3):
        await world.until(runtime.run(LLMCall("x")))
    statistics = runtime.statistics()
    assert (statistics.submitted, statistics.succeeded, statistics.live, statistics.requests) == (3, 3, 0, 3)
    assert statistics.outcomes == {"ok": 3}
    assert statistics.usage.output_tokens == 15
    assert statistics.cost == {"USD": Decimal("0.00018")}
    assert statistics.admission.granted == 3


def test_the_grace_is_a_tenth_of_the_timeout_within_bounds() -> None:
    settings = RuntimeSettings()
    assert [settings.grace_s(timeout) for timeout in (1.0, 100.0, 1_800.0, None)] == [0.5, 10.0, 30.0, 30.0]


CATALOG = """
models:
  - {{id: edited, grade: SMALL, provider: fake, wire_model_id: {wire}, context_window: 1000, max_output_tokens: 500,
      limits: {{rpm: {rpm}}}, prices: {{input: 1, output: 2}}}}
"""


async def test_an_edited_catalog_takes_effect_and_a_broken_one_does_not(
    world: Any, tmp_path: Any, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "catalog.yaml"
    file.write_text(CATALOG.format(wire="one", rpm=60))
    async with world.runtime(catalog=file) as runtime:
        await world.until(runtime.run(LLMCall("a")))
        file.write_text(CATALOG.format(wire="a-second-name", rpm=120))
        await world.clock.advance(3)
        await world.until(runtime.run(LLMCall("b")))
        assert runtime.statistics().admission.account("model:edited:requests").capacity == 120
        file.write_text("models: [")
        for _ in range(2):
            await world.clock.advance(3)
            with caplog.at_level(logging.WARNING, "interlock.runtime"):
                await world.until(runtime.run(LLMCall("c")))
    assert [seen.body["model"] for seen in world.provider.seen] == ["one", *["a-second-name"] * 3]
    assert len([record for record in caplog.records if "cannot be read" in record.getMessage()]) == 1
