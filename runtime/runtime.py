"""Runtime: where jobs are run. It opens the catalog, the accounts and the store, and closes what it opened."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from typing_extensions import Unpack

from interlock.admission import Cap
from interlock.catalog import Catalog
from interlock.catalog.pricing import parse_cap
from interlock.catalog.spec import ModelSpec
from interlock.catalog.words import Grade
from interlock.credentials import Chain
from interlock.errors import ConfigurationError, InterlockError, LeaseLostError, RunHeldError, code_of

from .calls import CallSettings
from .direct import DirectDecisions, DirectEmbeddings, DirectLLM
from .dispatcher import Dispatcher, check_unique
from .handle import JobHandle
from .job import Job, job_name
from .journal.opening import Opening
from .ledger import in_this_loop, leave, open_ledger
from .opened import DEPLOYMENT, opened, others_could_pay
from .pipeline_job import PipelineJob
from .runs import Run, cap_of, check_run_id
from .settings import RuntimeSettings
from .statistics import RuntimeStatistics
from .store.book import Shared
from .store.rows import CallRow, RunRow
from .uncancelled import uncancelled
from .unsent import unsent_runs

if TYPE_CHECKING:
    from interlock.admission import Explanation

    from .journal.protocol import RecordedRun
    from .journal.run import RunJournal
    from .journal.starting import Keeping
    from .store.place import Place
    from .store.queue import SqlQueue
    from .store.run_changes import Wanted

R = TypeVar("R")


class Runtime:
    """`async with Runtime(RuntimeSettings(...)) as runtime`. Open it once per process and event loop.

    Leaving the block waits for what was submitted; leaving it with an exception (Ctrl-C, a cancelled task) stops that
    first. A Runtime that was closed may be opened again.
    """

    def __init__(self, settings: RuntimeSettings | None = None) -> None:
        self.settings = settings or RuntimeSettings()
        self._dispatcher: Dispatcher | None = None
        self._opening = False
        self._active_runs: dict[str, JobHandle[Any] | None] = {}
        self._paused: set[str] = set()  # of these, those that somebody else asked to pause
        #: What jobs share that belong to no run.
        self._plain_run = Run(caps=() if self.settings.cost_cap is None else (DEPLOYMENT,))

    # Opening and closing.

    async def __aenter__(self) -> Runtime:
        """Raises CatalogError, ConfigurationError or StoreError; nothing is left open then."""
        if self._dispatcher is not None or self._opening:
            raise InterlockError("the Runtime is open already")
        self._opening = True
        try:
            await self._enter(self.settings)
            await asyncio.sleep(0)  # a cancellation that was delayed arrives here, and leaves nothing open
        except BaseException:
            await self._close(self._dispatcher)
            raise
        finally:
            self._opening = False
        return self

    async def _enter(self, settings: RuntimeSettings) -> None:
        settings.check()
        check_unique([provider.name for provider in settings.databases], "databases")
        check_unique([account.name for account in settings.accounts], "accounts")
        self._credentials = settings.credentials or Chain.default()
        ledger = await uncancelled(open_ledger(settings, in_this_loop(self._lose)))
        try:
            self._dispatcher = await opened(settings, self._credentials, ledger)
        except BaseException:
            if ledger is not None:
                await uncancelled(leave(ledger))
            raise
        if isinstance(self._dispatcher.book, Shared):
            self._dispatcher.book.on_wanted(in_this_loop(self._heed))

    def _lose(self, error: LeaseLostError) -> None:
        if self._dispatcher is not None:
            self._dispatcher.lose(error)

    def _heed(self, wanted: Mapping[str, Wanted]) -> None:
        """What others ask of the runs of this process: all there is."""
        for run_id, handle in list(self._active_runs.items()):
            asked = wanted.get(run_id)
            if handle is None or handle.done:
                continue
            if asked is not None and asked.cancel:
                handle.cancel("somebody asked for it")
            elif asked is not None and asked.pause:
                self._paused.add(run_id)
                handle.pause()
            elif run_id in self._paused:
                self._paused.discard(run_id)
                handle.unpause()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        dispatcher = self._open()
        dispatcher.check_loop()  # it cannot be closed from elsewhere, and must not be half closed
        try:
            if error is None:
                await dispatcher.drain()
            else:
                await uncancelled(dispatcher.cancel_all())
        except asyncio.CancelledError:
            await uncancelled(dispatcher.cancel_all())
            raise
        finally:
            await self._close(dispatcher)

    async def _close(self, dispatcher: Dispatcher | None) -> None:
        if dispatcher is None:
            return
        if self._dispatcher is dispatcher:
            self._dispatcher = None
        await uncancelled(dispatcher.close(), arrives=True)

    def _open(self) -> Dispatcher:
        if self._dispatcher is None:
            raise InterlockError("the Runtime is not open: use it inside `async with Runtime(...) as runtime`")
        return self._dispatcher

    # Running jobs.

    async def run(
        self,
        job: Job[R],
        *,
        run_id: str | None = None,
        cost_cap: str | None = None,
        priority: int | None = None,
        workflow: str | None = None,
        ambiguous: Literal["resend", "fail"] | None = None,
    ) -> R:
        """Run a job (a pipeline called is one) and give its result. Cancelling the await stops it and waits for its
        end.

        `run_id` names the run in the records (default: a random one). A pipeline's run of an id that is recorded goes
        on where it was cut off, and what it had paid for is not asked again; one that has ended gives its result, or
        raises its error, and runs nothing (docs/journal.md). `ambiguous` as in RuntimeSettings.

        `cost_cap` ("0.50", "0.50 EUR") is what it may spend, over all of its lives: a call whose worst price would pass
        it is refused with SpendCapExceededError before it is sent.
        """
        handle = self.submit(
            job, run_id=run_id, cost_cap=cost_cap, priority=priority, workflow=workflow, ambiguous=ambiguous
        )
        return await _result(handle)

    async def resume(
        self,
        run_id: str,
        job: Job[Any] | None = None,
        *,
        from_step: str | None = None,
        cost_cap: str | None = None,
        ambiguous: Literal["resend", "fail"] | None = None,
    ) -> Any:
        """Go on with a recorded run and give its result. One that failed runs again what failed in it; what succeeded
        stays as it is. `from_step` drops that step's outcome and all that were first written after it.

        The pipeline is imported and called with what is recorded, unless `job` is given. `cost_cap` replaces the run's
        own. Raises ConfigurationError where there is no such run or it cannot be called again from its record,
        RunHeldError where it is under way, ReplayMismatchError where it was begun as something else.
        """
        dispatcher = self._open()
        check_run_id(run_id)
        if dispatcher.keeping is None:
            raise ConfigurationError("nothing is journaled here, so there is no run to resume: open a store")
        found = await dispatcher.keeping.journal.read(run_id)
        if found is None:
            raise ConfigurationError(f"there is no run {run_id!r} in the journal")
        if job is None:
            from .journal.calling import pipeline_of

            job = pipeline_of(found.head)
        if not isinstance(job, PipelineJob):
            raise ConfigurationError(f"run {run_id!r} is one of a pipeline, not of {type(job).__name__}")
        opening = Opening(resume=True, from_step=from_step, ambiguous=ambiguous or self.settings.ambiguous)
        return await _result(self._submit(job, run_id, cost_cap, opening))

    async def enqueue(
        self,
        job: Job[Any],
        *,
        run_id: str | None = None,
        cost_cap: str | None = None,
        priority: int | None = None,
        workflow: str | None = None,
    ) -> str:
        """Put a pipeline's call into the store's queue and give its run's id: a worker (`interlock worker`) runs it,
        however often processes end. The same call under the same `run_id` is put there once.

        Raises ConfigurationError for what no other process could call (a pipeline inside a function, arguments that
        are not data), ReplayMismatchError where the id is that of another call.
        """
        (given,) = await self.enqueue_all([(job, run_id)], cost_cap=cost_cap, priority=priority, workflow=workflow)
        return given

    async def enqueue_all(
        self,
        jobs: Sequence[tuple[Job[Any], str | None]],
        *,
        cost_cap: str | None = None,
        priority: int | None = None,
        workflow: str | None = None,
    ) -> dict[str, bool]:
        """Many at once, each with its run's id or None, in one transaction: all of them, or none. By the run's id,
        whether it was put there now, or had been before."""
        from .worker.enqueueing import enqueue_all

        return await enqueue_all(self._open(), jobs, cost_cap=cost_cap, priority=priority, workflow=workflow)

    def _queue(self) -> tuple[SqlQueue, Place]:
        from .store.place import Place
        from .worker.enqueueing import queue_of

        queue = queue_of(self._open())
        assert self.settings.store is not None
        return queue, Place.of(self.settings.store)

    def _now(self) -> datetime:
        return self._open().wall()

    def _take_up(self, job: PipelineJob[Any], run: RecordedRun) -> JobHandle[Any]:
        """Begin, or go on with, a run that was claimed from the queue."""
        head = run.head
        opening = Opening(ambiguous=self.settings.ambiguous, claimed=run, goes_back=others_could_pay)
        return self._submit(job, head.run_id, head.cost_cap, opening, head.priority, head.workflow or None)

    def submit(
        self,
        job: Job[R],
        *,
        run_id: str | None = None,
        cost_cap: str | None = None,
        priority: int | None = None,
        workflow: str | None = None,
        after: Sequence[JobHandle[Any]] = (),
        tolerate_failures: bool = False,
        ambiguous: Literal["resend", "fail"] | None = None,
    ) -> JobHandle[R]:
        """Start a job and give its handle, to be awaited or not.

        `after`: it enters the line when these have ended, and fails with DependencyFailedError if one of them failed,
        unless it `tolerate_failures`.
        """
        opening = Opening(new=run_id is None, ambiguous=ambiguous or self.settings.ambiguous)
        return self._submit(job, run_id, cost_cap, opening, priority, workflow, tuple(after), tolerate_failures)

    def _submit(
        self,
        job: Job[R],
        run_id: str | None,
        cost_cap: str | None,
        opening: Opening,
        priority: int | None = None,
        workflow: str | None = None,
        after: tuple[JobHandle[Any], ...] = (),
        tolerate_failures: bool = False,
    ) -> JobHandle[R]:
        dispatcher = self._open()
        dispatcher.check(job, after)  # before a run is begun for it
        if run_id is None and cost_cap is None and not isinstance(job, PipelineJob):
            run, ended = self._plain_run, None
        else:
            run, ended = self._begin_run(dispatcher, job, run_id, cost_cap, opening)
        try:
            handle = dispatcher.submit(
                job,
                run,
                priority=priority,
                workflow=workflow,
                after=after,
                tolerate_failures=tolerate_failures,
            )
        except BaseException:  # Ctrl-C in the job's own requirements: there is no handle, so nobody would end its run
            self._leave_run(dispatcher, run)
            raise
        if ended is not None:
            if run.run_id is not None:
                self._active_runs[run.run_id] = handle
            handle._execution.on_done(lambda: ended(handle))
        return handle

    def _begin_run(
        self, dispatcher: Dispatcher, job: Job[Any], run_id: str | None, cost_cap: str | None, opening: Opening
    ) -> tuple[Run, Callable[[JobHandle[Any]], None]]:
        """What the job's run shares, and what is to be done at its end. Where it raises, nothing was begun."""
        check_run_id(run_id)
        money = None if cost_cap is None else parse_cap(cost_cap)
        cost_cap = None if cost_cap is None else str(cost_cap)
        piped = isinstance(job, PipelineJob)
        if run_id is None and (piped or money is not None):
            run_id = dispatcher.new_id()
        if run_id in self._active_runs:
            raise RunHeldError(f"a run named {run_id!r} is under way: give each run an id of its own")
        caps, row, journal = self._plain_run.caps, None, None
        workflow = job_name(job) if piped else ""
        if isinstance(job, PipelineJob) and run_id is not None and dispatcher.keeping is not None:
            # Its arguments are the user's: reading them may raise whatever they like.
            journal = self._journal_of(dispatcher, dispatcher.keeping, job, run_id, cost_cap, opening)
        elif isinstance(job, PipelineJob) and run_id is not None:
            row = RunRow(
                run_id=run_id,
                pipeline=job.job_name,
                version=job.pipeline.version,
                started_at=dispatcher.wall(),
                cost_cap=cost_cap,
            )
            dispatcher.book.write_run(row)
        if journal is None and money is not None and run_id is not None:
            caps = (cap_of(run_id), *caps)
            dispatcher.spending.add(Cap(name=cap_of(run_id), amount=money[0], currency=money[1]))
        if run_id is not None:
            self._active_runs[run_id] = None
        run = Run(run_id=run_id, workflow=workflow, caps=caps, priority=job.priority, journal=journal)
        return run, lambda handle: self._end_run(dispatcher, run, row, handle)

    def _journal_of(
        self,
        dispatcher: Dispatcher,
        keeping: Keeping,
        job: PipelineJob[Any],
        run_id: str,
        cost_cap: str | None,
        opening: Opening,
    ) -> RunJournal:
        from .journal.calling import head_of
        from .journal.run import RunJournal

        head = head_of(job, run_id=run_id, started_at=dispatcher.wall(), cost_cap=cost_cap, priority=job.priority)
        return RunJournal(keeping, head, opening, job)

    def _leave_run(self, dispatcher: Dispatcher, run: Run) -> None:
        if run.run_id is not None:
            self._active_runs.pop(run.run_id, None)
            self._paused.discard(run.run_id)
            with suppress(ValueError):
                dispatcher.spending.remove(cap_of(run.run_id))

    def _end_run(self, dispatcher: Dispatcher, run: Run, row: RunRow | None, handle: JobHandle[Any]) -> None:
        self._leave_run(dispatcher, run)
        if row is None:
            return
        error = handle.exception()
        dispatcher.book.write_run(
            RunRow(
                run_id=row.run_id,
                pipeline=row.pipeline,
                version=row.version,
                status=str(handle.state),
                started_at=row.started_at,
                ended_at=dispatcher.wall(),
                error_code=None if error is None else code_of(error),
                error=None if error is None else self._credentials.redactor.redact(_told(error)),
                cost_cap=row.cost_cap,
            )
        )

    def llm(self, model: ModelSpec | Grade | str = Grade.SMALL, **settings: Unpack[CallSettings]) -> DirectLLM:
        """A client for single calls: `await runtime.llm(Grade.SMALL).single_response("Say hello.")`."""
        return DirectLLM(self, model, settings)

    def embeddings(self, model: ModelSpec | str | None = None) -> DirectEmbeddings:
        """A client for single embeddings: `(await runtime.embeddings().embed("text")).vector`."""
        return DirectEmbeddings(self, model)

    def decisions(self, model: ModelSpec | str | None = None) -> DirectDecisions:
        """A client for single decisions: `await runtime.decisions().decide(state, questions)`."""
        return DirectDecisions(self, model)

    # Looking.

    def statistics(self) -> RuntimeStatistics:
        dispatcher = self._open()
        counts, breakers = dispatcher.counts, dispatcher.desk.routing.statistics()
        return counts.frozen(dispatcher.admission.statistics(), breakers, len(dispatcher.live))

    def unsent_runs(self) -> frozenset[str]:
        """The ids of runs that wait and have cost nothing yet, so that nothing is lost with them."""
        return unsent_runs(self._open().live)

    def explain(self, handle: JobHandle[Any]) -> Explanation | None:
        """What holds a waiting job back; None where it does not wait in the line."""
        return handle.explain()

    def changed(self, account: str) -> None:
        """An account of one's own has got room by itself, outside of a job and before the instant it named: look
        whether somebody can go. ConfigurationError where none of that name is registered."""
        dispatcher = self._open()
        dispatcher.check_loop()
        dispatcher.changed(account)

    async def calls(
        self, *, since: datetime | None = None, run_id: str | None = None, limit: int = 1000
    ) -> Sequence[CallRow]:
        """The latest recorded calls, oldest first."""
        check_run_id(run_id)
        return await self._open().book.read_calls(since=since, run_id=run_id, limit=limit)

    async def runs(self, *, run_id: str | None = None, limit: int = 1000) -> Sequence[RunRow]:
        """The latest runs, oldest first."""
        check_run_id(run_id)
        return await self._open().book.read_runs(run_id=run_id, limit=limit)

    @property
    def catalog(self) -> Catalog:
        return self._open().desk.catalog


def _told(error: BaseException) -> str:
    """What a user's error says; its class where its own `__str__` fails."""
    try:
        return str(error)
    except Exception:
        return type(error).__name__


async def _result(handle: JobHandle[R]) -> R:
    """Its result. Whoever stops waiting stops the job, and waits for its end."""
    try:
        return await handle
    except BaseException:
        if not handle.done:
            handle.cancel()
            await uncancelled(handle._execution.settled(), arrives=True)
        raise
