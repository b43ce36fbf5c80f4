"""The line under random schedules: nothing lost, nothing over, nobody asleep who could go, the oldest never delayed."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from heapq import heappop, heappush
from math import inf

import pytest
from hypothesis import given, settings, strategies as st

from interlock.admission import CountingGate, DatabaseGate, Gate, Level, Line, Rate, TokenBucketRateLimiter
from interlock.admission.accounts import Account
from interlock.admission.queues import CANCELLED, GRANTED, WAITING, Group, Waiter

SLACK = 2e-3


class Meter:
    """An independent book of a level: what it holds, counted forwards from what was taken and given."""

    def __init__(self, level: Level, now: float) -> None:
        self.level, self.holds, self.at = level, level.capacity, now
        self.taken: list[tuple[float, float]] = []

    def move(self, now: float, amount: float) -> float:
        self.holds = min(self.level.capacity, self.holds + (now - self.at) * self.level.published_rate) + amount
        self.at = now
        if amount < 0:
            self.taken.append((now, -amount))
        return self.holds


class Watched(Line):
    """A line that checks every grant at the moment it is made: an older head must not go later because of it."""

    __slots__ = ("checks",)

    def __init__(self) -> None:
        super().__init__()
        self.checks = 0

    def _take(self, waiter: Waiter, now: float) -> None:
        heads = [group for group in self.groups if group.head is not None and self._older(group, waiter)]
        oldest = min(heads, key=lambda g: (g.head.rank, g.ticket), default=None)  # type: ignore[union-attr]
        before = self._fits(oldest, now) if oldest is not None else {}
        super()._take(waiter, now)
        if oldest is not None:
            self.checks += 1
            for name, at in self._fits(oldest, now).items():
                assert at <= max(before[name], now) + 1e-6, f"the oldest head goes later on {name}"

    @staticmethod
    def _older(group: Group, waiter: Waiter) -> bool:
        assert group.head is not None
        return group.head is not waiter and (group.head.rank, group.ticket) < (waiter.rank, waiter.ticket)

    @staticmethod
    def _fits(group: Group, now: float) -> dict[str, float]:
        """When the head fits on each metered account it names."""
        assert group.head is not None
        return {
            account.name: account.fit_at(now, n, first=True)
            for account, n in zip(group.accounts, group.head.amounts, strict=True)
            if account.metered
        }


class Schedule:
    """Jobs that come, run, settle, are cancelled, come back; everything decided by `random`."""

    def __init__(self, seed: int, *, refunds: bool = True, hold_s: tuple[float, ...] = (0.1, 2, inf)) -> None:
        r = self.random = random.Random(seed)
        self.now, self.refunds = 0.0, refunds
        self.levels = [
            Level(f"m{i}:tokens", r.choice([100.0, 1000.0, 5000.0]), r.choice([10.0, 100.0, 400.0])) for i in range(3)
        ]
        hold = r.choice(hold_s)
        self.gates: list[Gate] = [
            DatabaseGate("d", r.choice([1, 2, 5]), hold_s=hold),
            CountingGate("http", r.choice([2, 8]), hold_s=hold),
            CountingGate("slot", 3, hold_s=hold),
        ]
        self.meters = {level: Meter(level, 0.0) for level in self.levels}
        self.line = Watched()
        self.running: list[tuple[float, int, Waiter]] = []
        self.live: dict[int, Waiter] = {}
        self.submitted = self.answered = self.cancelled = self.number = 0
        self.waited: list[tuple[Waiter, float]] = []

    # What happens.

    def submit(self) -> None:
        r = self.random
        accounts: tuple[Account, ...]
        if r.random() < 0.8:
            levels = r.sample(self.levels, 2 if r.random() < 0.25 else 1)
            accounts = (*levels, *r.sample(self.gates, r.randint(0, 3)))
        else:
            accounts = tuple(r.sample(self.gates, r.randint(1, 2)))
        amounts = tuple(
            r.choice([1.0, 10.0, a.capacity * 0.1, a.capacity])
            if a.metered
            else float(r.randint(1, min(2, int(a.capacity))))
            for a in accounts
        )
        self.enter(Waiter(self.line.group(accounts), amounts, priority=r.choice([0, 0, 0, 1, -1])))

    def enter(self, waiter: Waiter) -> None:
        workflow = f"w{self.random.randint(0, 4)}"
        self.live[id(waiter)] = waiter
        self.submitted += 1
        waiter.since = self.now
        if self.line.take_now(waiter, workflow, self.now):
            self.decide([waiter])
        else:
            self.decide(self.line.enter(waiter, workflow, self.now))

    def decide(self, decided: Iterable[Waiter]) -> None:
        for waiter in decided:
            assert waiter.state == GRANTED, "nothing here can be refused"
            assert self.live.pop(id(waiter), None) is waiter, "granted twice, or never asked"
            self.answered += 1
            self.waited.append((waiter, self.now - waiter.since))
            for account, n in zip(waiter.group.accounts, waiter.amounts, strict=True):
                if isinstance(account, Level):
                    assert self.meters[account].move(self.now, -n) >= -SLACK, (
                        f"{account.name} gave what it did not hold"
                    )
            self.number += 1
            lasts = self.random.expovariate(1 / self.random.choice([0.05, 1, 5]))
            heappush(self.running, (self.now + lasts, self.number, waiter))

    def end(self) -> None:
        waiter = heappop(self.running)[2]
        r, group = self.random, waiter.group
        backs: list[float] = []
        for account, n in zip(group.accounts, waiter.amounts, strict=True):
            back = n * r.choice([0.9, 0.5, 0, 0, 0]) if account.metered and self.refunds else 0.0
            backs.append(back if account.metered else n)
            if isinstance(account, Level):
                self.meters[account].move(self.now, back)
        self.decide(self.line.give(group.accounts, backs, self.now))
        if r.random() < 0.1:  # it comes back with its ticket
            self.enter(Waiter(group, waiter.amounts, priority=-waiter.rank, ticket=waiter.ticket))

    def cancel(self) -> None:
        waiter = self.random.choice(sorted(self.live.values(), key=lambda w: (w.since, w.ticket, w.amounts)))
        del self.live[id(waiter)]
        self.cancelled += 1
        self.decide(self.line.cancel(waiter, self.now))
        assert waiter.state == CANCELLED

    # What must hold after each of them.

    def check(self) -> None:
        for gate in self.gates:
            out = sum(
                n for _, _, w in self.running for a, n in zip(w.group.accounts, w.amounts, strict=True) if a is gate
            )
            assert gate.used == out <= gate.capacity
        waiting = 0
        for group in self.line.groups:
            queued = [w for flow in group.flows.values() for w in flow.queue if w.state == WAITING]
            queued += [w for _, _, w in group.returned if w.state == WAITING]
            waiting += len(queued) + (group.head is not None)
            assert group.waiting == len(queued) + (group.head is not None)
            assert group.head is not None or not queued, "somebody waits and nobody is looked at"
            if group.head is not None:
                self.check_asleep(group)
        assert waiting == self.line.waiting == len(self.live)

    def check_asleep(self, group: Group) -> None:
        """No lost wake-up: a head that could go by the rule has a timer that is due."""
        head = group.head
        assert head is not None
        short = self.line._short(group, head.amounts, head.rank, group.ticket, self.now)
        if short is None:
            assert min(group.wake, self.line.next_instant()) <= self.now + 1e-3, f"{group.watch} sleeps"
        elif all(g.head is None or (g.head.rank, g.ticket) >= (head.rank, group.ticket) for g in self.line.groups):
            # No wait without a reason: of the first in the order, something is really missing.
            lacks = any(a.free(self.now) < n for a, n in zip(group.accounts, head.amounts, strict=True))
            assert lacks, "an idle head"

    def run(self, jobs: int) -> None:
        next_submit = 0.0
        while self.submitted < jobs or self.live or self.running:
            instants: list[tuple[float, Callable[[], None]]] = [(self.line.next_instant(), self.tick)]
            if self.running:
                instants.append((self.running[0][0], self.end))
            if self.submitted < jobs:
                instants.append((next_submit, self.submit))
            at, act = min(instants, key=lambda pair: pair[0])
            assert at < inf, f"nothing will ever happen, and {len(self.live)} wait"
            self.now = max(self.now, at)
            if act == self.submit:
                next_submit += self.random.expovariate(self.random.choice([2, 20]))
            act()
            if self.live and self.random.random() < 0.05:
                self.cancel()
            self.check()

    def tick(self) -> None:
        self.decide(self.line.tick(self.now))


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 1_000_000))
def test_any_schedule_keeps_the_rules_of_the_line(seed: int) -> None:
    schedule = Schedule(seed)
    schedule.run(80)
    assert schedule.answered + schedule.cancelled == schedule.submitted
    assert all(gate.used == 0 for gate in schedule.gates)
    for account in (*schedule.levels, *schedule.gates):
        assert not account.claims
        assert not account.watchers
        assert account.active == 0


def test_the_check_of_the_oldest_head_bites() -> None:
    """The property above is not vacuous: it is evaluated often, in every kind of schedule."""
    checks = 0
    for seed in range(20):
        schedule = Schedule(seed)
        schedule.run(60)
        checks += schedule.line.checks
    assert checks > 100


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 1_000_000))
def test_no_window_takes_more_than_burst_and_refill(seed: int) -> None:
    schedule = Schedule(seed, refunds=False)
    schedule.run(60)
    for level, meter in schedule.meters.items():
        for i, (start, _) in enumerate(meter.taken):
            total = 0.0
            for at, amount in meter.taken[i:]:
                total += amount
                assert total <= level.capacity + level.published_rate * (at - start) + SLACK


@pytest.mark.parametrize("seed", range(5))
def test_the_same_seed_decides_the_same(seed: int) -> None:
    traces = []
    for _ in range(2):
        schedule = Schedule(seed)
        schedule.run(60)
        traces.append([(w.ticket, w.amounts, waited) for w, waited in schedule.waited])
    assert traces[0] == traces[1]


def test_a_share_is_counted_in_the_dimension_that_is_scarcest() -> None:
    limits = TokenBucketRateLimiter("p", {"tokens": Rate(6_000.0, 100.0), "requests": Rate(60.0, 1.0)})
    group = Line().group((*limits.accounts, CountingGate("g", 1)))
    assert group.cost((1_000.0, 1.0, 1.0)) == pytest.approx(10.0)
    assert group.cost((10.0, 1.0, 1.0)) == pytest.approx(1.0)


@pytest.mark.parametrize("start_s", [0.01, 500.0])
def test_a_gate_learns_how_long_it_is_typically_held(start_s: float) -> None:
    """The running 90th percentile of exponential holds of mean 2 s is near 4.6 s, wherever it started."""
    r, gate, seen = random.Random(4), CountingGate("g", 1, hold_s=start_s), []
    for i in range(3_000):
        gate.held_for(r.expovariate(0.5))
        if i > 1_000:
            seen.append(gate.hold_s)
    assert 3.2 < sum(seen) / len(seen) < 6.2


def obvious_model(asks: list[tuple[float, float, int, float]], rate: float) -> list[float]:
    """First come, first served on a level of 100 and a gate of 3, by trying later and later instants."""
    holds, at, came, previous = 100.0, 0.0, 0.0, 0.0
    running: list[tuple[float, int]] = []
    starts: list[float] = []
    for passes, tokens, slots, lasts in asks:
        came += passes
        start = max(came, previous)
        while True:
            have = min(100.0, holds + (start - at) * rate)
            out = [(end, n) for end, n in running if end > start]
            if sum(n for _, n in out) + slots > 3:
                start = min(out)[0]
            elif have < tokens - 1e-6:
                start += (tokens - have) / rate
            else:
                break
        holds, at, previous = have - tokens, start, start
        running.append((start + lasts, slots))
        starts.append(start)
    return starts


@settings(max_examples=80, deadline=None)
@given(
    asks=st.lists(
        st.tuples(st.floats(0, 5), st.floats(1, 100), st.integers(1, 3), st.floats(0.1, 30)), min_size=1, max_size=30
    ),
    rate=st.floats(1, 50),
)
def test_one_group_goes_when_the_obvious_model_says(asks: list[tuple[float, float, int, float]], rate: float) -> None:
    level, gate, line = Level("p:tokens", 100.0, rate), CountingGate("g", 3), Line()
    events: list[tuple[float, int, int]] = []  # (instant, 0 it ends | 1 it comes, number)
    waiters: list[Waiter] = []
    went: dict[int, float] = {}
    came = 0.0
    for number, (passes, tokens, slots, _) in enumerate(asks):
        came += passes
        events.append((came, 1, number))
        waiters.append(Waiter(line.group((level, gate)), (tokens, float(slots))))

    def grant(decided: Iterable[Waiter], now: float) -> None:
        for waiter in decided:
            number = waiters.index(waiter)
            went[number] = now
            heappush(events, (now + asks[number][3], 0, number))

    while events or line.next_instant() < inf:
        if events and events[0][0] <= line.next_instant():
            now, comes, number = heappop(events)
            waiter = waiters[number]
            if not comes:
                grant(line.give((gate,), (float(asks[number][2]),), now), now)
            elif line.take_now(waiter, "w", now):
                grant([waiter], now)
            else:
                grant(line.enter(waiter, "w", now), now)
        else:
            now = line.next_instant()
            grant(line.tick(now), now)
    assert [went[number] for number in range(len(asks))] == pytest.approx(obvious_model(asks, rate), abs=5e-3)
