"""Random schedules: the limits hold whatever is asked, and the same schedule gives the same trace."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import httpx2
from hypothesis import given, settings, strategies as st

from interlock.clients.simulator import PublishedLimits, SimulatedProvider, Step

PATHS = {"anthropic": "/v1/messages", "openai": "/v1/chat/completions"}
STEPS: list[Callable[[], Step | None]] = [
    lambda: None,
    lambda: None,
    Step.overloaded,
    Step.rate_limited,
    Step.quota,
    Step.truncated,
    Step.refusal,
    Step.html,
    Step.stream_error,
    lambda: Step.cut(1),
    lambda: Step.slow(0.5),
    lambda: Step.answer("one two three", output_tokens=500),
]
LIMITS = PublishedLimits(rpm=60, tpm=3_000, input_tpm=2_000, output_tpm=1_000, burst_s=10)

moves = st.lists(
    st.tuples(
        st.sampled_from(["anthropic", "openai"]),
        st.booleans(),  # streamed
        st.integers(1, 120),  # tokens of input
        st.sampled_from([1, 20, 400]),  # output limit
        st.sampled_from([0.0, 0.0, 0.1, 1.0, 7.0]),  # seconds before it
        st.integers(0, len(STEPS) - 1),
    ),
    max_size=40,
)


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def now(self) -> float:
        return self.now_s

    async def sleep(self, seconds: float) -> None:
        self.now_s += seconds


async def play(schedule: list[Any], serves: float, seed: int) -> tuple[SimulatedProvider, list[Any], float]:
    clock = Clock()
    provider = SimulatedProvider(limits=LIMITS, serves=serves, seed=seed, now=clock.now, sleep=clock.sleep)
    transport = httpx2.ASGITransport(app=provider.app)
    trace = []
    async with httpx2.AsyncClient(transport=transport, base_url="http://x", headers={"x-api-key": "k"}) as client:
        for wire, streamed, tokens, most, wait_s, step in schedule:
            clock.now_s += wait_s
            made = STEPS[step]()
            if made is not None:
                provider.script(made)
            body = {"model": "m", "max_tokens": most, "stream": streamed}
            messages = [{"role": "user", "content": "word" * tokens}]
            response = await client.post(PATHS[wire], json=body | {"messages": messages})
            created = response.text.partition('"created":')[2][:10]  # the time of day is the one thing that differs
            trace.append((response.status_code, response.text.replace(created, "") if created else response.text))
    return provider, trace, clock.now_s


@settings(max_examples=60, deadline=None)
@given(schedule=moves, serves=st.sampled_from([1.0, 0.3]), seed=st.integers(0, 3))
def test_limits_hold_and_every_request_is_logged_to_its_end(schedule: list[Any], serves: float, seed: int) -> None:
    provider, trace, ended_s = asyncio.run(play(schedule, serves, seed))
    requests = provider.requests
    assert len(requests) == len(schedule) == provider.count
    assert all(seen.finished_at_s is not None and seen.finished_at_s >= seen.at_s for seen in requests)
    assert [seen.status for seen in requests] == [status for status, _ in trace]
    metered = [seen for seen in requests if seen.step not in ("overloaded", "rate_limited", "quota", "html")]
    admitted = [seen for seen in metered if seen.refused_by is None]
    burst, share = LIMITS.burst_s / 60, serves / 60
    assert len(admitted) <= 60 * (burst + share * ended_s) + 1e-6
    assert sum(seen.input_tokens for seen in admitted) <= 2_000 * (burst + share * ended_s) + 1e-6
    assert provider.refused == sum(seen.refused_by is not None for seen in requests)


@settings(max_examples=15, deadline=None)
@given(schedule=moves, seed=st.integers(0, 3))
def test_the_same_schedule_gives_the_same_trace(schedule: list[Any], seed: int) -> None:
    assert asyncio.run(play(schedule, 0.5, seed))[1] == asyncio.run(play(schedule, 0.5, seed))[1]
