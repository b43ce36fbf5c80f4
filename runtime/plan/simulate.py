"""One possible run of a workload: the admission that runs jobs, on virtual time, with calls that only take their time.

The accounts, the line and the charges are the live ones. Nothing is sent: a call that was granted is answered after its
latency with the tokens that were drawn for it. No asyncio Task is made; a job is a few callbacks.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from interlock.admission import Admission, CallCharge, CallOutcome, CountingGate, Demand, OutcomeKind
from interlock.admission.virtual import LoopClock, VirtualLoop
from interlock.catalog.pricing import cost
from interlock.catalog.usage import Usage
from interlock.errors import InterlockError

from .levels import Levels, Sample

if TYPE_CHECKING:
    from decimal import Decimal

    from interlock.admission import Reservation
    from interlock.catalog import ModelEntry
    from interlock.catalog.entry import Limits

    from .sizes import Draws
    from .workload import PlannedJob, PlannedLine


#: When a run begins that is not told: any day does where no limit is reset at a time of day.
BEGINS_AT = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """What the lines run against: the limits of each pool, each model's pool, the held accounts, the lines at a time,
    and the time of day at the beginning, for limits that are reset at one."""

    pools: Mapping[str, Limits]
    pool_of: Mapping[str, str]
    gates: Mapping[str, int] = field(default_factory=dict)
    concurrency: int | None = None
    begins_at: datetime = BEGINS_AT


@dataclass(slots=True)
class Used:
    """Tokens of one model's calls, together."""

    entry: ModelEntry
    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost: Decimal | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulated:
    """How it went. `finish_s` counts from the beginning; `short_s` is for how long somebody stood short of an account.
    `refused` counts what admission refused, by the words of the first of its kind; `failed` the lines it ended."""

    finish_s: float
    lines: int
    failed: int
    used: Mapping[str, Used]
    short_s: Mapping[str, float]
    refused: Mapping[str, int]
    samples: tuple[Sample, ...] = ()


def simulate(
    lines: Sequence[PlannedLine], situation: Situation, draws: Draws, *, seed: int = 0, levels: bool = False
) -> Simulated:
    """Run the lines to their end. The same arguments give the same result. `levels` keeps samples for a plot."""
    with asyncio.Runner(loop_factory=lambda: VirtualLoop(0.0)) as runner:
        return runner.run(_Simulation(lines, situation, draws, seed, levels).run())


class _Simulation:
    def __init__(
        self, lines: Sequence[PlannedLine], situation: Situation, draws: Draws, seed: int, levels: bool
    ) -> None:
        self.lines, self.situation, self.draws, self._seed = lines, situation, draws, seed
        self._next = self._ended = self._failed = 0
        self._demands: dict[int, Demand | None] = {}
        self._followers: dict[int, tuple[list[int], list[list[int]]]] = {}
        self._used: dict[str, Used] = {}
        self.refused: Counter[str] = Counter()
        self._words: dict[tuple[type, str | None], str] = {}
        self._with_levels = levels

    async def run(self) -> Simulated:
        self.loop = asyncio.get_running_loop()
        self._done: asyncio.Future[None] = self.loop.create_future()
        begins_at, time = self.situation.begins_at, self.loop.time
        self.admission = Admission(
            LoopClock(self.loop),
            jitter=random.Random(self._seed).random,
            wall=lambda: begins_at + timedelta(seconds=time()),
        )
        self._gates = {
            name: self.admission.account(CountingGate(name, room)) for name, room in self.situation.gates.items()
        }
        self._pools = {name: self.admission.pool(name, limits) for name, limits in self.situation.pools.items()}
        levels = Levels(self.loop, self.admission) if self._with_levels else None
        self._fill()
        if self._ended < len(self.lines):
            await self._done
        return Simulated(
            finish_s=self.loop.time(),
            lines=len(self.lines),
            failed=self._failed,
            used=self._priced(),
            short_s={account.name: account.held_back_s for account in self.admission.statistics().accounts},
            refused=dict(self.refused),
            samples=levels.close() if levels is not None else (),
        )

    def _fill(self) -> None:
        """Begin lines while there is room for them."""
        lines, now = self.lines, self.loop.time()
        most = self.situation.concurrency
        while self._next < len(lines) and (most is None or self._next - self._ended < most):
            line = lines[self._next]
            self._next += 1
            begun = _Line(self, line)
            if line.arrival_s > now:
                self.loop.call_at(line.arrival_s, begun.begin)
            else:
                self.loop.call_soon(begun.begin)

    def line_ended(self, *, failed: bool) -> None:
        self._ended += 1
        self._failed += failed
        self._fill()
        if self._ended == len(self.lines) and not self._done.done():
            self._done.set_result(None)

    def followers(self, line: PlannedLine) -> tuple[list[int], list[list[int]]]:
        """How many each job comes after, and which come after it. Made once per distinct line."""
        known = self._followers.get(id(line))
        if known is None:
            after: list[list[int]] = [[] for _ in line.jobs]
            for place, job in enumerate(line.jobs):
                for other in job.after:
                    after[other].append(place)
            known = self._followers[id(line)] = ([len(job.after) for job in line.jobs], after)
        return known

    def demand(self, job: PlannedJob) -> Demand | None:
        """What it asks of admission; None for nothing. Made once per distinct job."""
        if id(job) not in self._demands:
            calls = tuple(
                CallCharge(
                    key=call.key,
                    pool=self._pools[self.situation.pool_of[call.entry.id]],
                    accounting=call.entry.accounting,
                    input_tokens=self.draws.reserved(job, call),
                    output_tokens=call.output_tokens,
                    count=call.count,
                )
                for call in job.calls
            )
            held = tuple((self._gates[name], amount) for name, amount in job.held)
            self._demands[id(job)] = None
            if calls or held:
                self._demands[id(job)] = Demand(
                    calls=calls,
                    held=held,
                    workflow=job.workflow,
                    priority=job.priority,
                    max_wait_s=job.max_wait_s,
                    overflow=job.overflow,
                    label=job.name,
                    kind=job.kind,
                )
        return self._demands[id(job)]

    def refuse(self, error: InterlockError) -> None:
        """Count it with those of its kind, under the words of the first."""
        kind = (type(error), getattr(error, "account", None))
        self.refused[self._words.setdefault(kind, str(error))] += 1

    def spend(self, entry: ModelEntry, usage: Usage) -> None:
        used = self._used.get(entry.id)
        if used is None:
            used = self._used[entry.id] = Used(entry)
        used.calls += 1
        used.input_tokens += usage.input_tokens or 0
        used.output_tokens += usage.output_tokens or 0
        if entry.prices is not None and entry.prices.tiers:  # not linear: call by call
            price = cost(entry.prices, usage)
            used.cost = price if used.cost is None or price is None else used.cost + price

    def _priced(self) -> dict[str, Used]:
        for used in self._used.values():
            prices = used.entry.prices
            if prices is not None and not prices.tiers:
                used.cost = cost(prices, Usage(input_tokens=used.input_tokens, output_tokens=used.output_tokens))
        return self._used


class _Line:
    """One line under way. It ends when its jobs have, or, where one was refused, when those that run have."""

    __slots__ = ("_left", "_running", "_simulation", "_waits", "broken", "line")

    def __init__(self, simulation: _Simulation, line: PlannedLine) -> None:
        self._simulation, self.line = simulation, line
        self._left, self._running, self.broken = len(line.jobs), 0, False
        self._waits: list[int] = []

    def begin(self) -> None:
        counts, _ = self._simulation.followers(self.line)
        self._waits = counts.copy()
        self._start([place for place, after in enumerate(counts) if not after])
        self._end_if_over()

    def _start(self, places: list[int]) -> None:
        self._running += len(places)
        for place in places:
            if self.broken:
                self._running -= 1
            else:
                job = _JobRun(self, self._simulation, place)
                if job.job.delay_s:
                    self._simulation.loop.call_later(job.job.delay_s, job.submit)
                else:
                    job.submit()

    def ended(self, place: int) -> None:
        self._running -= 1
        self._left -= 1
        if not self.broken:
            ready = []
            for other in self._simulation.followers(self.line)[1][place]:
                self._waits[other] -= 1
                if not self._waits[other]:
                    ready.append(other)
            self._start(ready)
        self._end_if_over()

    def refused(self, error: InterlockError) -> None:
        self._simulation.refuse(error)
        self.broken = True
        self._running -= 1
        self._simulation.loop.call_soon(self._end_if_over)

    def _end_if_over(self) -> None:
        if not self._running and self._left >= 0 and (self.broken or not self._left):
            self._left = -1
            self._simulation.line_ended(failed=self.broken)


class _JobRun:
    """One job: submitted, granted, its calls one after the other, given back."""

    __slots__ = ("_call", "_line", "_made", "_place", "_reservation", "_simulation", "job")

    def __init__(self, line: _Line, simulation: _Simulation, place: int) -> None:
        self._line, self._simulation, self._place = line, simulation, place
        self.job = line.line.jobs[place]
        self._call = self._made = 0
        self._reservation: Reservation | None = None

    def submit(self) -> None:
        simulation = self._simulation
        demand = simulation.demand(self.job)
        if demand is None:
            simulation.loop.call_soon(self._end)
            return
        try:
            simulation.admission.submit(demand, self._granted, self._refused)
        except InterlockError as error:
            self._line.refused(error)

    def _refused(self, error: InterlockError) -> None:
        self._line.refused(error)

    def _granted(self, reservation: Reservation) -> None:
        self._reservation = reservation
        self._next_call()

    def _next_call(self) -> None:
        calls = self.job.calls
        if self._call == len(calls):
            self._end()
            return
        call, simulation, reservation = calls[self._call], self._simulation, self._reservation
        assert reservation is not None
        permit = reservation.permit(call.key, input_tokens=0, output_tokens=0)  # as declared
        permit.sent()
        input_tokens, output_tokens, latency_s = simulation.draws(self.job, call)
        usage = Usage(input_tokens=input_tokens, output_tokens=output_tokens)

        def answered() -> None:
            simulation.spend(call.entry, usage)
            permit.close(CallOutcome(kind=OutcomeKind.COMPLETED, usage=usage))
            self._made += 1
            if self._made == call.count:
                self._call, self._made = self._call + 1, 0
            self._next_call()

        simulation.loop.call_later(latency_s, answered)

    def _end(self) -> None:
        if self._reservation is not None:
            self._reservation.release()
        self._line.ended(self._place)
