"""What is final, what runs again, what stops a run: the rules of the journal, each in one small pipeline."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import Any

import pytest
from journal.kept import Kept, ask, cut_off, resume_on, run_on, steps_of
from pydantic import BaseModel

from interlock.admission import CountingGate
from interlock.clients.response import StopReason
from interlock.errors import (
    AdmissionTimeoutError,
    AmbiguousStepError,
    ConfigurationError,
    InvalidRequestError,
    LeaseLostError,
    OutputTruncatedError,
    ProviderRefusalError,
    ReplayMismatchError,
    RunHeldError,
    SpendCapExceededError,
    UnencodableError,
)
from interlock.runtime import Job, PipelineContext, pipeline
from interlock.runtime.journal.protocol import RunStatus


@pytest.fixture
def journal() -> Kept:
    return Kept()


@pipeline
async def three(ctx: PipelineContext, text: str = "x") -> list[str]:
    return [(await ctx.run(ask(f"{text} {number}"))).text for number in range(3)]


# A run id.


async def test_a_run_that_has_ended_gives_its_result_and_runs_nothing(world: Any, journal: Kept) -> None:
    first = await run_on(world, journal, three())
    assert world.provider.count == 3
    assert await run_on(world, journal, three()) == first
    assert await resume_on(world, journal) == first
    assert world.provider.count == 3


async def test_a_run_that_failed_raises_its_error_again_until_it_is_resumed(world: Any, journal: Kept) -> None:
    world.provider.script(world.step(), world.step(error=InvalidRequestError("no such tool", model="m", status=400)))
    with pytest.raises(InvalidRequestError):
        await run_on(world, journal, three())
    with pytest.raises(InvalidRequestError, match="no such tool") as caught:
        await run_on(world, journal, three())
    assert (caught.value.status, caught.value.model) == (400, "m")
    assert "Runtime.resume" in caught.value.__notes__[0]
    assert world.provider.count == 2
    assert await resume_on(world, journal) == ["ok"] * 3
    assert world.provider.count == 4, "the first call was paid for and is final"
    assert journal._runs["r"].steps["1"].again == "failed"


async def test_another_pipeline_version_or_argument_under_the_same_id_is_refused(world: Any, journal: Kept) -> None:
    left = await cut_off(world, journal, three(), after=2)
    sent = world.provider.count

    @pipeline(name="three", version="2")
    async def newer(ctx: PipelineContext, text: str = "x") -> None:
        raise AssertionError("never run")

    @pipeline
    async def other(ctx: PipelineContext) -> None:
        raise AssertionError("never run")

    for job, said in (
        (newer(), "version ''.*version '2'"),
        (other(), "three, not of other"),
        (three("y"), "'r' was begun with other arguments"),
    ):
        with pytest.raises(ReplayMismatchError, match=said):
            await run_on(world, left, job)
    assert world.provider.count == sent
    assert await run_on(world, left, three()) == ["ok"] * 3, "it is as it was"


async def test_a_run_in_the_hands_of_a_living_process_is_refused(world: Any, journal: Kept) -> None:
    async with world.runtime(journal=journal) as one, world.runtime(journal=journal) as other:
        handle = one.submit(three(), run_id="r")
        await world.run_until(lambda: world.provider.count == 1)
        with pytest.raises(RunHeldError):
            await world.until(other.run(three(), run_id="r"))
        with pytest.raises(RunHeldError):
            one.submit(three(), run_id="r")
        assert await world.until(handle) == ["ok"] * 3


async def test_a_run_is_resumed_from_its_record_alone(world: Any, journal: Kept) -> None:
    left = await cut_off(world, journal, three("text"), after=2)
    assert await resume_on(world, left) == ["ok"] * 3
    assert [row.step_id for row in await left.book.read_calls()].count("0") == 1


async def test_a_run_that_cannot_be_called_again_from_its_record_takes_the_job(world: Any, journal: Kept) -> None:
    @pipeline
    async def local(ctx: PipelineContext) -> str:
        return str((await ctx.run(ask("x"))).text)

    left = await cut_off(world, journal, local(), after=1)
    with pytest.raises(ConfigurationError, match="not at the top of a module"):
        await resume_on(world, left)
    assert await resume_on(world, left, local()) == "ok"
    with pytest.raises(ConfigurationError, match="no run 'r'"):
        await resume_on(world, Kept(), local())


# What stops a replay.


async def test_a_step_that_is_not_the_recorded_one_stops_the_run_before_anything_is_sent(
    world: Any, journal: Kept
) -> None:
    texts = ["one", "two", "three"]

    @pipeline
    async def listed(ctx: PipelineContext) -> list[str]:
        try:
            return [(await ctx.run(ask(text))).text for text in texts]
        except ReplayMismatchError:
            return ["swallowed"]

    left = await cut_off(world, journal, listed(), after=3)
    sent = world.provider.count
    texts[1] = "another"
    with pytest.raises(ReplayMismatchError, match=r"step '1' was recorded as LLMCall \(LLMCall:\w+@200\) and is now"):
        await run_on(world, left, listed())
    assert world.provider.count == sent
    texts[1] = "two"
    assert await run_on(world, left, listed()) == ["ok"] * 3, "a mismatch is not the run's own end"
    assert world.provider.count == sent + 1


async def test_outcomes_that_are_left_unread_stop_the_run_and_are_named(world: Any, journal: Kept) -> None:
    count = [3]

    @pipeline
    async def shrinking(ctx: PipelineContext) -> int:
        for number in range(count[0]):
            await ctx.run(ask(f"{number}"))
        return count[0]

    left = await cut_off(world, journal, shrinking(), after=3)
    count[0] = 1
    with pytest.raises(ReplayMismatchError, match=r"1 step\(s\) that are recorded: 1 \(LLMCall\)"):
        await run_on(world, left, shrinking())
    count[0] = 3
    assert await run_on(world, left, shrinking()) == 3


async def test_from_step_drops_what_follows(world: Any, journal: Kept) -> None:
    texts = ["one", "two", "three"]

    @pipeline
    async def listed(ctx: PipelineContext) -> list[str]:
        return [(await ctx.run(ask(text))).text for text in texts]

    left = await cut_off(world, journal, listed(), after=3)
    texts[1] = "another"
    with pytest.raises(ConfigurationError, match="no step 'nowhere' is recorded; there are: 0, 1, 2"):
        await resume_on(world, left, listed(), from_step="nowhere")
    sent = world.provider.count
    assert await resume_on(world, left, listed(), from_step="1") == ["ok"] * 3
    assert world.provider.count == sent + 2


async def test_a_keyed_map_may_be_reordered_and_grow_and_its_items_are_paid_once(world: Any, journal: Kept) -> None:
    items = ["a", "b", "c"]

    @pipeline
    async def mapped(ctx: PipelineContext) -> list[str]:
        await ctx.map(items, lambda item: ask(item), key=str, limit=1)
        return list(items)

    left = await cut_off(world, journal, mapped(), after=3)
    world.provider.seen.clear()
    items[:] = ["d", "b", "c", "a"]
    assert await run_on(world, left, mapped()) == items
    assert [seen.body["turns"][-1][1][0] for seen in world.provider.seen] == ["d", "c"]
    assert left._runs["r"].steps["0/k:c"].again == "ambiguous"


# What is final and what runs again.


async def test_a_failure_that_the_pipeline_lives_with_is_read_back_in_recovery(world: Any, journal: Kept) -> None:
    @pipeline
    async def careful(ctx: PipelineContext) -> list[str]:
        try:
            first = (await ctx.run(ask("first"))).text
        except ProviderRefusalError as error:
            first = f"{error.code} {error.category} {error}"
        return [first, (await ctx.run(ask("second"))).text, (await ctx.run(ask("third"))).text]

    world.provider.script(world.step(stop=StopReason.REFUSAL))
    left = await cut_off(world, journal, careful(), after=3)
    sent = world.provider.count
    result = await run_on(world, left, careful())
    assert result[0].startswith("provider_refusal policy ")
    assert world.provider.count == sent + 1


async def test_a_cut_off_answer_is_an_outcome_of_its_limit(world: Any, journal: Kept) -> None:
    limit = [100]

    @pipeline
    async def limited(ctx: PipelineContext) -> str:
        return str((await ctx.run(ask("x", max_output_tokens=limit[0]))).text)

    cut = world.step(text="half", stop=StopReason.MAX_TOKENS)
    world.provider.script(cut, cut)
    with pytest.raises(OutputTruncatedError):
        await run_on(world, journal, limited())
    assert world.provider.count == 2, "once more at the ceiling"
    with pytest.raises(OutputTruncatedError):
        await run_on(world, journal, limited())
    limit[0] = 300
    assert await resume_on(world, journal, limited()) == "ok"
    assert journal._runs["r"].steps["0"].again == "limit"


async def test_a_run_that_ended_by_a_refusal_of_admission_asks_again(world: Any, journal: Kept) -> None:
    gate = CountingGate("gpu", 1)

    @pipeline
    async def waiting(ctx: PipelineContext) -> str:
        first = (await ctx.run(ask("first"))).text
        return first + str((await ctx.run(OnGpu())).text)

    async with world.runtime(journal=journal, accounts=(gate,)) as runtime:
        holder = runtime.submit(Holds())
        await world.run_until(lambda: holder.state == "running")
        with pytest.raises(AdmissionTimeoutError):
            await world.until(runtime.run(waiting(), run_id="r"))
        holder.cancel()
        await world.run_until(lambda: holder.done)
        assert await world.until(runtime.run(waiting(), run_id="r")) == "okok"
    assert world.provider.count == 2
    assert journal._runs["r"].steps["1"].attempt == 1


async def test_what_a_refusal_stopped_is_asked_again_with_it(world: Any, journal: Kept) -> None:
    @pipeline
    async def both(ctx: PipelineContext) -> str:
        slow, last = await ctx.gather(ask("slow"), OnGpu())
        return f"{slow.text} {last.text}"

    async with world.runtime(journal=journal, accounts=(CountingGate("gpu", 1),)) as runtime:
        holder = runtime.submit(Holds())
        await world.run_until(lambda: holder.state == "running")
        world.provider.script(world.step(latency_s=5_000.0))
        with pytest.raises(AdmissionTimeoutError):
            await world.until(runtime.run(both(), run_id="r"))
        assert {id: step.status for id, step in journal._runs["r"].steps.items()} == {
            "0/0": "cancelled",
            "0/1": "failed",
        }
        holder.cancel()
        await world.run_until(lambda: holder.done)
        assert await world.until(runtime.run(both(), run_id="r")) == "ok ok"


@dataclass(frozen=True)
class Holds(Job[None]):
    def requirements(self, needs: Any) -> None:
        needs.require("gpu", 1)

    async def run(self, resources: Any) -> None:
        await asyncio.Event().wait()


@dataclass(frozen=True)
class OnGpu(Job[Any]):
    max_wait_s = 5.0

    def requirements(self, needs: Any) -> None:
        needs.require("gpu", 1)
        needs.require_model("fake-small", input="x", max_output_tokens=10)

    async def run(self, resources: Any) -> Any:
        return await resources.get_llm_client().single_response("x")


async def test_b21_an_ambiguous_step_is_sent_again_counted_and_said_or_fails(
    world: Any, journal: Kept, caplog: pytest.LogCaptureFixture
) -> None:
    left = await cut_off(world, journal, three(), after=2)
    sent = world.provider.count
    with pytest.raises(AmbiguousStepError, match="nobody knows"):
        await run_on(world, left, three(), ambiguous="fail")
    assert world.provider.count == sent
    with caplog.at_level(logging.WARNING, "interlock.runtime"):
        async with world.runtime(journal=left) as runtime:
            assert await world.until(runtime.run(three(), run_id="r")) == ["ok"] * 3
            counted = runtime.statistics()
    assert (counted.replayed, dict(counted.again)) == (1, {"ambiguous": 1})
    assert "may have been sent and paid for" in caplog.text
    rows = [row for row in await left.book.read_calls() if row.step_id == "1"]
    assert [(row.attempt, row.record.outcome, row.record.usage.estimated) for row in rows] == [
        (1, "unknown", True),
        (2, "ok", False),
    ]


async def test_a_run_that_was_stopped_in_an_orderly_way_is_not_ambiguous(world: Any, journal: Kept) -> None:
    async with world.runtime(journal=journal) as runtime:
        handle = runtime.submit(three(), run_id="r")
        await world.run_until(lambda: world.provider.count == 2)
        handle.cancel()
        await world.run_until(lambda: handle.done)
    assert journal._runs["r"].status is RunStatus.CANCELLED
    assert steps_of(journal) == {"0": "succeeded", "1": "interrupted"}
    assert await run_on(world, journal, three(), ambiguous="fail") == ["ok"] * 3
    outcomes = [row.record.outcome for row in await journal.book.read_calls() if row.step_id == "1"]
    assert outcomes == ["cancelled", "ok"]


async def test_a_sibling_that_was_stopped_stays_stopped_on_replay(world: Any, journal: Kept) -> None:
    @pipeline
    async def raced(ctx: PipelineContext) -> str:
        try:
            await ctx.gather(ask("slow"), ask("wrong"))
        except InvalidRequestError:
            return str((await ctx.run(ask("last"))).text)
        raise AssertionError("the second one fails")

    world.provider.script(
        world.step(latency_s=50.0), world.step(error=InvalidRequestError("no", model="m", status=400))
    )
    left = await cut_off(world, journal, raced(), after=3)
    assert steps_of(left) == {"0/0": "cancelled", "0/1": "failed", "1": "begun"}
    sent = world.provider.count
    assert await run_on(world, left, raced()) == "ok"
    assert world.provider.count == sent + 1


# Money, leases, results.


async def test_a_cost_cap_counts_what_earlier_lives_have_spent(world: Any, journal: Kept) -> None:
    # 10 input and 5 output tokens cost 0.00006; a call of 200 tokens asks for a little over 0.002.
    left = await cut_off(world, journal, three(), after=3, cost_cap="0.0041")
    with pytest.raises(SpendCapExceededError) as caught:
        await run_on(world, left, three())  # its cap is the recorded one
    # Two calls known, and the third at its worst price, since nobody knows.
    assert 0.0021 < float(caught.value.spent) < 0.0025
    assert float(caught.value.cap) == 0.0041
    assert await resume_on(world, left, cost_cap="1") == ["ok"] * 3


async def test_a_process_that_lost_its_lease_stops_and_writes_nothing_more(world: Any, journal: Kept) -> None:
    async with world.runtime(journal=journal) as runtime:
        handle = runtime.submit(three(), run_id="r")
        await world.run_until(lambda: world.provider.count == 2)
        journal.lapse()
        await world.run_until(lambda: handle.done)
        assert isinstance(handle.exception(), LeaseLostError)
        assert world.provider.count == 2
    assert steps_of(journal) == {"0": "succeeded", "1": "begun"}
    assert journal._runs["r"].status is RunStatus.RUNNING


class Odd:
    pass


@dataclass(frozen=True)
class GivesOdd(Job[Any]):
    async def run(self, resources: Any) -> Any:
        return {"odd": [1, Odd()]}


async def test_a_result_that_cannot_be_written_is_an_error_that_says_where(world: Any, journal: Kept) -> None:
    @pipeline
    async def odd(ctx: PipelineContext) -> None:
        await ctx.run(GivesOdd(), key="strange")

    with pytest.raises(UnencodableError, match=r"the result of step 'k:strange' \(GivesOdd\)\['odd'\]\[1\].*Odd"):
        await run_on(world, journal, odd())


async def test_an_answers_class_that_nobody_could_find_is_refused_before_it_is_paid_for(
    world: Any, journal: Kept
) -> None:
    class Local(BaseModel):
        x: int

    @pipeline
    async def local(ctx: PipelineContext) -> Any:
        return await ctx.run(ask("x", response_model=Local))

    with pytest.raises(UnencodableError, match="Local cannot be found by its name"):
        await run_on(world, journal, local())
    assert not world.provider.count


async def test_a_runs_own_result_must_be_data_only_where_somebody_may_ask_for_it_again(
    world: Any, journal: Kept
) -> None:
    @pipeline
    async def odd(ctx: PipelineContext) -> Any:
        await ctx.run(ask("x"))
        return Odd()

    with pytest.raises(UnencodableError, match=r"the result of run 'r' \(odd\) is of type .*Odd"):
        await run_on(world, journal, odd())
    async with world.runtime(journal=journal) as runtime:
        handle = runtime.submit(odd())
        assert isinstance(await world.until(handle), Odd)
        with pytest.raises(UnencodableError, match="has succeeded, but"):
            await world.until(runtime.run(odd(), run_id=handle.run_id))
