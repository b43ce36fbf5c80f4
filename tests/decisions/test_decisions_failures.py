"""What every provider over HTTP makes of an error, a broken answer, a lost connection: one request, one typed error."""

from __future__ import annotations

import asyncio
import traceback
from typing import Any

import pytest
from waiting import until

from interlock.admission.clock import ManualClock
from interlock.admission.outcome import OutcomeKind
from interlock.clients.providers.error_body import GRACE_S
from interlock.clients.simulator import Step
from interlock.clients.simulator.script import Raw
from interlock.credentials import Chain, EnvironmentStore
from interlock.decisions import Choice, DecisionRequest, Noul
from interlock.errors import (
    ContextWindowExceededError,
    CredentialError,
    InvalidRequestError,
    MalformedResponseError,
    OverloadedError,
    QuotaExhaustedError,
    RateLimitedError,
    TransientUpstreamError,
    UpstreamError,
)

from .conftest import CARD, KEY
from .served import OVER_HTTP, Served

STATE = {"ticket": "My card 4111 1111 1111 1111 was charged twice"}
#: One question, one order: one request whoever serves it.
ASK = DecisionRequest(STATE, {"q": Choice.of("Which team?", "billing", "sales")})


@pytest.fixture(params=OVER_HTTP, ids=str)
def served(request: pytest.FixtureRequest) -> Served:
    return request.param


@pytest.fixture
def build(served: Served, provider: Any, make_entry: Any, make_environment: Any, make_seat: Any) -> Any:
    def build(**fields: Any) -> Any:
        options = {**served.options, "rotations": 1}
        one = Served(served.key, served.url, served.entry, options)
        client = one.client(make_entry, make_environment, provider, **fields)
        seat = make_seat(client.entry)
        return client, client.bound(seat.binding, seat), seat

    return build


async def failing(build: Any, provider: Any, step: Step, **fields: Any) -> tuple[UpstreamError, Any]:
    provider.script(step)
    client, decisions, seat = build(**fields)
    with pytest.raises(UpstreamError) as caught:
        await decisions.decide(ASK)
    await client.aclose()
    assert provider.count == 1
    assert len(seat.records) == len(seat.permits) == 1
    told = "".join(traceback.format_exception(caught.value)) + repr(vars(caught.value)) + str(seat.records[0])
    assert not CARD.search(told)
    assert KEY not in told
    return caught.value, seat


async def test_a_busy_server_asks_to_wait(build: Any, provider: Any) -> None:
    error, seat = await failing(build, provider, Step.rate_limited(7))
    assert type(error) is RateLimitedError
    assert error.retry_after_s == seat.permits[0].outcomes[0].retry_after_s == 7
    assert seat.permits[0].outcomes[0].kind is OutcomeKind.RATE_LIMITED


async def test_an_error_whose_body_cannot_be_unpacked_is_still_of_its_class(build: Any, provider: Any) -> None:
    packed = {"content-encoding": "gzip", "retry-after": "7"}
    error, seat = await failing(build, provider, Step.status(429, b"\x1f\x8bnonsense", packed))
    assert (type(error), error.retry_after_s) == (RateLimitedError, 7)
    assert seat.permits[0].outcomes[0].kind is OutcomeKind.RATE_LIMITED


async def test_b43_a_server_behind_googles_wire_says_in_the_body_how_long_to_wait(build: Any, provider: Any) -> None:
    known = {"code": 429, "status": "RESOURCE_EXHAUSTED", "message": "slow down"}
    body = [{"error": {**known, "details": [{"retryDelay": "34.4s"}]}}]
    error, _ = await failing(build, provider, Step.status(429, body))  # type: ignore[arg-type]
    assert (type(error), error.retry_after_s) == (RateLimitedError, 34.4)


async def test_an_overloaded_server_is_not_a_busy_one(build: Any, provider: Any, served: Served) -> None:
    error, seat = await failing(build, provider, Step.overloaded())
    assert error.status == served.overloaded
    expected = OverloadedError if served.overloaded == 529 else TransientUpstreamError
    assert type(error) is expected
    assert error.retryable
    wanted = OutcomeKind.OVERLOADED if served.overloaded == 529 else OutcomeKind.UNKNOWN
    assert seat.permits[0].outcomes[0].kind is wanted


async def test_a_server_that_fails_is_asked_again(build: Any, provider: Any) -> None:
    for status in (500, 502, 503, 529):
        error, _ = await failing(build, provider, Step.status(status, {"detail": "oops"}))
        assert error.retryable
        assert error.status == status
        assert isinstance(error, OverloadedError) == (status == 529)
        provider.clear()


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (400, InvalidRequestError), (401, CredentialError), (402, QuotaExhaustedError), (403, CredentialError),
        (404, InvalidRequestError), (413, ContextWindowExceededError), (422, InvalidRequestError),
    ],
)  # fmt: skip
async def test_a_no_is_final_whatever_its_form(
    build: Any, provider: Any, status: int, expected: type[UpstreamError]
) -> None:
    for detail in ({"error_type": "no", "message": "a plain no"}, "a plain no", [{"msg": "no"}]):
        error, seat = await failing(build, provider, Step.status(status, {"detail": detail}))
        assert type(error) is expected
        assert not error.retryable
        assert seat.permits[0].outcomes[0].kind is OutcomeKind.REJECTED
        assert seat.records[0].cost == 0
        provider.clear()


async def test_the_input_that_a_422_echoes_is_never_told(build: Any, provider: Any) -> None:
    echo = [{"loc": ["body", "state"], "msg": f"bad: {STATE}", "type": "t", "input": STATE}]
    error, _ = await failing(build, provider, Step.status(422, {"detail": echo}))
    assert "HTTP 422" in str(error)
    provider.clear()
    error, _ = await failing(build, provider, Step.status(422, {"error": {"message": f"bad input {STATE}"}}))
    assert "HTTP 422" in str(error)


async def test_a_wrong_body_is_refused_by_the_server_itself(build: Any, provider: Any) -> None:
    client, decisions, _ = build(provider_options={"questions": [], "messages": []})
    with pytest.raises(InvalidRequestError) as caught:
        await decisions.decide(ASK)
    assert caught.value.status in (400, 422)
    await client.aclose()


@pytest.mark.parametrize(
    "step",
    [
        Step.html(), Step.body(b""), Step.body(b"[]", "application/json"), Step.body({}), Step.body({"answers": None}),
        Step.body({"choices": [], "answers": {}}), Step.body({"choices": [{"message": {"content": "{}"}}]}),
    ],
)  # fmt: skip
async def test_b63_what_is_no_answer_under_200_is_malformed(build: Any, provider: Any, step: Step) -> None:
    error, _ = await failing(build, provider, step)
    # A completion without log-probabilities is one thing that a catalog can say and another try cannot mend.
    assert isinstance(error, MalformedResponseError) or error.code == "response_shape"


async def test_b41_an_error_under_200_is_an_error(build: Any, provider: Any) -> None:
    error, _ = await failing(build, provider, Step.body({"error": {"code": 429, "message": "slow down"}}))
    assert type(error) is RateLimitedError


@pytest.mark.parametrize("how", ["close", "reset"])
async def test_b21_a_lost_connection_may_have_been_billed(build: Any, provider: Any, how: Any) -> None:
    error, seat = await failing(build, provider, Step.cut(how=how))
    assert type(error) is TransientUpstreamError
    assert error.sent
    assert seat.records[0].usage.estimated


async def test_an_error_whose_body_does_not_end_is_still_of_its_class(build: Any, provider: Any) -> None:
    clock = ManualClock()
    stalled = Raw(parts=(b'{"error"', b": {"), content_type="application/json", status=429, ending="stall",
                  headers={"retry-after": "7"})  # fmt: skip
    call = failing(build, provider, Step(name="stalled", raw=stalled), environment={"clock": clock})
    task = asyncio.create_task(call)
    await until(lambda: clock.next_instant == clock.now() + GRACE_S)
    await clock.advance(GRACE_S)
    assert task.done()
    error, seat = await task
    assert type(error) is RateLimitedError
    assert error.retry_after_s == 7
    assert seat.permits[0].outcomes[0].kind is OutcomeKind.RATE_LIMITED


async def test_an_attempt_has_its_time(build: Any, provider: Any) -> None:
    error, _ = await failing(build, provider, Step.stall(), timeout_s=0.05)
    assert type(error) is TransientUpstreamError


async def test_a_refused_key_is_named_and_never_shown(build: Any, provider: Any) -> None:
    wrong = "wrong-key-0123456789-wrong"
    chain = Chain(EnvironmentStore({"TYPESAFE_API_KEY": wrong}))
    client, decisions, seat = build(environment={"credentials": chain, "redactor": chain.redactor})
    with pytest.raises(CredentialError, match="typesafe-api-key") as caught:
        await decisions.decide(ASK)
    assert wrong not in "".join(traceback.format_exception(caught.value)) + str(seat.records[0])
    await client.aclose()


async def test_a_url_that_is_none_is_refused_before_anything_is_sent(build: Any) -> None:
    client, decisions, _ = build(base_url="http://")
    with pytest.raises(InvalidRequestError) as caught:
        await decisions.decide(ASK)
    assert not caught.value.sent
    await client.aclose()


async def test_a_failure_of_one_request_of_several_is_the_failure_of_the_decision(build: Any, provider: Any) -> None:
    questions = {f"q{n}": Noul.of(f"Is it {n}?") for n in range(6)}
    provider.script(Step.answer(), Step.server_error())
    client, decisions, seat = build(max_batch_items=1)
    with pytest.raises(TransientUpstreamError):
        await decisions.decide(DecisionRequest(STATE, questions))
    assert all(len(permit.outcomes) == 1 for permit in seat.permits)
    assert len(seat.records) == len(seat.permits)
    await client.aclose()
