"""What every decision provider does, whoever serves it. A new provider is one line in `served.EVERY`."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from interlock.admission.outcome import OutcomeKind
from interlock.catalog.words import Kind
from interlock.decisions import Choice, DecisionRequest, Noul, Score
from interlock.errors import ContextWindowExceededError

from .served import EVERY, Served

QUESTIONS: dict[str, Any] = {
    "department": Choice.of(
        "Which team should handle this?", {"billing": "Invoices", "technical": None, "sales": None}
    ),
    "is_urgent": Noul.of("Does this convey urgency?", yes="time-sensitive"),
    "anger": Score.of("How frustrated?", "Calm", "Frustrated", "Very angry"),
    "ünï cödé 🎉": Noul.of("Wirklich?"),
}
STATES = ["Charged twice", {"ticket": "Charged twice", "lines": [1, 2.5, None, True]}, ["Zoë", {"a": "日本"}], ""]


@pytest.fixture(params=EVERY, ids=str)
def served(request: pytest.FixtureRequest) -> Served:
    return request.param


@pytest.fixture
def build(served: Served, provider: Any, make_entry: Any, make_environment: Any, make_seat: Any) -> Any:
    def build(**fields: Any) -> Any:
        client = served.client(make_entry, make_environment, provider, **fields)
        seat = make_seat(client.entry)
        return client, client.bound(seat.binding, seat), seat

    return build


@pytest.mark.parametrize("state", STATES)
async def test_every_question_is_answered_in_its_kind(build: Any, state: Any) -> None:
    client, decisions, seat = build()
    response = await decisions.decide(DecisionRequest(state, QUESTIONS))
    assert list(response.answers) == list(QUESTIONS)
    department, anger = response.choice("department"), response.score("anger")
    assert list(department.probabilities) == ["billing", "technical", "sales"]
    assert department.probabilities[department.choice] == max(department.probabilities.values())
    assert sum(department.probabilities.values()) == pytest.approx(1, abs=0.05)
    assert 0 <= response.noul("is_urgent").noul <= 1
    assert 0 <= anger.score <= 2
    assert anger.levels == ("Calm", "Frustrated", "Very angry")
    assert all(0 <= answer.confidence <= 1 for answer in response.answers.values())
    assert response.model == client.entry.id
    assert response.served_model
    assert response.usage.input_tokens > 0
    assert not response.usage.estimated
    assert response.cost == sum(record.cost for record in seat.records) > 0
    assert response.usage.input_tokens == sum(record.usage.input_tokens for record in seat.records)
    await client.aclose()


async def test_what_was_planned_is_what_is_permitted_sent_and_recorded(build: Any, provider: Any) -> None:
    client, decisions, seat = build()
    request = DecisionRequest("s", QUESTIONS)
    planned = client.planned(request)
    response = await decisions.decide(request)
    assert response.requests == len(planned) == len(seat.permits) == len(seat.records)
    assert not client.entry.base_url or provider.count == len(planned)
    assert [permit.sends for permit in seat.permits] == [1] * len(planned)
    assert all([outcome.kind for outcome in each.outcomes] == [OutcomeKind.COMPLETED] for each in seat.permits)
    asked = [(permit.input_tokens, permit.output_tokens) for permit in seat.permits]
    assert sorted(asked) == sorted((part.input_tokens, part.output_tokens) for part in planned)
    assert all(input_tokens > 10 for input_tokens, _ in asked)
    assert {(record.kind, record.outcome) for record in seat.records} == {(Kind.DECISION, "ok")}
    await decisions.decide(DecisionRequest("t", QUESTIONS))
    hashes = [record.request_hash for record in seat.records]
    assert len(set(hashes)) == len(hashes) == 2 * len(planned)
    await client.aclose()


async def test_the_same_request_has_the_same_answer_and_another_state_another(build: Any) -> None:
    client, decisions, _ = build()
    first, second, third = [await decisions.decide(DecisionRequest(state, QUESTIONS)) for state in ("s", "s", "t")]
    assert first.answers == second.answers
    assert first.answers != third.answers
    await client.aclose()


async def test_many_questions_are_split_and_merged_in_their_order(build: Any) -> None:
    whole, in_parts = build(), build(max_batch_items=2)
    request = DecisionRequest("Charged twice", {f"q{n}": Noul.of(f"Is it number {n}?") for n in range(7)})
    responses = [await decisions.decide(request) for _, decisions, _ in (whole, in_parts)]
    assert list(responses[1].answers) == list(request.questions)
    assert responses[0].answers == responses[1].answers
    assert responses[1].requests >= 4
    assert responses[1].requests == len(in_parts[2].records)
    for client, _, _ in (whole, in_parts):
        await client.aclose()


async def test_many_at_once(build: Any) -> None:
    client, decisions, seat = build()
    requests = [DecisionRequest(f"state {number}", QUESTIONS) for number in range(10)]
    batch = await decisions.decide_batch(requests)
    one_by_one = [await decisions.decide(request) for request in requests]
    assert [one.answers for one in batch.responses] == [one.answers for one in one_by_one]
    assert len(seat.records) == 20 * batch.responses[0].requests
    await client.aclose()


async def test_the_largest_questions(build: Any) -> None:
    client, decisions, _ = build()
    questions = {
        "c": Choice.of("?", *(f"option {n}" for n in range(255))),
        "s": Score.of("?", *(f"level {n}" for n in range(10))),
    }
    response = await decisions.decide(DecisionRequest("s", questions))
    assert len(response.choice("c").probabilities) == 255
    assert len(response.score("s").probabilities) == 10
    await client.aclose()


async def test_a_state_longer_than_the_window_is_refused_or_said_to_be_cut(build: Any) -> None:
    client, decisions, seat = build(context_window=1000)
    request = DecisionRequest("word " * 5000, QUESTIONS)
    if client.CUTS_STATE:
        response = await decisions.decide(request)
        assert response.truncated
        assert 0 < response.read_characters < 25_000
    else:
        with pytest.raises(ContextWindowExceededError, match="reads 1,000") as caught:
            await decisions.decide(request)
        assert not caught.value.sent
        assert not seat.permits
    await client.aclose()


async def test_questions_that_do_not_fit_together_are_split(build: Any) -> None:
    client, decisions, _ = build(context_window=1000)
    long = {f"q{n}": Choice.of("Which? " + "word " * 250, "one", "two") for n in range(4)}
    response = await decisions.decide(DecisionRequest("s", long))
    assert list(response.answers) == list(long)
    if not client.CUTS_STATE:
        assert response.requests > 1
        assert all(part.input_tokens <= 1000 for part in client.planned(DecisionRequest("s", long)))
    await client.aclose()


async def test_a_cancelled_decision_ends_every_request_once(build: Any) -> None:
    client, decisions, seat = build()
    for turns in range(0, 24, 3):
        task = asyncio.create_task(decisions.decide(DecisionRequest("s", QUESTIONS)))
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait((task,))
    assert all(len(permit.outcomes) == 1 for permit in seat.permits)
    assert len(seat.records) == len(seat.permits)
    assert (await decisions.decide(DecisionRequest("s", QUESTIONS))).answers
    await client.aclose()


async def test_what_is_no_request_is_a_type_error(build: Any) -> None:
    _, decisions, seat = build()
    with pytest.raises(TypeError, match="DecisionRequest, not dict"):
        await decisions.decide({"state": "s"})
    assert not seat.permits


def test_the_aliases_are_the_methods(build: Any) -> None:
    _, decisions, _ = build()
    assert decisions.getUpstreamRetries() == decisions.get_upstream_retries() == 3
    assert decisions.decideBatch == decisions.decide_batch


def test_the_template_is_exported_for_providers_of_ones_own() -> None:
    import interlock.decisions as exported

    assert all(getattr(exported, name) is not None for name in exported.__all__)
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        exported.Nothing  # noqa: B018
