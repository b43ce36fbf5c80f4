"""The two clocks of an attempt: how long it may take in all, and how long its stream may be silent.

`verdict` decides; `Watch` sets one timer on the environment's clock, re-armed only when it fires, so a sign of life
costs nothing but reading the clock.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType

from interlock.admission.clock import Clock, Timer


class AttemptTimeout(Exception):
    """The attempt ran out of time. `idle`: of silence; otherwise of its whole time."""

    def __init__(self, message: str, *, idle: bool) -> None:
        super().__init__(message)
        self.idle = idle


def verdict(
    now_s: float, *, started_s: float, alive_s: float, total_s: float, idle_s: float | None
) -> AttemptTimeout | float:
    """What is wrong at `now_s`, or the next instant to look again."""
    if now_s >= started_s + total_s:
        return AttemptTimeout(f"no whole answer within {total_s:g} s", idle=False)
    if idle_s is not None and now_s >= alive_s + idle_s:
        return AttemptTimeout(f"nothing came for {idle_s:g} s", idle=True)
    return started_s + total_s if idle_s is None else min(started_s + total_s, alive_s + idle_s)


class Watch:
    """Watches one attempt. While a task waits inside `with watch:`, running out of time cancels that wait and raises
    `AttemptTimeout` in its place; when nobody waits, `unattended` is called instead.

    Silence counts only while somebody waits: a slow reader is not a silent provider.
    """

    __slots__ = (
        "_alive_s", "_cancelling", "_clock", "_expired", "_idle_s", "_started_s", "_task", "_timer", "_total_s",
        "_unattended",
    )  # fmt: skip

    def __init__(
        self,
        clock: Clock,
        *,
        total_s: float,
        idle_s: float | None = None,
        unattended: Callable[[AttemptTimeout], None] | None = None,
    ) -> None:
        self._clock, self._total_s, self._idle_s, self._unattended = clock, total_s, idle_s, unattended
        self._started_s = self._alive_s = clock.now()
        self._task: asyncio.Task[object] | None = None
        self._cancelling = 0
        self._expired: AttemptTimeout | None = None
        self._timer: Timer | None = None
        self._arm(self._started_s + (total_s if idle_s is None else min(total_s, idle_s)))

    def alive(self) -> None:
        """Something came from the wire."""
        self._alive_s = self._clock.now()

    def hurry(self, idle_s: float) -> None:
        """From now on silence counts after `idle_s` seconds."""
        if self._idle_s is not None and self._idle_s > idle_s:
            self._idle_s = idle_s
            self.stop()
            self._arm(self._clock.now() + idle_s)

    def interrupt(self) -> None:
        """Nobody wants what is waited for any more: a task that waits inside gets `AttemptTimeout` at once."""
        if self._task is not None:
            self._expire(AttemptTimeout("the stream was closed", idle=False))

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def __enter__(self) -> Watch:
        task = asyncio.current_task()
        assert task is not None, "a model is called from a task"
        self._task, self._cancelling = task, task.cancelling()
        self._alive_s = self._clock.now()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        task, self._task = self._task, None
        if self._expired is None or task is None:
            return
        still_wanted = task.uncancel() <= self._cancelling
        if kind is not None and (issubclass(kind, Exception) or (kind is asyncio.CancelledError and still_wanted)):
            raise self._expired

    def _arm(self, when_s: float) -> None:
        self._timer = self._clock.call_at(when_s, self._look)

    def _look(self) -> None:
        idle_s = self._idle_s if self._task is not None else None
        found = verdict(
            self._clock.now(), started_s=self._started_s, alive_s=self._alive_s, total_s=self._total_s, idle_s=idle_s
        )
        if isinstance(found, AttemptTimeout):
            self._timer = None
            self._expire(found)
        elif idle_s is None and self._idle_s is not None:
            # Nobody waits now; someone may start to at any moment, so look again within the idle time.
            self._arm(min(found, self._clock.now() + self._idle_s))
        else:
            self._arm(found)

    def _expire(self, expired: AttemptTimeout) -> None:
        if self._task is not None:
            self._expired = expired
            self._task.cancel()
        elif self._unattended is not None:
            self._unattended(expired)
