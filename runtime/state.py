"""The life of a job: its states and the one table of moves between them.

    created ──► blocked ──► preparing ──► spending ──► waiting ──► running ──► succeeded
       └───────────────────────▲ ▲ ▲          (cost cap)  (the line)  │  │ └──► failed
                               │ │ └── moved to a backup ◄──┘         │  └────► stopping ──► cancelled | failed
                               │ └── backing_off ◄────────────────────┤
                               └──────────────────────────────────────┘

`blocked` waits for the jobs named in `after=`; `preparing` declares, binds and prices; `spending` waits until a cost
cap has room; `waiting` stands in the line; `stopping` was asked to stop and has a grace period. Whatever is not running
is cancelled at once. Until `running` a job owns no Task.
"""

from __future__ import annotations

from enum import StrEnum


class JobState(StrEnum):
    CREATED = "created"
    BLOCKED = "blocked"
    PREPARING = "preparing"
    SPENDING = "spending"
    WAITING = "waiting"
    RUNNING = "running"
    STOPPING = "stopping"
    BACKING_OFF = "backing_off"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def done(self) -> bool:
        return not MOVES[self]


_S = JobState

MOVES: dict[JobState, frozenset[JobState]] = {
    _S.CREATED: frozenset({_S.BLOCKED, _S.PREPARING, _S.FAILED, _S.CANCELLED}),
    _S.BLOCKED: frozenset({_S.PREPARING, _S.FAILED, _S.CANCELLED}),
    _S.PREPARING: frozenset({_S.SPENDING, _S.WAITING, _S.RUNNING, _S.FAILED, _S.CANCELLED}),
    _S.SPENDING: frozenset({_S.WAITING, _S.FAILED, _S.CANCELLED}),
    _S.WAITING: frozenset({_S.RUNNING, _S.PREPARING, _S.FAILED, _S.CANCELLED}),
    _S.RUNNING: frozenset({_S.STOPPING, _S.BACKING_OFF, _S.PREPARING, _S.SUCCEEDED, _S.FAILED, _S.CANCELLED}),
    _S.STOPPING: frozenset({_S.SUCCEEDED, _S.FAILED, _S.CANCELLED}),
    _S.BACKING_OFF: frozenset({_S.PREPARING, _S.FAILED, _S.CANCELLED}),
    _S.SUCCEEDED: frozenset(),
    _S.FAILED: frozenset(),
    _S.CANCELLED: frozenset(),
}


def move(now: JobState, to: JobState) -> JobState:
    """The new state, or an AssertionError: a move that is not in the table is a defect of the runtime."""
    if to not in MOVES[now]:
        raise AssertionError(f"a job cannot go from {now} to {to}")
    return to
