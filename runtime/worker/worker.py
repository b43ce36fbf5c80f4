"""Worker: claims runs from the queue and sees them through, hundreds at a time; most of them wait for tokens and hold
nothing meanwhile.

One loop claims: whatever there is room for, whenever it was woken, a run has ended, or it is time for a look. Another
looks now and then at what workers that have died left behind. (What is asked of a run, to be cancelled or paused, every
Runtime hears by itself.)
`stop` drains: nothing more is claimed, what runs has `drain_s` to end, the rest goes back into the queue and goes on
elsewhere from its journal.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from interlock.errors import InterlockError, LeaseLostError, StoreError

from ..journal.calling import pipeline_of
from ..journal.protocol import RecordedRun
from .waking import Waker

if TYPE_CHECKING:
    from ..handle import JobHandle
    from ..runtime import Runtime

log = logging.getLogger("interlock.runtime")

#: Runs claimed with one statement, at most.
CLAIMED_AT_ONCE = 250
#: Seconds between two looks at what others have left behind.
RESCUE_EVERY_S = 5.0
#: What a run has to stop in an orderly way when it is handed back, before it is cancelled hard.
HAND_BACK_S = 2.0
#: A run that cannot be begun here (its code is not there) is left alone for so long.
CANNOT_BEGIN_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSettings:
    """`concurrency`: runs at a time. `drain_s`: what a run has to end when the worker is told to stop. `until_empty`:
    stop when there is nothing left to do. `ended` is called with each run's id and handle."""

    concurrency: int = 500
    drain_s: float = 25.0
    until_empty: bool = False
    ended: Callable[[str, JobHandle[Any]], None] | None = None


class Worker:
    """One per open Runtime, whose store has a queue. `serve` until `stop`."""

    def __init__(self, runtime: Runtime, settings: WorkerSettings | None = None) -> None:
        self._runtime, self.settings = runtime, settings or WorkerSettings()
        self._queue, self._place = runtime._queue()
        self._running: dict[str, JobHandle[Any]] = {}
        self._stopping = asyncio.Event()
        self._waker = Waker(self._place)
        self._returned: set[str] = set()
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
            found = await self._claim(min(room, CLAIMED_AT_ONCE)) if room > 0 else 0
            if found and room > found:
                continue  # there may be more
            if not found and not self._running and self.settings.until_empty and room > 0:
                return
            await self._waker.wait(self._waker.every_s)

    async def _claim(self, most: int) -> int:
        self._lost = self._lost or self._runtime._open().lost
        if self._lost is not None:
            self.stop()
            return 0
        try:
            if not await self._queue.anything(self._runtime._now()):
                return 0
            runs = await self._queue.claim(most, self._runtime._now())
        except LeaseLostError as error:
            self._lost = error
            self.stop()
            return 0
        except StoreError as error:
            log.warning("nothing could be claimed: %s", error)
            await asyncio.sleep(1.0)
            return 0
        for run in runs:
            await self._begin(run)
        return len(runs)

    async def _begin(self, run: RecordedRun) -> None:
        run_id = run.head.run_id
        try:
            handle = self._runtime._take_up(pipeline_of(run.head), run)
        except InterlockError as error:
            log.warning("%s", error)
            await self._queue.put_back([run_id], self._runtime._now(), later_s=CANNOT_BEGIN_S, why=str(error))
            return
        self.claimed += 1
        self._running[run_id] = handle
        handle._execution.on_done(lambda: self._ended(run_id, handle))

    def _ended(self, run_id: str, handle: JobHandle[Any]) -> None:
        self._running.pop(run_id, None)
        error = handle.exception()
        if run_id not in self._returned:
            self.done += error is None
            self.failed += error is not None
            if self.settings.ended is not None:
                self.settings.ended(run_id, handle)
        if isinstance(error, LeaseLostError):
            self._lost = error
            self.stop()
        self._waker.woken.set()

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
            handle.cancel("its worker is stopping")
        ends = [asyncio.ensure_future(handle._execution.settled()) for handle in left.values()]
        await asyncio.wait(ends, timeout=HAND_BACK_S)
        for handle in left.values():
            if not handle.done:
                handle._execution.stop_hard()
        await asyncio.gather(*ends)
        cancelled = [run_id for run_id, handle in left.items() if str(handle.state) == "cancelled"]
        await self._queue.put_back(cancelled, self._runtime._now())
