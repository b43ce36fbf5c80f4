"""Accounts mirror the provider's own: what each charges at the start and what that settles to, a row each, as data."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from interlock.admission import CallOutcome, OutcomeKind
from interlock.catalog.entry import Accounting, Limits
from interlock.catalog.usage import Usage

ANTHROPIC = Accounting(output="expected", cache_reads="free")
OPENAI = Accounting(output="limit", cache_reads="counted")
BEDROCK = Accounting(output="limit", cache_reads="free", output_burndown=5)
MANTLE = Accounting(output="expected", cache_reads="free", limit_on_input=True)
GEMINI = Accounting(output="expected", cache_reads="counted")
TYPESAFE = Accounting(output="limit")

#: (provider, limits, accounting, (input, output limit), charged at the start, usage, what it has settled to)
ROWS: list[tuple[str, dict[str, Any], Accounting, tuple[int, int], dict[str, float], Usage, dict[str, float]]] = [
    (
        "anthropic: cache writes are input, reads are free, output is what was produced",
        {"rpm": 60_000, "input_tpm": 1e6, "output_tpm": 1e6},
        ANTHROPIC,
        (1_000, 4_000),
        {"requests": 1, "input_tokens": 1_000, "output_tokens": 4_000},
        Usage(input_tokens=900, cache_write_tokens=300, cache_read_tokens=50_000, output_tokens=250),
        {"requests": 1, "input_tokens": 1_200, "output_tokens": 250},
    ),
    (
        "openai: input and output limit together, cached input counts",
        {"rpm": 60_000, "tpm": 1e6},
        OPENAI,
        (1_000, 4_000),
        {"requests": 1, "tokens": 5_000},
        Usage(input_tokens=200, cache_read_tokens=700, output_tokens=250),
        {"requests": 1, "tokens": 1_150},
    ),
    (
        "bedrock: no burndown at the start, five for one at the end",
        {"tpm": 1e6},
        BEDROCK,
        (1_000, 4_000),
        {"tokens": 5_000},
        Usage(input_tokens=1_000, cache_write_tokens=100, cache_read_tokens=9_000, output_tokens=500),
        {"tokens": 3_600},
    ),
    (
        "bedrock: the settlement may exceed the reservation",
        {"tpm": 10_000},
        BEDROCK,
        (1_000, 4_000),
        {"tokens": 5_000},
        Usage(input_tokens=1_000, output_tokens=4_000),
        {"tokens": 21_000},
    ),
    (
        "mantle: input and max_tokens against the input limit, output as it is produced against its own",
        {"input_tpm": 1e6, "output_tpm": 1e6},
        MANTLE,
        (1_000, 4_000),
        {"input_tokens": 5_000, "output_tokens": 4_000},
        Usage(input_tokens=1_000, cache_read_tokens=9_000, output_tokens=250),
        {"input_tokens": 1_000, "output_tokens": 250},
    ),
    (
        "gemini: requests of the minute and of the day, tokens together",
        {"rpm": 15, "tpm": 1e6, "rpd": 1_000, "day_resets": "00:00 America/Los_Angeles"},
        GEMINI,
        (1_000, 4_000),
        {"requests": 1, "tokens": 5_000, "requests_per_day": 1},
        Usage(input_tokens=600, cache_read_tokens=400, output_tokens=250),
        {"requests": 1, "tokens": 1_250, "requests_per_day": 1},
    ),
    (
        "typesafe: input only",
        {"rpm": 1_200, "input_tpm": 15e6},
        TYPESAFE,
        (1_000, 0),
        {"requests": 1, "input_tokens": 1_000},
        Usage(input_tokens=304, output_tokens=18),
        {"requests": 1, "input_tokens": 304},
    ),
]


@pytest.mark.parametrize(
    ("limits", "accounting", "size", "start", "usage", "end"),
    [pytest.param(*row[1:], id=row[0]) for row in ROWS],
)
async def test_what_is_charged_at_the_start_and_settled_at_the_end(
    house,
    limits: dict[str, Any],
    accounting: Accounting,
    size: tuple[int, int],
    start: dict[str, float],
    usage: Usage,
    end: dict[str, float],
) -> None:
    house.sends = True
    pool = house.pool(**limits)

    def taken() -> dict[str, float]:
        rows = {level.name.removeprefix("p:"): level for level in pool.limiter.levels.values()}
        return {name: level.capacity - level.level(house.clock.now()) for name, level in rows.items()}

    house.ask(house.call(pool, *size, accounting=accounting))
    await house.clock.settle()
    assert taken() == pytest.approx(start)
    house.sent[house.granted[0]][0].close(CallOutcome(kind=OutcomeKind.COMPLETED, usage=usage))
    house.granted[0].release()
    assert taken() == pytest.approx(end)


async def test_models_that_share_a_pool_share_its_levels_and_a_burst_is_apart_from_its_rate(house) -> None:
    limits = Limits(input_tpm=60_000, burst_s=10)
    opus, sonnet = (house.admission.pool("claude", limits) for _ in range(2))
    house.ask(house.call(opus, 6_000, key="opus"), label="opus")
    house.ask(house.call(sonnet, 6_000, key="sonnet"), label="sonnet")
    await house.clock.settle()
    assert house.granted_labels() == ["opus"], "ten seconds of the rate at once"
    house.finish(house.answers["opus"], used=(6_000, 0))
    await house.clock.advance(2.1)
    assert house.granted_labels() == ["opus", "sonnet"]


class SlowAccount:
    """The obvious model: every amount with its instant; no window may hold more than burst + rate x time."""

    def __init__(self, capacity: float, rate: float, day_s: float | None) -> None:
        self.capacity, self.rate, self.day_s = capacity, rate, day_s
        self.taken: list[tuple[float, float]] = []

    def check(self) -> None:
        ends = [at for at, _ in self.taken]
        for i, start in enumerate(ends):
            total = 0.0
            for at, amount in self.taken[i:]:
                total += amount
                if self.day_s is None:
                    assert total <= self.capacity + self.rate * (at - start) + 1e-3 * self.capacity
                elif (at + 1e-5) // self.day_s == (start + 1e-5) // self.day_s:  # a wall clock counts microseconds
                    assert total <= self.capacity + 1e-3


KINDS: dict[str, tuple[dict[str, Any], float | None]] = {
    "tokens": ({"tpm": 6_000.0}, None),
    "input_tokens": ({"input_tpm": 600.0, "burst_s": 5.0}, None),
    "requests": ({"rpm": 30.0, "burst_s": 10.0}, None),
    "tokens_per_day": ({"tpd": 3_000.0, "tpm": 60_000.0}, None),
    "requests_per_day": ({"rpd": 9.0, "day_resets": "00:00 UTC"}, 86_400.0),
    "tokens_per_day ": ({"tpd": 3_000.0, "day_resets": "00:00 UTC", "tpm": 60_000.0}, 86_400.0),
}


@pytest.mark.parametrize("kind", list(KINDS))
@given(
    calls=st.lists(
        st.tuples(st.floats(0, 9_000), st.integers(1, 50), st.floats(0, 400), st.floats(0, 1)), min_size=1, max_size=40
    )
)
@settings(deadline=None, max_examples=25)
def test_never_over_a_limit_in_any_window_beyond_burst_and_rate(
    kind: str, calls: list[tuple[float, int, float, float]]
) -> None:
    import asyncio
    from datetime import UTC, datetime, timedelta

    from interlock.admission import Admission, CallCharge, Demand, ManualClock, Reservation

    given_limits, day_s = KINDS[kind]
    clock = ManualClock(0.0)
    wall = lambda: datetime(2026, 11, 30, tzinfo=UTC) + timedelta(seconds=clock.now())  # noqa: E731

    async def run() -> SlowAccount:
        admission = Admission(clock, jitter=lambda: 0.0, wall=wall)
        pool = admission.pool("p", Limits(**given_limits))
        level = pool.limiter.levels[kind.strip()]
        model = SlowAccount(level.capacity, level.capacity / 86_400 if "day" in kind else level.rate, day_s)

        def go(size: int, lasts_s: float, share: float) -> Any:
            def granted(reservation: Reservation) -> None:
                permit = reservation.permit("k", input_tokens=size, output_tokens=0)
                permit.sent()
                used = max(int(size * share), 1)
                model.taken.append((clock.now(), 1 if level.part == 0 else used))

                def done() -> None:
                    usage = Usage(input_tokens=used, output_tokens=0)
                    permit.close(CallOutcome(kind=OutcomeKind.COMPLETED, usage=usage))
                    reservation.release()

                clock.call_at(clock.now() + lasts_s, done)

            return granted

        for after_s, size, lasts_s, share in calls:
            await clock.advance(after_s)
            call = CallCharge(key="k", pool=pool, accounting=OPENAI, input_tokens=size, output_tokens=0)
            admission.submit(Demand(calls=(call,)), go(size, lasts_s, share), lambda error: None)
        await clock.advance(3 * 86_400)
        assert len(model.taken) == len(calls), "nobody is left behind"
        return model

    asyncio.run(run()).check()
