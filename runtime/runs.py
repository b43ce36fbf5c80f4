"""Run: what all jobs of one run share. A job outside any pipeline has one of its own, without a row."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .pausing import Pausing

if TYPE_CHECKING:
    from .journal.run import RunJournal


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
