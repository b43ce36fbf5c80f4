"""PipelineContext: what a pipeline runs its jobs through. Every method fixes its step's identity when it is called.

The methods that run something return a coroutine, to be awaited here or given to a task; what they do begins when they
are awaited, but who they are was settled before.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterable, Awaitable, Callable, Coroutine, Iterable
from dataclasses import replace
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, overload
from uuid import UUID

from interlock.admission import Cap
from interlock.catalog.pricing import parse_cap
from interlock.clients.options import StreamingMode
from interlock.errors import InterlockError, JobCancelledError

from .calls import LLMCall, StreamedCall
from .current import check_may_wait_for
from .job import Job
from .journal.fingerprint import fingerprint
from .journal.steps import TELLS_ITSELF
from .mapping import Mapped, MapPlan, end_pull
from .runs import cap_of
from .scope import Scope, step_id
from .spent import Spent
from .stopper import Stopper
from .streaming import CallStream, Sink
from .threads import in_thread
from .uncancelled import uncancelled

if TYPE_CHECKING:
    from .dispatcher import Dispatcher
    from .execution import Execution
    from .handle import JobHandle
    from .running import Outcome
    from .runs import Run

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
D = TypeVar("D")
E = TypeVar("E")
F = TypeVar("F")
G = TypeVar("G")
H = TypeVar("H")

#: How many children of a `map` are under way at once unless it says otherwise.
MAP_LIMIT = 256


class _Shared:
    """What all scopes of one pipeline share."""

    __slots__ = ("execution", "live", "pulls", "run", "spent", "stopper")

    def __init__(self, run: Run, spent: Spent, execution: Execution[Any]) -> None:
        self.run, self.spent, self.execution = run, spent, execution
        self.live: dict[JobHandle[Any], None] = {}  # in the order of their coming, in which they are stopped
        self.pulls: set[asyncio.Future[Any]] = set()  # of maps that wait for a feed
        self.stopper = Stopper()


class PipelineContext:
    """Given to the pipeline's function. It belongs to the task that first uses it; other tasks get a `branch`."""

    def __init__(self, dispatcher: Dispatcher, shared: _Shared, scope: Scope) -> None:
        self._dispatcher, self._shared, self._scope = dispatcher, shared, scope
        self.settling = False

    @classmethod
    def of(cls, dispatcher: Dispatcher, execution: Execution[Any]) -> PipelineContext:
        path = tuple(execution.step_id.split("/")) if execution.step_id else ()
        run = replace(execution.run, priority=execution.priority, workflow=execution.workflow)
        return cls(dispatcher, _Shared(run, execution.spent, execution), Scope(path))

    @property
    def run_id(self) -> str | None:
        return self._shared.run.run_id

    # Running jobs.

    def run(self, job: Job[R], *, key: str | None = None) -> Coroutine[Any, Any, R]:
        """Run one job and give its result. Cancelling the await stops the job and waits for its end."""
        return self._run(job, self._scope.take(key))

    def submit(
        self,
        job: Job[R],
        *,
        key: str | None = None,
        after: Iterable[JobHandle[Any]] = (),
        tolerate_failures: bool = False,
    ) -> JobHandle[R]:
        """Start a job and go on. It must end before the pipeline does: what is left then is cancelled."""
        return self._submit(job, self._scope.take(key), after=tuple(after), tolerate_failures=tolerate_failures)

    def enqueue(
        self,
        job: Job[Any],
        *,
        run_id: str | None = None,
        cost_cap: str | None = None,
        priority: int | None = None,
        workflow: str | None = None,
        key: str | None = None,
    ) -> Coroutine[Any, Any, str]:
        """Put a pipeline's call into the store's queue, as `Runtime.enqueue` does, and give its run's id. It is a run
        of its own: it outlives this one, and its costs are not this one's. A step: however often this run is cut off,
        it is put there once, under `run_id` or by default this run's id and the step's."""
        path = self._scope.take(key)
        settings = {"cost_cap": cost_cap, "priority": priority, "workflow": workflow}
        return self._enqueue(path, job, run_id or f"{self.run_id}/{step_id(path)}", settings)

    @overload
    def gather(self, a: Job[A], /) -> Coroutine[Any, Any, tuple[A]]: ...
    @overload
    def gather(self, a: Job[A], b: Job[B], /) -> Coroutine[Any, Any, tuple[A, B]]: ...
    @overload
    def gather(self, a: Job[A], b: Job[B], c: Job[C], /) -> Coroutine[Any, Any, tuple[A, B, C]]: ...
    @overload
    def gather(self, a: Job[A], b: Job[B], c: Job[C], d: Job[D], /) -> Coroutine[Any, Any, tuple[A, B, C, D]]: ...
    @overload
    def gather(
        self, a: Job[A], b: Job[B], c: Job[C], d: Job[D], e: Job[E], /
    ) -> Coroutine[Any, Any, tuple[A, B, C, D, E]]: ...
    @overload
    def gather(
        self, a: Job[A], b: Job[B], c: Job[C], d: Job[D], e: Job[E], f: Job[F], /
    ) -> Coroutine[Any, Any, tuple[A, B, C, D, E, F]]: ...
    @overload
    def gather(
        self, a: Job[A], b: Job[B], c: Job[C], d: Job[D], e: Job[E], f: Job[F], g: Job[G], /
    ) -> Coroutine[Any, Any, tuple[A, B, C, D, E, F, G]]: ...
    @overload
    def gather(
        self, a: Job[A], b: Job[B], c: Job[C], d: Job[D], e: Job[E], f: Job[F], g: Job[G], h: Job[H], /
    ) -> Coroutine[Any, Any, tuple[A, B, C, D, E, F, G, H]]: ...
    @overload
    def gather(self, *jobs: Job[R]) -> Coroutine[Any, Any, tuple[R, ...]]: ...
    def gather(self, *jobs: Job[Any]) -> Coroutine[Any, Any, tuple[Any, ...]]:
        """Run several jobs at once and give their results in order. The first failure stops the others and is raised
        once they have ended."""
        path = self._scope.take()
        return self._gather([(job, (*path, str(index))) for index, job in enumerate(jobs)])

    def map(
        self,
        items: Iterable[T] | AsyncIterable[T],
        fn: Callable[[T], Job[R]],
        *,
        key: Callable[[T], str] | None = None,
        limit: int = MAP_LIMIT,
    ) -> Mapped[T, R]:
        """A job for each item, at most `limit` under way at once; results in the order of the items.

            results = await ctx.map(tickets, triage)                    # a list; the first failure stops the rest
            async for result in ctx.map(tickets, triage): ...           # in bounded memory
            async for outcome in ctx.map(tickets, triage).outcomes():   # failures as values

        `key` gives each item's step its identity, so that items may be added or reordered between runs.
        """
        path = self._scope.take()
        shared = self._shared
        plan = MapPlan(
            submit=self._submit,
            path=path,
            items=items,
            fn=fn,
            key=key,
            limit=limit,
            stopper=shared.stopper,
            pulls=shared.pulls,
        )
        return Mapped(plan)

    def stream(
        self, call: LLMCall[Any], *, mode: StreamingMode = StreamingMode.LIVE, key: str | None = None
    ) -> CallStream:
        """`async with ctx.stream(LLMCall(...)) as pieces`, then `async for piece in pieces` and `pieces.response`."""
        path, sink = self._scope.take(key), Sink(keeps=self._shared.run.journal is not None)
        return CallStream(lambda: self._submit(StreamedCall(call, sink, mode), path), sink, call.response_model)

    # What is not deterministic, as steps.

    @overload
    def step(self, fn: Callable[P, Awaitable[R]], /, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]: ...

    @overload
    def step(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]: ...

    def step(self, fn: Callable[P, Any], /, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, Any]:
        """Run a function of one's own as a step. A synchronous one runs in a thread."""
        return self._step(self._scope.take(), fn, args, kwargs)

    def now(self) -> datetime:
        """The time of day (UTC), as a step."""
        return self._note("now", self._dispatcher.wall)

    def uuid(self) -> UUID:
        """A random UUID, as a step."""
        return self._note("uuid", lambda: UUID(int=self._dispatcher.rng.getrandbits(128), version=4))

    def random(self) -> float:
        """A random number in [0, 1), as a step."""
        return self._note("random", self._dispatcher.rng.random)

    def _note(self, name: str, make: Callable[[], R]) -> R:
        path, journal = self._scope.take(), self._shared.run.journal
        return make() if journal is None else journal.note(step_id(path), name, make)

    def branch(self, name: str) -> PipelineContext:
        """A context for another task, with step ids of its own."""
        return PipelineContext(self._dispatcher, self._shared, self._scope.branch(name))

    # How it is done.

    def _submit(
        self,
        job: Job[R],
        path: tuple[str, ...],
        *,
        after: tuple[JobHandle[Any], ...] = (),
        tolerate_failures: bool = False,
    ) -> JobHandle[R]:
        shared = self._shared
        shared.stopper.check()
        id, journal = step_id(path), shared.run.journal
        if journal is not None:
            self._dispatcher.check(job, after)
            known = journal.ask(id, job, shared.stopper)
            if known is not None:
                return self._dispatcher.replayed(job, shared.run, id, known)
        handle = self._dispatcher.submit(job, shared.run, step_id=id, after=after, tolerate_failures=tolerate_failures)
        shared.live[handle] = None
        handle._execution.on_done(lambda: self._ended(handle))
        return handle

    def _ended(self, handle: JobHandle[Any]) -> None:
        self._shared.live.pop(handle, None)
        self._shared.spent.include(handle._execution.spent)

    async def _run(self, job: Job[R], path: tuple[str, ...]) -> R:
        handle = self._submit(job, path)
        try:
            return await handle
        except BaseException:
            await _stop_all((handle,), interrupted=True)
            raise

    async def _gather(self, jobs: list[tuple[Job[Any], tuple[str, ...]]]) -> tuple[Any, ...]:
        handles: list[JobHandle[Any]] = []
        try:
            handles = [self._submit(job, path) for job, path in jobs]
            await _first_failure(handles)
            return tuple(handle.result() for handle in handles)
        except BaseException as error:
            await _stop_all(handles, interrupted=isinstance(error, asyncio.CancelledError))
            raise

    async def _step(
        self, path: tuple[str, ...], fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        name = getattr(fn, "__qualname__", type(fn).__qualname__)
        return await self._kept(path, name, (args, kwargs), lambda: self._call(fn, args, kwargs))

    async def _enqueue(self, path: tuple[str, ...], job: Job[Any], run_id: str, settings: dict[str, Any]) -> str:
        from .worker.enqueueing import enqueue_all

        async def put() -> str:
            await enqueue_all(self._dispatcher, [(job, run_id)], **settings)
            return run_id

        return await self._kept(path, "enqueue", (job, run_id, settings), put, requests=TELLS_ITSELF)

    async def _kept(
        self,
        path: tuple[str, ...],
        name: str,
        given: tuple[Any, ...],
        work: Callable[[], Awaitable[R]],
        requests: str | None = None,
    ) -> R:
        """Some work that is no job, as a step."""
        shared, journal = self._shared, self._shared.run.journal
        shared.stopper.check()
        if journal is None:
            return await work()
        fixed = fingerprint(name, *given)
        return await journal.step(step_id(path), name, fixed, work, shared.stopper, requests=requests)

    async def _call(self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if inspect.iscoroutinefunction(fn):
            return await fn(*args, **kwargs)
        returned = await in_thread(None, fn, *args, **kwargs)
        return await returned if inspect.isawaitable(returned) else returned

    # The runtime's side: how a pipeline's attempt ends.

    @property
    def begins(self) -> bool:
        """Whether this pipeline's run is journaled and begins with it."""
        journal = self._shared.run.journal
        return journal is not None and journal.root is self._shared.execution.job

    async def opened(self) -> Outcome[Any] | None:
        """Begin the run in the journal. The outcome of one that has ended: nothing is to be run then."""
        shared = self._shared
        journal = shared.run.journal
        assert journal is not None
        over, found = await journal.open(shared.execution.stop_for)
        if over is None and journal.head.cost_cap is not None:
            amount, currency = parse_cap(journal.head.cost_cap)
            name = cap_of(journal.head.run_id)
            spent = Decimal(0) if found is None else found.spent.get(currency, Decimal(0))
            self._dispatcher.spending.add(Cap(name=name, amount=amount, currency=currency), spent=spent)
            shared.run = replace(shared.run, caps=(name, *shared.run.caps))
        return over

    def written(self, value: Any) -> None:
        shared = self._shared
        journal, id = shared.run.journal, shared.execution.step_id
        if journal is None:
            return
        if self.begins:
            journal.returned(value)
        elif (step := journal.live(id)) is not None:
            assert id is not None
            step.result(value, id)

    @property
    def stopper(self) -> Stopper:
        return self._shared.stopper

    @property
    def spent(self) -> Spent:
        return self._shared.spent

    def stop(self, reason: InterlockError) -> None:
        """Its jobs are stopped; their ends reach the pipeline's code as errors, and it starts no more."""
        self._shared.stopper.stop(reason)
        for handle in tuple(self._shared.live):
            handle.cancel("its pipeline was stopped")

    def finish_now(self) -> bool:
        self.settling = not self._shared.live and not self._shared.pulls
        return self.settling

    async def finish(self) -> None:
        await self._end_children("its pipeline has ended")
        self.settling = True

    async def abandon(self) -> None:
        if self._shared.stopper.reason is None:
            self._shared.stopper.reason = JobCancelledError("the pipeline is over")
        await self._end_children("its pipeline failed")

    async def _end_children(self, reason: str) -> None:
        while self._shared.live:
            handles = tuple(self._shared.live)
            for handle in handles:
                handle.cancel(reason)
            for handle in handles:
                await handle._execution.settled()
        for pull in tuple(self._shared.pulls):
            await end_pull(pull)


async def _first_failure(handles: list[JobHandle[Any]]) -> None:
    """Until all have ended, or one has failed: then its error is raised."""
    done: asyncio.Future[JobHandle[Any] | None] = asyncio.get_running_loop().create_future()
    left = len(handles)

    def ended(handle: JobHandle[Any]) -> None:
        nonlocal left
        left -= 1
        if done.done():
            return
        if handle.exception() is not None:
            done.set_result(handle)
        elif not left:
            done.set_result(None)

    if handles:
        check_may_wait_for(handles[0].name)
        # Of those that are read back, the failure that stopped the others comes before what it stopped.
        for handle in sorted(handles, key=_was_stopped):
            handle._execution.on_done(lambda handle=handle: ended(handle))  # type: ignore[misc]
        failed = await done
        if failed is not None:
            failed.result()


def _was_stopped(handle: JobHandle[Any]) -> bool:
    return handle.done and isinstance(handle.exception(), JobCancelledError)


async def _stop_all(handles: Iterable[JobHandle[Any]], *, interrupted: bool) -> None:
    """Stop what still runs, and wait for its end even where the waiting task is being cancelled. `interrupted`: it is
    stopped because that task is, which may come out otherwise on replay."""
    running = [handle for handle in handles if not handle.done]
    for handle in running:
        if interrupted:
            handle._execution.interrupted()
        handle.cancel()
    await uncancelled(_all_settled(running), arrives=True)


async def _all_settled(handles: Iterable[JobHandle[Any]]) -> None:
    for handle in handles:
        await handle._execution.settled()
