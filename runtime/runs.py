"""Run: what all jobs of one run share. A job outside any pipeline has one of its own, without a row."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """`workflow` is who its jobs share fairly as; `caps` are the names of the cost caps they spend under."""

    run_id: str | None = None
    workflow: str = ""
    caps: tuple[str, ...] = ()
    priority: int = 0
