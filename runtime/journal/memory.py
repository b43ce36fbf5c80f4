"""MemoryJournal: the journal in this process. What a second Runtime opened on the same object replays from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Collection, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal

from interlock.errors import InterlockError, LeaseLostError, RunHeldError

from ..store.book import DONE, MemoryBook
from ..store.rows import CallRow, RunRow
from .protocol import Claim, Intent, RecordedRun, RecordedStep, RunEnd, RunHead, RunStatus, StepOutcome, StepStatus


@dataclass(slots=True)
class _Run:
    head: RunHead
    owner: str
    status: RunStatus = RunStatus.RUNNING
    fence: int = 1
    end: RunEnd | None = None
    steps: dict[str, RecordedStep] = field(default_factory=dict)
    calls: list[CallRow] = field(default_factory=list)


class _Refused:
    """An awaitable that fails when it is awaited, and bothers nobody otherwise."""

    __slots__ = ("error",)

    def __init__(self, error: InterlockError) -> None:
        self.error = error

    def __await__(self):  # type: ignore[no-untyped-def]
        raise self.error
        yield


class MemoryJournal:
    """For tests: `RuntimeSettings(store=None, journal=MemoryJournal())`. A deep copy of it is what a crash leaves."""

    def __init__(self) -> None:
        self.book = MemoryBook()
        self._runs: dict[str, _Run] = {}
        self._lapsed: set[str] = set()

    def lapse(self) -> None:
        """Every owner there is by now is dead: its claims are no longer good, and its runs are anybody's."""
        self._lapsed |= {run.owner for run in self._runs.values()}

    def create(self, head: RunHead, *, owner: str) -> tuple[Claim, Awaitable[None]]:
        self._runs[head.run_id] = run = _Run(head, owner)
        self._tell(run)
        return Claim(run_id=head.run_id, owner=owner, fence=run.fence), DONE

    async def begin(self, head: RunHead, *, owner: str, reopen: Collection[RunStatus]) -> RecordedRun:
        run = self._runs.get(head.run_id)
        if run is None:
            claim, _ = self.create(head, owner=owner)
            return replace(self._recorded(self._runs[head.run_id]), claim=claim, fresh=True)
        if run.status not in reopen:
            return self._recorded(run)
        if run.status is RunStatus.RUNNING and run.owner != owner and run.owner not in self._lapsed:
            raise RunHeldError(f"run {head.run_id!r} is under way in the hands of {run.owner}")
        run.owner, run.status, run.end = owner, RunStatus.RUNNING, None
        run.fence += 1
        self._tell(run)
        return replace(self._recorded(run), claim=Claim(run_id=head.run_id, owner=owner, fence=run.fence))

    def intend(self, claim: Claim, intent: Intent) -> Awaitable[None]:
        run = self._good(claim)
        if run is None:
            return _lost(claim)
        run.steps[intent.step_id] = RecordedStep(
            step_id=intent.step_id,
            fingerprint=intent.fingerprint,
            job=intent.job,
            status=StepStatus.BEGUN,
            attempt=intent.attempt,
            requests=intent.requests,
            again=intent.again,
            begun_at=intent.at,
        )
        return DONE

    def conclude(self, claim: Claim, outcome: StepOutcome, calls: Sequence[CallRow] = ()) -> Awaitable[None]:
        run = self._good(claim)
        if run is None:
            return _lost(claim)
        before = run.steps.get(outcome.step_id)
        run.steps[outcome.step_id] = RecordedStep(
            step_id=outcome.step_id,
            fingerprint=outcome.fingerprint,
            job=outcome.job,
            status=outcome.status,
            attempt=outcome.attempt,
            value=outcome.value,
            error_code=outcome.error_code,
            requests=before.requests if before is not None else None,
            again=before.again if before is not None else "",
            begun_at=before.begun_at if before is not None else None,
            ended_at=outcome.at,
            copied=outcome.copied,
        )
        self._keep(run, calls)
        return DONE

    def keep_calls(self, claim: Claim, calls: Sequence[CallRow]) -> Awaitable[None]:
        run = self._good(claim)
        if run is None:
            return _lost(claim)
        self._keep(run, calls)
        return DONE

    async def check(self, claim: Claim) -> None:
        if self._good(claim) is None:
            await _lost(claim)

    def end(self, claim: Claim, end: RunEnd) -> Awaitable[None]:
        run = self._good(claim)
        if run is None:
            return _lost(claim)
        run.status, run.end = end.status, end
        self._tell(run)
        return DONE

    async def drop(self, claim: Claim, steps: Collection[str]) -> None:
        run = self._good(claim)
        if run is None:
            await _lost(claim)
            return
        for step in steps:
            run.steps.pop(step, None)

    async def read(self, run_id: str) -> RecordedRun | None:
        run = self._runs.get(run_id)
        return None if run is None else self._recorded(run)

    # How it is kept.

    def _good(self, claim: Claim) -> _Run | None:
        run = self._runs.get(claim.run_id)
        held = run is not None and (run.owner, run.fence, run.status) == (claim.owner, claim.fence, RunStatus.RUNNING)
        return run if held and claim.owner not in self._lapsed else None

    def _keep(self, run: _Run, calls: Sequence[CallRow]) -> None:
        run.calls.extend(calls)
        for row in calls:
            self.book.write_call(row)

    def _recorded(self, run: _Run) -> RecordedRun:
        spent: dict[str, Decimal] = {}
        for row in run.calls:
            cost, currency = row.record.cost, row.record.currency
            if cost and currency is not None:
                spent[currency] = spent.get(currency, Decimal(0)) + cost
        known = Counter((row.step_id, row.attempt) for row in run.calls)
        unknown = Counter((row.step_id, row.attempt) for row in run.calls if row.record.outcome == "unknown")
        steps = {
            id: replace(step, known_calls=known[id, step.attempt], unknown_calls=unknown[id, step.attempt])
            for id, step in run.steps.items()
        }
        return RecordedRun(
            head=run.head,
            status=run.status,
            end=run.end,
            steps=steps,
            spent=spent,
            unpriced=sum(row.record.cost is None for row in run.calls),
        )

    def _tell(self, run: _Run) -> None:
        """The run as the records show it."""
        head, end = run.head, run.end
        self.book.write_run(
            RunRow(
                run_id=head.run_id,
                pipeline=head.pipeline,
                version=head.version,
                status=str(run.status),
                started_at=head.started_at,
                ended_at=None if end is None else end.ended_at,
                error_code=None if end is None else end.error_code,
                error=None if end is None else end.error,
                cost_cap=head.cost_cap,
            )
        )


def _lost(claim: Claim) -> Awaitable[None]:
    return _Refused(
        LeaseLostError(
            f"run {claim.run_id!r} is not in the hands of {claim.owner} any more (fence {claim.fence}): another process"
            " has taken it over, or it has ended; what this one did since is not kept"
        )
    )
