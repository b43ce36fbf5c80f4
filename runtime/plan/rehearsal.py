"""A pipeline's own code, run where no model answers and no job works, to see which calls it would make in which order.

Its jobs declare what they need with the code that runs them live: desk, picker, estimates, output limits. Then they are
answered with something made up. Time is virtual; one line goes after the other.
"""

from __future__ import annotations

import asyncio
import inspect
import random
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Mapping
from contextvars import Context, ContextVar
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from opentelemetry.metrics import NoOpMeterProvider
from opentelemetry.trace import NoOpTracerProvider

from interlock.admission import Admission, SpendGate
from interlock.admission.virtual import LoopClock, NothingWillHappen, VirtualLoop
from interlock.credentials import Chain
from interlock.errors import (
    ConfigurationError,
    CredentialError,
    InterlockError,
    ModelResolutionError,
    UndeclaredResourceError,
)

from ..calls import LLMCall, StreamedCall, WholeResponse
from ..context import PipelineContext
from ..current import CURRENT
from ..desk import ModelDesk, Surroundings, why_not
from ..dispatcher import Dispatcher
from ..execution import Execution
from ..job import Job, job_name
from ..pipeline_job import PipelineJob
from ..prepared import Prepared
from ..running import Outcome
from ..runs import Run
from ..stopper import Stopper
from ..store.book import MemoryBook
from .answers import Answers, given_by_function
from .guard import RehearsalError, nothing_leaves
from .workload import PlannedCall, PlannedJob, PlannedLine

if TYPE_CHECKING:
    from interlock.catalog import Catalog, ModelBinding, ModelEntry

    from ..pipeline_job import Pipeline
    from ..running import Running
    from ..settings import RuntimeSettings
    from .sizes import Sizes

R = TypeVar("R")

#: Jobs of one line; a pipeline that makes more does not end by itself where nothing answers.
MOST_JOBS = 100_000
#: What is wrong with the set-up rather than with a line: it would fail every line alike.
OF_THE_SETUP = (ConfigurationError, ModelResolutionError, CredentialError, UndeclaredResourceError)

#: The jobs whose results the code that runs here has seen, but for those that another one of them came after.
_SEEN: ContextVar[frozenset[int]] = ContextVar("interlock_plan_seen", default=frozenset())


@dataclass(frozen=True, slots=True, kw_only=True)
class Rehearsed:
    """`lines` in their order. `failed` counts the lines whose code raised, by what the first of its kind said;
    `notes` are in words.

    `pairs` are (estimated, used) input tokens by model, of calls that the record has too.
    """

    lines: tuple[PlannedLine, ...]
    failed: Mapping[str, int]
    notes: tuple[str, ...]
    pairs: Mapping[str, tuple[tuple[int, int], ...]] = field(default_factory=dict)


def rehearse(
    pipeline: Pipeline[Any, Any],
    arguments: Iterable[Mapping[str, Any]],
    settings: RuntimeSettings,
    catalog: Catalog,
    sizes: Sizes,
    *,
    seed: int = 0,
    run_steps: bool = False,
    progress: Callable[[int], None] = lambda done: None,
) -> Rehearsed:
    """Run the pipeline for each set of arguments. Raises RehearsalError where it cannot go on, and what is wrong with
    the set-up as `interlock run` would."""
    work = _rehearse(pipeline, arguments, settings, catalog, sizes, seed, run_steps, progress)
    try:
        with asyncio.Runner(loop_factory=lambda: VirtualLoop(0.0)) as runner, nothing_leaves():
            return runner.run(work)
    except NothingWillHappen:
        raise RehearsalError(
            f"{pipeline.name} waits for something that will not come while it is planned: nothing outside of its jobs "
            "is there then"
        ) from None


async def _rehearse(
    pipeline: Pipeline[Any, Any],
    arguments: Iterable[Mapping[str, Any]],
    settings: RuntimeSettings,
    catalog: Catalog,
    sizes: Sizes,
    seed: int,
    run_steps: bool,
    progress: Callable[[int], None],
) -> Rehearsed:
    dispatcher = Rehearsal(settings, catalog, sizes, seed=seed, run_steps=run_steps)
    failed: Counter[str] = Counter()
    examples: dict[type[Exception], str] = {}
    lines: list[PlannedLine] = []
    first: Exception | None = None
    for number, keywords in enumerate(arguments, start=1):
        try:
            lines.append(await dispatcher.line(pipeline(**keywords)))
        except OF_THE_SETUP:
            raise
        except Exception as error:
            first = first or error
            example = examples.setdefault(type(error), f"{type(error).__name__}: {error}")
            failed[example] += 1
        progress(number)
    if first is not None and not lines:
        raise RehearsalError(
            f"every line of {pipeline.name} failed where answers are made up; the first with {type(first).__name__}: "
            f"{first}"
        ) from first
    pairs = {model: tuple(found) for model, found in dispatcher.pairs.items()}
    return Rehearsed(lines=tuple(lines), failed=dict(failed), notes=tuple(dispatcher.notes()), pairs=pairs)


class PlanDesk(ModelDesk):
    """The desk, for calls that are only planned: where nothing can be called from here, the model that would be."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._as_if = False
        self.uncallable: dict[str, str] = {}

    def bind(self, *arguments: Any, **keywords: Any) -> ModelBinding:
        try:
            return super().bind(*arguments, **keywords)
        except ModelResolutionError as error:
            if not error.skipped:
                raise
        self._as_if = True
        try:
            binding = super().bind(*arguments, **keywords)
        finally:
            self._as_if = False
        entry = binding.entry
        if entry.id not in self.uncallable:
            self.uncallable[entry.id] = str(why_not(entry, self.catalog, self._surroundings.credentials))
        return binding

    def _cannot_be_called(self, entry: ModelEntry) -> str | None:
        return None if self._as_if else super()._cannot_be_called(entry)


class RehearsedExecution(Execution[R]):
    """Notes who has seen its result: whatever that code submits next comes after it."""

    __slots__ = ()

    def result(self) -> R:
        self._seen()
        return super().result()

    def exception(self) -> BaseException | None:
        self._seen()
        return super().exception()

    def _seen(self) -> None:
        dispatcher = self._dispatcher
        if CURRENT.get() is not None and isinstance(dispatcher, Rehearsal):
            _SEEN.set(dispatcher.seen(self, _SEEN.get()))


class RehearsedContext(PipelineContext):
    """Its steps are not run: their results are made up, as a job's are."""

    def branch(self, name: str) -> PipelineContext:
        return RehearsedContext(self._dispatcher, self._shared, self._scope.branch(name))

    async def _call(self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        rehearsal = self._dispatcher
        assert isinstance(rehearsal, Rehearsal)
        if rehearsal.run_steps:
            return await super()._call(fn, args, kwargs)
        return rehearsal.step(fn, (*args, *kwargs.values()))

    async def _enqueue(self, path: tuple[str, ...], job: Job[Any], run_id: str, settings: dict[str, Any]) -> str:
        return run_id  # a run of its own, to be planned by itself


class Rehearsal(Dispatcher):
    """The dispatcher, where jobs are answered instead of run."""

    execution_class = RehearsedExecution

    def __init__(
        self, settings: RuntimeSettings, catalog: Catalog, sizes: Sizes, *, seed: int, run_steps: bool
    ) -> None:
        clock, rng = LoopClock(asyncio.get_running_loop()), random.Random(seed)
        began = datetime.now(UTC)
        admission = Admission(clock, jitter=rng.random)
        around = Surroundings(
            credentials=settings.credentials or Chain.default(),
            clock=clock,
            wall=lambda: began + timedelta(seconds=clock.now()),
            jitter=rng.random,
            keep_text=False,
        )
        picker = settings.models.picker() if settings.models.picker is not None else None
        self.plan_desk = PlanDesk(catalog, around, admission, picker)
        super().__init__(
            replace(settings, tracer_provider=NoOpTracerProvider(), meter_provider=NoOpMeterProvider()),
            clock=clock,
            wall=around.wall,
            rng=rng,
            admission=admission,
            spending=SpendGate(),
            desk=self.plan_desk,
            book=MemoryBook(kept=1),
        )
        self.run_steps = run_steps
        self._sizes, self._answers = sizes, Answers(catalog.embedding_width, seed)
        self._jobs: list[PlannedJob] = []
        self._places: dict[Execution[Any], int] = {}
        self._frontier: dict[Execution[Any], frozenset[int]] = {}
        self._ended_at: dict[int, float] = {}
        self._began_s = 0.0
        self.pairs: dict[str, list[tuple[int, int]]] = {}
        self._not_run: Counter[str] = Counter()
        self._steps: Counter[str] = Counter()
        self._decided = False

    async def line(self, job: PipelineJob[Any]) -> PlannedLine:
        """One run of the pipeline. Raises what its code raises."""
        self._jobs, self._ended_at, self._began_s = [], {}, self.clock.now()
        self._places.clear()
        self._frontier.clear()
        run = Run(run_id=self.new_id(), workflow=job_name(job), priority=job.priority)
        handle = self.submit(job, run)
        try:
            await handle._execution.settled()
            handle.result()
        finally:
            await _all_over(self)
        return PlannedLine(jobs=tuple(self._jobs))

    def notes(self) -> Iterable[str]:
        """What was assumed on the way."""
        for name, reason in self.plan_desk.uncallable.items():
            yield f"{name} cannot be called from here and is planned as if it could: {reason}"
        if self._not_run:
            yield f"not run, but priced and answered with something made up: {_counted(self._not_run)}"
        if self._steps:
            yield f"steps not run (--run-steps runs them): {_counted(self._steps)}"
        if self._decided:
            yield "decisions are answered at random, so a pipeline that branches on them takes each branch sometimes"

    # In place of what a live dispatcher does.

    def prepare(self, execution: Execution[Any], *arguments: Any, **keywords: Any) -> Prepared:
        prepared = super().prepare(execution, *arguments, **keywords)
        if not isinstance(execution.job, PipelineJob):
            self._note(execution, prepared)
            if self._sizes.requests:
                self._pair(execution.job, prepared.bindings)
        return Prepared(None, prepared.bindings, prepared.databases)

    def resources_for(self, execution: Execution[Any], prepared: Prepared, reservation: Any) -> Any:
        if isinstance(execution.job, PipelineJob):
            return RehearsedContext.of(self, execution)
        return _Granted(execution, prepared.bindings)

    def attempt(self, job: Job[R], running: Running[R]) -> Coroutine[Any, Any, None]:
        if isinstance(job, PipelineJob):
            return self._pipeline(super().attempt(job, running), running)
        return self._answered(job, running)

    async def _pipeline(self, attempt: Coroutine[Any, Any, None], running: Running[Any]) -> None:
        await attempt
        execution = CURRENT.get()
        if execution is not None:  # whoever sees its result has seen what its code has
            self._frontier[execution] = _SEEN.get()

    async def _answered(self, job: Job[R], running: Running[R]) -> None:
        granted: _Granted = running.resources
        try:
            planned = self._jobs[self._places[granted.execution]]
            tokens, latency_s = 0, 0.0
            for call in planned.calls:
                expected = self._sizes.expected(planned, call)
                tokens = max(tokens, expected.output_tokens)
                latency_s += expected.latency_s * call.count
            # No two at the same instant: who ended last then says what came of it.
            await asyncio.sleep(latency_s * (1 + self.rng.random() * 1e-3) + self.rng.random() * 1e-6)
            self._decided = self._decided or job_name(job) == "DecisionCall"
            running.outcome = Outcome(value=self._answers.of(job, granted.bindings, tokens))
        except BaseException as error:
            running.outcome = Outcome(error=error)

    def ended(self, execution: Execution[Any], submitter: Context) -> None:
        super().ended(execution, submitter)
        place = self._places.get(execution)
        if place is not None:
            self._ended_at[place] = self.clock.now()

    def step(self, function: Callable[..., Any], given: tuple[Any, ...]) -> Any:
        """The made-up result of a step."""
        name = getattr(function, "__name__", "a function")
        self._steps[name] += 1
        text = " ".join(str(value)[:2_000] for value in given if isinstance(value, str | int | float))
        remedy = "annotate what the function gives, or let a plan run steps with --run-steps"
        return self._answers.made_up(given_by_function(function), text, f"step {name}", remedy)

    def _pair(self, job: Job[Any], bindings: tuple[ModelBinding, ...]) -> None:
        """Whether this very call was made before: then how large it was is known."""
        call = job.call if isinstance(job, WholeResponse) else job
        if not isinstance(call, LLMCall) or len(bindings) != 1:
            return
        binding = bindings[0]
        try:
            prepared = self.plan_desk.client(binding.entry).prepare(
                binding,
                call.conversation,
                call.options,
                call.response_model,
                stream=isinstance(job, StreamedCall),
            )
        except InterlockError:  # it is said where the call is made
            return
        used = self._sizes.requests.get(prepared.request_hash)
        if used is not None:
            self.pairs.setdefault(binding.entry.id, []).append((binding.input_tokens, used))

    # What comes after what.

    def seen(self, execution: Execution[Any], before: frozenset[int]) -> frozenset[int]:
        """What code has seen once it sees this result too."""
        place = self._places.get(execution)
        if place is None:
            return before | self._frontier.get(execution, frozenset())
        return (before - set(self._jobs[place].after)) | {place}

    def _note(self, execution: Execution[Any], prepared: Prepared) -> None:
        """Write a job down as it is submitted: what it needs, and what it comes after."""
        if execution in self._places:
            return  # asked again
        if len(self._jobs) >= MOST_JOBS:
            raise RehearsalError(f"one line makes more than {MOST_JOBS:,} jobs: the pipeline does not end by itself")
        now, job = self.clock.now(), execution.job
        seen: frozenset[int] = execution._context.get(_SEEN, frozenset())
        just = {place for place, at in self._ended_at.items() if at == now}  # what set the code going again
        after = {place for place in seen | just if place in self._ended_at}
        covered = {other for place in after for other in self._jobs[place].after}
        self._places[execution] = len(self._jobs)
        if inspect.getmodule(type(job)) is None or not type(job).__module__.startswith("interlock.runtime."):
            self._not_run[f"job {job_name(job)}"] += 1
        calls = tuple(_planned(binding) for binding in prepared.bindings)
        demand = prepared.demand
        held = () if demand is None else tuple((account.name, amount) for account, amount in demand.held)
        begun_s = max((self._ended_at[place] for place in after), default=self._began_s)
        self._jobs.append(
            PlannedJob(
                name=job_name(job),
                calls=calls,
                held=held,
                after=tuple(sorted(after - covered)),
                delay_s=max(now - begun_s, 0.0),
                workflow=execution.workflow,
                priority=execution.priority,
                max_wait_s=job.max_wait_s,
                overflow=job.overflow,
                kind=None if demand is None else demand.kind,
            )
        )


class _Granted:
    """What a job that is answered has in place of resources."""

    settling = False

    def __init__(self, execution: Execution[Any], bindings: tuple[ModelBinding, ...]) -> None:
        self.execution, self.bindings, self.stopper = execution, bindings, Stopper()
        self.spent = None

    def stop(self, reason: InterlockError) -> None:
        self.execution.stop_hard()


def _planned(binding: ModelBinding) -> PlannedCall:
    return PlannedCall(
        entry=binding.entry,
        key=binding.spec,
        input_tokens=binding.input_tokens,
        output_tokens=binding.output_tokens,
        count=binding.calls,
    )


def _counted(names: Counter[str]) -> str:
    return ", ".join(f"{name} ({count:,})" for name, count in names.most_common())


async def _all_over(dispatcher: Dispatcher) -> None:
    for execution in list(dispatcher.live):
        execution.cancel("its line is over")
    await dispatcher.drain()
