"""CallAttempt: permit, sent, outcome, close, record; exactly once."""

from __future__ import annotations

import asyncio
from datetime import date
from decimal import Decimal
from typing import Any

import pytest

from interlock.admission.outcome import Dimension, OutcomeKind, ReportedLimit
from interlock.catalog.entry import ModelEntry, Prices, ProviderSettings
from interlock.catalog.spec import ModelBinding, ModelSpec
from interlock.catalog.usage import Usage
from interlock.catalog.words import Grade, Kind
from interlock.clients.environment import ClientEnvironment
from interlock.clients.lifecycle import CallAttempt
from interlock.credentials import Chain, EnvironmentStore, Redactor
from interlock.errors import (
    InvalidRequestError,
    OverloadedError,
    QuotaExhaustedError,
    RateLimitedError,
    StreamInterruptedError,
    TransientUpstreamError,
)

from .conftest import PRICES, WALL, FakeSeat

RESERVED = Usage(input_tokens=100, output_tokens=200, estimated=True)


def attempt_of(manual: Any, *, prices: Prices | None = PRICES, keep_text: bool = False) -> tuple[CallAttempt, FakeSeat]:
    entry = ModelEntry(id="m", grade=Grade.SMALL, provider="p", wire_model_id="w", prices=prices)
    redactor = Redactor(["sk-hidden-0123456789"])
    environment = ClientEnvironment(
        settings=ProviderSettings(), credentials=Chain(EnvironmentStore({})), redactor=redactor, clock=manual,
        wall=lambda: WALL, keep_text=keep_text,
    )  # fmt: skip
    seat = FakeSeat(ModelBinding(spec=ModelSpec("m"), entry=entry, input_tokens=100, output_tokens=200))
    return CallAttempt(seat, entry, environment, Kind.CHAT, 100, 200, "hash"), seat


async def test_success(manual):
    attempt, seat = attempt_of(manual, keep_text=True)
    attempt.sent()
    manual.run_due(1.5)
    attempt.first_piece()
    manual.run_due(0.5)
    attempt.first_piece()
    reported = {Dimension.REQUESTS: ReportedLimit(limit=9)}
    record = await attempt.succeed(usage=Usage(input_tokens=10, output_tokens=2), request_id="r", served_model="s",
                                   stop_reason="end_turn", reported=reported, text="Hi.")  # fmt: skip
    assert record is seat.last
    assert (record.latency_s, record.first_piece_s, record.started_at) == (2.0, 1.5, WALL)
    assert (record.request_id, record.served_model, record.stop_reason, record.text) == ("r", "s", "end_turn", "Hi.")
    assert (record.kind, record.model, record.provider, record.wire_model_id) == (Kind.CHAT, "m", "p", "w")
    assert record.cost == (10 * Decimal(3) + 2 * Decimal(15)) / 1_000_000
    assert (record.currency, record.price_as_of, record.request_hash) == ("USD", None, "hash")
    outcome = seat.permits[0].outcome
    assert (outcome.kind, outcome.usage, outcome.reported) == (OutcomeKind.COMPLETED, record.usage, reported)


@pytest.mark.parametrize(("error", "kind", "usage", "cost"), [
    (RateLimitedError("", status=429, retry_after_s=3.0), OutcomeKind.RATE_LIMITED, Usage(), 0),
    (OverloadedError("", status=529), OutcomeKind.OVERLOADED, Usage(), 0),
    (TransientUpstreamError("", status=500), OutcomeKind.UNKNOWN, Usage(), 0),
    (TransientUpstreamError("", status=504), OutcomeKind.UNKNOWN, RESERVED, None),
    (TransientUpstreamError(""), OutcomeKind.UNKNOWN, RESERVED, None),
    (TransientUpstreamError("", sent=False), OutcomeKind.UNSENT, Usage(), 0),
    (InvalidRequestError("", status=400), OutcomeKind.REJECTED, Usage(), 0),
    (StreamInterruptedError("", usage=Usage(input_tokens=7, output_tokens=3, estimated=True)), OutcomeKind.UNKNOWN,
     Usage(input_tokens=7, output_tokens=3, estimated=True), None),
    (asyncio.CancelledError(), OutcomeKind.ABANDONED, Usage(input_tokens=100, output_tokens=0, estimated=True), None),
    (ZeroDivisionError("x"), OutcomeKind.UNKNOWN, RESERVED, None),
], ids=str)  # fmt: skip
async def test_b21_each_way_of_failing(manual, error, kind, usage, cost):
    attempt, seat = attempt_of(manual)
    attempt.sent()
    record = await attempt.fail(error)
    assert seat.kinds == [kind]
    assert record.usage == usage
    assert record.cost == cost if cost is not None else record.cost > 0
    assert seat.permits[0].outcome.retry_after_s == getattr(error, "retry_after_s", None)
    assert record.error


async def test_only_the_first_ending_counts(manual):
    attempt, seat = attempt_of(manual)
    attempt.sent()
    first = attempt.succeed(usage=Usage(input_tokens=1, output_tokens=1))
    assert attempt.ended
    assert attempt.fail(RateLimitedError("late")) is first
    assert attempt.abandon() is first
    assert (await first).outcome == "ok"
    assert await first is first.record, "it may be awaited twice"
    assert len(seat.records) == len(seat.permits[0].outcomes) == 1


async def test_what_was_never_sent_gives_everything_back(manual):
    for end in ("fail", "abandon", "succeed"):
        attempt, seat = attempt_of(manual)
        await (attempt.fail(ZeroDivisionError("x")) if end == "fail" else getattr(attempt, end)())
        assert seat.kinds == [OutcomeKind.UNSENT]
        assert seat.last.latency_s == 0
        assert seat.last.cost == 0


async def test_b17_the_ending_is_written_before_it_is_awaited(manual):
    attempt, seat = attempt_of(manual)
    attempt.sent()
    attempt.learn(usage=Usage(input_tokens=25, output_tokens=3))
    ending = attempt.abandon()
    assert seat.last is ending.record
    assert seat.permits[0].outcome.usage == Usage(input_tokens=25, output_tokens=3, estimated=True)
    assert seat.last.outcome == "cancelled"


async def test_the_date_of_the_price_stands_beside_the_cost(manual):
    attempt, _ = attempt_of(manual, prices=PRICES.model_copy(update={"as_of": date(2026, 11, 1)}))
    attempt.sent()
    assert (await attempt.succeed()).price_as_of == "2026-11-01"


@pytest.mark.parametrize("per_day", [False, True], ids=["money", "day"])
async def test_b11_only_a_day_that_is_spent_closes_the_pool_until_the_next(manual, per_day):
    attempt, seat = attempt_of(manual)
    attempt.sent()
    await attempt.fail(QuotaExhaustedError("No.", status=429, per_day=per_day))
    assert seat.permits[0].outcome.day_spent is per_day


async def test_unknown_usage_of_a_success_is_estimated_and_flagged(manual):
    attempt, seat = attempt_of(manual)
    attempt.sent()
    assert (await attempt.succeed()).usage == RESERVED
    assert seat.permits[0].outcome.usage == RESERVED


async def test_without_a_price_the_cost_is_unknown_and_never_zero(manual):
    for end in ("succeed", "fail"):
        attempt, seat = attempt_of(manual, prices=None)
        attempt.sent()
        await (attempt.succeed() if end == "succeed" else attempt.fail(RateLimitedError("x", status=429)))
        assert seat.last.cost is None
        assert seat.last.currency is None


async def test_b30_the_record_holds_no_secret_and_no_endless_error(manual):
    attempt, seat = attempt_of(manual)
    attempt.sent()
    await attempt.fail(TransientUpstreamError("key sk-hidden-0123456789 " + "x" * 9_000))
    assert "hidden" not in seat.last.error
    assert len(seat.last.error) <= 2_000


async def test_b30_an_answer_that_holds_a_secret_is_kept_without_it(manual):
    attempt, seat = attempt_of(manual, keep_text=True)
    attempt.sent()
    await attempt.succeed(usage=Usage(input_tokens=10, output_tokens=2), text="Your key is sk-hidden-0123456789.")
    assert seat.last.text.startswith("Your key is ")
    assert "hidden" not in seat.last.text


async def test_learned_facts_stay(manual):
    attempt, seat = attempt_of(manual)
    attempt.sent()
    attempt.learn(request_id="r", usage=Usage(input_tokens=3, output_tokens=1))
    attempt.learn(served_model="s")
    await attempt.fail(RateLimitedError("x", status=429, request_id=None))
    assert (seat.last.request_id, seat.last.served_model) == ("r", "s")


async def test_the_settlement_may_be_told_apart_from_the_error(manual):
    attempt, seat = attempt_of(manual)
    attempt.sent()
    await attempt.fail(
        StreamInterruptedError("x", usage=Usage(input_tokens=1, output_tokens=1)), kind=OutcomeKind.OVERLOADED
    )
    assert seat.kinds == [OutcomeKind.OVERLOADED]
    assert seat.last.outcome == "stream_interrupted"
