"""Spans and meters, read back through OpenTelemetry's own SDK and its exporters in memory."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from interlock.catalog import Limits
from interlock.errors import InvalidRequestError, RateLimitedError
from interlock.runtime import Job, JobRequirements, JobResources, LLMCall, PipelineContext, Runtime, pipeline
from interlock.runtime.telemetry import catalogue
from interlock.runtime.telemetry.page import page


@dataclass
class Collected:
    """What a deployment's exporters would have got."""

    spans_in: InMemorySpanExporter
    reader: InMemoryMetricReader
    tracer_provider: TracerProvider
    meter_provider: MeterProvider

    @property
    def spans(self) -> tuple[ReadableSpan, ...]:
        return self.spans_in.get_finished_spans()

    def span(self, name: str) -> ReadableSpan:
        (found,) = [span for span in self.spans if span.name == name]
        return found

    def points(self, name: str) -> list[Any]:
        data = self.reader.get_metrics_data()
        metrics = [m for r in data.resource_metrics for s in r.scope_metrics for m in s.metrics] if data else []
        return [point for metric in metrics if metric.name == name for point in metric.data.data_points]

    def settings(self) -> dict[str, Any]:
        return {"tracer_provider": self.tracer_provider, "meter_provider": self.meter_provider}


@pytest.fixture
def collected() -> Iterator[Collected]:
    exporter, reader = InMemorySpanExporter(), InMemoryMetricReader()
    tracers = TracerProvider()
    tracers.add_span_processor(SimpleSpanProcessor(exporter))
    yield Collected(exporter, reader, tracers, MeterProvider([reader]))
    tracers.shutdown()


def call(**settings: Any) -> LLMCall[str]:
    return LLMCall("a question", max_output_tokens=100, **settings)


@pipeline
async def two(ctx: PipelineContext) -> int:
    await ctx.run(call())
    with trace.get_tracer("mine").start_as_current_span("mine"):
        await ctx.run(call())
    return 2


async def test_a_run_its_jobs_and_their_requests_are_one_trace(world: Any, collected: Collected) -> None:
    async with world.runtime(**collected.settings()) as runtime:
        await world.until(runtime.run(two(), run_id="r1"))
    run = collected.span("run two")
    jobs = [span for span in collected.spans if span.name == "job LLMCall"]
    requests = [span for span in collected.spans if span.name == "chat wire-fake-small"]
    assert {span.context.trace_id for span in collected.spans} == {run.context.trace_id}
    assert [job.parent.span_id for job in jobs] == [run.context.span_id] * 2
    assert [request.parent.span_id for request in requests] == [job.context.span_id for job in jobs]
    assert run.attributes["interlock.run.id"] == "r1"
    assert run.attributes["interlock.job.state"] == "succeeded"
    assert all(job.attributes["interlock.run.id"] == "r1" for job in jobs)


async def test_a_request_says_what_it_was_in_the_conventions_words(world: Any, collected: Collected) -> None:
    async with world.runtime(**collected.settings()) as runtime:
        await world.until(runtime.run(call()))
    request = collected.span("chat wire-fake-small")
    assert request.kind is SpanKind.CLIENT
    attributes = dict(request.attributes)
    assert attributes.pop("interlock.cost") == pytest.approx(60e-6)
    assert attributes == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "fake",
        "gen_ai.request.model": "wire-fake-small",
        "gen_ai.response.model": "fake-served",
        "gen_ai.response.id": "req-1",
        "gen_ai.response.finish_reasons": ("end_turn",),
        "gen_ai.usage.input_tokens": 10,
        "gen_ai.usage.output_tokens": 5,
        "interlock.attempt": 1,
        "interlock.currency": "USD",
        "interlock.model": "fake-small",
    }
    assert (request.end_time - request.start_time) / 1e9 == pytest.approx(1.0)


async def test_a_wait_is_a_span_that_names_what_held_it_back(world: Any, entry: Any, collected: Collected) -> None:
    world.entries[:] = [entry(limits=Limits(rpm=60, burst_s=1))]
    async with world.runtime(**collected.settings()) as runtime:
        handles = [runtime.submit(call()) for _ in range(3)]
        await world.until(asyncio.gather(*handles))
    waits = [span for span in collected.spans if span.name == "admission"]
    # A second each, and a tenth of the burst for the way of the one before.
    assert sorted(round((wait.end_time - wait.start_time) / 1e9, 3) for wait in waits) == [1.1, 2.2]
    assert {wait.attributes["interlock.account"] for wait in waits} == {"model:fake-small:requests"}
    jobs = {span.context.span_id: span for span in collected.spans if span.name == "job LLMCall"}
    assert all(jobs[wait.parent.span_id].start_time == wait.start_time for wait in waits)


class LockedError(Exception):
    """Of another library, whose codes mean nothing here."""

    code = 3_141


async def test_an_error_of_another_library_goes_by_its_class(world: Any, collected: Collected) -> None:
    @pipeline
    async def locked(ctx: PipelineContext) -> None:
        raise LockedError("database is locked")

    async with world.runtime(**collected.settings()) as runtime:
        with pytest.raises(LockedError):
            await world.until(runtime.run(locked()))
        (run,) = await runtime.runs()
    assert run.error_code == "LockedError"
    (span,) = [span for span in collected.spans if span.status.status_code is StatusCode.ERROR]
    assert (span.attributes or {})["error.type"] == "LockedError"


async def test_every_attempt_is_a_span_and_what_failed_says_so(world: Any, collected: Collected) -> None:
    world.provider.script(
        world.step(error=RateLimitedError("busy", status=429, retry_after_s=1.0)),
        world.step(error=InvalidRequestError("no", status=400)),
    )
    async with world.runtime(**collected.settings()) as runtime:
        with pytest.raises(InvalidRequestError):
            await world.until(runtime.run(call()))
    requests = [span for span in collected.spans if span.name.startswith("chat")]
    assert [span.attributes["error.type"] for span in requests] == ["llm_rate_limited", "invalid_request"]
    assert [span.attributes["interlock.attempt"] for span in requests] == [1, 2]
    job = collected.span("job LLMCall")
    assert job.status.status_code is StatusCode.ERROR
    assert (job.attributes["error.type"], job.attributes["interlock.job.attempts"]) == ("invalid_request", 2)


async def test_a_job_that_never_ran_has_a_span_too(world: Any, entry: Any, collected: Collected) -> None:
    world.entries[:] = [entry(limits=Limits(tpm=60))]
    async with world.runtime(**collected.settings()) as runtime:
        with pytest.raises(Exception, match="can never be admitted"):
            await world.until(runtime.run(call()))
    job = collected.span("job LLMCall")
    assert (job.attributes["error.type"], job.attributes["interlock.job.attempts"]) == ("never_fits", 0)


@dataclass(frozen=True)
class InThread(Job[int]):
    """A job of one's own whose code is synchronous, and traces."""

    def requirements(self, needs: JobRequirements) -> None:
        needs.require_model("fake-small", input=10, max_output_tokens=10)

    def run(self, resources: JobResources) -> int:
        with trace.get_tracer("mine", tracer_provider=PROVIDER[0]).start_as_current_span("in a thread"):
            return threading.get_ident()


PROVIDER: list[Any] = [None]


async def test_the_context_follows_into_threads(world: Any, collected: Collected) -> None:
    PROVIDER[0] = collected.tracer_provider
    async with world.runtime(**collected.settings()) as runtime:
        ident = await world.until(runtime.run(InThread()))
    assert ident != threading.get_ident()
    assert collected.span("in a thread").parent.span_id == collected.span("job InThread").context.span_id


@pytest.mark.parametrize("keep_text", [False, True])
async def test_no_text_unless_the_deployment_says_so(world: Any, collected: Collected, keep_text: bool) -> None:
    async with world.runtime(keep_text=keep_text, **collected.settings()) as runtime:
        await world.until(runtime.run(call()))
    everything = json.dumps([dict(span.attributes) for span in collected.spans], default=str)
    assert "a question" not in everything
    answer = collected.span("chat wire-fake-small").attributes.get("gen_ai.output.messages")
    assert (answer is not None) is keep_text
    if keep_text:
        assert json.loads(answer) == [{"role": "assistant", "parts": [{"type": "text", "content": "ok"}]}]


async def test_the_meters_count_tokens_durations_cost_waits_and_jobs(world: Any, collected: Collected) -> None:
    async with world.runtime(**collected.settings()) as runtime:
        for _ in range(3):
            await world.until(runtime.run(call(workflow="w")))
        tokens = {point.attributes["gen_ai.token.type"]: point for point in collected.points(catalogue.TOKENS.name)}
        assert (tokens["input"].sum, tokens["input"].count, tokens["output"].sum) == (30, 3, 15)
        (duration,) = collected.points(catalogue.DURATION.name)
        assert (duration.count, duration.sum) == (3, pytest.approx(3.0))
        (cost,) = collected.points(catalogue.SPENT.name)
        assert (cost.value, cost.attributes["gen_ai.workflow.name"]) == (pytest.approx(180e-6), "w")
        (wait,) = collected.points(catalogue.WAIT.name)
        assert wait.count == 3
        (jobs,) = collected.points(catalogue.JOBS.name)
        assert (jobs.value, jobs.attributes["interlock.job.state"]) == (3, "succeeded")


async def test_levels_slowdowns_and_refusals_are_observed(world: Any, collected: Collected) -> None:
    world.provider.script(world.step(error=RateLimitedError("busy", status=429, retry_after_s=1.0)))
    async with world.runtime(**collected.settings()) as runtime:
        await world.until(runtime.run(call()))
        account = runtime.statistics().admission.account("model:fake-small:tokens")
        at = {p.attributes["interlock.account"]: p.value for p in collected.points(catalogue.SLOWDOWN.name)}
        assert at[account.name] == account.slowdown > 1
        (refused, _) = collected.points(catalogue.REFUSALS.name)
        assert (refused.value, refused.attributes["error.type"]) == (1, "llm_rate_limited")
    assert collected.points(catalogue.LEVEL.name) == []  # a closed Runtime observes nothing


async def test_a_reader_in_another_thread_gets_the_levels_from_the_loop(world: Any, collected: Collected) -> None:
    async with world.runtime(**collected.settings()) as runtime:
        await world.until(runtime.run(call()))
        levels = await asyncio.to_thread(collected.points, catalogue.LEVEL.name)
    assert {point.attributes["interlock.account"] for point in levels} >= {"model:fake-small:tokens"}


async def test_everything_emitted_is_in_the_catalogue(world: Any, entry: Any, collected: Collected) -> None:
    world.entries[:] = [entry(limits=Limits(rpm=60, burst_s=1, max_concurrent=1))]
    world.provider.script(world.step(error=RateLimitedError("busy", status=429, retry_after_s=1.0)))
    async with world.runtime(keep_text=True, **collected.settings()) as runtime:
        await world.until(runtime.run(two()))
        data = collected.reader.get_metrics_data()
    known = {name.name for span in catalogue.SPANS for name in span.attributes}
    assert {name for span in collected.spans for name in span.attributes} <= known
    meters = {meter.name: meter for meter in catalogue.METERS}
    emitted = [m for r in data.resource_metrics for s in r.scope_metrics for m in s.metrics]
    assert len(emitted) >= 8
    for metric in emitted:
        notes = meters[metric.name]
        assert (metric.unit, metric.description) == (notes.unit, notes.counts)
        there = {name for point in metric.data.data_points for name in point.attributes}
        assert there <= {attribute.name for attribute in notes.attributes}


def test_the_page_is_what_the_code_emits() -> None:
    assert (Path(__file__).parents[2] / "docs" / "events.md").read_text() == page()


async def test_without_an_sdk_nothing_is_asked_for(runtime: Runtime, world: Any) -> None:
    assert (await world.until(runtime.run(call()))).text == "ok"


class RaisesAtStart(SpanProcessor):
    def on_start(self, span: Any, parent_context: Any = None) -> None:
        raise ZeroDivisionError("mine")


class RaisesAtEnd(SpanProcessor):
    def on_end(self, span: Any) -> None:
        raise ZeroDivisionError("mine")


class RaisingMeters(MeterProvider):
    def get_meter(self, *given: Any, **more: Any) -> Any:
        return RaisingMeter(super().get_meter(*given, **more))


class RaisingMeter:
    """Its histograms and counters raise where they are told something."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        if name in ("create_histogram", "create_counter"):
            return lambda *_: None  # None has no `record` and no `add`
        return getattr(self._inner, name)


@pytest.mark.parametrize("raising", [RaisesAtStart(), RaisesAtEnd(), None], ids=["start", "end", "meters"])
async def test_what_is_told_of_the_work_may_raise_and_changes_nothing_of_it(
    world: Any, raising: SpanProcessor | None, caplog: pytest.LogCaptureFixture
) -> None:
    tracers = TracerProvider(shutdown_on_exit=False)
    if raising is not None:
        tracers.add_span_processor(raising)
    meters = RaisingMeters() if raising is None else None
    world.entries = [world.entries[0].model_copy(update={"limits": Limits(max_concurrent=1)})]
    runtime = await world.runtime(tracer_provider=tracers, meter_provider=meters).__aenter__()
    handles = [runtime.submit(two()) for _ in range(2)]
    for handle in handles:
        assert await world.until(handle) == 2
    assert [row.record.outcome for row in await runtime.calls()] == ["ok"] * 4
    statistics = runtime.statistics()
    assert statistics.live == 0
    assert all(account.level == account.capacity for account in statistics.admission.accounts if not account.metered)
    await runtime.__aexit__(None, None, None)  # not a block: where a job never ends, leaving it would wait for ever
    said = [record.message for record in caplog.records if "OpenTelemetry raised" in record.message]
    assert said
    assert len(set(said)) == len(said), "said once"
