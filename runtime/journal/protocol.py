"""Journal: what is kept of a run, and the promises whoever keeps it makes.

A run is a head, and steps below it. Each attempt of a step writes an *intent* before it may send anything, and how the
step ended is its *outcome*. Values travel as JSON text (`codec`); the journal neither reads nor changes them.

Promises, each held by the one behaviour suite:

- `create`, `intend`, `conclude`, `keep_calls` and `end` queue what they are given when they are *called*; awaiting the
  answer tells that it is committed. Everything is committed in the order in which it was queued, so whoever awaits a
  later row knows the earlier ones. What one call is given is committed as one: a step's outcome and the rows of the
  calls that led to it are both there or neither.
- Every write carries a `Claim`. A claim is good while its run still has this owner and this fence, and the owner (where
  owners are kept) has not lapsed. A write under a claim that is no longer good changes nothing and fails with
  LeaseLostError; the others of its group are not touched by that.
- `begin` is atomic: of two who begin the same run at once, one gets it.
- A failed write fails its awaitable, with StoreError or LeaseLostError. What nobody awaits must not be an unhandled
  error of the event loop.
"""

from __future__ import annotations

from collections.abc import Awaitable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from typing import Protocol

from ..store.rows import CallRow


class RunStatus(StrEnum):
    """QUEUED: put there for a worker, begun by nobody. RUNNING: begun and not ended, alive or cut off."""

    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


class StepStatus(StrEnum):
    """BEGUN: an intent without an outcome. INTERRUPTED: stopped together with its run, in an orderly way: everything it
    sent is in the calls, and it runs again. The others are outcomes."""

    BEGUN = "begun"
    INTERRUPTED = "interrupted"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """The right to write into one run: its owner's id, and a number that grows whenever the run changes hands."""

    run_id: str
    owner: str
    fence: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RunHead:
    """What a run is, fixed when it is first begun. `target` is where its pipeline can be imported from
    (`module:name`); `arguments` the JSON of what it was called with, None where that cannot be written down;
    `fingerprint` of both; `cost_cap` as the user wrote it."""

    run_id: str
    pipeline: str
    started_at: datetime
    target: str | None = None
    version: str = ""
    fingerprint: str = ""
    arguments: str | None = None
    cost_cap: str | None = None
    priority: int = 0
    workflow: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEnd:
    """How a run ended. `value` is the JSON of its result or of its error; `error` a redacted text for people.
    With status QUEUED it has not ended, and is anybody's to go on with."""

    status: RunStatus
    ended_at: datetime | None
    value: str | None = None
    error_code: str | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Intent:
    """An attempt of a step is about to begin. `requests` is JSON: what it may send and the worst that costs, so that
    an attempt nobody heard of again can be put on record. `again` says why a step runs although something of it is
    known already: "" for the first time and for re-runs within one life of the process, else a word of `replay`."""

    step_id: str
    fingerprint: str
    job: str
    attempt: int
    at: datetime
    requests: str | None = None
    again: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepOutcome:
    """How a step ended. One a step: a second one replaces the first (a failure that was run again). `attempt` is 0
    where no attempt was begun (refused by admission; a note such as the time of day). `copied`: read from a user's
    database, where it was committed together with the user's rows."""

    step_id: str
    fingerprint: str
    job: str
    status: StepStatus
    at: datetime
    attempt: int = 0
    value: str | None = None
    error_code: str | None = None
    copied: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedStep:
    """A step as read back: the last intent and the outcome in one. `known_calls` is how many rows of calls there are of
    attempt `attempt`: with status BEGUN and none of them, nobody knows whether anything was sent. Of these,
    `unknown_calls` have the outcome "unknown": an earlier look put them on record. `again` is the last intent's."""

    step_id: str
    fingerprint: str
    job: str
    status: StepStatus
    attempt: int = 0
    value: str | None = None
    error_code: str | None = None
    requests: str | None = None
    known_calls: int = 0
    unknown_calls: int = 0
    again: str = ""
    begun_at: datetime | None = None
    ended_at: datetime | None = None
    copied: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedRun:
    """A run as read back. `claim` is None where it was not taken: its status was none of those that were asked for.
    `fresh`: there was no such run, and now there is. `steps` by their id, in the order in which they were first
    written. `spent` is what its calls have cost by currency, and `unpriced` how many of them have no known cost.
    `refused`: it has not ended, and was put back into the queue for a refusal of admission."""

    head: RunHead
    status: RunStatus
    claim: Claim | None = None
    fresh: bool = False
    end: RunEnd | None = None
    steps: Mapping[str, RecordedStep] = field(default_factory=dict)
    spent: Mapping[str, Decimal] = field(default_factory=dict)
    unpriced: int = 0
    refused: bool = False


class Journal(Protocol):
    """What the runtime asks of whoever keeps its journal."""

    def create(self, head: RunHead, *, owner: str) -> tuple[Claim, Awaitable[None]]:
        """Begin a run whose id is random and new: nothing is read, nothing need be awaited. Its fence is 1."""
        ...

    async def begin(self, head: RunHead, *, owner: str, reopen: Collection[RunStatus]) -> RecordedRun:
        """Begin the run of that id: made where there is none, taken where its status is in `reopen`, else only read.
        Taking it sets owner, raises the fence, and makes it RUNNING; the stored head stays as it is.

        Raises RunHeldError where it is RUNNING in the hands of another owner who is alive. (An owner of this host whose
        process is gone is not alive, whatever is left of its lease.)
        """
        ...

    def intend(self, claim: Claim, intent: Intent) -> Awaitable[None]:
        """An attempt begins: the step is BEGUN with this attempt, whatever it was before."""
        ...

    def conclude(self, claim: Claim, outcome: StepOutcome, calls: Sequence[CallRow] = ()) -> Awaitable[None]:
        """A step has ended, and these calls were made for it last."""
        ...

    def keep_calls(self, claim: Claim, calls: Sequence[CallRow]) -> Awaitable[None]:
        """Rows of calls of an attempt that has not ended, or of an earlier process (`outcome` "unknown")."""
        ...

    async def check(self, claim: Claim) -> None:
        """Raises LeaseLostError where the claim is no longer good: asked before a user's transaction is committed."""
        ...

    def end(self, claim: Claim, end: RunEnd) -> Awaitable[None]:
        """The run has ended; the claim with it."""
        ...

    async def drop(self, claim: Claim, steps: Collection[str]) -> None:
        """Forget these steps: they run again, as if for the first time."""
        ...

    async def read(self, run_id: str) -> RecordedRun | None:
        """Only look."""
        ...
