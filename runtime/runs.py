"""Run: what all jobs of one run share. A job outside any pipeline has one of its own, without a row."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from interlock.errors import ConfigurationError

from .pausing import Pausing

if TYPE_CHECKING:
    from .journal.run import RunJournal


#: Characters of a run's id. It stands in the indexes of the store, and PostgreSQL refuses a row there beyond 2.7 kB:
#: the row of a call that was paid, where nothing was written before it.
LONGEST_ID = 500


def check_run_id(run_id: object) -> None:
    """Raises TypeError for an id that is no text, ConfigurationError for one that is too long."""
    if run_id is None:
        return
    if not isinstance(run_id, str):
        raise TypeError(f"a run's id is text, not {type(run_id).__name__}")
    if len(run_id) > LONGEST_ID:
        raise ConfigurationError(
            f"a run's id has at most {LONGEST_ID} characters, and this one has {len(run_id):,}: {run_id[:60]!r}..."
        )


def cap_of(run_id: str) -> str:
    """The name of a run's own cost cap."""
    return f"run:{run_id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """`workflow` is who its jobs share fairly as; `caps` are the names of the cost caps they spend under. `journal`
    is None where nothing is journaled."""

    run_id: str | None = None
    workflow: str = ""
    caps: tuple[str, ...] = ()
    priority: int = 0
    journal: RunJournal | None = None
    pausing: Pausing = field(default_factory=Pausing, compare=False)
