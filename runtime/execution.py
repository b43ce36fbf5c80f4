"""One job's life, from submission to delivery, as a state machine that is driven by calls.

Until the grant it owns no Task and no Future: its demand carries a callback. What it decides with is pure (`state`,
`retry`); what it needs of the outside it asks the `Dispatcher` for. Every path ends in `_end`, exactly once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from interlock.errors import (
    AdmissionTimeoutError,
    DependencyFailedError,
    InterlockError,
    JobCancelledError,
    JobTimeoutError,
    NeverFitsError,
    OutputTruncatedError,
    QuotaExhaustedError,
    RateLimitedError,
    UpstreamError,
)

from .current import CURRENT
from .handle import JobHandle
from .journal.written import when_written
from .prepared import Prepared, raisable
from .retry import decide_rerun
from .running import Outcome, Running
from .state import JobState, move
from .submitted import STORE_PATIENCE_S, Submitted

if TYPE_CHECKING:
    from interlock.admission import Demand, Reservation, SpendHold


R = TypeVar("R")

log = logging.getLogger("interlock.runtime")


class Execution(Submitted[R]):
    """A submitted job; to its user, its handle. Only the Dispatcher makes one. A million may wait, so it is small
    until it runs."""

    __slots__ = ()

    # Entering: dependencies, needs, their size, the cap, the line.

    def start(self, after: Sequence[JobHandle[Any]], tolerant: bool) -> None:
        pending = [handle._execution for handle in after]
        if not pending:
            self._prepare()
            return
        self._move(JobState.BLOCKED)
        left = len(pending)

        def ended(other: Execution[Any]) -> None:
            nonlocal left
            left -= 1
            if self.state is JobState.BLOCKED:
                self._dependency_ended(other, left, tolerant)

        for execution in pending:
            execution.on_done(lambda other=execution: ended(other))  # type: ignore[misc]

    def _dependency_ended(self, other: Execution[Any], left: int, tolerant: bool) -> None:
        failure = other.exception()
        if failure is not None and not tolerant:
            error = DependencyFailedError(f"job {self.name} was not run: {other.name}, named in after=, {other.state}")
            error.__cause__ = failure
            self._end(JobState.FAILED, Outcome(error=error))
        elif not left:
            self._prepare()

    def _prepare(self) -> None:
        if self.run.pausing.paused:
            self._stage = None
            self._move(JobState.PAUSED)
            self.run.pausing.park(self)
            return
        self._move(JobState.PREPARING)
        history = self._history
        self._dispatcher.desk.routing.give_back(self)
        raised = history.raised if history is not None else frozenset()
        self._enter(lambda: self._dispatcher.prepare(self, raised))

    def _enter(self, prepare: Callable[[], Prepared]) -> None:
        """Once more when what its providers count is known."""
        self._stage = None
        try:
            prepared = prepare()
            needs = prepared.needs
            count = None if needs is None else self._dispatcher.count(self, needs, self._enter)
            if count is not None:
                self._move(JobState.COUNTING)
                self._stage = count
                return
            self._bindings, self._databases = prepared.bindings, prepared.databases
            if prepared.ask:
                self._move(JobState.SPENDING)
                self._ask_to_spend(prepared)
            else:
                self._enter_line(prepared.demand)
        except BaseException as error:  # whatever the job's own `requirements` raises is the job's end
            self._refused(error)
            if isinstance(error, (KeyboardInterrupt, SystemExit)):
                raise

    def _ask_to_spend(self, prepared: Prepared) -> None:
        def granted(_hold: SpendHold) -> None:
            if not self.state.done:
                self._enter_line(prepared.demand)

        self._hold = self._dispatcher.ask_to_spend(self.run, prepared, granted, self._refused)

    def _enter_line(self, demand: Demand | None) -> None:
        if demand is None:
            self._launch(None)
            return
        self._move(JobState.WAITING)
        ticket = self._history.ticket if self._history is not None else None
        decided = self._decided  # one callback for both: two would be kept for every job that waits
        try:
            self._stage = self._dispatcher.admission.submit(demand, decided, decided, ticket=ticket)
        except InterlockError as error:
            self._refused(error)

    def _decided(self, decision: Reservation | InterlockError) -> None:
        if isinstance(decision, InterlockError):
            self._refused(decision)
        else:
            self._granted(decision)

    def _refused(self, error: BaseException) -> None:
        if self.state.done:
            return
        self._stage = None
        if isinstance(error, asyncio.CancelledError):
            self._cancelled_from_within()
            return
        before = self._history.upstream_error if self._history is not None else None
        late = isinstance(error, AdmissionTimeoutError) and isinstance(before, RateLimitedError)
        large = isinstance(error, NeverFitsError) and isinstance(before, OutputTruncatedError)
        if before is not None and (late or large):
            # It cannot come back: in time, or as large as the answer needs. What the provider said is the reason.
            before.__cause__ = error
            error = before
        self._fail(error)

    def _granted(self, reservation: Reservation) -> None:
        self._stage = None
        if self.state is not JobState.WAITING:
            reservation.release()  # cancelled in the very turn it was granted
            return
        if self._dispatcher.desk.routing.troubled and self._dispatcher.moves_on(self, self._bindings):
            reservation.release()  # its model has failed others while it waited
            self.enter_again()
            return
        self._launch(reservation)

    def reroute(self) -> None:
        """Its pool may have been closed: if it waits there and has a backup, it waits for that one instead."""
        if self.state is JobState.WAITING and self._dispatcher.moves_on(self, self._bindings):
            self.enter_again()

    def enter_again(self) -> None:
        """It waits: it leaves the queues, and comes anew."""
        self._leave_the_queues()
        self._prepare()

    def pause(self) -> None:
        self._dispatcher.pause(self.run)

    def unpause(self) -> None:
        self._dispatcher.check_loop()
        self.run.pausing.unpause()

    # Running.

    def _launch(self, reservation: Reservation | None) -> None:
        self._move(JobState.RUNNING)
        dispatcher, history = self._dispatcher, self.history
        now = dispatcher.clock.now()
        running: Running[R] = Running(reservation, now)
        self._stage = running
        demand = None if reservation is None else reservation.demand
        if reservation is not None:
            history.ticket = reservation.ticket
        history.attempts += 1
        history.span = span = dispatcher.launched(self, self._context, reservation)
        journal = self.run.journal
        try:
            if journal is not None:
                running.intended = journal.intend(self, self._bindings, self._databases)
            if running.intended is None:  # an intent waits for the store by itself
                running.intended = dispatcher.book.room()
            running.resources = dispatcher.resources_for(
                self, Prepared(demand, self._bindings, self._databases), reservation
            )
            timeout_s = self.job.timeout_s
            if timeout_s is not None:
                running.timer = dispatcher.clock.call_at(now + max(timeout_s - history.ran_s, 0.0), self._timed_out)
        except Exception as error:
            running.outcome = Outcome(error=error)
            self._attempt_over(None)
            return
        context = self._context.copy()
        context.run(CURRENT.set, self)
        dispatcher.spans.enter(span, context)
        work: Coroutine[Any, Any, None] = dispatcher.attempt(self.job, running)
        running.task = asyncio.get_running_loop().create_task(work, context=context)
        running.task.add_done_callback(self._attempt_over)

    def _attempt_over(self, task: asyncio.Task[None] | None) -> None:
        running = self._running
        assert running is not None
        outcome = running.outcome
        if task is not None and not task.cancelled():
            error = task.exception()
            if outcome is None:
                outcome = Outcome(error=error or RuntimeError("the attempt ended without a word"))
        if outcome is None:  # cancelled before its first step: nothing was opened
            outcome = Outcome(error=asyncio.CancelledError())
        self._give_back(running)
        if outcome.error is None:
            self._end(JobState.SUCCEEDED, outcome)
        elif running.stop is not None:
            self._stopped(running.stop)
        elif isinstance(outcome.error, asyncio.CancelledError):
            self._cancelled_from_within()
        else:
            self._attempt_failed(outcome.error, probing=running.probing)

    def _give_back(self, running: Running[R]) -> None:
        """Everything the attempt held, in the order of RULES: after the commit, before the delivery."""
        dispatcher = self._dispatcher
        self._stage = None
        dispatcher.desk.routing.give_back(self)
        if running.timer is not None:
            running.timer.cancel()
        self.history.ran_s += dispatcher.clock.now() - running.started_s
        if running.reservation is not None:
            running.reservation.release()
        hold, self._hold = self._hold, None
        if hold is not None:
            dispatcher.settle_spending(hold, running.resources)

    # After a failure.

    def _attempt_failed(self, error: BaseException, *, probing: bool) -> None:
        history = self.history
        if isinstance(error, UpstreamError):
            history.upstream_error = error
            history.strikes.add(error.model or "", error.code)
        if not self.job.can_run_again():
            self._fail(error)
            return
        try:
            again = self.job.asked_again(error)
        except Exception as wrong:
            self._fail(wrong)
            return
        if again is not None:
            self.job = again
            self._back_off(0.0)
        elif isinstance(error, OutputTruncatedError) and self._raise_limit(error):
            self._back_off(0.0)
        elif isinstance(error, UpstreamError) and self._has_a_backup(error):
            history.retries = 0  # the next model has its own
            self._dispatcher.counts.reruns += 1
            self._back_off(0.0)
        elif isinstance(error, UpstreamError) and history.strikes.end(error.model or ""):
            self._fail(error)
        else:
            rerun = decide_rerun(
                error,
                retries_used=history.retries,
                retries_allowed=self.job.upstream_retries,
                jitter=self._dispatcher.jitter(),
                probing=probing,
            )
            if rerun is None:
                self._fail(error)
                return
            history.retries += rerun.counted
            self._dispatcher.counts.reruns += 1
            self._back_off(rerun.delay_s)

    def _raise_limit(self, error: OutputTruncatedError) -> bool:
        """Whether the requirement that was cut off is run once more at its model's ceiling."""
        specs = raisable(self._bindings, error) - self.history.raised
        self.history.raised |= specs
        return bool(specs)

    def _has_a_backup(self, error: UpstreamError) -> bool:
        """Whether another model would serve, now that this one is passed over."""
        if not (error.retryable or isinstance(error, QuotaExhaustedError)):
            return False
        failed = [binding for binding in self._bindings if binding.entry.id == error.model]
        return self._dispatcher.moves_on(self, failed)

    def _back_off(self, delay_s: float) -> None:
        if self.run.journal is not None:
            self.run.journal.flush(self.step_id)
        if delay_s <= 0:
            self._prepare()
            return
        self._move(JobState.BACKING_OFF)
        clock = self._dispatcher.clock
        self._stage = clock.call_at(clock.now() + delay_s, self._prepare)

    # Stopping.

    def cancel(self, reason: str = "") -> bool:
        if self.state.done:
            return False
        self._dispatcher.check_loop()
        self._ask_to_stop(JobCancelledError(f"job {self.name} was cancelled{reason and ': ' + reason}"))
        return True

    def stop_for(self, error: InterlockError) -> None:
        """It must not go on: it ends with `error`, whatever its code makes of that."""
        if not self.state.done:
            self._ask_to_stop(error)

    def _timed_out(self) -> None:
        timeout_s = self.job.timeout_s
        self._ask_to_stop(JobTimeoutError(f"job {self.name} ran longer than {timeout_s:g} s", timeout_s=timeout_s))

    def _ask_to_stop(self, error: InterlockError) -> None:
        """The first step. What does not run is gone at once; what runs has its resources closed and a grace period."""
        if self.state is JobState.RECORDING and isinstance(error, JobCancelledError):
            self._leave_recording(error)
        if self.state in (JobState.STOPPING, JobState.RECORDING):
            return
        running = self._running
        if running is None:
            self._leave_the_queues()
            self._stopped(error)
            return
        if running.resources.settling:
            return  # its transaction is being committed: too late to stop
        running.stop = error
        self._move(JobState.STOPPING)
        if running.timer is not None:
            running.timer.cancel()
        clock = self._dispatcher.clock
        grace_s = self._dispatcher.settings.grace_s(self.job.timeout_s)
        running.timer = clock.call_at(clock.now() + grace_s, self.stop_hard)
        running.resources.stop(error)

    def stop_hard(self) -> None:
        """The second step."""
        if self._running is not None and self._running.task is not None:
            self._running.task.cancel()

    def _leave_the_queues(self) -> None:
        stage, self._stage = self._stage, None
        if stage is not None and not isinstance(stage, Running):
            stage.cancel()
        hold, self._hold = self._hold, None
        if hold is not None:
            hold.release()

    # The end.

    def _stopped(self, error: InterlockError) -> None:
        state = JobState.CANCELLED if isinstance(error, JobCancelledError) else JobState.FAILED
        self._end(state, Outcome(error=error))

    def _cancelled_from_within(self) -> None:
        self._stopped(JobCancelledError(f"job {self.name} was cancelled from within"))

    def _fail(self, error: BaseException) -> None:
        spent = self._history.spent if self._history is not None else None
        if isinstance(error, UpstreamError) and spent is not None and spent.requests:
            error.attempts = spent.requests
            error.usage = spent.usage
        self._end(JobState.FAILED, Outcome(error=error))

    def _end(self, state: JobState, outcome: Outcome[R]) -> None:
        self._leave_the_queues()
        self._dispatcher.desk.routing.give_back(self)
        journal = self.run.journal
        recorded = None if journal is None else journal.conclude(self, state, outcome)
        if recorded is None:
            self._deliver(state, outcome)
            return
        self._move(JobState.RECORDING)
        if isinstance(outcome.error, JobCancelledError):
            self._leave_recording(outcome.error)
        when_written(recorded, lambda error: self._recorded(state, outcome, error))

    def _leave_recording(self, error: JobCancelledError) -> None:
        """Nobody waits for it any more, so it does not wait for a store that is away. What is queued is written all the
        same, in its order."""

        def leave() -> None:
            if self.state is JobState.RECORDING:
                self._deliver(JobState.CANCELLED, Outcome(error=error))

        asyncio.get_running_loop().call_later(STORE_PATIENCE_S, leave)

    def _recorded(self, state: JobState, outcome: Outcome[R], error: BaseException | None) -> None:
        """What it came to is committed, or could not be: then nobody may see it."""
        if self.state.done:
            return
        if error is None or outcome.error is not None:
            self._deliver(state, outcome)
        else:
            self._deliver(JobState.FAILED, Outcome(error=error))

    def replayed(self, outcome: Outcome[R]) -> None:
        """It has been run before, with this outcome."""
        cancelled = isinstance(outcome.error, JobCancelledError)
        ended = JobState.CANCELLED if cancelled else JobState.FAILED
        self._move(JobState.SUCCEEDED if outcome.error is None else ended)
        self._outcome = outcome

    def interrupted(self) -> None:
        """It is about to be cancelled by something that may come out otherwise on replay: that is no outcome."""
        step = None if self.run.journal is None else self.run.journal.live(self.step_id)
        if step is not None:
            step.interrupted = True

    def _deliver(self, state: JobState, outcome: Outcome[R]) -> None:
        self._move(state)
        self._outcome = outcome
        self._bindings, self._databases = (), ()
        self._dispatcher.ended(self, self._context)
        listeners, self._listeners = self._listeners, None
        for listener in listeners or ():
            try:
                listener()
            except Exception:  # the others must hear of it all the same
                log.exception("what follows the end of job %s failed", self.name)

    def _move(self, to: JobState) -> None:
        self.state = move(self.state, to)
