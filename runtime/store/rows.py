"""What is written and read: one row per attempt of a call, one per run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from interlock.clients.record import CallRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRow:
    """One wire request: the client's record, and whose it was. Seconds are of running time, moments are UTC.

    `waited` is the seconds stood in the line for each account that held the job back, by the account's name.
    """

    record: CallRecord
    run_id: str | None = None
    step_id: str | None = None
    job_id: str = ""
    job: str = ""
    workflow: str = ""
    attempt: int = 1  # of the job, from 1: re-runs, corrections and raised limits count alike
    call: int = 1  # of the attempt, from 1
    waited_s: float = 0.0
    waited: Mapping[str, float] = field(default_factory=dict)
    catalog_version: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRow:
    """One run of a pipeline. `status` is running, succeeded, failed or cancelled; `error` is a redacted text."""

    run_id: str
    pipeline: str
    version: str = ""
    status: str = "running"
    started_at: datetime
    ended_at: datetime | None = None
    error_code: str | None = None
    error: str | None = None
    cost_cap: str | None = None
