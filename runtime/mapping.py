"""Mapped: a job for each of many items, in bounded memory."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterable, AsyncIterator, Callable, Generator, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from .current import check_may_wait_for
from .job import Job
from .scope import key_segment
from .stopper import Stopper
from .uncancelled import uncancelled

if TYPE_CHECKING:
    from .handle import JobHandle

T = TypeVar("T")
R = TypeVar("R")
S = TypeVar("S")


class _Submit(Protocol):
    def __call__(self, job: Job[S], path: tuple[str, ...]) -> JobHandle[S]: ...


@dataclass(frozen=True, slots=True)
class MapOutcome(Generic[T, R]):
    """How the job of one item ended. `index` counts the items from 0."""

    index: int
    item: T
    handle: JobHandle[R]

    @property
    def error(self) -> BaseException | None:
        return self.handle.exception()

    @property
    def result(self) -> R:
        """The result; raises what the job failed with."""
        return self.handle.result()


@dataclass(frozen=True, slots=True, kw_only=True)
class MapPlan(Generic[T, R]):
    """What a map was asked to do."""

    submit: _Submit
    path: tuple[str, ...]
    items: Iterable[T] | AsyncIterable[T]
    fn: Callable[[T], Job[R]]
    key: Callable[[T], str] | None
    limit: int
    stopper: Stopper
    pulls: set[asyncio.Future[Any]]  # the pipeline's: what is left of them is ended with it


class Mapped(Generic[T, R]):
    """Awaited, a list of all results; iterated (`async for`), one result after the other, in the order of the items.

    At most `limit` jobs are under way, and as many results again may wait for a slower one before them. A failure stops
    the others and is raised at its place; `outcomes()` gives failures as values instead and goes on. It runs once: its
    steps have one identity each.
    """

    def __init__(self, plan: MapPlan[T, R]) -> None:
        if type(plan.limit) is not int or plan.limit < 1:
            raise ValueError(f"the limit of a map is a whole number and at least 1, not {plan.limit!r}")
        self._plan = plan
        self._begun = False

    def __await__(self) -> Generator[Any, None, list[R]]:
        return self._all().__await__()

    async def _all(self) -> list[R]:
        results = MapResults(self.outcomes())
        try:
            return [result async for result in results]
        finally:
            await results.aclose()

    def __aiter__(self) -> MapResults[T, R]:
        return MapResults(self.outcomes())

    def outcomes(self) -> MapOutcomes[T, R]:
        if self._begun:
            raise RuntimeError("this map has been run: its steps would be done twice. Call ctx.map(...) once more")
        self._begun = True
        return MapOutcomes(self._plan)


class MapResults(Generic[T, R]):
    """Results in order; the first failure is raised. Leaving early: `aclose`, or the end of the pipeline, stops the
    rest."""

    def __init__(self, outcomes: MapOutcomes[T, R]) -> None:
        self._outcomes = outcomes

    def __aiter__(self) -> MapResults[T, R]:
        return self

    async def __anext__(self) -> R:
        outcome = await anext(self._outcomes)
        if outcome.error is not None:
            await self.aclose()
        return outcome.result

    async def aclose(self) -> None:
        await self._outcomes.aclose()


class MapOutcomes(Generic[T, R]):
    """Outcomes in order, failures as values. Leaving early: `aclose`, or the end of the pipeline, stops the rest."""

    def __init__(self, plan: MapPlan[T, R]) -> None:
        self._plan = plan
        self._window: deque[MapOutcome[T, R]] = deque()
        self._running = self._begun = 0
        self._keys: set[str] = set()
        self._wake: asyncio.Future[None] | None = None
        items = plan.items
        self._source: Iterator[T] | None = None
        self._feed: AsyncIterator[T] | None = None
        self._pull: asyncio.Future[T] | None = None
        if isinstance(items, AsyncIterable):
            self._feed = aiter(items)
        else:
            self._source = iter(items)

    def __aiter__(self) -> MapOutcomes[T, R]:
        return self

    async def __anext__(self) -> MapOutcome[T, R]:
        if self._wake is not None:
            raise RuntimeError("a map is read by one task at a time, and another one waits for its next outcome")
        try:
            while True:
                self._fill()
                if self._window and self._window[0].handle.done:
                    return self._window.popleft()
                if not self._window and self._pull is None:
                    raise StopAsyncIteration
                await self._something()
        except StopAsyncIteration:
            raise
        except BaseException as error:
            await self.aclose(interrupted=isinstance(error, asyncio.CancelledError))
            raise

    async def aclose(self, *, interrupted: bool = False) -> None:
        """Stop what is under way and wait for its end. `interrupted`: since the reader is being cancelled."""
        self._source = self._feed = None
        pull, self._pull = self._pull, None
        running = [outcome.handle for outcome in self._window if not outcome.handle.done]
        self._window.clear()
        for handle in running:
            if interrupted:
                handle._execution.interrupted()
            handle.cancel("its map was left")
        for handle in running:
            await uncancelled(handle._execution.settled())
        if pull is not None:
            await uncancelled(end_pull(pull))

    def _room(self) -> bool:
        limit = self._plan.limit
        return self._running < limit and len(self._window) < 2 * limit

    def _fill(self) -> None:
        """Begin items while there is room for them."""
        while self._source is not None and self._room():
            try:
                item = next(self._source)
            except StopIteration:
                self._source = None
                return
            self._begin(item)
        while self._feed is not None and self._room():
            if self._pull is None:
                pulls = self._plan.pulls
                self._pull = asyncio.ensure_future(_next(self._feed))
                self._pull.add_done_callback(self._woken)
                pulls.add(self._pull)
                self._pull.add_done_callback(pulls.discard)
            if not self._pull.done():
                return
            pull, self._pull = self._pull, None
            try:
                item = pull.result()
            except _ExhaustedError:
                self._feed = None
                return
            self._begin(item)

    def _begin(self, item: T) -> None:
        plan, index = self._plan, self._begun
        segment = str(index)
        if plan.key is not None:
            segment = key_segment(plan.key(item))
            if segment in self._keys:
                raise ValueError(f"two items of a map have the key {plan.key(item)!r}")
            self._keys.add(segment)
        handle = plan.submit(plan.fn(item), (*plan.path, segment))
        self._begun += 1
        self._running += 1
        self._window.append(MapOutcome(index, item, handle))
        handle._execution.on_done(self._one_ended)

    def _one_ended(self) -> None:
        self._running -= 1
        self._woken()

    def _woken(self, _pull: object = None) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    async def _something(self) -> None:
        """Until a job has ended or another item is there."""
        if self._window:
            check_may_wait_for(self._window[0].handle.name)
        self._wake = asyncio.get_running_loop().create_future()
        try:
            await self._plan.stopper.run(self._wake)  # what it waits for may be a feed that knows of no stopping
        finally:
            self._wake = None


async def end_pull(pull: asyncio.Future[Any]) -> None:
    """Stop waiting for a feed's next item. What comes of that is of no interest any more."""
    pull.cancel()
    await asyncio.wait((pull,))
    if not pull.cancelled():
        pull.exception()


class _ExhaustedError(Exception):
    """A future cannot carry StopAsyncIteration out of a task."""


async def _next(feed: AsyncIterator[T]) -> T:
    try:
        return await anext(feed)
    except StopAsyncIteration:
        raise _ExhaustedError from None
