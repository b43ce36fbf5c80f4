"""What must hold of a simulated run: while it is under way, and when everything is over."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from decimal import Decimal
from math import inf
from typing import TYPE_CHECKING, Any

from interlock.errors import InterlockError
from interlock.runtime import JobState, Runtime

from .jobs import Save, Write

if TYPE_CHECKING:
    from .world import Simulation

#: How a request ended at the provider, by the outcome that its record may then have.
RECORDED = {
    "answered": {"ok", "response_shape", "output_truncated", "provider_refusal", "cancelled"},
    "RateLimitedError": {"llm_rate_limited"},
    "OverloadedError": {"llm_overloaded"},
}


def check_under_way(run: Simulation, runtime: Runtime) -> None:
    """At any instant: who waits knows why, the books agree, and nothing is above what it may be."""
    statistics = runtime.statistics()
    dispatcher = runtime._dispatcher
    assert dispatcher is not None
    waiting = 0
    for execution in list(dispatcher.live):
        if execution.state is not JobState.WAITING:
            continue
        said = execution.explain()
        assert said is not None, execution
        if said.reason == "granted":  # it hears of it in a moment
            continue
        waiting += 1
        assert said.account, said
        assert said.lacks > 0 or said.ahead > 0 or "429" in said.reason, said
        assert said.earliest_s is None or 0 <= said.earliest_s < inf, said
    assert statistics.admission.waiting == waiting
    assert statistics.submitted == statistics.live + statistics.succeeded + statistics.failed + statistics.cancelled
    for account in statistics.admission.accounts:
        assert account.level <= account.capacity + 1e-6, account
        assert account.metered or account.level >= 0 or run.plan.edits, account


async def check_at_rest(run: Simulation, dispatcher: Any, rows: Sequence[Any]) -> None:
    """When everything is over: nothing is lost, leaked, or done twice."""
    _check_jobs(run, dispatcher, rows)
    _check_provider(run, dispatcher, rows)
    run.engine.check()
    assert run.engine.most_out <= 2
    _check_money(run, dispatcher, rows)
    _check_order(run)
    assert asyncio.all_tasks() == {asyncio.current_task()}, "a task is left"
    timers = [timer for timer in run.loop._scheduled if not timer.cancelled()]  # type: ignore[attr-defined]
    left = [timer for timer in timers if _whose(timer) not in (run, dispatcher.admission)]
    await _check_accounts(run, dispatcher)
    assert not left, f"timers are left: {left}"


def _whose(timer: Any) -> Any:
    """Our own edits and cancels may come too late; the line's one timer may find that nobody waits any more."""
    return getattr(timer._callback, "__self__", None)


def _check_jobs(run: Simulation, dispatcher: Any, rows: Sequence[Any]) -> None:
    counts = dispatcher.counts
    assert len(dispatcher.live) == 0
    ended = sum(counts.ended.values())
    assert ended == counts.submitted
    assert all(handle.done for handle in run.handles)
    assert dict(run.endings) == dict.fromkeys(range(len(run.handles)), 1), "each ends once"
    for handle in run.handles:
        error = handle.exception()
        assert error is None or isinstance(error, (InterlockError, OSError, KeyError)), error
        assert (handle.state is JobState.SUCCEEDED) == (error is None)
        run.trace.append((str(handle.state), type(error).__name__, handle.attempt, handle.requests))
    done = [handle._execution.job for handle in run.handles if handle.state is JobState.SUCCEEDED]
    saved = {job.name for job in done if isinstance(job, (Save, Write))}
    assert saved <= set(run.engine.committed), "delivered, and not committed"


def _check_provider(run: Simulation, dispatcher: Any, rows: Sequence[Any]) -> None:
    upstream = run.upstream
    assert len(rows) == len(upstream.requests) == dispatcher.counts.requests, "one record for each wire request"
    assert not any(upstream.open.values()), "a request is still open"
    assert all(request.ended != "open" for request in upstream.requests)
    honest = not any(row.record.unmetered or row.record.undeclared for row in rows)
    assert upstream.too_many == 0 or not honest, "more at once than the pool allows"
    by_number = {row.record.request_id: row.record.outcome for row in rows if row.record.request_id is not None}
    for request in upstream.requests:
        outcome = by_number.get(str(request.number))
        if request.ended in RECORDED and outcome is not None:
            assert outcome in RECORDED[request.ended], (request, outcome)
    outcomes = Counter(row.record.outcome for row in rows)
    endings = Counter(request.ended for request in upstream.requests)
    assert outcomes["ok"] <= endings["answered"]
    if run.plan.faithful:
        assert upstream.refused == 0, f"{upstream.refused} refused by a provider that serves what it publishes"
        assert not any(row.record.unmetered or row.record.undeclared for row in rows)


def _check_money(run: Simulation, dispatcher: Any, rows: Sequence[Any]) -> None:
    (cap,) = dispatcher.spending.statistics()
    assert (cap.held, cap.waiting) == (Decimal(0), 0)
    costs = [row.record.cost for row in rows]
    if None not in costs:
        assert cap.spent == sum(costs, Decimal(0))
    assert dispatcher.counts.cost.get("USD", Decimal(0)) == sum([cost for cost in costs if cost], Decimal(0))


def _check_order(run: Simulation) -> None:
    """Calls that differ in nothing but their turn were first sent in their turn."""
    numbers = {id(handle): number for number, handle in enumerate(run.row_of)}
    first = [(handle._execution.history.ticket, numbers[id(handle)]) for handle in run.row_of if handle.attempt]
    tickets = [ticket for ticket, _ in first if ticket is not None]
    assert tickets == sorted(tickets), "somebody passed one of its own kind"


async def _check_accounts(run: Simulation, dispatcher: Any) -> None:
    admission = dispatcher.admission
    line = admission._line
    assert line.waiting == 0
    for group in line.groups:
        assert group.head is None
        assert group.waiting == 0
        for account in group.accounts:
            assert not account.claims, account
            assert not account.watchers, account
            assert account.active == 0, account
            assert account.unsent == 0 or account.capacity == inf, account
    await run.clock.sleep(1_000_000.0)
    statistics = admission.statistics()
    assert statistics.waiting == 0
    for account in statistics.accounts:
        assert abs(account.level - account.capacity) < 1e-6 or account.level == inf, account
    run.trace.append((statistics.granted, statistics.refused, statistics.cancelled, statistics.unmetered))
