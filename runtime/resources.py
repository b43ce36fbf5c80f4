"""JobResources: what a job was granted, for as long as its `run` runs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from interlock.catalog.words import Kind
from interlock.errors import InterlockError, JobCancelledError, UndeclaredResourceError

from .database import DatabaseSession
from .guarded import GuardedDecisionClient, GuardedEmbeddingsClient, GuardedLLMClient
from .requirements import Asked, declared
from .seat import JobSeat
from .spent import Spent
from .stopper import Stopper
from .store.book import DONE
from .store.rows import CallRow
from .submitted import STORE_PATIENCE_S

if TYPE_CHECKING:
    from opentelemetry.trace import Span

    from interlock.admission import Reservation
    from interlock.admission.permit import CallPermit
    from interlock.catalog.spec import ModelBinding
    from interlock.clients.client import LLMClient
    from interlock.clients.record import CallRecord
    from interlock.clients.response import LLMResponse
    from interlock.decisions import DecisionClient
    from interlock.decisions.kept import KeptParts
    from interlock.embeddings import EmbeddingsClient

    from .journal.outcomes import OutcomeRow
    from .journal.run import RunJournal
    from .prepared import Prepared
    from .store.book import Book


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """Whose attempt this is: what every record of it carries."""

    job_id: str
    job: str
    run_id: str | None
    step_id: str | None
    workflow: str
    number: int
    total: Spent  # of the job, over its attempts
    kept: KeptParts | None = None  # of its decisions, over its attempts
    span: Span | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Surrounding:
    """What resources are made from: the same for every job of a Runtime."""

    client: Callable[[Any], Any]
    book: Book
    catalog_version: Callable[[], str]
    strict: bool
    warn_once: Callable[[str, str], None]  # (job name, message)
    recorded: Callable[[CallRow, Span | None], None]


class JobResources:
    """Fetch a client by what was declared, a database by its name. All of it ends with `run`."""

    def __init__(
        self,
        attempt: Attempt,
        around: Surrounding,
        prepared: Prepared,
        reservation: Reservation | None,
        journal: RunJournal | None = None,
    ) -> None:
        self._attempt, self._around, self._prepared, self._reservation = attempt, around, prepared, reservation
        self.stopper = Stopper()
        self._sessions = {need.provider.name: DatabaseSession(need, self.stopper) for need in prepared.databases}
        self._holding = frozenset(need.provider.name for need in prepared.databases if need.hold_transaction)
        self._commits: list[Awaitable[None]] = []
        self.spent = Spent()
        self.settling = False
        self._journal = journal
        self._step = None if journal is None else journal.live(attempt.step_id)

    # What a job uses.

    @property
    def step_id(self) -> str | None:
        """Stable over re-runs of the step; None outside a pipeline."""
        return self._attempt.step_id

    @property
    def run_id(self) -> str | None:
        return self._attempt.run_id

    @property
    def job_id(self) -> str:
        return self._attempt.job_id

    @property
    def job_name(self) -> str:
        return self._attempt.job

    @property
    def attempt(self) -> int:
        """From 1; every re-run counts."""
        return self._attempt.number

    def get_llm_client(self, asked: Asked | ModelBinding | None = None) -> LLMClient:
        """The client of a declared chat model; without a word, of the only one. Raises UndeclaredResourceError."""
        binding, client = self._bound(asked, Kind.CHAT)
        return GuardedLLMClient(client.bound(binding, JobSeat(self, binding)), self.stopper)

    def get_embeddings_client(self, asked: Asked | ModelBinding | None = None) -> EmbeddingsClient:
        binding, client = self._bound(asked, Kind.EMBEDDINGS)
        return GuardedEmbeddingsClient(client.bound(binding, JobSeat(self, binding)), self.stopper)

    def get_decision_client(self, asked: Asked | ModelBinding | None = None) -> DecisionClient:
        binding, client = self._bound(asked, Kind.DECISION)
        return GuardedDecisionClient(client.bound(binding, JobSeat(self, binding), self._attempt.kept), self.stopper)

    def database(self, name: str) -> DatabaseSession:
        """The job's transaction on a declared database. Raises UndeclaredResourceError."""
        session = self._sessions.get(name)
        if session is None:
            known = ", ".join(sorted(self._sessions)) or "none"
            raise UndeclaredResourceError(
                f"job {self.job_name} asked for database {name!r}, which it never declared in requirements() (declared:"
                f" {known})"
            )
        return session

    def account(self, name: str) -> int:
        """How many units of an account the job holds; 0 for one it did not declare."""
        held = self._prepared.demand.held if self._prepared.demand is not None else ()
        return sum(amount for account, amount in held if account.name == name)

    def with_totals(self, response: LLMResponse) -> LLMResponse:
        """The response with the usage and cost of every request the job has made, corrections included."""
        total = self._attempt.total
        if total.requests < 2:
            return response
        return replace(response, usage=total.usage, cost=total.cost, currency=response.currency or total.currency)

    # The mission's own spellings.
    getLLMClient = get_llm_client
    getEmbeddingsClient = get_embeddings_client
    getDecisionClient = get_decision_client

    def _bound(self, asked: Asked | ModelBinding | None, kind: Kind) -> tuple[ModelBinding, Any]:
        self.stopper.check()
        binding = declared(self._prepared.bindings, asked, kind, self.job_name)
        return binding, self._around.client(binding.entry)

    # What a seat uses.

    @property
    def strict(self) -> bool:
        return self._around.strict

    def reservation_permit(
        self, binding: ModelBinding, input_tokens: int, output_tokens: int, *, continuation: bool
    ) -> CallPermit:
        assert self._reservation is not None
        return self._reservation.permit(
            binding.spec, input_tokens=input_tokens, output_tokens=output_tokens, continuation=continuation
        )

    def open_transactions(self) -> Iterator[str]:
        """Names of databases whose transaction has begun and forbids a model call."""
        return (name for name, session in self._sessions.items() if session.begun and name not in self._holding)

    def record(self, record: CallRecord) -> Awaitable[None]:
        """Queue the row now; the answer tells when it is committed."""
        self.spent.add(record)
        self._attempt.total.add(record)
        row = self._row(record)
        step = self._step
        committed = self._around.book.write_call(row) if step is None else step.record(row)
        self._commits.append(committed)
        self._around.recorded(row, self._attempt.span)
        return committed

    def _row(self, record: CallRecord) -> CallRow:
        attempt, reservation = self._attempt, self._reservation
        return CallRow(
            record=record,
            run_id=attempt.run_id,
            step_id=attempt.step_id,
            job_id=attempt.job_id,
            job=attempt.job,
            workflow=attempt.workflow,
            attempt=attempt.number,
            call=self.spent.requests,
            waited_s=reservation.waited_s if reservation is not None else 0.0,
            waited=reservation.waited_by_account if reservation is not None else {},
            catalog_version=self._around.catalog_version(),
        )

    def warn_once(self, message: str) -> None:
        self._around.warn_once(self.job_name, message)

    # The runtime's side: how an attempt ends.

    def stop(self, reason: InterlockError) -> None:
        self.stopper.stop(reason)

    def written(self, value: Any) -> None:
        if self._step is not None:
            assert self._attempt.step_id is not None
            self._step.result(value, self._attempt.step_id)

    def finish_now(self) -> bool:
        """Without a database, with nothing left under way, and with every record committed: a client has waited for its
        own."""
        written = all(_is_written(committed) for committed in self._commits)
        self.settling = not self._sessions and self.stopper.idle and written
        if self.settling:
            self.stopper.stop(self._over())
            if self._step is not None:
                self._step.hold_back()  # the last row and the outcome are one commit
        return self.settling

    async def finish(self) -> None:
        """All records committed, then the user's transactions, in the order of their names."""
        await self.stopper.over(self._over())
        for committed in self._commits:
            await committed
        outcome = await self._known_before_commit() if self._sessions else None
        self.settling = True
        for name in sorted(self._sessions):
            await self._sessions[name].commit(outcome)

    async def _known_before_commit(self) -> OutcomeRow | None:
        """What was paid is on record, and this process may still write, before the user's transaction is committed."""
        step, attempt = self._step, self._attempt
        begun = sorted(name for name, session in self._sessions.items() if session.begun)
        if step is None or self._journal is None or not begun:
            return None
        from .journal.outcomes import OutcomeRow

        step.flush()
        written, step.written = step.written, []
        for committed in written:
            await committed
        if not written:
            await self._journal.check()
        assert attempt.run_id is not None
        assert attempt.step_id is not None
        assert step.text is not None
        return OutcomeRow(attempt.run_id, attempt.step_id, step.text, tuple(begun))

    async def abandon(self) -> None:
        """Everything rolled back and returned; records that are queued are waited for, by a job that was cancelled no
        longer than a while."""
        patience_s = STORE_PATIENCE_S if isinstance(self.stopper.reason, JobCancelledError) else None
        self.settling = True
        await self.stopper.over(self._over())
        if self._step is not None:
            self._step.hold_back()
        for session in self._sessions.values():
            await session.rollback()
        queued = [committed for committed in self._commits if isinstance(committed, asyncio.Future)]
        if queued:
            await asyncio.wait(queued, timeout=patience_s)

    def _over(self) -> InterlockError:
        return InterlockError(f"the run of job {self.job_name} is over, and so is the use of what it was granted")


def _is_written(committed: Awaitable[None]) -> bool:
    if isinstance(committed, asyncio.Future):
        return committed.done() and not committed.cancelled() and committed.exception() is None
    return committed is DONE
