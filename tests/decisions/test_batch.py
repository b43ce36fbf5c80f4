"""Many states: order kept, failures told by index, no more at a time than asked, each within a reservation."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest
from pydantic import BaseModel

from interlock.catalog import Catalog, Limits, ModelEntry, Prices, ProviderSettings
from interlock.catalog.words import Kind
from interlock.clients.simulator import SimulatedProvider, Step
from interlock.credentials import Chain, EnvironmentStore
from interlock.decisions import Choice, DecisionBatch, DecisionBatchError, DecisionRequest, Noul
from interlock.decisions.abstract import AbstractDecisionClient, DecisionAnswer
from interlock.decisions.gathering import gathered
from interlock.errors import InvalidRequestError, OutputTruncatedError
from interlock.runtime import DecisionCall, Job, JobRequirements, JobResources, Runtime, RuntimeSettings

from .conftest import KEY

QUESTIONS: dict[str, Any] = {"team": Choice.of("Which team?", "billing", "sales"), "urgent": Noul.of("Is it urgent?")}


def settings(provider: SimulatedProvider, key: str = "systemone-decision", **fields: Any) -> RuntimeSettings:
    urls = {"systemone-decision": provider.systemone_url, "logprobs-decision": provider.openai_url}
    known = {"id": "decider", "limits": Limits(rpm=6_000, tpm=6_000_000), "prices": Prices(input=1, output=2)}
    entry = ModelEntry(kind=Kind.DECISION, provider=key, wire_model_id="a-model", **{**known, **fields})
    served = {key: ProviderSettings(credential="typesafe-api-key", base_url=urls[key])}
    return RuntimeSettings(
        catalog=Catalog.of([entry], providers=served, pins={"decision": ["decider"]}),
        store=None,
        credentials=Chain(EnvironmentStore({"TYPESAFE_API_KEY": KEY})),
    )


@pytest.fixture
async def runtime(provider: SimulatedProvider) -> AsyncIterator[Runtime]:
    async with Runtime(settings(provider)) as runtime:
        yield runtime


class Ticket(BaseModel):
    text: str


async def test_many_states_one_response_each_in_their_order(runtime: Runtime, provider: SimulatedProvider) -> None:
    states = [f"state {n}" for n in range(40)]
    batch = await runtime.decisions().decide_batch(iter(states), QUESTIONS)
    single = await runtime.decisions().decide(states[7], QUESTIONS)
    assert isinstance(batch, DecisionBatch)
    assert len(batch) == len(batch.responses) == 40
    assert batch[7].answers == single.answers
    assert len({str(each.answers) for each in batch.responses}) > 20
    assert provider.count == 41
    assert runtime.statistics().admission.waiting == 0


async def test_what_fails_is_told_by_its_index_and_stops_no_other(
    runtime: Runtime, provider: SimulatedProvider
) -> None:
    provider.always(Step.status(422, {"detail": "no"}).on(model="never"))
    requests = [DecisionRequest({"n": n}, QUESTIONS) for n in range(9)]
    provider.script(*(Step.answer() for _ in range(3)), Step.status(400, {"detail": "a plain no"}))
    batch = await runtime.decisions().decide_batch(requests, concurrency=1)
    assert list(batch.errors) == [3]
    assert isinstance(batch.errors[3], InvalidRequestError)
    assert len(batch) == 9
    assert batch[4].answers
    with pytest.raises(InvalidRequestError):
        batch[3]
    with pytest.raises(
        DecisionBatchError, match=r"1 of 9 decisions failed \(index 3\); the first, 3, with: .*plain no"
    ):
        batch.responses  # noqa: B018


async def test_a_busy_answer_is_tried_again_for_its_own_state_alone(
    runtime: Runtime, provider: SimulatedProvider
) -> None:
    provider.script(Step.answer(), Step.rate_limited(0.01), Step.answer())
    batch = await runtime.decisions().decide_batch(["a", "b", "c"], QUESTIONS, concurrency=1)
    assert len(batch.responses) == 3
    assert provider.count == 4


async def test_no_more_at_a_time_than_asked_and_items_only_as_there_is_room() -> None:
    running, most, taken = 0, 0, []

    def items() -> Iterator[int]:
        for n in range(20):
            taken.append(n)
            yield n

    async def work(n: int) -> int:
        nonlocal running, most
        running += 1
        most = max(most, running)
        for _ in range(n % 3 + 1):
            await asyncio.sleep(0)
        assert len(taken) <= n + 8
        running -= 1
        return n * n

    assert await gathered(items(), work, limit=4) == [n * n for n in range(20)]
    assert most == 4


async def test_the_first_failure_cancels_the_rest_and_waits_for_it() -> None:
    ended: list[int] = []

    async def work(n: int) -> None:
        try:
            if n == 1:
                raise KeyError(n)
            await asyncio.Event().wait()
        finally:
            ended.append(n)

    with pytest.raises(KeyError):
        await gathered(range(10), work, limit=3)
    assert sorted(ended) == [0, 1, 2]
    for limit in (0, -1, 1.5, True):
        with pytest.raises(ValueError, match="at least one at a time"):
            await gathered(range(3), work, limit=limit)  # type: ignore[arg-type]


async def test_a_batch_that_is_left_leaves_nothing_behind(runtime: Runtime, provider: SimulatedProvider) -> None:
    provider.always(Step.stall())
    task = asyncio.create_task(runtime.decisions().decide_batch(["a", "b", "c"], QUESTIONS))
    async with asyncio.timeout(10):
        while provider.count < 3:  # noqa: ASYNC110 - the provider's log has no event
            await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await provider.idle()
    assert runtime.statistics().admission.waiting == 0


@pytest.mark.parametrize(
    ("states", "questions", "why"),
    [
        ("one state", QUESTIONS, "decide takes one"),
        ([DecisionRequest("a", QUESTIONS)], QUESTIONS, "item 0 is a DecisionRequest"),
        (["a"], None, "item 0 is str, and there are no questions"),
        (DecisionRequest("a", QUESTIONS), None, "decide takes one"),
        (Ticket(text="one"), QUESTIONS, "decide takes one"),
        (b"one", QUESTIONS, "decide takes one"),
        (["a", {"x": float("nan")}], QUESTIONS, "item 1: state, item 0 is not a finite number"),
    ],
)
async def test_what_is_no_batch_is_said_before_anything_is_sent(
    runtime: Runtime, provider: SimulatedProvider, states: Any, questions: Any, why: str
) -> None:
    with pytest.raises((TypeError, ValueError), match=why):
        await runtime.decisions().decide_batch(states, questions, concurrency=1)
    assert provider.count == 0


@dataclass(frozen=True)
class SortAll(Job[list[str]]):
    """A job that decides many states within one reservation."""

    states: tuple[str, ...]

    @property
    def requests(self) -> list[DecisionRequest]:
        return [DecisionRequest(state, QUESTIONS) for state in self.states]

    def requirements(self, needs: JobRequirements) -> None:
        binding = needs.require_decision(input=self.requests)
        assert binding.calls == len(self.states)

    async def run(self, resources: JobResources) -> list[str]:
        batch = await resources.get_decision_client().decide_batch(self.requests)
        return [each.choice("team").choice for each in batch.responses]


@dataclass(frozen=True)
class SortAllAtLeisure(SortAll):
    def run(self, resources: Any) -> list[str]:  # type: ignore[override]
        client = resources.get_decision_client()
        return [each.choice("team").choice for each in client.decide_batch(self.states, QUESTIONS).responses]


@pytest.mark.parametrize("kind", [SortAll, SortAllAtLeisure])
async def test_a_job_decides_many_within_what_it_declared(
    runtime: Runtime, provider: SimulatedProvider, kind: Any
) -> None:
    teams = await runtime.run(kind(("invoice billing", "sales call", "billing")))
    assert len(teams) == 3
    rows = await runtime.calls()
    assert [row.record.undeclared for row in rows] == [False] * 3


@pytest.mark.parametrize("cap", [None, 1])
async def test_every_question_and_order_is_reserved_priced_and_recorded(
    provider: SimulatedProvider, cap: int | None
) -> None:
    """Three questions of a chat model read as a decision model: 2 + 2 + 2 requests, all of them in the demand."""
    limits = Limits(rpm=6_000, tpm=6_000_000, max_concurrent=cap)
    async with Runtime(settings(provider, "logprobs-decision", limits=limits)) as runtime:
        call = DecisionCall("Charged twice", {**QUESTIONS, "again": Noul.of("Is it again?")})
        handle = runtime.submit(call)
        response = await handle
        rows = await runtime.calls()
    assert response.requests == len(rows) == provider.count == 6
    assert not any(row.record.undeclared for row in rows)
    assert sum(row.record.cost for row in rows) == response.cost == handle.cost
    assert {answer.method for answer in response.answers.values()} == {"logprobs"}


async def test_b12_a_decision_that_was_cut_off_is_not_asked_again(provider: SimulatedProvider) -> None:
    """What it may write is sized by the question: the same would be cut at the same place."""
    fields: dict[str, Any] = {"unsupported": {"logprobs"}, "max_output_tokens": 8_000, "context_window": 100_000}
    async with Runtime(settings(provider, "logprobs-decision", **fields)) as runtime:
        provider.always(Step.answer('{"probabilities": {', stop_reason="length"))
        with pytest.raises(OutputTruncatedError):
            await runtime.decisions().decide("Charged twice", {"urgent": Noul.of("Is it urgent?")})
        (row,) = await runtime.calls()
    assert (provider.count, row.record.outcome) == (1, "output_truncated")


async def test_the_price_of_all_orders_is_held_against_the_cap(provider: SimulatedProvider) -> None:
    """A cap that one request would fit under and six do not."""
    from interlock.errors import SpendCapExceededError

    async with Runtime(settings(provider, "logprobs-decision")) as runtime:
        call = DecisionCall("Charged twice", {**QUESTIONS, "again": Noul.of("Is it again?")})
        with pytest.raises(SpendCapExceededError):
            await runtime.run(call, cost_cap="0.0004")
        assert provider.count == 0
        assert (await runtime.run(call, cost_cap="0.01")).requests == 6


class Counting(AbstractDecisionClient):
    """Counts how many of its requests are under way."""

    MOST_QUESTIONS: ClassVar[int | None] = 1
    running, most = 0, 0

    async def send(self, request: DecisionRequest) -> DecisionAnswer:
        self.running += 1
        self.most = max(self.most, self.running)
        for _ in range(5):
            await asyncio.sleep(0)
        self.running -= 1
        return DecisionAnswer(body={"answers": {name: {"type": "noul", "noul": 0.5} for name in request.questions}})


@pytest.mark.parametrize(("cap", "most"), [(None, 8), (4, 1)])
async def test_a_pool_that_counts_calls_has_one_at_a_time_of_a_reservation_for_one(
    cap: int | None, most: int, make_entry: Any, make_environment: Any, make_seat: Any
) -> None:
    request = DecisionRequest("state", {f"q{n}": Noul.of(f"Is it {n}?") for n in range(12)})
    for ask in ("decide", "decide_batch"):
        client = Counting(make_entry(), make_environment(limits=Limits(max_concurrent=cap)))
        seat = make_seat(client.entry)
        bound = client.bound(seat.binding, seat)
        if ask == "decide":
            assert (await bound.decide(request)).requests == 12
        else:
            assert (
                len((await bound.decide_batch([f"state {n}" for n in range(12)], {"q": Noul.of("?")})).responses) == 12
            )
        assert client.most == (most if ask == "decide" or cap else 12)
