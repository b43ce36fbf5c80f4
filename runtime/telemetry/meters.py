"""The meters. What has happened is counted as it happens; what *is* (levels, slowdowns) is read when a reader asks.

A reader asks from its own thread. Statistics belong to the event loop, so they are fetched from there; a loop that does
not answer within a second is left out of that reading.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any
from weakref import WeakMethod

from opentelemetry import metrics
from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation

from interlock.clients.outcomes import OK

from . import catalogue as names
from .harmless import harmless, nothing
from .spans import SCOPE, _said, model_of

if TYPE_CHECKING:
    from interlock.admission import AccountStatistics, AdmissionStatistics

    from ..store.rows import CallRow

log = logging.getLogger("interlock.runtime")

#: Seconds that a reader waits for the event loop.
ANSWER_WITHIN_S = 1.0
#: One reading looks at several meters: they are told of the same statistics.
ONE_READING_S = 0.05


class Meters:
    """One per Runtime, closed with it: a closed one observes nothing any more."""

    def __init__(self, provider: MeterProvider | None, statistics: Callable[[], AdmissionStatistics]) -> None:
        meter = metrics.get_meter(SCOPE, meter_provider=provider)
        self.raised: set[tuple[str, type[Exception]]] = set()
        self._loop: asyncio.AbstractEventLoop | None = asyncio.get_running_loop()
        self._statistics, self._read = statistics, (-1.0, tuple["AccountStatistics", ...]())
        self._tokens = _histogram(meter, names.TOKENS)
        self._duration = _histogram(meter, names.DURATION)
        self._first = _histogram(meter, names.FIRST)
        self._wait = _histogram(meter, names.WAIT)
        self._spent = meter.create_counter(names.SPENT.name, names.SPENT.unit, names.SPENT.counts)
        self._jobs = meter.create_counter(names.JOBS.name, names.JOBS.unit, names.JOBS.counts)
        for notes, read in (
            (names.LEVEL, lambda account: account.level),
            (names.CAPACITY, lambda account: account.capacity),
            (names.SLOWDOWN, lambda account: account.slowdown),
            (names.HELD, lambda account: account.held_for_s),
            (names.WAITING, lambda account: account.waiting),
        ):
            callback = _observer(WeakMethod(self._accounts), read)
            meter.create_observable_gauge(notes.name, [callback], notes.unit, notes.counts)
        meter.create_observable_counter(
            names.REFUSALS.name, [_refusals(WeakMethod(self._accounts))], names.REFUSALS.unit, names.REFUSALS.counts
        )

    @harmless(nothing)
    def request(self, row: CallRow) -> None:
        """One wire request has ended."""
        record, usage = row.record, row.record.usage
        model = _said(model_of(row))
        failed = {} if record.outcome == OK else {names.ERROR.name: record.outcome}
        self._duration.record(record.latency_s, {**model, **failed})
        if record.first_piece_s is not None:
            self._first.record(record.first_piece_s, model)
        read = (usage.input_tokens, usage.cache_read_tokens, usage.cache_write_tokens)
        if usage.input_tokens is not None:
            self._tokens.record(sum(each or 0 for each in read), {**model, names.TOKEN_TYPE.name: "input"})
        if usage.output_tokens is not None:
            self._tokens.record(usage.output_tokens, {**model, names.TOKEN_TYPE.name: "output"})
        if record.cost:
            of = {names.CURRENCY: record.currency, names.WORKFLOW: row.workflow or None}
            kept = {name: model[name] for name in (names.PROVIDER.name, names.MODEL.name)}
            self._spent.add(float(record.cost), {**_said(of), **kept})

    @harmless(nothing)
    def waited(self, workflow: str, seconds: float) -> None:
        """A grant has ended a wait, of no seconds perhaps."""
        self._wait.record(seconds, {names.WORKFLOW.name: workflow} if workflow else {})

    @harmless(nothing)
    def ended(self, job: str, state: str) -> None:
        self._jobs.add(1, {names.JOB.name: job, names.STATE.name: state})

    def close(self) -> None:
        self._loop = None

    def _accounts(self) -> tuple[AccountStatistics, ...]:
        """The accounts now, whichever thread asks."""
        loop, now = self._loop, time.monotonic()
        if loop is None or loop.is_closed():
            return ()
        read_at, accounts = self._read
        if now - read_at < ONE_READING_S:
            return accounts
        try:
            here = asyncio.get_running_loop() is loop
        except RuntimeError:
            here = False
        accounts = self._statistics().accounts if here else self._fetched(loop)
        self._read = now, accounts
        return accounts

    def _fetched(self, loop: asyncio.AbstractEventLoop) -> tuple[AccountStatistics, ...]:
        answer: concurrent.futures.Future[AdmissionStatistics] = concurrent.futures.Future()

        def ask() -> None:
            if answer.set_running_or_notify_cancel():
                answer.set_result(self._statistics())

        try:
            loop.call_soon_threadsafe(ask)
            return answer.result(ANSWER_WITHIN_S).accounts
        except (TimeoutError, concurrent.futures.TimeoutError, RuntimeError):
            answer.cancel()
            log.debug("the event loop did not answer a reading of the meters within %g s", ANSWER_WITHIN_S)
            return ()


def _histogram(meter: Any, notes: names.MeterNotes) -> Any:
    return meter.create_histogram(notes.name, notes.unit, notes.counts)


Accounts = Callable[[], "tuple[AccountStatistics, ...]"]


def _observer(accounts: WeakMethod[Accounts], read: Callable[[Any], float]) -> Any:
    def observe(_: CallbackOptions) -> Iterable[Observation]:
        ask = accounts()
        for account in ask() if ask is not None else ():
            value = read(account)
            if abs(value) != float("inf"):
                yield Observation(value, {names.ACCOUNT.name: account.name})

    return observe


def _refusals(accounts: WeakMethod[Accounts]) -> Any:
    def observe(_: CallbackOptions) -> Iterable[Observation]:
        ask = accounts()
        for account in ask() if ask is not None else ():
            for code, count in (("llm_rate_limited", account.rate_limited), ("llm_overloaded", account.overloaded)):
                if count:
                    yield Observation(count, {names.ACCOUNT.name: account.name, names.ERROR.name: code})

    return observe
