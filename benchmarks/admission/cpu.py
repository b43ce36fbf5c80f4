"""What admission costs: CPU of an admission, of a decision with many waiting, bytes a waiting demand.

`python -m benchmarks.admission.cpu` prints the tables. Every figure is CPU time of this process (`process_time`), a
median of several rounds; what matters are the ratios, which hold on any machine. `--quick` leaves out the million.
"""

from __future__ import annotations

import asyncio
import gc
import random
import sys
import tracemalloc
from collections.abc import Callable
from math import inf
from statistics import median
from time import process_time_ns

from interlock.admission import (
    Admission,
    CallCharge,
    CallOutcome,
    CountingGate,
    DatabaseGate,
    Demand,
    Level,
    Line,
    ManualClock,
    OutcomeKind,
    Reservation,
    SystemClock,
)
from interlock.admission.queues import Waiter
from interlock.catalog.entry import Accounting, Limits
from interlock.catalog.usage import Usage

ACCOUNTING = Accounting()
DONE = CallOutcome(kind=OutcomeKind.COMPLETED, usage=Usage(input_tokens=300, output_tokens=100))
HUGE = 1e12


def demand_of(admission: Admission, accounts: int, name: str = "p") -> Callable[[], Demand]:
    """Builds demands over so many accounts: tokens, requests, a database, an HTTP pool."""
    limits = Limits(tpm=HUGE) if accounts == 1 else Limits(tpm=HUGE, rpm=HUGE)
    pool = admission.pool(name, limits)
    gates = [admission.account(DatabaseGate("bench", 10**9)), admission.account(CountingGate("http", 10**9))]
    held = tuple((gate, 1) for gate in gates[: max(accounts - 2, 0)])

    def build() -> Demand:
        call = CallCharge(key="k", pool=pool, accounting=ACCOUNTING, input_tokens=300, output_tokens=400)
        return Demand(calls=(call,), held=held, workflow="bench")

    return build


async def uncontended(accounts: int, *, per_tick: int, fresh: bool, rounds: int = 7, each: int = 20_000) -> float:
    """Microseconds a life: submit, granted, permit, sent, closed with its usage, released."""
    admission = Admission(SystemClock(), jitter=lambda: 0.0)
    build = demand_of(admission, accounts)
    one = build()

    def granted(reservation: Reservation) -> None:
        permit = reservation.permit("k", input_tokens=300, output_tokens=400)
        permit.sent()
        permit.close(DONE)
        reservation.release()

    def refused(error: Exception) -> None:
        raise error

    figures = []
    for _ in range(rounds):
        started = process_time_ns()
        for _ in range(each // per_tick):
            for _ in range(per_tick):
                admission.submit(build() if fresh else one, granted, refused)
            await asyncio.sleep(0)
        figures.append((process_time_ns() - started) / each / 1000)
    assert admission.statistics().granted == rounds * (each // per_tick) * per_tick
    return median(figures)


async def tick(each: int = 20_000) -> float:
    """Microseconds of the event loop's own turn with one callback: what "1 a tick" contains besides."""
    loop, figures = asyncio.get_running_loop(), []
    for _ in range(7):
        started = process_time_ns()
        for _ in range(each):
            loop.call_soon(int)
            await asyncio.sleep(0)
        figures.append((process_time_ns() - started) / each / 1000)
    return median(figures)


class Load:
    """A line with `waiting` demands over 8 pools of three accounts and two databases, 50 workflows, 3 priorities."""

    def __init__(self, waiting: int, seed: int = 1) -> None:
        self.random, self.line, self.now, self.wanted = random.Random(seed), Line(), 0.0, waiting
        pools = [
            (Level(f"p{i}:tokens", 1e6, 1e6 / 60), Level(f"p{i}:requests", 1e5, 1e5 / 60), CountingGate(f"p{i}:c", 64))
            for i in range(8)
        ]
        databases = [DatabaseGate(str(i), 10) for i in range(2)]
        self.shapes = [*pools, *[(*pool, database) for pool in pools for database in databases]]
        self.asks = [float(self.random.choice([300, 800, 1500, 4000, 4000, 900])) for _ in range(500)]
        self.asks[::50] = [200_000.0] * 10
        self.running: list[Waiter] = []
        self.costs: list[int] = []
        self.grants = 0

    def submit(self) -> None:
        shape = self.random.choice(self.shapes)
        amounts = (self.random.choice(self.asks), 1.0, 1.0, 1.0)[: len(shape)]
        priority, workflow = self.random.choice((0, 0, 0, 1)), f"w{self.random.randrange(50)}"
        started = process_time_ns()
        waiter = Waiter(self.line.group(shape), amounts, priority=priority)
        if self.line.take_now(waiter, workflow, self.now):
            decided = [waiter]
        else:
            decided = self.line.enter(waiter, workflow, self.now)
        self.book(started, decided)

    def book(self, started: int, decided: list[Waiter]) -> None:
        self.costs.append(process_time_ns() - started)
        self.running += decided
        self.grants += len(decided)

    def fill(self) -> None:
        while self.line.waiting < self.wanted:
            self.submit()

    def step(self) -> None:
        """One job ends, or the clock moves to the next instant; then the line is filled up again."""
        running = self.running
        if running and (self.random.random() < 0.5 or self.line.next_instant() == inf):
            i = self.random.randrange(len(running))
            running[i], running[-1] = running[-1], running[i]
            waiter = running.pop()
            backs = (waiter.amounts[0] * 0.5, 0.0, *waiter.amounts[2:])
            started = process_time_ns()
            decided = self.line.give(waiter.group.accounts, backs, self.now)
        else:
            started = process_time_ns()
            self.now = max(self.now, self.line.next_instant())
            decided = self.line.tick(self.now)
        self.book(started, decided)
        self.fill()


def loaded(waiting: int, *, decisions: int = 6_000) -> tuple[float, float, float]:
    """Microseconds an operation, microseconds a grant (its submit, its release and everything between), p99."""
    load = Load(waiting)
    load.fill()
    gc.collect()
    gc.freeze()
    load.costs.clear()
    load.grants = 0
    while load.grants < decisions:
        load.step()
    costs = sorted(load.costs)
    gc.unfreeze()
    return sum(costs) / len(costs) / 1000, sum(costs) / load.grants / 1000, costs[int(0.99 * len(costs))] / 1000


async def bytes_waiting(count: int = 50_000) -> tuple[float, float]:
    """Bytes a waiting demand, through the shell: its own object and place, and with a Demand of its own besides."""
    figures = []
    for fresh in (False, True):
        admission = Admission(ManualClock())
        pool = admission.pool("p", Limits(tpm=6000, rpm=60))

        def build(i: int, pool: object = pool) -> Demand:
            call = CallCharge(key="k", pool=pool, accounting=ACCOUNTING, input_tokens=1000 + i % 7, output_tokens=2000)  # type: ignore[arg-type]
            return Demand(calls=(call,), workflow="bench")

        shared = build(0)
        callback = figures.append
        gc.collect()
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        kept = [admission.submit(build(i) if fresh else shared, callback, callback) for i in range(count)]  # type: ignore[arg-type]
        gc.collect()
        figures.append((tracemalloc.get_traced_memory()[0] - before) / count)
        tracemalloc.stop()
        for waiting in kept:
            waiting.cancel()
    return figures[0], figures[1]


def main() -> None:
    print(f"Python {sys.version.split()[0]}; CPU time, medians\n")
    print("admit + settle through the asyncio shell, uncontended, µs a life")
    print(f"{'accounts':>10}{'100 a tick':>14}{'1 a tick':>14}{'new Demand each':>18}")
    for accounts in (1, 2, 3, 4):
        gc.collect()
        row = [
            asyncio.run(uncontended(accounts, per_tick=per_tick, fresh=fresh))
            for per_tick, fresh in ((100, False), (1, False), (100, True))
        ]
        print(f"{accounts:>10}{row[0]:>14.2f}{row[1]:>14.2f}{row[2]:>18.2f}")
    print(f"a turn of the event loop itself: {asyncio.run(tick()):.2f} µs, contained once in '1 a tick'")
    print("\na decision with many waiting (8 pools, 2 databases, 50 workflows)")
    print(f"{'waiting':>10}{'µs a decision':>16}{'ratio to 1k':>14}{'µs a grant':>14}{'p99 µs':>10}")
    for waiting in (1_000, 10_000, 100_000, 1_000_000):
        if waiting == 1_000_000 and "--quick" in sys.argv:
            break
        # Each round beside one of a thousand: the ratio is of neighbours in time, whatever else the machine does.
        pairs = [(loaded(1_000), loaded(waiting)) for _ in range(5 if waiting < 1_000_000 else 2)]
        ratio = median(there[0] / here[0] for here, there in pairs)
        each, grant, late = (median(column) for column in zip(*[there for _, there in pairs], strict=True))
        print(f"{waiting:>10,}{each:>16.2f}{ratio:>14.2f}{grant:>14.2f}{late:>10.1f}", flush=True)
    own, whole = asyncio.run(bytes_waiting())
    print(f"\nbytes a waiting demand: {own:.0f}, with a Demand and CallCharge of its own {whole:.0f}")


if __name__ == "__main__":
    main()
