"""The dispatcher: one per open Runtime. It takes jobs in and gives their executions what they need of the outside.

submit → bind → price → spend gate → the line → grant → run → settle → record → commit → release → deliver: the order of
these is in `Execution`; what each of them means is behind one method here.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import random
from collections.abc import Callable, Coroutine, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from contextvars import Context, copy_context
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

from interlock.admission import CallCharge, DatabaseGate, Demand
from interlock.errors import ConfigurationError, InterlockError, LeaseLostError

from .attempt import run_attempt
from .counting import Count, Counting, Found
from .execution import Execution
from .handle import JobHandle
from .job import Job, check_settings
from .kinds import CallKinds
from .ledger import leave
from .live import Live
from .pipeline_job import PipelineJob
from .prepared import NO_PRICE, NOTHING_NEEDED, Prepared, worst_price
from .requirements import JobRequirements
from .resources import Attempt, JobResources, Surrounding
from .running import Outcome, Running
from .runs import Run
from .statistics import Counts
from .telemetry import Meters, Spans

if TYPE_CHECKING:
    from opentelemetry.trace import Span

    from interlock.admission import Admission, Clock, Reservation, SpendGate, SpendHold
    from interlock.admission.ledger import Ledger
    from interlock.catalog.spec import ModelBinding, ModelSpec

    from .desk import ModelDesk
    from .journal.starting import Keeping
    from .levels import LevelKeeper
    from .settings import RuntimeSettings
    from .store.book import Book
    from .store.rows import CallRow

R = TypeVar("R")

log = logging.getLogger("interlock.runtime")


def _instead(given: object) -> str:
    if not isinstance(given, Coroutine):
        return "a pipeline is called first, as in run(triage(ticket))"
    given.close()  # nobody will await it, and Python would say so far from here
    return "give the job itself, as in ctx.gather(LLMCall(...), LLMCall(...)), without ctx.run around it"


class Dispatcher:
    """Everything jobs share."""

    #: What a submitted job becomes; a rehearsal has its own.
    execution_class: type[Execution[Any]] = Execution

    def __init__(
        self,
        settings: RuntimeSettings,
        *,
        clock: Clock,
        wall: Callable[[], datetime],
        rng: random.Random,
        admission: Admission,
        spending: SpendGate,
        desk: ModelDesk,
        book: Book,
        levels: LevelKeeper | None = None,
        ledger: Ledger | None = None,
    ) -> None:
        self.levels, self.ledger = levels, ledger
        #: Set when this process was given up.
        self.lost: LeaseLostError | None = None
        self.keeping: Keeping | None = None  # set once it is open, where runs are journaled
        self.looking: asyncio.Task[None] | None = None  # for other processes: kept, for a loop keeps no task alive
        self.settings, self.clock, self.wall, self.rng = settings, clock, wall, rng
        self.admission, self.spending, self.desk, self.book = admission, spending, desk, book
        self.counts = Counts()
        self.spans = Spans(settings.tracer_provider, wall=wall)
        self.meters = Meters(settings.meter_provider, admission.statistics)
        self.jitter = rng.random
        self.live = Live()
        self._closed = False
        self._closing: asyncio.Future[None] | None = None
        self._context = Context()
        self._loop = asyncio.get_running_loop()
        self._threads = ThreadPoolExecutor(settings.threads, thread_name_prefix="interlock-job")
        self._databases = {provider.name: provider for provider in settings.databases}
        self._gates = {
            provider.name: (admission.account(DatabaseGate(provider.name, provider.max_concurrent)), 1)
            for provider in settings.databases
        }
        self._accounts = {account.name: (admission.account(account), 1) for account in settings.accounts}
        self._warned: set[tuple[str, str]] = set()
        self._kinds = CallKinds()
        self._counting = Counting(clock, desk.client)
        self._around = Surrounding(
            client=desk.client,
            book=book,
            catalog_version=lambda: desk.catalog.version,
            strict=settings.strict_declarations,
            warn_once=self._warn_once,
            recorded=self._recorded,
        )

    def new_id(self) -> str:
        return UUID(int=self.rng.getrandbits(128), version=4).hex

    def context(self) -> Context:
        """The caller's context variables, to be copied before anything runs in them. One object serves all jobs that
        are submitted under the same values: a Context each would be a tenth of what a waiting job takes."""
        now, last = copy_context(), self._context
        if len(now) != len(last) or any(last.get(var, now) is not value for var, value in now.items()):
            self._context = now
        return self._context

    def submit(
        self,
        job: Job[R],
        run: Run,
        *,
        step_id: str | None = None,
        priority: int | None = None,
        workflow: str | None = None,
        after: Sequence[JobHandle[Any]] = (),
        tolerate_failures: bool = False,
    ) -> JobHandle[R]:
        """Take a job in. What is wrong with it is raised where its handle is awaited, never here."""
        self.check(job, after)
        execution = self.execution_class(
            self,
            job,
            run,
            step_id=step_id,
            priority=(job.priority or run.priority) if priority is None else priority,
            workflow=workflow or job.workflow or run.workflow,
        )
        self.live.add(execution)
        self.counts.submitted += 1
        self.desk.watch(self._busy)
        execution.start(after, tolerate_failures)
        return execution

    def replayed(self, job: Job[R], run: Run, step_id: str, outcome: Outcome[R]) -> JobHandle[R]:
        """A step that has been run before, as a handle that is done."""
        self.check(job)
        execution = self.execution_class(
            self, job, run, step_id=step_id, priority=run.priority, workflow=job.workflow or run.workflow
        )
        execution.replayed(outcome)
        return execution

    def _busy(self) -> bool:
        return bool(self.live)

    def check(self, job: object, after: Sequence[object] = ()) -> None:
        """Whether it can be taken in at all. Raises TypeError, or InterlockError where this is not the place for it."""
        if not isinstance(job, Job):
            raise TypeError(f"a job was expected, not {type(job).__name__}: {_instead(job)}")
        for other in after:
            if not isinstance(other, JobHandle):
                raise TypeError(f"after= takes handles of submitted jobs, not {type(other).__name__}")
        if self._closed:
            raise InterlockError("the Runtime is closed")
        self.check_loop()

    def check_loop(self) -> None:
        """Raises InterlockError on another event loop, and in a thread without one."""
        try:
            here = asyncio.get_running_loop() is self._loop
        except RuntimeError:
            here = False
        if not here:
            raise InterlockError(
                "the Runtime is open on another event loop: use it and its handles there (from a thread with"
                " asyncio.run_coroutine_threadsafe or loop.call_soon_threadsafe), or open one here"
            )

    # What an execution asks for, in the order it asks.

    def prepare(self, execution: Execution[Any], at_ceiling: frozenset[ModelSpec]) -> Prepared:
        """The job's needs, bound, priced and put together as one demand."""
        check_settings(execution.job, execution.priority, execution.workflow)
        if isinstance(execution.job, PipelineJob):
            return NOTHING_NEEDED
        needs = JobRequirements(
            self.desk, self._databases, self._accounts, at_ceiling=at_ceiling, caller=execution.caller
        )
        _check_declared(execution.name, execution.job.requirements(needs))  # type: ignore[func-returns-value]
        prepared = self._put_together(execution, needs)
        return replace(prepared, needs=needs) if needs.questions else prepared

    def _put_together(self, execution: Execution[Any], needs: JobRequirements) -> Prepared:
        bindings = tuple(needs.bindings)
        ask, currency = worst_price(bindings) if execution.run.caps and bindings else NO_PRICE
        demand = self._demand(execution, needs)
        return Prepared(demand, bindings, tuple(needs.databases), ask, currency)

    def count(
        self, execution: Execution[Any], needs: JobRequirements, then: Callable[[Callable[[], Prepared]], None]
    ) -> Count | None:
        """Ask the providers how large these calls are. `then` is called with what prepares the job by their counts;
        None: there is nothing to wait for."""

        def done(found: Found) -> None:
            then(lambda: counted(found))

        def counted(found: Found) -> Prepared:
            needs.counted(found)
            return self._put_together(execution, needs)

        patience_s, most_s = execution.job.max_wait_s, self.settings.models.count_timeout_s
        timeout_s = most_s if patience_s is None else min(most_s, patience_s)
        return self._counting.ask(needs.questions, needs.bindings, done, timeout_s=timeout_s)

    def _demand(self, execution: Execution[Any], needs: JobRequirements) -> Demand | None:
        charges = [
            CallCharge(
                key=binding.spec,
                pool=self.desk.pool(binding.entry),
                accounting=binding.entry.accounting,
                input_tokens=binding.input_tokens,
                output_tokens=binding.output_tokens,
                count=binding.calls,
            )
            for binding in needs.bindings
        ]
        calls = tuple(charges)
        held = (*[self._gates[need.provider.name] for need in needs.databases], *needs.accounts)
        if not calls and not held:
            return None
        job = execution.job
        return Demand(
            calls=calls,
            held=held,
            workflow=execution.workflow,
            priority=execution.priority,
            max_wait_s=job.max_wait_s,
            overflow=job.overflow,
            label=execution.name,
            kind=self._kinds.of(execution.name, execution.workflow, needs),
        )

    def ask_to_spend(
        self, run: Run, prepared: Prepared, granted: Callable[[SpendHold], None], refused: Callable[[Exception], None]
    ) -> SpendHold:
        return self.spending.submit(run.caps, prepared.ask, prepared.currency, granted, refused)

    def changed(self, account: str) -> None:
        found = self._accounts.get(account)
        if found is None:
            raise ConfigurationError(f"no account {account!r} is registered in RuntimeSettings.accounts")
        self.admission.changed(found[0])

    def settle_spending(self, hold: SpendHold, resources: Any) -> None:
        """What the attempt cost, or everything it asked for where a request of it has no known cost."""
        spent = resources.spent if resources is not None else None
        if spent is None or not spent.requests:
            hold.release()
        else:
            hold.settle(spent.cost)

    def resources_for(self, execution: Execution[Any], prepared: Prepared, reservation: Reservation | None) -> Any:
        job = execution.job
        if self.levels is not None and reservation is not None and reservation.demand.calls:
            self.levels.moved(reservation.demand)
        if isinstance(job, PipelineJob):
            return job.context(self, execution)
        journal = execution.run.journal
        step = None if journal is None else journal.live(execution.step_id)
        attempt = Attempt(
            job_id=execution.id,
            job=execution.name,
            run_id=execution.run.run_id,
            step_id=execution.step_id,
            workflow=execution.workflow,
            number=execution.attempt + (step.base if step is not None else 0),
            total=execution.spent,
            kept=execution.history.kept,
            span=execution.history.span,
        )
        return JobResources(attempt, self._around, prepared, reservation, journal)

    def attempt(self, job: Job[R], running: Running[R]) -> Coroutine[Any, Any, None]:
        return run_attempt(job, running, self._threads)

    def moves_on(self, execution: Execution[Any], bindings: Iterable[ModelBinding]) -> bool:
        """Whether one of these models is passed over by now, and a backup would serve instead."""
        return any(self.desk.moves_on(binding, execution.caller) for binding in bindings)

    def _recorded(self, row: CallRow, span: Span | None) -> None:
        self.counts.add(row)
        self.meters.request(row)
        if self.levels is not None:
            self.levels.moved()
        if span is not None:
            self.spans.request(span, row)
        if self.desk.heard(row.record):
            self._loop.call_soon(self._reroute)

    def _reroute(self) -> None:
        """A pool has been closed for long: whoever waits there and has a backup goes to it."""
        for execution in list(self.live):
            execution.reroute()

    def launched(self, execution: Execution[Any], submitter: Context, reservation: Reservation | None) -> Span:
        """An attempt begins: the job's span, begun with the first one."""
        waited_s = 0.0 if reservation is None else reservation.waited_s
        span = execution.history.span or self._span_of(execution, submitter, waited_s)
        if reservation is not None:
            self.meters.waited(execution.workflow, waited_s)
            self.spans.waited(span, execution, reservation)
        return span

    def ended(self, execution: Execution[Any], submitter: Context) -> None:
        self.live.remove(execution)
        self.counts.end(execution.state)
        self.meters.ended(execution.name, str(execution.state))
        span = execution.history.span or self._span_of(execution, submitter, 0.0)
        self.spans.end(span, execution, execution.exception())

    def _span_of(self, execution: Execution[Any], submitter: Context, waited_s: float) -> Span:
        return self.spans.begin(execution, submitter, waited_s, pipeline=isinstance(execution.job, PipelineJob))

    def _warn_once(self, job: str, message: str) -> None:
        key = (job, "undeclared")
        if key not in self._warned:
            self._warned.add(key)
            log.warning("%s; it is charged as debt and recorded as undeclared (said once)", message)

    # The end.

    async def drain(self) -> None:
        """Until every job has ended."""
        while self.live:
            await next(iter(self.live)).settled()

    async def cancel_all(self) -> None:
        """Stop every job, and wait until each has given back what it holds."""
        self._closed = True
        for execution in list(self.live):
            execution.cancel("the Runtime was closed")
        await self.drain()

    def pause(self, run: Run) -> None:
        self.check_loop()
        if run.run_id is None:
            raise InterlockError("only a run can be paused: give the job a run_id, or make a pipeline of it")
        run.pausing.pause(self.live)

    def lose(self, error: LeaseLostError) -> None:
        """This process has been given up, and others have what it had: nothing it still does counts, so it stops."""
        log.error("%s", error)
        self.lost = error
        self.admission.lose(error)
        for execution in list(self.live):
            execution.stop_for(error)

    async def close(self) -> None:
        """Once, however many ask for it; each of them waits for it."""
        if self._closing is None:
            self._closing = asyncio.ensure_future(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        self._closed = True
        self.meters.close()
        self._threads.shutdown(wait=False, cancel_futures=True)
        async with AsyncExitStack() as closing:  # the last first, and each of them whatever the others come to
            closing.push_async_callback(self.book.close)
            if self.levels is not None:
                closing.push_async_callback(self.levels.close)
            if self.ledger is not None:
                closing.push_async_callback(leave, self.ledger)
            closing.push_async_callback(self.admission.close)
            closing.push_async_callback(self.desk.aclose)
            closing.push_async_callback(self._counting.aclose)


def _check_declared(job: str, returned: object) -> None:
    if inspect.isawaitable(returned):
        if inspect.iscoroutine(returned):
            returned.close()
        raise ConfigurationError(f"requirements of job {job} is a plain function, not `async def`: it only declares")


def check_unique(names: Sequence[str], what: str) -> None:
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ConfigurationError(f"there are two {what} named {twice!r} in RuntimeSettings")
