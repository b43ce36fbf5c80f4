"""A decision in several requests of which one fails: what was answered is paid, and is not asked again."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, ClassVar

import pytest

from interlock.catalog import Limits
from interlock.clients.simulator import SimulatedProvider, Step
from interlock.decisions import Choice, DecisionRequest, Noul
from interlock.decisions.abstract import AbstractDecisionClient, DecisionAnswer
from interlock.decisions.kept import KeptParts
from interlock.errors import InvalidRequestError, OverloadedError
from interlock.runtime import DecisionCall, Job, JobRequirements, JobResources, Runtime

from .test_batch import settings

SIX = {f"q{n}": Noul.of(f"Is it {n}?") for n in range(6)}


class Failing(AbstractDecisionClient):
    """One question a request; the questions in `failing` raise `error`, the others are answered a little later."""

    MOST_QUESTIONS: ClassVar[int | None] = 1
    failing: frozenset[str] = frozenset()
    error: Exception = OverloadedError("busy", status=529)

    def __init__(self, entry: Any, environment: Any) -> None:
        super().__init__(entry, environment)
        self.asked: list[str] = []

    async def send(self, request: DecisionRequest) -> DecisionAnswer:
        (name,) = request.questions
        self.asked.append(name)
        await asyncio.sleep(0)
        if name in self.failing:
            raise self.error
        for _ in range(5):
            await asyncio.sleep(0)
        value = int(name[1:]) / 100
        return DecisionAnswer(body={"answers": {name: {"type": "noul", "noul": value}}}, request_id=f"id-{name}")


@pytest.fixture
def failing(make_entry: Any, make_environment: Any, make_seat: Any) -> Any:
    def make(*names: str, cap: int | None = None) -> Any:
        client = Failing(make_entry(), make_environment(limits=Limits(max_concurrent=cap)))
        client.failing = frozenset(names)
        seat, kept = make_seat(client.entry), KeptParts()
        return client, lambda: client.bound(seat.binding, seat, kept), seat

    return make


TWELVE = DecisionRequest("state", {f"q{n}": Noul.of(f"Is it {n}?") for n in range(12)})


@pytest.mark.parametrize(("cap", "before"), [(None, 8), (4, 3)])
async def test_what_was_under_way_is_waited_for_and_only_the_rest_is_asked_again(
    failing: Any, cap: int | None, before: int
) -> None:
    client, attempt, seat = failing("q2", cap=cap)
    with pytest.raises(OverloadedError):
        await attempt().decide(TWELVE)
    assert client.asked == [f"q{n}" for n in range(before)]  # none was begun after that
    client.failing = frozenset()
    response = await attempt().decide(TWELVE)
    assert sorted(client.asked) == sorted([*TWELVE.questions, "q2"])
    assert [response.noul(name).noul for name in TWELVE.questions] == [n / 100 for n in range(12)]
    assert list(response.answers) == list(TWELVE.questions)
    assert response.requests == 12
    assert response.request_ids == tuple(f"id-{name}" for name in TWELVE.questions)
    assert all(len(permit.outcomes) == 1 for permit in seat.permits)


async def test_what_was_kept_outlasts_several_failures_and_is_taken_once(failing: Any) -> None:
    client, attempt, _ = failing("q1")
    for _ in range(3):
        with pytest.raises(OverloadedError):
            await attempt().decide(TWELVE)
    assert client.asked.count("q1") == 3
    assert len(set(client.asked)) == len(client.asked) - 2 >= 8
    client.failing = frozenset()
    await attempt().decide(TWELVE)
    assert len(client.asked) == 15
    await attempt().decide(TWELVE)  # a decision that is asked for again is another one
    assert len(client.asked) == 27


async def test_in_a_batch_what_fails_is_told_by_its_index_and_stops_no_other(failing: Any) -> None:
    client, attempt, _ = failing("q1")
    states = [DecisionRequest("state", {f"q{n}": Noul.of("?")}) for n in range(4)]
    batch = await attempt().decide_batch(states)
    assert list(batch.errors) == [1]
    assert [batch[n].noul(f"q{n}").noul for n in (0, 2, 3)] == [0.0, 0.02, 0.03]
    assert batch[0].cost is None  # of a model without a price
    client.failing = frozenset()
    assert (await attempt().decide(TWELVE)).cost is None


async def test_a_final_failure_stops_the_others(failing: Any) -> None:
    client, attempt, seat = failing("q2")
    client.error = InvalidRequestError("no", status=400)
    with pytest.raises(InvalidRequestError):
        await attempt().decide(TWELVE)
    assert len(client.asked) == 8
    assert sorted(record.outcome for record in seat.records) == ["cancelled"] * 7 + ["invalid_request"]


def test_an_answer_is_to_the_same_question_about_the_same_state_by_the_same_model(make_entry: Any) -> None:
    from interlock.decisions.kept import AnsweredPart
    from interlock.decisions.splitting import DecisionPart

    def part(state: str, question: Any) -> DecisionPart:
        return DecisionPart(request=DecisionRequest(state, {"q": question}), input_tokens=1)

    entry, asked, kept = make_entry(), part("state", Choice.of("Which?", "a", "b")), KeptParts()
    kept.keep(entry, [AnsweredPart(asked, {}, None, None)])  # type: ignore[arg-type]
    others = [part("other", Choice.of("Which?", "a", "b")), part("state", Choice.of("Which?", "b", "a"))]
    for other in others:
        assert kept.take(entry, other) is None
    for another in (make_entry(id="another"), make_entry(wire_model_id="another")):
        assert kept.take(another, asked) is None
        assert kept.lacking(another, [asked]) == [asked]
    assert kept.lacking(entry, [asked, *others, asked]) == [*others, asked]
    assert kept.take(entry, asked) is not None
    assert kept.take(entry, asked) is None
    assert kept.lacking(entry, [asked]) == [asked]


@pytest.mark.parametrize("key", ["systemone-decision", "logprobs-decision"])
async def test_a_job_that_is_run_again_asks_and_reserves_only_what_lacks_an_answer(
    provider: SimulatedProvider, key: str
) -> None:
    """A cap that twice the requests would not fit under: what was answered is spent, and the rest alone is held."""
    questions = SIX if key == "systemone-decision" else dict(list(SIX.items())[:3])  # two orders each
    async with Runtime(settings(provider, key, max_batch_items=1)) as runtime:
        call = DecisionCall("Charged twice", questions)
        whole = await runtime.run(call)
        assert whole.cost is not None
        provider.script(Step.answer(), Step.answer(), Step.rate_limited(0.01))
        before = provider.count
        handle = runtime.submit(call, cost_cap=whole.cost * Decimal("1.5"))
        response = await handle
        rows = await runtime.calls()
    assert provider.count - before == 7
    assert response.answers == whole.answers
    assert (response.requests, response.cost, handle.cost) == (6, whole.cost, whole.cost)
    assert response.usage == whole.usage
    taken = [row.record.usage.input_tokens or 0 for row in rows if row.record.error is None]
    assert (len(taken), sum(taken)) == (12, 2 * (whole.usage.input_tokens or 0))
    assert not any(row.record.undeclared for row in rows)


@dataclass(frozen=True)
class Twice(Job[int]):
    """Decides the same two times, and means it."""

    def requirements(self, needs: JobRequirements) -> None:
        needs.require_decision(input=DecisionRequest("state", SIX), calls=2)

    async def run(self, resources: JobResources) -> int:
        client, request = resources.get_decision_client(), DecisionRequest("state", SIX)
        return (await client.decide(request)).requests + (await client.decide(request)).requests


async def test_what_a_job_decides_twice_is_asked_twice(provider: SimulatedProvider) -> None:
    async with Runtime(settings(provider, max_batch_items=1)) as runtime:
        provider.script(*(Step.answer() for _ in range(8)), Step.rate_limited(0.01))
        assert await runtime.run(Twice()) == 12
        # 12 were sent, of which one was refused; its decision's other five are taken over, and seven asked.
        assert provider.count == 12 + 7
        assert not any(row.record.undeclared for row in await runtime.calls())
