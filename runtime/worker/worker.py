"""Worker: claims runs from the queue and sees them through, hundreds at a time; most of them wait for tokens and hold
nothing meanwhile.

One loop claims: whatever there is room for, whenever it was woken, a run has ended, or it is time for a look. Another
looks now and then at what workers that have died left behind. (What is asked of a run, to be cancelled or paused, every
Runtime hears by itself.)
`stop` drains: nothing more is claimed, what runs has `drain_s` to end, the rest goes back into the queue and goes on
elsewhere from its journal. So does everything where `serve` itself is cancelled or fails. A run goes back with its own
last write, so there is no moment at which a kill would lose it.

A worker may lack what a run needs: its module, or the version it was begun with. It leaves such runs to others, and
tries again after a while: its module may have been broken only for a moment.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from interlock.errors import ConfigurationError, InterlockError, LeaseLostError, SpendCapExceededError, StoreError

from ..inside import dispatcher_of
from ..journal.calling import NotHereError, pipeline_of
from ..journal.protocol import RecordedRun
from ..opened import DEPLOYMENT, others_could_pay
from ..store.queue import Lacking, Left
from ..uncancelled import uncancelled
from .waking import Waker

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..handle import JobHandle
    from ..runtime import Runtime

T = TypeVar("T")

log = logging.getLogger("interlock.runtime")

#: Runs claimed with one statement, at most.
CLAIMED_AT_ONCE = 250
#: Seconds between two looks at what others have left behind.
RESCUE_EVERY_S = 5.0
#: What a run has to stop in an orderly way when it is handed back, before it is cancelled hard; then once more.
HAND_BACK_S = 2.0
#: A run that cannot be begun here (its code is not there, its arguments cannot be read) is left alone for so long.
CANNOT_BEGIN_S = 60.0


class _OtherVersionError(ConfigurationError):
    """It was begun with another version of its pipeline than is here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSettings:
    """`concurrency`: runs at a time. `drain_s`: what a run has to end when the worker is told to stop. `until_empty`:
    stop when there is nothing left that it could claim. `ended` is called with each run's id and handle."""

    concurrency: int = 500
    drain_s: float = 25.0
    until_empty: bool = False
    ended: Callable[[str, JobHandle[Any]], None] | None = None


class Worker:
    """One per open Runtime, whose store has a queue. `serve` until `stop`.

    `stuck`: runs that heed neither a request nor a cancellation, or whose end cannot be written because the store is
    away. They are still this process's when `serve` is over, and others have them once it has ended.
    `left`: what it left behind, where it ended because it could claim nothing more (`until_empty`). `capped`: the first
    refusal by the cap of the whole Runtime; with it the worker stops. What others could pay for goes back to them, what
    is more than the whole cap fails.
    """

    def __init__(self, runtime: Runtime, settings: WorkerSettings | None = None) -> None:
        self._runtime, self.settings = runtime, settings or WorkerSettings()
        self._queue, self._place = runtime._queue()
        self._running: dict[str, JobHandle[Any]] = {}
        self._stopping = asyncio.Event()
        self._waker = Waker(self._place)
        self._returned: set[str] = set()
        self._lacking: dict[Lacking, float] = {}  # until when
        self.stuck: tuple[str, ...] = ()
        self.left: Left | None = None
        self.capped: SpendCapExceededError | None = None
        self._lost: LeaseLostError | None = None
        self.claimed = self.done = self.failed = 0

    @property
    def under_way(self) -> int:
        return len(self._running)

    def stop(self) -> None:
        """Claim nothing more, and let `serve` end."""
        self._stopping.set()
        self._waker.woken.set()

    async def serve(self) -> None:
        """Raises LeaseLostError where this process has been given up."""
        async with self._waker:
            looking = asyncio.create_task(self._look_after())
            try:
                await self._claim_all()
                await self._drain()
            except BaseException:
                await uncancelled(self._hand_back())
                raise
            finally:
                looking.cancel()
                await asyncio.gather(looking, return_exceptions=True)
        if self._lost is not None:
            raise self._lost

    # Claiming.

    async def _claim_all(self) -> None:
        while not self._stopping.is_set():
            self._waker.woken.clear()
            room = self.settings.concurrency - len(self._running)
            found = await self._claim(min(room, CLAIMED_AT_ONCE)) if room > 0 else None
            if found and room > found:
                continue  # there may be more
            if found == 0 and not self._running and self.settings.until_empty and await self._is_over():
                return
            await self._waker.wait(self._waker.every_s)

    async def _is_over(self) -> bool:
        """Whether nothing comes back from the dead either. What is left then is counted."""
        with suppress(StoreError):
            # Woken meanwhile, by what the other loop put back or somebody put there, it looks once more.
            if await self._unless_stopped(self._queue.rescue()) == 0 and not self._waker.woken.is_set():
                self.left = await self._unless_stopped(self._queue.left())
                return True
            self._waker.woken.set()  # it is claimed at once
        return False

    async def _claim(self, most: int) -> int | None:
        """How many were there to claim; None where the store did not say."""
        self._lost = self._lost or dispatcher_of(self._runtime).lost
        if self._lost is not None:
            self.stop()
            return None
        now, lacking = self._runtime._now(), self._lacking_now()
        try:
            there = await self._unless_stopped(self._queue.anything(now, lacking))
            if not there:
                return None if there is None else 0
            runs = await self._unless_stopped(self._queue.claim(most, now, lacking), late=self._came_late) or []
        except LeaseLostError as error:
            self._lost = error
            self.stop()
            return None
        except StoreError as error:
            log.warning("nothing could be claimed: %s", error)
            return None
        for place, run in enumerate(runs):
            try:
                if not self._lacks(run):
                    await self._begin(run)
                else:  # it has come with the first of its kind
                    self._put_back([run])
            except BaseException:
                self._put_back(runs[place:])
                raise
        return len(runs)

    def _lacks(self, run: RecordedRun) -> bool:
        target = run.head.target or ""
        return Lacking(target) in self._lacking or (
            not run.fresh and Lacking(target, run.head.version) in self._lacking
        )

    async def _unless_stopped(
        self, asked: Awaitable[T], late: Callable[[asyncio.Future[T]], None] | None = None
    ) -> T | None:
        """The store's answer; None where the worker is stopped meanwhile, for a store that is away says nothing for
        long. An answer that nobody waits for any more is given to `late`."""
        answer, stopping = asyncio.ensure_future(asked), asyncio.ensure_future(self._stopping.wait())
        try:
            await asyncio.wait((answer, stopping), return_when=asyncio.FIRST_COMPLETED)
            if answer.done():
                late = None
                return answer.result()
            return None
        finally:
            stopping.cancel()
            if late is not None:
                answer.add_done_callback(late)

    def _came_late(self, answer: asyncio.Future[list[RecordedRun]]) -> None:
        if not answer.cancelled() and answer.exception() is None:
            self._put_back(answer.result())

    def _put_back(self, runs: list[RecordedRun]) -> None:
        """They were claimed and not begun. Not awaited: whatever is written later comes after it."""
        with suppress(StoreError):  # it is closed: then they are the others' at once
            self._queue.put_back([run.head.run_id for run in runs if run.head.run_id not in self._running])

    def _lacking_now(self) -> tuple[Lacking, ...]:
        now = asyncio.get_running_loop().time()
        self._lacking = {lacking: until for lacking, until in self._lacking.items() if until > now}
        return tuple(self._lacking)

    async def _begin(self, run: RecordedRun) -> None:
        run_id = run.head.run_id
        try:
            job = pipeline_of(run.head)
            if not run.fresh and job.pipeline.version != run.head.version:
                raise _OtherVersionError(
                    f"run {run_id!r} was begun with version {run.head.version!r} of {run.head.pipeline}, and this is"
                    f" version {job.pipeline.version!r}: it is left to a worker of that version"
                )
            handle = self._runtime._take_up(job, run)
        except Exception as error:  # whatever its module or its arguments' classes raise
            await self._cannot_begin(run, error)
            return
        self.claimed += 1
        self._running[run_id] = handle
        handle._execution.on_done(lambda: self._ended(run_id, handle))
        journal, put = handle._execution.run.journal, run.head
        if run.fresh and journal is not None:
            now = journal.head
            if (now.version, now.fingerprint) != (put.version, put.fingerprint):
                await self._unless_stopped(self._queue.begun_as(now))

    async def _cannot_begin(self, run: RecordedRun, error: Exception) -> None:
        log.warning("%s", error if isinstance(error, InterlockError) else f"{run.head.run_id}: {error!r}")
        until: datetime | None = self._runtime._now() + timedelta(seconds=CANNOT_BEGIN_S)
        if run.head.target is not None and isinstance(error, NotHereError | _OtherVersionError):
            # All of its kind are left to workers that have it, who may claim them at once. Said once.
            version = run.head.version if isinstance(error, _OtherVersionError) else None
            self._lacking[Lacking(run.head.target, version)] = asyncio.get_running_loop().time() + CANNOT_BEGIN_S
            until = None
        await self._unless_stopped(self._queue.put_back([run.head.run_id], until=until, why=str(error)))

    def _ended(self, run_id: str, handle: JobHandle[Any]) -> None:
        self._running.pop(run_id, None)
        self._waker.woken.set()
        error = handle.exception()
        if isinstance(error, LeaseLostError):
            if run_id not in self._returned:
                self._lost = error
                self.stop()
            return
        if isinstance(error, SpendCapExceededError) and error.name == DEPLOYMENT:
            self.capped = self.capped or error
            self.stop()  # whatever it claimed would be refused likewise
            if others_could_pay(error):  # it went back
                return
        self.done += error is None
        self.failed += error is not None
        if self.settings.ended is not None:
            self.settings.ended(run_id, handle)

    # Looking after.

    async def _look_after(self) -> None:
        """What dead workers had goes back into the queue."""
        while True:
            try:
                if await self._queue.rescue():
                    self._waker.woken.set()
            except StoreError as error:
                log.warning("the queue could not be looked at: %s", error)
            await asyncio.sleep(RESCUE_EVERY_S)

    # The end.

    async def _drain(self) -> None:
        if not self._running:
            return
        log.info("draining: %d runs have %g s to end", len(self._running), self.settings.drain_s)
        try:
            async with asyncio.timeout(self.settings.drain_s):
                while self._running:
                    self._waker.woken.clear()
                    await self._waker.woken.wait()
        except TimeoutError:
            await self._hand_back()

    async def _hand_back(self) -> None:
        """Stop what is left, in an orderly way, and let others go on with it."""
        left = dict(self._running)
        self._returned |= left.keys()
        for handle in left.values():
            handle._execution.stop_for(LeaseLostError("its worker is stopping: the run goes on elsewhere"))
        if await self._go_on(left, HAND_BACK_S):
            return
        for handle in left.values():
            if not handle.done:
                handle._execution.stop_hard()
        if not await self._go_on(left, HAND_BACK_S):
            self.stuck = tuple(self._running)
            log.error("%d runs do not stop: %s", len(self.stuck), ", ".join(self.stuck[:5]))

    async def _go_on(self, left: Mapping[str, JobHandle[Any]], seconds: float) -> bool:
        """Whether all of them have ended by then."""
        ends = [asyncio.ensure_future(handle._execution.settled()) for handle in left.values() if not handle.done]
        if ends:
            _, late = await asyncio.wait(ends, timeout=seconds)
            for end in late:
                end.cancel()
            return not late
        return True
