"""What becomes of a step that is asked for: pure rules over what is recorded of it.

    recorded      begun            interrupted  succeeded  failed       cancelled
    recovery      again*           again        replayed   replayed     replayed
    asking again  again*           again        replayed   replayed**   again***
    resumed       again*           again        replayed   again        again

Recovery goes on with a run that was cut off; asking again with one that ended by an admission refusal (** such a
refusal is asked again); a run is resumed where somebody says so. * An intent without an outcome: known, where a call of
that attempt is on record (it is paid again); ambiguous where none is. *** The refusal may have stopped it, as
that of one child of a gather stops the others: then its cancellation would be the run's end however often it is asked.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from interlock.errors import AdmissionError, InterlockError, OutputTruncatedError, ReplayMismatchError

from .fingerprint import without_limit
from .protocol import RecordedStep, StepStatus


class Mode(StrEnum):
    RECOVERY = "recovery"
    ASKING_AGAIN = "asking again"
    RESUMED = "resumed"


class Again(StrEnum):
    """Why a step runs although something of it is known.

    AMBIGUOUS: whether its last attempt sent anything is not known; the provider may bill twice. PAID: its calls are
    known and were paid, and its result is lost. UNCOMMITTED: it sends nothing, and nothing of it was committed
    (or, of an entry of the queue, it would be recognised)."""

    FIRST = ""
    AMBIGUOUS = "ambiguous"
    PAID = "paid"
    UNCOMMITTED = "uncommitted"
    INTERRUPTED = "interrupted"
    FAILED = "failed"
    REFUSED = "refused"
    CANCELLED = "cancelled"
    LIMIT = "limit"  # it was cut off at another limit of its answer


@dataclass(frozen=True, slots=True)
class Verdict:
    """`replay`: its outcome is given without running it. Otherwise it runs, `again` says why."""

    replay: bool
    again: Again = Again.FIRST


_FIRST, _REPLAY = Verdict(False), Verdict(True)
_OUTCOMES = frozenset((StepStatus.SUCCEEDED, StepStatus.FAILED, StepStatus.CANCELLED))


def judge(
    step_id: str, job: str, fingerprint: str, recorded: RecordedStep | None, mode: Mode, *, commits_alone: bool = False
) -> Verdict:
    """`commits_alone`: all the job does is commit to databases that say whether it did.

    Raises ReplayMismatchError where the step is not the one that was recorded.
    """
    if recorded is None:
        return _FIRST
    if recorded.fingerprint != fingerprint:
        if _cut_off_at_another_limit(recorded, fingerprint):
            return Verdict(False, Again.LIMIT)
        raise mismatch(step_id, job, fingerprint, recorded)
    match recorded.status:
        case StepStatus.SUCCEEDED:
            return _REPLAY
        case StepStatus.INTERRUPTED:
            return Verdict(False, Again.INTERRUPTED)
        case StepStatus.CANCELLED:
            return _REPLAY if mode is Mode.RECOVERY else Verdict(False, Again.CANCELLED)
        case StepStatus.FAILED:
            if mode is Mode.RESUMED:
                return Verdict(False, Again.FAILED)
            refused = mode is Mode.ASKING_AGAIN and is_refusal(recorded.error_code)
            return Verdict(False, Again.REFUSED) if refused else _REPLAY
        case StepStatus.BEGUN:
            if recorded.known_calls > recorded.unknown_calls:
                return Verdict(False, Again.PAID)
            return Verdict(False, Again.UNCOMMITTED if commits_alone else Again.AMBIGUOUS)


def _cut_off_at_another_limit(recorded: RecordedStep, fingerprint: str) -> bool:
    return recorded.error_code == OutputTruncatedError.code and without_limit(recorded.fingerprint) == without_limit(
        fingerprint
    )


def mismatch(step_id: str, job: str, fingerprint: str, recorded: RecordedStep) -> ReplayMismatchError:
    other = "another job" if recorded.job != job else "the same job with other arguments"
    return ReplayMismatchError(
        f"step {step_id!r} was recorded as {recorded.job} ({recorded.fingerprint}) and is now {job} ({fingerprint}),"
        f" {other}: run it with the code it was begun with, or drop this step and what follows with"
        f" `interlock runs resume RUN --from {step_id}`"
    )


def is_outcome(status: StepStatus) -> bool:
    return status in _OUTCOMES


def left_unread(steps: Iterable[RecordedStep]) -> ReplayMismatchError | None:
    """What is wrong where a pipeline has returned and these steps were never asked for."""
    left = [step for step in steps if step.status in _OUTCOMES]
    if not left:
        return None
    named = ", ".join(f"{step.step_id} ({step.job})" for step in left[:5])
    more = f" and {len(left) - 5} more" if len(left) > 5 else ""
    return ReplayMismatchError(
        f"the pipeline returned without asking for {len(left)} step(s) that are recorded: {named}{more}. Recorded were"
        " those, asked for were none of them: run it with the code it was begun with, or drop them with"
        f" `interlock runs resume RUN --from {left[0].step_id}`"
    )


def from_step(steps: Iterable[RecordedStep], first: str) -> list[str]:
    """The ids of `first` and of everything first written after it. ValueError where there is no such step."""
    ids = [step.step_id for step in steps]
    found = [index for index, id in enumerate(ids) if id == first or id.startswith(f"{first}/")]
    if not found:
        raise ValueError(f"no step {first!r} is recorded; there are: {', '.join(ids[:20]) or 'none'}")
    return ids[found[0] :]


def _codes(kind: type[InterlockError]) -> frozenset[str]:
    return frozenset((kind.code, *(code for below in kind.__subclasses__() for code in _codes(below))))


def is_refusal(code: str | None) -> bool:
    """Whether an error's code is one of admission's: nothing was sent, and time may have changed the answer."""
    return code in _codes(AdmissionError)
