"""The parts of a job's life that exist only from its first grant on, so that a waiting job is spared them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from interlock.decisions.kept import KeptParts

from .routing import Strikes
from .spent import Spent

if TYPE_CHECKING:
    from opentelemetry.trace import Span

    from interlock.admission import Reservation, Ticket, Timer
    from interlock.catalog import ModelSpec
    from interlock.errors import InterlockError, UpstreamError

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Outcome(Generic[R]):
    """How an attempt, or the job, ended: a value or an error."""

    value: R | None = None
    error: BaseException | None = None


class Running(Generic[R]):
    """What exists only while an attempt runs."""

    __slots__ = ("intended", "outcome", "probing", "reservation", "resources", "started_s", "stop", "task", "timer")

    def __init__(self, reservation: Reservation | None, started_s: float) -> None:
        self.reservation, self.started_s = reservation, started_s
        self.resources: Any = None
        #: The intent in the journal, or room in the store: nothing is sent before that.
        self.intended: Awaitable[None] | None = None
        self.task: asyncio.Task[None] | None = None
        self.outcome: Outcome[R] | None = None
        self.stop: InterlockError | None = None
        self.timer: Timer | None = None  # the end of its time, then of its grace
        calls = reservation.demand.calls if reservation is not None else ()
        #: Whether it went as the one probe of a closed pool.
        self.probing = any(call.pool.throttle.closed(started_s) for call in calls)


class History:
    """What a job that has run remembers: made at its first attempt, or when its id is first asked for."""

    __slots__ = (
        "attempts",
        "id",
        "kept",
        "raised",
        "ran_s",
        "retries",
        "span",
        "spent",
        "strikes",
        "ticket",
        "upstream_error",
    )

    def __init__(self, id: str) -> None:
        self.id, self.spent, self.attempts = id, Spent(), 0
        self.retries, self.ran_s = 0, 0.0
        self.ticket: Ticket | None = None
        self.raised: frozenset[ModelSpec] = frozenset()
        self.upstream_error: UpstreamError | None = None
        self.strikes = Strikes()
        #: What parts of its decisions were answered, by whichever attempt.
        self.kept = KeptParts()
        self.span: Span | None = None
