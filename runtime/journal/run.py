"""RunJournal: one run's side of the journal. It asks `replay` what becomes of a step, and keeps what the step came to.

                      ┌──────────────── replayed: its outcome, no call ────────────────┐
    asked for ──judge─┤                                                                ▼
                      └─ live ── intent ── sends ── calls ── (user's COMMIT) ── outcome ── given to the pipeline

An intent is committed before anything is sent; an outcome is committed before the pipeline sees it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar

from interlock.errors import (
    AdmissionError,
    AmbiguousStepError,
    ConfigurationError,
    InterlockError,
    JobCancelledError,
    LeaseLostError,
    ReplayedError,
    UnencodableError,
    code_of,
)

from ..job import Job, job_name
from ..pipeline_job import PipelineJob
from ..running import Outcome
from ..state import JobState
from ..store.book import DONE
from .calling import check_same
from .codec import dumps, loads
from .failures import dumps_error, told
from .fingerprint import fingerprint_of
from .opening import Opening, Taking, taking
from .protocol import (
    Claim,
    Intent,
    RecordedRun,
    RecordedStep,
    RunEnd,
    RunHead,
    RunStatus,
    StepOutcome,
    StepStatus,
)
from .replay import Again, Mode, from_step, is_outcome, judge, left_unread
from .steps import LiveStep, commits_alone, requests_of
from .unknown import unknown_calls, with_cost

if TYPE_CHECKING:
    from ..execution import Execution
    from ..stopper import Stopper
    from ..store.rows import CallRow
    from .starting import Keeping

T = TypeVar("T")

log = logging.getLogger("interlock.runtime")

_STATUS = {
    JobState.SUCCEEDED: StepStatus.SUCCEEDED,
    JobState.FAILED: StepStatus.FAILED,
    JobState.CANCELLED: StepStatus.CANCELLED,
}


@dataclass(slots=True)
class _Read:
    """What is recorded and not asked for yet; `replayed` are steps whose own children need not be asked for."""

    steps: dict[str, RecordedStep] = field(default_factory=dict)
    committed: Mapping[str, str] = field(default_factory=dict)
    replayed: set[str] = field(default_factory=set)

    def left(self) -> list[RecordedStep]:
        return [step for step in self.steps.values() if not self._below(step.step_id)]

    def _below(self, step_id: str) -> bool:
        parts = step_id.split("/")
        return any("/".join(parts[:length]) in self.replayed for length in range(1, len(parts)))


class RunJournal:
    """One per run of a pipeline; its nested pipelines share it."""

    def __init__(self, keeping: Keeping, head: RunHead, opening: Opening, root: PipelineJob[Any]) -> None:
        self._keeping, self.head, self._opening = keeping, head, opening
        self.root = root
        self._journal = keeping.journal
        self._claim: Claim | None = None
        self._mode = Mode.RECOVERY
        self._read = _Read()
        self._live: dict[str, LiveStep] = {}
        self._reran = False
        self._text: str | None = None
        self._stop: Callable[[InterlockError], None] | None = None
        self._lost: LeaseLostError | None = None

    # The beginning.

    async def open(self, stop: Callable[[InterlockError], None]) -> tuple[Outcome[Any] | None, RecordedRun | None]:
        """Begin the run, or take up what is recorded of it. The outcome of one that is over; what was read back.

        `stop` is called where the run must not go on. Raises RunHeldError, ReplayMismatchError, StoreError.
        """
        self._stop = stop
        keeping, head = self._keeping, self.head
        if self._opening.new:
            self._claim, created = self._journal.create(head, owner=keeping.owner)
            self._watch(created)
            return None, None
        found = self._opening.claimed or await self._begun(())
        if found.fresh:
            self._claim = found.claim
            return None, None
        over = found.status is RunStatus.SUCCEEDED and self._opening.from_step is None
        check_same(found.head, head, version=not over)
        if self._opening.claimed is not None:
            mode = Mode.ASKING_AGAIN if found.refused else Mode.RECOVERY
            return None, await self._taken(found, Taking(mode), frozenset())
        what = taking(found, resume=self._opening.resume, again=self._opening.from_step is not None)
        if what is None:
            return self._over(found), found
        return None, await self._take(found, what)

    async def _begun(self, reopen: Collection[RunStatus]) -> RecordedRun:
        begun = asyncio.ensure_future(self._journal.begin(self.head, owner=self._keeping.owner, reopen=reopen))
        try:
            return await asyncio.shield(begun)
        except asyncio.CancelledError:
            begun.add_done_callback(self._begun_too_late)
            raise

    def _begun_too_late(self, begun: asyncio.Future[RecordedRun]) -> None:
        """It was cancelled while the store was asked, and is this process's now: nobody would ever end it."""
        claim = None if begun.cancelled() or begun.exception() is not None else begun.result().claim
        if claim is not None:
            error = JobCancelledError("cancelled before it had begun")
            self._claim = claim
            self._end(JobState.CANCELLED, Outcome(error=error))

    async def _take(self, found: RecordedRun, what: Taking) -> RecordedRun:
        dropped = self._dropped(found)
        found = await self._begun({found.status})
        if found.claim is None:
            raise ConfigurationError(f"run {found.head.run_id!r} ended while it was being taken up: look at it again")
        return await self._taken(found, what, dropped)

    async def _taken(self, found: RecordedRun, what: Taking, dropped: frozenset[str]) -> RecordedRun:
        """It is this process's: what was on its way when it was cut off is put on record, the rest is read back."""
        assert found.claim is not None
        self._claim, self._mode = found.claim, what.mode
        lost = [row for step in found.steps.values() for row in unknown_calls(step, self.head, self._keeping.catalog())]
        if lost:
            await self._keep_calls(lost)
            for row in lost:
                self._keeping.recorded(row)
        if dropped:
            await self._keeping.forget(found.head.run_id, dropped)
            await self._journal.drop(found.claim, dropped)
        steps = {id: step for id, step in found.steps.items() if id not in dropped}
        committed = await self._keeping.committed(found.head.run_id)
        self._read = _Read(steps, {id: text for id, text in committed.items() if id not in dropped})
        if found.head.cost_cap is not None and self.head.cost_cap is None:
            self.head = replace(self.head, cost_cap=found.head.cost_cap)
        return replace(found, spent=with_cost(found.spent, lost))

    def _dropped(self, found: RecordedRun) -> frozenset[str]:
        first = self._opening.from_step
        if first is None:
            return frozenset()
        try:
            return frozenset(from_step(found.steps.values(), first))
        except ValueError as error:
            raise ConfigurationError(f"run {found.head.run_id!r} cannot be resumed from there: {error}") from None

    def _over(self, found: RecordedRun) -> Outcome[Any]:
        """The outcome of a run that has ended, as it was."""
        end, run_id = found.end, found.head.run_id
        assert end is not None
        if end.value is None and found.status is RunStatus.SUCCEEDED:
            raise UnencodableError(
                f"run {run_id!r} has succeeded, but its result was nothing that could be written down"
            )
        if end.value is None:
            return Outcome(error=ReplayedError(end.error or f"run {run_id!r} has failed", kind=end.error_code or ""))
        value: Any = loads(end.value, f"the end of run {run_id!r}")
        if found.status is RunStatus.SUCCEEDED:
            return Outcome(value=value)
        value.add_note(
            f"This is how run {run_id!r} ended; nothing was run. Runtime.resume(run_id) or `interlock runs"
            " resume` goes on with it."
        )
        return Outcome(error=value)

    @property
    def open_for_writing(self) -> bool:
        return self._claim is not None

    # A step is asked for.

    def ask(self, step_id: str, job: Job[Any], stopper: Stopper) -> Outcome[Any] | None:
        """The recorded outcome; None: it is to be run, and is live from now on. Raises ReplayMismatchError, or
        UnencodableError for a result that cannot be read any more; the run is stopped then."""
        job._check_nameable()
        return self._ask(step_id, job_name(job), fingerprint_of(job), stopper)

    def _ask(self, step_id: str, name: str, fingerprint: str, stopper: Stopper | None) -> Outcome[Any] | None:
        recorded = self._read.steps.pop(step_id, None)
        if recorded is None and step_id not in self._read.committed:
            self._live[step_id] = LiveStep(name, fingerprint, stopper, self._keep_calls)
            return None
        try:
            alone = recorded is not None and commits_alone(recorded.requests)
            verdict = judge(step_id, name, fingerprint, recorded, self._mode, commits_alone=alone)
            if verdict.replay:
                assert recorded is not None
                return self._replayed(recorded)
            if step_id in self._read.committed:
                return self._copied(step_id, name, fingerprint, recorded)
        except InterlockError as error:
            self._must_stop(error)
            raise
        assert recorded is not None
        return self._again(recorded, name, fingerprint, stopper, verdict.again)

    def _replayed(self, recorded: RecordedStep) -> Outcome[Any]:
        self._read.replayed.add(recorded.step_id)
        self._keeping.replayed()
        value = None
        if recorded.value is not None:
            value = loads(recorded.value, f"step {recorded.step_id!r} ({recorded.job}) of run {self.head.run_id!r}")
        return Outcome(value=value) if recorded.status is StepStatus.SUCCEEDED else Outcome(error=value)

    def _copied(self, step_id: str, name: str, fingerprint: str, recorded: RecordedStep | None) -> Outcome[Any]:
        """It was committed in the user's database, and the process ended before that was known here."""
        text = self._read.committed[step_id]
        value = loads(text, f"step {step_id!r} ({name}) as the user's database has it")
        self._keeping.replayed()
        attempt = 0 if recorded is None else recorded.attempt
        self._write_outcome(step_id, name, fingerprint, StepStatus.SUCCEEDED, text, attempt=attempt, copied=True)
        return Outcome(value=value)

    def _again(
        self, recorded: RecordedStep, name: str, fingerprint: str, stopper: Stopper | None, again: Again
    ) -> Outcome[Any] | None:
        where = f"step {recorded.step_id!r} ({name}) of run {self.head.run_id!r}"
        self._reran = self._reran or is_outcome(recorded.status)
        if again is Again.AMBIGUOUS:
            if self._opening.ambiguous == "fail":
                return Outcome(
                    error=AmbiguousStepError(
                        f"{where} was begun (attempt {recorded.attempt}) and nobody knows whether its request was sent,"
                        ' or its work done: look at it, then go on with ambiguous="resend", which may be billed twice'
                    )
                )
            if recorded.requests is None:  # it declared nothing to send: a function of the user's, say
                log.warning("%s: its last attempt may have done its work; it runs again", where)
            else:
                log.warning("%s: its last attempt may have been sent and paid for; it is sent again", where)
        elif again is Again.PAID:
            log.info("%s: its call was paid and its result is lost; it is paid again", where)
        self._keeping.counted(again)
        self._live[recorded.step_id] = LiveStep(
            name, fingerprint, stopper, self._keep_calls, again=again, base=recorded.attempt
        )
        return None

    # A step that runs.

    def live(self, step_id: str | None) -> LiveStep | None:
        return self._live.get(step_id) if step_id is not None else None

    def flush(self, step_id: str | None) -> None:
        """Its calls so far are known: another attempt may be long in coming."""
        step = self.live(step_id)
        if step is not None:
            step.flush()

    def intend(self, execution: Execution[Any], bindings: Any, databases: Any) -> Awaitable[None] | None:
        """An attempt begins: nothing may be sent before this is committed. None where nothing is journaled."""
        step = self.live(execution.step_id)
        if step is None or isinstance(execution.job, PipelineJob):  # a pipeline sends nothing itself
            return None
        assert execution.step_id is not None
        step.flush()
        return self._intend(execution.step_id, step, execution.attempt, requests_of(bindings, databases))

    def _intend(self, step_id: str, step: LiveStep, attempt: int, requests: str | None) -> Awaitable[None]:
        assert self._claim is not None
        intent = Intent(
            step_id=step_id,
            fingerprint=step.fingerprint,
            job=step.job,
            attempt=step.base + attempt,
            at=self._keeping.wall(),
            requests=requests,
            again="" if step.begun else str(step.again),
        )
        step.begun = True
        return self._watch(self._journal.intend(self._claim, intent))

    def conclude(self, execution: Execution[Any], state: JobState, outcome: Outcome[Any]) -> Awaitable[None] | None:
        """The job has ended like this; None where that is not for the journal."""
        step_id = execution.step_id
        if execution.job is self.root:
            return self._end(state, outcome)
        step = self._live.pop(step_id, None) if step_id is not None else None
        if step is None or step_id is None or self._claim is None:
            return None
        status, calls = _STATUS[state], step.hold()
        stopped = status is StepStatus.CANCELLED and step.stopped_from_without
        if stopped or isinstance(outcome.error, LeaseLostError):
            if not step.begun and not calls:
                return None
            status = StepStatus.INTERRUPTED
        text = step.text
        if outcome.error is not None:
            text = dumps_error(outcome.error, self._keeping.redact, pieces=execution.job._handed_out())
        attempt = step.base + execution.attempt
        return self._write_outcome(
            step_id, step.job, step.fingerprint, status, text, attempt=attempt, error=outcome.error, calls=calls
        )

    def _write_outcome(
        self,
        step_id: str,
        job: str,
        fingerprint: str,
        status: StepStatus,
        text: str | None,
        *,
        attempt: int = 0,
        error: BaseException | None = None,
        calls: Sequence[CallRow] = (),
        copied: bool = False,
    ) -> Awaitable[None]:
        assert self._claim is not None
        written = StepOutcome(
            step_id=step_id,
            fingerprint=fingerprint,
            job=job,
            status=status,
            at=self._keeping.wall(),
            attempt=attempt,
            value=text,
            error_code=None if error is None else code_of(error),
            copied=copied,
        )
        return self._watch(self._journal.conclude(self._claim, written, calls))

    def _keep_calls(self, calls: Sequence[CallRow]) -> Awaitable[None]:
        assert self._claim is not None
        return self._watch(self._journal.keep_calls(self._claim, calls))

    async def check(self) -> None:
        """Raises LeaseLostError where this process may not commit any more."""
        if self._claim is not None:
            await self._journal.check(self._claim)

    # Steps that are no jobs.

    def note(self, step_id: str, name: str, make: Callable[[], T]) -> T:
        """A value that is made once and read back on replay. Not awaited: whatever is written later comes after it."""
        known = self._ask(step_id, name, name, None)
        if known is not None:
            if known.error is not None:
                raise known.error
            return known.value  # type: ignore[return-value]
        self._live.pop(step_id)
        value = make()
        self._write_outcome(step_id, name, name, StepStatus.SUCCEEDED, dumps(value, f"step {step_id!r} ({name})"))
        return value

    async def step(
        self,
        step_id: str,
        name: str,
        fingerprint: str,
        work: Callable[[], Awaitable[T]],
        stopper: Stopper,
        *,
        requests: str | None = None,
    ) -> T:
        """A function of the user's own as a step. `requests` as in an intent."""
        known = self._ask(step_id, name, fingerprint, stopper)
        if known is not None:
            if known.error is not None:
                raise known.error
            return known.value  # type: ignore[return-value]
        step = self._live[step_id]
        try:
            await self._intend(step_id, step, 1, requests)
            value = await work()
            step.result(value, step_id)
        except BaseException as error:
            self._live.pop(step_id, None)
            stopped = isinstance(error, asyncio.CancelledError) or stopper.reason is not None
            status = StepStatus.INTERRUPTED if stopped else StepStatus.FAILED
            text = dumps_error(error, self._keeping.redact)
            written = self._write_outcome(step_id, name, fingerprint, status, text, attempt=step.base + 1, error=error)
            if not stopped and isinstance(error, Exception):
                await written
            raise
        self._live.pop(step_id, None)
        await self._write_outcome(step_id, name, fingerprint, StepStatus.SUCCEEDED, step.text, attempt=step.base + 1)
        return value

    # The end.

    def returned(self, value: Any) -> None:
        """The pipeline has returned. Raises ReplayMismatchError where outcomes are left that it never asked for, and
        UnencodableError for a result that cannot be written down."""
        if self._claim is None:
            return
        left = self._read.left()
        wrong = left_unread(left)
        if wrong is not None and not self._reran:
            raise wrong
        if wrong is not None:
            log.warning("run %r: %d recorded step(s) were not asked for again", self.head.run_id, len(left))
        try:
            self._text = dumps(value, f"the result of run {self.head.run_id!r} ({self.head.pipeline})")
        except UnencodableError as error:
            if not self._opening.new:
                raise
            log.info("%s; nobody will ask for it under a random id", error)

    def _end(self, state: JobState, outcome: Outcome[Any]) -> Awaitable[None] | None:
        claim, self._claim = self._claim, None
        claimed = self._opening.claimed
        if claim is None and claimed is not None:
            claim = claimed.claim  # it ended before it was opened: it is this process's to end all the same
        if claim is None:
            return None
        error = outcome.error
        if claimed is not None and (isinstance(error, LeaseLostError) or self._opening.goes_back(error)):
            return self._journal.end(claim, self._back(claimed, error))
        end = RunEnd(
            status=RunStatus(str(state)),
            ended_at=self._keeping.wall(),
            value=self._text if error is None else dumps_error(error, self._keeping.redact),
            error_code=None if error is None else code_of(error),
            error=None if error is None else self._keeping.redact(told(error)),
        )
        return self._journal.end(claim, end)

    def _back(self, claimed: RecordedRun, error: BaseException | None) -> RunEnd:
        """This process stops, or may spend no more, which says nothing of the run: a worker that goes on has it next.
        That it was refused is kept until it ends: its refusals are asked again."""
        code, told_ = None, None
        if error is not None and not isinstance(error, LeaseLostError):
            code, told_ = code_of(error), self._keeping.redact(told(error))
        elif claimed.refused:
            code = AdmissionError.code
        return RunEnd(status=RunStatus.QUEUED, ended_at=None, error_code=code, error=told_)

    # When it must not go on.

    def _must_stop(self, error: InterlockError) -> None:
        if self._stop is not None:
            self._stop(error)

    def _watch(self, written: Awaitable[None]) -> Awaitable[None]:
        """Whoever queues a row need not await it: that the lease is lost is heard of all the same."""
        if isinstance(written, asyncio.Future):
            written.add_done_callback(self._heard)
        elif written is not DONE and (error := getattr(written, "error", None)) is not None:
            self._heard_of(error)
        return written

    def _heard(self, written: asyncio.Future[None]) -> None:
        error = None if written.cancelled() else written.exception()
        if error is not None:
            self._heard_of(error)

    def _heard_of(self, error: BaseException) -> None:
        if isinstance(error, LeaseLostError) and self._lost is None:
            self._lost = error
            self._must_stop(error)
