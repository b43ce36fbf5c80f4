"""Where an entry says `count: provider`: what a call is reserved for, and that nobody's count is anybody's trouble."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from pydantic import BaseModel

from interlock.catalog import Catalog, Grade, Limits, ModelEntry
from interlock.clients.registry import provider_class
from interlock.clients.simulator import SimulatedProvider
from interlock.errors import (
    AdmissionTimeoutError,
    ContextWindowExceededError,
    JobCancelledError,
    OverloadedError,
    RateLimitedError,
    SpendCapExceededError,
    TransientUpstreamError,
)
from interlock.runtime import Job, JobRequirements, JobResources, LLMCall, ModelSettings, Runtime, RuntimeSettings
from interlock.runtime.counting import AT_ONCE, PAUSE_S
from interlock.runtime.state import JobState

LONG = "word " * 2_000  # some 2,700 tokens by the offline estimate
LIMITS = Limits(tpm=60_000, burst_s=60.0)


@dataclass
class Counter:
    """The endpoint that counts, of every fake model. An answer may be a number, an error, or seconds to be silent."""

    clock: Any
    answers: Callable[[dict[str, Any]], int | Exception | float | None]
    asked: list[dict[str, Any]] = field(default_factory=list)
    under_way: int = 0
    most: int = 0
    left: int = 0

    async def count(self, client: Any, body: bytes) -> int | None:
        self.asked.append(json.loads(body))
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        try:
            answer = self.answers(self.asked[-1])
            await self.clock.sleep(answer if isinstance(answer, float) else 0.1)
        except asyncio.CancelledError:
            self.left += 1
            raise
        finally:
            self.under_way -= 1
        if isinstance(answer, Exception):
            raise answer
        return 7 if isinstance(answer, float) else answer


@pytest.fixture
def counter(world: Any, monkeypatch: pytest.MonkeyPatch) -> Counter:
    """Every request has 100 tokens, and the world's one model is counted."""
    made = Counter(world.clock, lambda body: 100)

    async def count_tokens(client: Any, body: bytes) -> int | None:
        return await made.count(client, body)

    monkeypatch.setattr(provider_class("fake"), "count_tokens", count_tokens)
    world.entries[:] = [world.entries[0].model_copy(update={"count": "provider", "limits": LIMITS})]
    return made


def tokens(runtime: Runtime, model: str = "fake-small") -> float:
    return runtime.statistics().admission.account(f"model:{model}:tokens").level


def reserved(handle: Any) -> list[tuple[int, int]]:
    """Input and output tokens of the calls that a running job was granted."""
    charges = handle._execution._running.reservation.demand.calls
    return [(charge.input_tokens, charge.output_tokens) for charge in charges]


def call(text: str = LONG, **settings: Any) -> LLMCall[Any]:
    return LLMCall(text, **{"max_output_tokens": 1_000, **settings})


async def test_what_is_reserved_is_what_the_provider_counted(world: Any, counter: Counter) -> None:
    world.provider.always = lambda seen: world.step(latency_s=5.0)
    async with world.runtime() as runtime:
        handle = runtime.submit(call(system="Be brief."))
        assert str(handle.state) == "counting"
        assert tokens(runtime) == 60_000, "a count takes nothing"
        await world.run_until(lambda: handle.state is JobState.RUNNING)
        assert reserved(handle) == [(100, 1_000)]
        assert 60_000 - 2_200 < tokens(runtime) < 60_000 - 1_000
        await world.until(handle.wait())
        (row,) = await runtime.calls()
    (asked,) = counter.asked
    assert asked == world.provider.seen[0].body, "counted is what is sent"
    assert (row.record.undeclared, world.provider.count) == (False, 1)


async def test_offline_is_the_default_and_asks_nobody(world: Any, counter: Counter) -> None:
    world.entries[:] = [world.entries[0].model_copy(update={"count": "offline"})]
    async with world.runtime() as runtime:
        await world.until(runtime.run(call()))
    assert counter.asked == []


@dataclass(frozen=True)
class Declares(Job[None]):
    """One requirement for each input. Runs until it is let go."""

    inputs: tuple[Any, ...]
    go: asyncio.Event = field(default_factory=asyncio.Event, compare=False)

    def requirements(self, needs: JobRequirements) -> None:
        for number, each in enumerate(self.inputs):
            needs.require_model(Grade.SMALL, input=each, max_output_tokens=100 + number)

    async def run(self, resources: JobResources) -> None:
        await self.go.wait()


async def test_texts_are_counted_and_numbers_are_taken_as_they_are(world: Any, counter: Counter) -> None:
    counter.answers = lambda body: 10 + len(counter.asked)
    async with world.runtime() as runtime:
        job = Declares((LONG, 500, "short"))
        handle = runtime.submit(job)
        await world.run_until(lambda: handle.state is JobState.RUNNING)
        assert reserved(handle) == [(11, 100), (500, 101), (12, 102)]
        job.go.set()
        await world.until(handle.wait())


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_the_output_limit_follows_the_count(world: Any, counter: Counter, stream: bool) -> None:
    counter.answers = lambda body: 99_500 if len(counter.asked) == 1 else 100_000
    async with world.runtime() as runtime:

        async def ask() -> None:
            if stream:
                async with runtime.llm("fake-small", max_output_tokens=1_000).stream_response("x") as pieces:
                    _ = [piece async for piece in pieces]
            else:
                await runtime.run(call("x", model="fake-small"))

        world.entries[0].__dict__["limits"] = Limits()
        await world.until(ask())
        assert world.provider.seen[0].body["max_tokens"] == 500
        with pytest.raises(ContextWindowExceededError, match="100,000 input tokens leave no room"):
            await world.until(runtime.run(call("y", model="fake-small")))
    assert world.provider.count == 1


async def test_a_cost_cap_goes_by_the_count(world: Any, counter: Counter) -> None:
    async with world.runtime() as runtime:
        await world.until(runtime.run(call(max_output_tokens=10), cost_cap="0.0003"))  # 100 + 10 * 10 millionths
        counter.answers = lambda body: 250
        with pytest.raises(SpendCapExceededError):
            await world.until(runtime.run(call("another", max_output_tokens=10), cost_cap="0.0003"))
    assert world.provider.count == 1


FAILURES: dict[str, Callable[[], Exception | None]] = {
    "429": lambda: RateLimitedError("slow down", status=429, retry_after_s=600.0),
    "529": lambda: OverloadedError("busy", status=529),
    "lost": lambda: TransientUpstreamError("gone"),
    "a bug": lambda: RuntimeError("sk-secret"),
    "cannot": lambda: None,
}


@pytest.mark.parametrize("why", FAILURES)
async def test_a_count_that_fails_leaves_the_estimate_and_is_said_once(
    world: Any, counter: Counter, caplog: pytest.LogCaptureFixture, why: str
) -> None:
    counter.answers = lambda body: FAILURES[why]()
    world.provider.always = lambda seen: world.step(latency_s=5.0)
    async with world.runtime() as runtime:
        before = tokens(runtime) if runtime.statistics().admission.accounts else 60_000
        first = runtime.submit(call())
        await world.run_until(lambda: first.state is JobState.RUNNING)
        assert before - tokens(runtime) > 3_000, "the offline estimate"
        await world.until(first.wait())
        for number in range(6):
            await world.until(runtime.run(call(f"{LONG} {number}")))
    said = [record for record in caplog.records if "were not counted" in record.getMessage()]
    assert len(said) == 1
    assert said[0].levelno == logging.WARNING
    assert "sk-secret" not in caplog.text
    assert world.provider.count == 7
    assert len(counter.asked) == (1 if why in ("cannot", "429") else 3), "then it is left alone for a while"


async def test_a_model_that_was_left_alone_is_asked_again(world: Any, counter: Counter) -> None:
    counter.answers = lambda body: TransientUpstreamError("gone")
    async with world.runtime() as runtime:
        for number in range(5):
            await world.until(runtime.run(call(f"{number}")))
        assert len(counter.asked) == 3
        await world.clock.advance(PAUSE_S)
        counter.answers = lambda body: 100
        await world.until(runtime.run(call("again")))
        await world.until(runtime.run(call("and again")))
    assert len(counter.asked) == 5


async def test_a_request_that_would_be_refused_is_no_failure_of_the_count(
    world: Any, counter: Counter, caplog: pytest.LogCaptureFixture
) -> None:
    async with world.runtime() as runtime:
        for _ in range(4):
            with pytest.raises(Exception, match="does not take 'seed'"):
                await world.until(runtime.run(call("x", seed=1)))
        await world.until(runtime.run(call("x")))
    assert len(counter.asked) == 1
    assert "were not counted" not in caplog.text


@pytest.mark.parametrize(("settings", "patience", "waited_s"), [
    ({}, None, 10.0), ({"models": ModelSettings(count_timeout_s=3.0)}, None, 3.0), ({}, 2.0, 2.0), ({}, 0.0, 0.0),
])  # fmt: skip
async def test_a_count_is_waited_for_so_long_and_no_longer(
    world: Any, counter: Counter, settings: dict[str, Any], patience: float | None, waited_s: float
) -> None:
    counter.answers = lambda body: 1_000.0
    async with world.runtime(**settings) as runtime:
        began_s = world.clock.now()
        await world.until(runtime.run(call(max_wait_s=patience)))
    assert world.provider.seen[0].at_s - began_s == pytest.approx(waited_s, abs=0.01)
    assert (counter.under_way, counter.left) == (0, 1 if waited_s else 0), "what nobody waits for is let go"


async def test_a_count_holds_up_nobody_else(world: Any, counter: Counter, entry: Any) -> None:
    world.entries.append(entry("other", limits=Limits()))
    counter.answers = lambda body: 8.0
    async with world.runtime() as runtime:
        slow = runtime.submit(call("slow", model="fake-small"))
        await world.until(runtime.run(call("quick", model="other")))
        assert slow.state is JobState.COUNTING
        assert runtime.statistics().admission.waiting == 0
        await world.until(slow.wait())


async def test_a_hundred_jobs_are_counted_a_few_at_a_time(world: Any, counter: Counter) -> None:
    async with world.runtime() as runtime:
        tasks = len(asyncio.all_tasks())
        handles = [runtime.submit(call(f"{number}", max_output_tokens=1)) for number in range(100)]
        assert len(asyncio.all_tasks()) == tasks + AT_ONCE
        await world.until(asyncio.gather(*(handle.wait() for handle in handles)))
    assert len(counter.asked) == 100
    assert counter.most == AT_ONCE


async def test_cancelled_while_it_is_counted_it_costs_nothing(world: Any, counter: Counter) -> None:
    counter.answers = lambda body: 8.0
    async with world.runtime() as runtime:
        handles = [runtime.submit(call(f"{number}")) for number in range(AT_ONCE + 2)]
        await world.clock.settle(5)
        for handle in handles:
            assert handle.cancel("enough")
            with pytest.raises(JobCancelledError, match="enough"):
                handle.result()
        await world.clock.advance(20.0)
        assert world.provider.count == 0
        assert (counter.under_way, counter.left) == (0, AT_ONCE)
        counter.answers = lambda body: 100
        await world.until(runtime.run(call("after")))
        assert tokens(runtime) > 58_000


async def test_closing_ends_the_counts(world: Any, counter: Counter) -> None:
    counter.answers = lambda body: 8.0
    with contextlib.suppress(ZeroDivisionError):
        async with world.runtime() as runtime:
            handle = runtime.submit(call())
            await world.clock.settle(5)
            raise ZeroDivisionError
    assert handle.state is JobState.CANCELLED
    assert (counter.under_way, counter.left, world.provider.count) == (0, 1, 0)


async def test_a_re_run_is_not_counted_again_and_a_backup_is(world: Any, counter: Counter, entry: Any) -> None:
    backup = entry("backup", count="provider", limits=LIMITS)
    world.entries[:] = [world.entries[0].model_copy(update={"fallbacks": ("backup",)}), backup]
    world.provider.script(*[world.step(error=TransientUpstreamError("gone", status=503)) for _ in range(2)])
    async with world.runtime() as runtime:
        response = await world.until(runtime.run(call(model="fake-small")))
    assert response.model == "backup"
    assert [body["model"] for body in counter.asked] == ["wire-fake-small", "wire-backup"]
    assert world.provider.count == 3


class Wanted(BaseModel):
    n: int


async def test_a_correction_is_counted_as_what_it_has_become(world: Any, counter: Counter) -> None:
    world.provider.script(world.step(text="no number"), world.step(text='{"n": 1}'))
    async with world.runtime() as runtime:
        assert (await world.until(runtime.run(call("x", response_model=Wanted)))).n == 1
    assert [len(body["turns"]) for body in counter.asked] == [1, 3]


async def test_whoever_waits_in_line_after_his_count_keeps_his_patience(world: Any, counter: Counter) -> None:
    world.provider.always = lambda seen: world.step(latency_s=60.0)
    counter.answers = lambda body: 59_000
    async with world.runtime() as runtime:
        runtime.submit(call("first"))
        with pytest.raises(AdmissionTimeoutError):
            await world.until(runtime.run(call("second", max_wait_s=1.0)))
        await world.until(runtime._dispatcher.cancel_all())


async def test_the_estimate_goes_on_learning(world: Any, counter: Counter) -> None:
    """From what was reported of what was estimated, and not from the count."""
    world.provider.always = lambda seen: world.step(usage=(5_400, 5))
    async with world.runtime() as runtime:
        await world.until(runtime.run(call()))
        assert runtime._dispatcher.desk.estimator.factor("fake-small") == pytest.approx(1.5, abs=0.6)


async def test_the_real_way_through_a_real_sdk() -> None:
    async with SimulatedProvider() as provider:
        entry = ModelEntry(
            id="m", grade=Grade.SMALL, provider="simulated", wire_model_id="w", base_url=provider.anthropic_url,
            max_output_tokens=100, count="provider", limits=LIMITS,
        )  # fmt: skip
        settings = RuntimeSettings(catalog=Catalog.of([entry]), store=None)
        async with Runtime(settings) as runtime:
            response = await runtime.run(LLMCall("What is it?", system="Be brief.", max_output_tokens=90))
            (row,) = await runtime.calls()
    assert [seen.kind for seen in provider.requests] == ["count", "chat"]
    assert provider.requests[0].input_tokens == response.usage.input_tokens == row.record.usage.input_tokens
