"""Whether a run that is recorded is taken up again, and how: one table.

    recorded as          Runtime.run(..., run_id=)          Runtime.resume(run_id)
    queued, running      goes on (recovery)                 goes on (recovery)
      after a refusal    goes on, refusals are asked again  goes on, refusals are asked again
    cancelled            goes on (recovery)                 goes on (recovery)
    succeeded            its result, nothing is run         its result, nothing is run; from a step: goes on
    failed               its error, nothing is run          goes on, what failed is run again
      by a refusal       goes on, refusals are asked again  goes on, what failed is run again
      by the journal     goes on (recovery)                 goes on (recovery)

By the journal: it was stopped for a mismatch, an ambiguous step, a lease that was lost, a store that failed. That says
nothing of the run itself. After a refusal: its worker put it back, for a cap of the worker's own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from interlock.errors import AmbiguousStepError, ConfigurationError, LeaseLostError, ReplayMismatchError, StoreError

from .protocol import RecordedRun, RunStatus
from .replay import Mode, is_refusal

_OF_THE_JOURNAL = frozenset((ReplayMismatchError.code, AmbiguousStepError.code, LeaseLostError.code, StoreError.code))


def _is_its_own(error: BaseException | None) -> bool:
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """How a run is to be begun. `new`: its id is a random one. `resume`: somebody said so. `claimed`: it is this
    process's already, taken from the queue with what is recorded of it; it goes back there where it ends by an error of
    which `goes_back` says that it is this process's and no other's."""

    new: bool = False
    resume: bool = False
    from_step: str | None = None
    ambiguous: Literal["resend", "fail"] = "resend"
    claimed: RecordedRun | None = None
    goes_back: Callable[[BaseException | None], bool] = _is_its_own

    def __post_init__(self) -> None:
        if self.ambiguous not in ("resend", "fail"):  # else a slip of the pen would be paid twice
            raise ConfigurationError(f"ambiguous= is 'resend' or 'fail', not {self.ambiguous!r}")


@dataclass(frozen=True, slots=True)
class Taking:
    mode: Mode


def taking(found: RecordedRun, *, resume: bool, again: bool = False) -> Taking | None:
    """None: the run is over, and its end is the answer. `again`: some of its steps are to be run again."""
    if found.status is RunStatus.SUCCEEDED:
        return Taking(Mode.RECOVERY) if again else None
    if found.status is not RunStatus.FAILED:
        return Taking(Mode.ASKING_AGAIN if found.refused else Mode.RECOVERY)
    code = found.end.error_code if found.end is not None else None
    if code in _OF_THE_JOURNAL:
        return Taking(Mode.RECOVERY)
    if resume:
        return Taking(Mode.RESUMED)
    return Taking(Mode.ASKING_AGAIN) if is_refusal(code) else None
