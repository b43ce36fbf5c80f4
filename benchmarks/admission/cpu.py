"""What admission costs: CPU of an admission, of a decision with many waiting, pauses, bytes a waiting demand.

`python -m benchmarks.admission.cpu` prints the tables. Every figure is CPU time of this process (`process_time`), the
best of several rounds: what else the machine does only ever adds. `--quick` leaves out the million.
"""

from __future__ import annotations

import asyncio
import gc
import random
import sys
import tracemalloc
from collections import deque
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
    Permit,
    Reservation,
    SystemClock,
    Waiting,
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


async def uncontended(accounts: int, *, per_tick: int, fresh: bool, rounds: int = 12, each: int = 5_000) -> float:
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
    return min(figures)


async def tick(each: int = 5_000) -> float:
    """Microseconds of the event loop's own turn with one callback: what "1 a tick" contains besides."""
    loop, figures = asyncio.get_running_loop(), []
    for _ in range(12):
        started = process_time_ns()
        for _ in range(each):
            loop.call_soon(int)
            await asyncio.sleep(0)
        figures.append((process_time_ns() - started) / each / 1000)
    return min(figures)


#: Of the 700 tokens that a call reserves, how many it uses: then the bucket is filled by the clock alone, by both, or
#: almost alone by what the calls before gave back.
USED = (700, 400, 305)


async def contended(used: int, *, waits: bool = True, tasks: int = 50, lives: int = 10_000) -> float:
    """Microseconds a life of one of 50 tasks on one bucket of ten calls, 20,000 a second: everything of it, Futures and
    the event loop too. The loop is asleep where only the clock can fill the bucket: that costs nothing but cold caches.
    """
    rate = 20_000.0 if waits else HUGE
    admission = Admission(SystemClock(), jitter=lambda: 0.0, transit_s=0.0)
    pool = admission.pool("p", Limits(tpm=rate * 700 * 60, burst_s=10 / rate if waits else 60.0))
    done = CallOutcome(kind=OutcomeKind.COMPLETED, usage=Usage(input_tokens=300, output_tokens=used - 300))
    call = CallCharge(key="k", pool=pool, accounting=ACCOUNTING, input_tokens=300, output_tokens=400)
    demand, left = Demand(calls=(call,), workflow="bench"), lives

    async def task() -> None:
        nonlocal left
        while left > 0:
            left -= 1
            reservation = await admission.admit(demand)
            permit = reservation.permit("k", input_tokens=300, output_tokens=400)
            permit.sent()
            permit.close(done)
            reservation.release()

    started = process_time_ns()
    await asyncio.gather(*[task() for _ in range(tasks)])
    return (process_time_ns() - started) / lives / 1000


async def asyncio_alone(tasks: int = 50, lives: int = 10_000) -> float:
    """The same with nothing but a Future each: what asyncio itself takes of it."""
    loop, queue, left = asyncio.get_running_loop(), deque[asyncio.Future[None]](), lives

    def deliver() -> None:
        for _ in range(len(queue)):
            queue.popleft().set_result(None)

    async def task() -> None:
        nonlocal left
        while left > 0:
            left -= 1
            future = loop.create_future()
            queue.append(future)
            if len(queue) == 1:
                loop.call_soon(deliver)
            await future

    started = process_time_ns()
    await asyncio.gather(*[task() for _ in range(tasks)])
    return (process_time_ns() - started) / lives / 1000


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


class Crowd:
    """The shell with `waiting` demands over 8 pools of three accounts and two databases, the collector on."""

    def __init__(self, waiting: int, *, freeze: bool, seed: int = 1) -> None:
        self.random, self.wanted, self.clock = random.Random(seed), waiting, ManualClock()
        self.admission = Admission(self.clock, jitter=lambda: 0.0, freeze=freeze)
        limits = Limits(tpm=60e6, rpm=600e3, max_concurrent=64)
        self.pools = [self.admission.pool(f"p{i}", limits) for i in range(8)]
        self.databases = [self.admission.account(DatabaseGate(str(i), 10)) for i in range(2)]
        self.running: list[tuple[Reservation, Permit]] = []
        self.waiting: list[Waiting] = []
        self.longest_ms: dict[str, float] = {"fill": 0.0, "churn": 0.0, "looking": 0.0, "cancel": 0.0}
        self.spent_ns = 0

    def granted(self, reservation: Reservation) -> None:
        permit = reservation.permit("k", input_tokens=300, output_tokens=400)
        permit.sent()
        self.running.append((reservation, permit))

    def refused(self, error: Exception) -> None:
        raise error

    def timed(self, phase: str, act: Callable[[], object]) -> None:
        started = process_time_ns()
        act()
        self.book(phase, process_time_ns() - started)

    def book(self, phase: str, spent: int) -> None:
        self.spent_ns += spent
        self.longest_ms[phase] = max(self.longest_ms[phase], spent / 1e6)

    def submit(self, phase: str) -> None:
        r = self.random
        held = ((r.choice(self.databases), 1),) if r.random() < 0.5 else ()
        call = CallCharge(
            key="k",
            pool=r.choice(self.pools),
            accounting=ACCOUNTING,
            input_tokens=300 + r.randrange(1_000),
            output_tokens=400,
        )
        demand = Demand(
            calls=(call,),
            held=held,
            workflow=f"w{r.randrange(50)}",
            priority=r.choice((0, 0, 0, 1)),
            max_wait_s=r.choice((None, 1e6)),
        )
        submit = self.admission.submit
        started = process_time_ns()
        waiting = submit(demand, self.granted, self.refused)
        self.book(phase, process_time_ns() - started)
        if r.random() < 0.05:
            self.waiting.append(waiting)

    async def fill(self) -> None:
        while self.admission.statistics().waiting < self.wanted:
            for _ in range(min(500, self.wanted)):
                self.submit("fill")
            await asyncio.sleep(0)

    def end(self) -> None:
        i = self.random.randrange(len(self.running))
        self.running[i], self.running[-1] = self.running[-1], self.running[i]
        reservation, permit = self.running.pop()
        permit.close(DONE)
        reservation.release()

    async def churn(self, lives: int = 10_000) -> float:
        """Jobs end and others come. Microseconds a life: an end, a submit, and what they let happen."""
        self.spent_ns = 0
        for i in range(lives):
            self.timed("churn", self.end)
            self.submit("churn")
            if i % 20 == 0:
                self.timed("churn", self.admission._delivery._drain)
            if i % 50 == 0:
                self.clock.run_due(0.0005)
        return self.spent_ns / lives / 1000

    def look(self) -> None:
        for waiting in self.waiting[::5]:
            self.timed("looking", lambda waiting=waiting: self.admission.explain(waiting))  # type: ignore[misc]
        for _ in range(20):
            self.timed("looking", self.admission.statistics)
        for waiting in self.waiting:
            self.timed("cancel", waiting.cancel)


async def pauses(waiting: int, *, freeze: bool = True) -> tuple[float, dict[str, float]]:
    """Microseconds a life with so many waiting, and the longest single step of each phase, in milliseconds."""
    gc.collect()
    crowd = Crowd(waiting, freeze=freeze)
    await crowd.fill()
    each = await crowd.churn()
    crowd.look()
    gc.unfreeze()
    return each, crowd.longest_ms


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


def print_lives() -> None:
    print("admit + settle through the asyncio shell, uncontended, µs a life (target: 6 with three accounts)")
    print(f"{'accounts':>10}{'100 a tick':>14}{'1 a tick':>14}{'new Demand each':>18}")
    for accounts in (1, 2, 3, 4):
        gc.collect()
        row = [
            asyncio.run(uncontended(accounts, per_tick=per_tick, fresh=fresh))
            for per_tick, fresh in ((100, False), (1, False), (100, True))
        ]
        print(f"{accounts:>10}{row[0]:>14.2f}{row[1]:>14.2f}{row[2]:>18.2f}", flush=True)
    print(f"a turn of the event loop itself: {asyncio.run(tick()):.2f} µs, contained once in '1 a tick'")
    print("\n50 tasks on one bucket, the event loop included, µs a life (target: 16)")
    for used in USED:
        print(f"  {used} of 700 reserved tokens used: {min(asyncio.run(contended(used)) for _ in range(6)):.1f}")
    alone = min(asyncio.run(asyncio_alone()) for _ in range(6))
    free = min(asyncio.run(contended(400, waits=False)) for _ in range(6))
    print(f"  of which asyncio alone {alone:.1f}; where nobody has to wait {free:.1f}", flush=True)


def print_decisions(sizes: tuple[int, ...]) -> None:
    print("\na decision with many waiting (8 pools, 2 databases, 50 workflows; target: 1.3 × that at 1,000)")
    print(f"{'waiting':>10}{'µs a decision':>16}{'ratio to 1k':>14}{'µs a grant':>14}{'p99 µs':>10}")
    for waiting in sizes:
        # Each round beside one of a thousand: the ratio is of neighbours in time, whatever else the machine does.
        rounds = 3 if waiting < 1_000_000 else 2
        pairs = [(loaded(1_000, decisions=4_000), loaded(waiting, decisions=4_000)) for _ in range(rounds)]
        ratio = median(there[0] / here[0] for here, there in pairs)
        each, grant, late = (median(column) for column in zip(*[there for _, there in pairs], strict=True))
        print(f"{waiting:>10,}{each:>16.2f}{ratio:>14.2f}{grant:>14.2f}{late:>10.1f}", flush=True)


def print_pauses(sizes: tuple[int, ...]) -> None:
    print("\nthe longest single step through the shell, the collector on, ms (target: 5)")
    print(f"{'waiting':>10}{'freeze':>8}{'µs a life':>12}{'fill':>8}{'churn':>8}{'looking':>10}{'cancel':>8}")
    for waiting in sizes:
        for freeze in (True, False):
            each, longest = asyncio.run(pauses(waiting, freeze=freeze))
            row = "".join(f"{longest[phase]:>{width}.1f}" for phase, width in zip(longest, (8, 8, 10, 8), strict=True))
            print(f"{waiting:>10,}{'on' if freeze else 'off':>8}{each:>12.1f}{row}", flush=True)


def main() -> None:
    quick = "--quick" in sys.argv
    print(f"Python {sys.version.split()[0]}; CPU time, the best of several rounds\n")
    print_lives()
    print_decisions((1_000, 10_000, 100_000) if quick else (1_000, 10_000, 100_000, 1_000_000))
    print_pauses((1_000, 50_000) if quick else (1_000, 100_000, 1_000_000))
    own, whole = asyncio.run(bytes_waiting(20_000))
    print(f"\nbytes a waiting demand: {own:.0f}, with a Demand and CallCharge of its own {whole:.0f} (target: 500)")


if __name__ == "__main__":
    main()
