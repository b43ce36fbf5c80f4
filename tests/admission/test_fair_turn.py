"""What fair means, held against the fluid queue; and a head that nobody behind it delays."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from heapq import heappop, heappush
from itertools import pairwise
from math import inf
from pathlib import Path
from typing import NamedTuple

from hypothesis import given, settings, strategies as st

from interlock.admission import CountingGate, Gate, Level, Line
from interlock.admission.queues import NO_TICKET, WAITING, Waiter

sys.path.append(str(Path(__file__).parents[2]))  # the benchmarks are not installed

from benchmarks.admission.fluid import Arrival, fluid_finishes

CAPACITY, RATE, LARGE = 100.0, 10.0, 100.0
LATE = 0.02  # seconds by which an instant may be off: rounding, once for each call


class Job(NamedTuple):
    at_s: float
    workflow: str
    tokens: float
    slots: int = 0
    lasts_s: float = 0.0
    back: float = 0.0  # the part of its tokens that it gives back at its end


class Served(NamedTuple):
    went: dict[int, float]
    headed: dict[int, tuple[float, int]]  # when each became a head, with its ticket


def serve(jobs: Sequence[tuple[int, Job]], slots: int = 1) -> Served:
    """Run numbered jobs (in order of arrival) through one line, from event to event."""
    level, gate, line = Level("p:tokens", CAPACITY, RATE), CountingGate("g", slots, hold_s=inf), Line()
    waiters: dict[int, Waiter] = {}
    names: dict[int, int] = {}
    served = Served({}, {})
    events: list[tuple[float, int, int]] = [(job.at_s, 1, number) for number, job in jobs]
    known = dict(jobs)

    def decide(decided: Sequence[Waiter], now: float) -> None:
        for waiter in decided:
            number = names[id(waiter)]
            served.went[number] = now
            if known[number].slots or known[number].back:
                heappush(events, (now + known[number].lasts_s, 0, number))
        for number, waiter in waiters.items():
            if waiter.state == WAITING and waiter.ticket != NO_TICKET:
                served.headed.setdefault(number, (now, waiter.ticket))

    while events or line.next_instant() < inf:
        if events and events[0][0] <= line.next_instant():
            now, comes, number = heappop(events)
            job = known[number]
            if not comes:
                group = waiters[number].group
                backs = [job.tokens * job.back, *([float(job.slots)] if job.slots else [])]
                decide(line.give(group.accounts, backs, now), now)
                continue
            accounts: tuple[Level | Gate, ...] = (level, gate) if job.slots else (level,)
            amounts = (job.tokens, float(job.slots)) if job.slots else (job.tokens,)
            waiter = waiters[number] = Waiter(line.group(accounts), amounts)
            names[id(waiter)] = number
            waiter.since = now
            decide([waiter] if line.take_now(waiter, job.workflow, now) else line.enter(waiter, job.workflow, now), now)
        else:
            now = line.next_instant()
            decide(line.tick(now), now)
    assert served.went.keys() == known.keys()
    return served


def arriving(
    gaps: st.SearchStrategy[float], sizes: st.SearchStrategy[float], **more: st.SearchStrategy
) -> st.SearchStrategy[list[Job]]:
    """Jobs in order of their arrival."""
    rest = {"slots": st.just(0), "lasts_s": st.just(0.0), "back": st.just(0.0), **more}
    one = st.tuples(gaps, st.builds(Job, st.just(0.0), st.sampled_from("abcde"), sizes, **rest))

    def laid(parts: list[tuple[float, Job]]) -> list[Job]:
        at, jobs = 0.0, []
        for gap, job in parts:
            at += gap
            jobs.append(job._replace(at_s=at))
        return jobs

    return st.lists(one, min_size=1, max_size=60).map(laid)


@settings(max_examples=150, deadline=None)
@given(jobs=arriving(st.sampled_from([0.0, 0.1, 1.0, 8.0]), st.sampled_from([1.0, 5.0, 20.0, 60.0, LARGE])))
def test_a_large_call_waits_for_its_fair_turn_and_one_call_of_each_other_workflow(jobs: list[Job]) -> None:
    """Within 1.1 of its wait in a queue that serves every workflow drop by drop, plus one call of each other workflow:
    calls cannot be cut, and that is the bound of fair queueing by start times (Goyal, Vin and Cheng, 1996)."""
    others = max(len({job.workflow for job in jobs}) - 1, 1)
    went = serve(list(enumerate(jobs))).went
    fair = fluid_finishes([Arrival(*job[:3]) for job in jobs], [(0.0, RATE)], capacity=CAPACITY)
    for number, job in enumerate(jobs):
        if job.tokens == LARGE:
            turn = fair[number] - job.at_s
            wait = went[number] - job.at_s
            assert wait <= 1.1 * turn + others * LARGE / RATE + LATE, f"{number}: {wait} where its fair turn is {turn}"


@settings(max_examples=60, deadline=None)
@given(
    sizes=st.dictionaries(st.sampled_from("abcd"), st.lists(st.floats(1, LARGE), min_size=1, max_size=4), min_size=2),
    late=st.floats(0, 60),
)
def test_workflows_that_wait_side_by_side_are_served_alike(sizes: dict[str, list[float]], late: float) -> None:
    """Of any two that wait all the time, one is ahead of the other by no more than a call of each; who comes late
    starts where the others stand."""
    first, *others = sorted(sizes)
    jobs = [Job(0.0, first, sizes[first][i % len(sizes[first])]) for i in range(120)]
    jobs += [Job(late, other, sizes[other][i % len(sizes[other])]) for other in others for i in range(120)]
    went = serve(list(enumerate(jobs))).went
    ends = [max(at for number, at in went.items() if jobs[number].workflow == name) for name in sizes]
    had = dict.fromkeys(sizes, 0.0)
    largest = {name: max(few) for name, few in sizes.items()}
    for number, at in sorted(went.items(), key=lambda item: (item[1], item[0])):
        if late < at < min(ends):
            had[jobs[number].workflow] += jobs[number].tokens
            for one, other in pairwise(sorted(had)):
                assert abs(had[one] - had[other]) <= 2 * (largest[one] + largest[other]) + 1e-6, had


@settings(max_examples=80, deadline=None)
@given(
    jobs=arriving(
        st.sampled_from([0.0, 0.1, 2.0]),
        st.sampled_from([1.0, 10.0, 50.0, LARGE]),
        slots=st.integers(0, 2),
        lasts_s=st.sampled_from([0.5, 5.0, 30.0]),
        back=st.sampled_from([0.0, 0.0, 0.5]),
    )
)
def test_a_head_goes_no_later_for_those_who_came_after_it(jobs: list[Job]) -> None:
    """Once a head, always as soon: the same schedule without anybody who came later is no quicker for it."""
    numbered = list(enumerate(jobs))
    served = serve(numbered, slots=2)
    heads = sorted(served.headed.items(), key=lambda item: item[1])
    for number, (since, _) in heads[:: max(len(heads) // 4, 1)]:
        without = serve([(n, job) for n, job in numbered if job.at_s <= since], slots=2)
        assert served.went[number] <= without.went[number] + LATE, f"{number} was a head at {since}"


def test_a_workflow_that_was_idle_comes_back_to_where_the_others_stand() -> None:
    """It has saved up nothing while it asked for nothing."""
    jobs = [*[Job(0.0, "busy", 20.0)] * 80, Job(0.1, "back", 20.0), *[Job(60.0, "back", 20.0)] * 40]
    went = serve(list(enumerate(jobs))).went
    later = sorted((at, number) for number, at in went.items() if at > 60.0)[:20]
    assert 8 <= sum(jobs[number].workflow == "back" for _, number in later) <= 12
