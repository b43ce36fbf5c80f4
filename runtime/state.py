"""The life of a job: its states and the one table of moves between them.

    created ──► blocked ──► preparing ──► counting ──► spending ──► waiting ──► running ──► succeeded
       └───────────────────────▲ ▲ ▲   (by a provider) (cost cap)  (the line)     │  │ └─► failed
                               │ │ └──── moved to a backup ◄──────────┘           │  └─► stopping ──► cancelled | failed
                               │ └── backing_off ◄────────────────────────────────┤
                               └──────────────────────────────────────────────────┘

Each of the ends is reached through `recording` in a journaled run: what the job came to is being committed, which is
too late to stop it. A step that is read back from the journal goes from `created` to its end.

`blocked` waits for the jobs named in `after=`; `preparing` declares, binds and prices; `counting` asks providers how
large the calls are, where their entries say so; `spending` waits until a cost cap has room; `waiting` stands in the
line; `stopping` was asked to stop and has a grace period. Whatever is not running
is cancelled at once. Until `running` a job owns no Task. Where its run is paused, whatever would be `preparing` is
`paused` first, and so is at once whoever counts, waits or backs off.
"""

from __future__ import annotations

from enum import StrEnum


class JobState(StrEnum):
    CREATED = "created"
    BLOCKED = "blocked"
    PREPARING = "preparing"
    COUNTING = "counting"
    SPENDING = "spending"
    WAITING = "waiting"
    RUNNING = "running"
    STOPPING = "stopping"
    BACKING_OFF = "backing_off"
    PAUSED = "paused"
    RECORDING = "recording"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def done(self) -> bool:
        return not MOVES[self]


_S = JobState

_REFUSED = frozenset({_S.RECORDING, _S.FAILED, _S.CANCELLED})
_ENDS = _REFUSED | {_S.SUCCEEDED}

MOVES: dict[JobState, frozenset[JobState]] = {
    _S.CREATED: _ENDS | {_S.BLOCKED, _S.PREPARING, _S.PAUSED},
    _S.BLOCKED: _REFUSED | {_S.PREPARING, _S.PAUSED},
    _S.PAUSED: _REFUSED | {_S.PREPARING},
    _S.PREPARING: _REFUSED | {_S.COUNTING, _S.SPENDING, _S.WAITING, _S.RUNNING},
    _S.COUNTING: _REFUSED | {_S.SPENDING, _S.WAITING, _S.RUNNING, _S.PAUSED},
    _S.SPENDING: _REFUSED | {_S.WAITING, _S.PAUSED},
    _S.WAITING: _REFUSED | {_S.RUNNING, _S.PREPARING, _S.PAUSED},
    _S.RUNNING: _ENDS | {_S.STOPPING, _S.BACKING_OFF, _S.PREPARING, _S.PAUSED},
    _S.STOPPING: _ENDS,
    _S.BACKING_OFF: _REFUSED | {_S.PREPARING, _S.PAUSED},
    _S.RECORDING: frozenset({_S.SUCCEEDED, _S.FAILED, _S.CANCELLED}),
    _S.SUCCEEDED: frozenset(),
    _S.FAILED: frozenset(),
    _S.CANCELLED: frozenset(),
}


def move(now: JobState, to: JobState) -> JobState:
    """The new state, or an AssertionError: a move that is not in the table is a defect of the runtime."""
    if to not in MOVES[now]:
        raise AssertionError(f"a job cannot go from {now} to {to}")
    return to
