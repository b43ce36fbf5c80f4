"""What is reserved where a provider meters what it produces: learnt by kind, bounded, careful before it is learnt."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from hypothesis import given, strategies as st

from interlock.admission import Admission, CallCharge, CallOutcome, Demand, OutcomeKind
from interlock.admission.expected import ENOUGH, ENOUGH_COARSE, REMEMBERED_ANSWERS, ExpectedOutput, Outputs
from interlock.admission.virtual import run_virtual
from interlock.catalog.entry import Accounting, Limits

EXPECTED = Accounting(output="expected", cache_reads="free")


def learnt(*outputs: float, key: str = "k", kind: str | None = None) -> ExpectedOutput:
    expected = ExpectedOutput()
    for tokens in outputs:
        expected.observe(key, kind, tokens, tokens / 50)
    return expected


def test_nothing_is_expected_before_a_few_answers_are_known() -> None:
    assert learnt(*[10] * (ENOUGH - 1)).expect(EXPECTED, "k", None, 800) == 800
    assert learnt(*[10] * ENOUGH).expect(EXPECTED, "k", None, 800) == 10


def test_the_quantile_is_of_the_latest_answers() -> None:
    high = Accounting(output="expected", expected_quantile=0.9)
    steps = [float(n) for n in range(1, REMEMBERED_ANSWERS + 1)]
    assert learnt(*steps).expect(EXPECTED, "k", None, 800) == 32
    assert learnt(*steps).expect(high, "k", None, 800) == 58
    assert learnt(*[700] * 500, *[10] * REMEMBERED_ANSWERS).expect(high, "k", None, 800) == 10


def test_never_above_the_limit_and_never_below_the_floor() -> None:
    floor = Accounting(output="expected", expected_floor_tokens=300)
    assert learnt(*[500] * 9).expect(EXPECTED, "k", None, 200) == 200
    assert learnt(*[10] * 9).expect(floor, "k", None, 800) == 300
    assert learnt(*[10] * 9).expect(floor, "k", None, 200) == 200, "the limit is the ceiling of the floor too"


def test_a_classification_and_an_essay_of_one_spec_have_an_estimate_each() -> None:
    expected = ExpectedOutput()
    for _ in range(10):
        expected.observe("spec", "classify", 5, 0.1)
        expected.observe("spec", "essay", 4_000, 80)
    assert expected.expect(EXPECTED, "spec", "classify", 8_000) == 5
    assert expected.expect(EXPECTED, "spec", "essay", 8_000) == 4_000


def test_a_kind_of_its_own_is_taken_for_the_upper_part_of_all_kinds_once_there_were_enough() -> None:
    expected = ExpectedOutput()
    for n in range(ENOUGH_COARSE - 1):
        expected.observe("spec", f"customer {n}", 100 + n, 2)
    assert expected.expect(EXPECTED, "spec", "another", 8_000) == 8_000
    expected.observe("spec", "customer", 500, 10)
    assert expected.expect(EXPECTED, "spec", "another", 8_000) == 114, "three in four stay under it"


def test_many_short_and_a_few_long_answers_are_expected_to_be_what_is_under_way() -> None:
    assert learnt(*[100] * 9, 5_000).expect(EXPECTED, "k", None, 8_000) == pytest.approx(25_090_000 / (2 * 5_900))


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=200), st.floats(0.01, 0.99))
def test_the_running_quantile_is_that_of_a_plain_list(values: list[float], q: float) -> None:
    outputs = Outputs()
    for value in values:
        outputs.add(value)
    latest = sorted(values[-REMEMBERED_ANSWERS:])
    found = outputs.quantile(q)
    assert sum(value <= found for value in latest) >= q * len(latest) - 1e-9
    assert all(sum(v <= value for v in latest) < q * len(latest) for value in latest if value < found)
    assert outputs.mean == pytest.approx(sum(latest) / len(latest), abs=1e-3)


async def test_whoever_waits_goes_by_what_has_been_learnt_meanwhile(house) -> None:
    house.sends = True
    pool = house.pool(output_tpm=60_000)
    for i in range(100):
        house.ask(house.call(pool, 10, 8_192, accounting=EXPECTED), label=str(i))
    await house.clock.settle()
    assert len(house.granted) == 7, "the whole limit of each"
    for i in range(6):
        await house.clock.advance(1)
        house.finish(house.granted[i], used=(10, 60))
    await house.clock.advance(10)
    assert len(house.granted) > 50, "and the one that has not ended keeps the estimate careful"


async def test_an_answer_that_outgrows_its_reservation_is_owed_while_it_grows(house) -> None:
    house.sends = True
    pool = house.pool(output_tpm=6_000)
    for _ in range(ENOUGH):
        pool.observe_output("k", None, 100, 2.0)
    house.ask(house.call(pool, 10, 4_000, accounting=EXPECTED), label="long")
    await house.clock.settle()
    assert house.level("p:output_tokens") == pytest.approx(5_900)
    await house.clock.advance(60)
    assert house.level("p:output_tokens") == pytest.approx(6_000, abs=100), "a minute refills what a minute took"
    await house.clock.advance(15)
    assert len(house.admission.growing) == 1
    house.finish(house.granted[0], used=(10, 3_900))
    assert house.level("p:output_tokens") == pytest.approx(5_900, abs=200)
    assert len(house.admission.growing) == 0


async def test_an_answer_under_way_keeps_the_provider_from_refilling_over_it(house) -> None:
    """Full buckets do not refill: what has been reserved and not been produced still stands in the provider's."""
    house.sends = True
    pool = house.pool(output_tpm=6_000)
    house.ask(house.call(pool, 10, 4_000, accounting=EXPECTED), label="first")
    await house.clock.advance(600)
    assert house.level("p:output_tokens") == pytest.approx(2_000), "nothing is known of how fast it grows"
    house.finish(house.granted[0], used=(10, 3_000))
    assert house.level("p:output_tokens") == pytest.approx(3_000)


async def test_an_answer_that_never_came_leaves_nothing_behind(house) -> None:
    house.sends = True
    pool = house.pool(output_tpm=6_000)
    for kind in (OutcomeKind.REJECTED, OutcomeKind.OVERLOADED, OutcomeKind.UNKNOWN, OutcomeKind.ABANDONED):
        house.ask(house.call(pool, 10, 1_000, accounting=EXPECTED), label=str(kind))
        await house.clock.settle()
        house.finish(house.answers[str(kind)], kind, used=(10, 5))
    await house.clock.advance(120)
    assert len(house.admission.growing) == 0
    assert pool.accounts[0].unsent == 0
    assert house.level("p:output_tokens") == pytest.approx(6_000)
    assert house.clock.next_instant is None, "no timer where nothing is under way"


async def test_the_second_of_two_calls_goes_by_what_has_been_learnt_too(house) -> None:
    first, second = house.pool("a", tpm=60_000), house.pool("b", output_tpm=600)
    house.ask(house.call(second, 0, 600, key="full"), label="full")

    def ask(label: str) -> None:
        calls = house.call(first, 1, key="a"), house.call(second, 0, 500, key="b", accounting=EXPECTED)
        house.ask(*calls, label=label)

    await house.clock.settle()
    ask("head")
    ask("behind")
    for _ in range(30):
        second.observe_output("b", None, 5, 1.0)
    house.answers["full"].release()
    await house.clock.settle()
    assert house.granted_labels() == ["full", "head", "behind"]


class RunningClock:
    """The time of whichever loop runs."""

    def now(self) -> float:
        return asyncio.get_running_loop().time()

    def call_at(self, when_s: float, callback: Callable[[], None]) -> asyncio.TimerHandle:
        return asyncio.get_running_loop().call_at(when_s, callback)

    async def sleep(self, delay_s: float) -> None:
        await asyncio.sleep(delay_s)


def test_answers_are_watched_in_the_next_loop_too() -> None:
    admission = Admission(RunningClock(), jitter=lambda: 0.0)

    async def send(watched_s: float) -> float:
        """Tokens that are taken not to have been produced after so many seconds, of a hundred."""
        pool = admission.pool("p", Limits(output_tpm=6_000))
        for _ in range(ENOUGH):
            pool.observe_output("k", None, 100, 10.0)
        call = CallCharge(key="k", pool=pool, accounting=EXPECTED, input_tokens=1, output_tokens=100)
        reservation = await admission.admit(Demand(calls=(call,)))
        permit = reservation.permit("k", input_tokens=1, output_tokens=100)
        permit.sent()
        await asyncio.sleep(watched_s)
        assert permit.unproduced is not None
        left = permit.unproduced.output_tokens
        permit.close(CallOutcome(kind=OutcomeKind.UNKNOWN))
        reservation.release()
        return left

    assert run_virtual(send(0.1)) == 100.0, "its loop is gone before anybody looks"
    assert run_virtual(send(5.1), start_s=2_000.0) == pytest.approx(50.0)
