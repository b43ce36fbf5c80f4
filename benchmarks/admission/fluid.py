"""The fair turn of a job: when it would be finished in a fluid fair queue over the same arrivals.

In a fluid queue (generalised processor sharing: Parekh and Gallager 1993) the workflows that have something waiting
share the refill equally at every instant, drop by drop, and each serves its own jobs in the order they came. Nothing
real can do that, for a call is sent whole; it is what "fair" means, and the real order is held against it.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from heapq import heappop, heappush
from itertools import pairwise
from math import inf
from typing import NamedTuple


class Arrival(NamedTuple):
    """`amount` of the pool, asked for at `at_s` by a workflow. Amounts are in the pool's unit."""

    at_s: float
    workflow: Hashable
    amount: float


class _Fluid:
    """The state between arrivals. `virtual` is what each busy workflow has had since the start."""

    def __init__(self, capacity: float, level: float) -> None:
        self.capacity, self.level, self.virtual, self.now = capacity, level, 0.0, -inf
        self.ends: dict[Hashable, float] = {}  # the virtual finish of the last job of each busy workflow
        self.jobs: list[tuple[float, int]] = []  # (virtual finish, number), unfinished
        self.last: list[tuple[float, int, Hashable]] = []  # when a workflow may fall idle

    def idle(self) -> None:
        """Forget the workflows that have had everything."""
        while self.last and self.last[0][0] <= self.virtual + 1e-9:
            end, _, workflow = heappop(self.last)
            if self.ends.get(workflow) == end:
                del self.ends[workflow]

    def pour(self, rate: float, until_s: float, finishes: list[float]) -> None:
        """Serve until `until_s` at `rate` a second, first from what is in the bucket."""
        while self.jobs:
            self.idle()
            busy = max(len(self.ends), 1)
            # The next instant at which something ends: a job, or a workflow's last one (then the shares change).
            goal = self.jobs[0][0]
            need = max(goal - self.virtual, 0.0) * busy
            after_s = max(need - self.level, 0.0) / rate if rate > 0 or need <= self.level else inf
            if self.now + after_s > until_s:
                gained = self.level + (until_s - self.now) * rate
                self.virtual += gained / busy
                self.level, self.now = 0.0, until_s
                return
            self.level = max(self.level - need, 0.0)
            self.virtual, self.now = goal, self.now + after_s
            finishes[heappop(self.jobs)[1]] = self.now
        self.idle()
        self.level = min(self.capacity, self.level + (until_s - self.now) * rate)
        self.now = until_s


def fluid_finishes(
    arrivals: Sequence[Arrival], rates: Iterable[tuple[float, float]], *, capacity: float, level: float | None = None
) -> list[float]:
    """The instant at which each arrival (in order of time) has been served whole; inf for never.

    `rates` are (from_s, rate a second), in order, the first from before the first arrival on; `capacity` is what the
    bucket holds at most and `level` what it holds then (all of it unless said).
    """
    steps = [*rates, (inf, 0.0)]
    finishes = [inf] * len(arrivals)
    state = _Fluid(capacity, capacity if level is None else level)
    state.now = steps[0][0]
    number = 0
    for (from_s, rate), (to_s, _) in pairwise(steps):
        while number < len(arrivals) and arrivals[number].at_s < to_s:
            job = arrivals[number]
            at_s = max(job.at_s, from_s)
            if at_s > state.now:  # those of one instant share what is in the bucket
                state.pour(rate, at_s, finishes)
            state.idle()
            end = max(state.virtual, state.ends.get(job.workflow, 0.0)) + job.amount
            state.ends[job.workflow] = end
            heappush(state.jobs, (end, number))
            heappush(state.last, (end, number, job.workflow))
            number += 1
        if to_s < inf or state.jobs:
            if to_s == inf:
                if rate > 0:
                    state.pour(rate, 1e300, finishes)
                break
            state.pour(rate, to_s, finishes)
    return finishes
