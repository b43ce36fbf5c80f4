"""What every decision provider does, whoever serves it. A new provider is one fixture branch and one line in KEYS."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from interlock.admission.outcome import OutcomeKind
from interlock.catalog.entry import ProviderSettings
from interlock.catalog.words import Kind
from interlock.clients.registry import provider_class
from interlock.decisions import Choice, DecisionRequest, Noul, Score
from interlock.errors import ContextWindowExceededError

KEYS = ("sparrow", "systemone-decision")
QUESTIONS: dict[str, Any] = {
    "department": Choice.of(
        "Which team should handle this?", {"billing": "Invoices", "technical": None, "sales": None}
    ),
    "is_urgent": Noul.of("Does this convey urgency?", yes="time-sensitive"),
    "anger": Score.of("How frustrated?", "Calm", "Frustrated", "Very angry"),
    "ünï cödé 🎉": Noul.of("Wirklich?"),
}
STATES = ["Charged twice", {"ticket": "Charged twice", "lines": [1, 2.5, None, True]}, ["Zoë", {"a": "日本"}], ""]


@pytest.fixture(params=KEYS)
def key(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def base_url(key: str, jev: Any) -> str | None:
    return str(jev()) if key == "systemone-decision" else None


@pytest.fixture
def build(key: str, base_url: str | None, make_entry: Any, make_environment: Any, make_seat: Any) -> Any:
    def build(**fields: Any) -> Any:
        model = "jev-latest" if base_url else "sparrow-decider"
        entry = make_entry(key, **{"wire_model_id": model, "prices": {"input": "0.5"}, **fields})
        settings = ProviderSettings(base_url=base_url, credential="typesafe-api-key" if base_url else None)
        client = provider_class(key)(entry, make_environment(settings))
        seat = make_seat(entry)
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
    assert response.cost == seat.records[0].cost > 0
    await client.aclose()


async def test_one_permit_one_request_one_record(build: Any) -> None:
    client, decisions, seat = build()
    await decisions.decide(DecisionRequest("s", QUESTIONS))
    await decisions.decide(DecisionRequest("t", QUESTIONS))
    assert [permit.sends for permit in seat.permits] == [1, 1]
    assert [[outcome.kind for outcome in permit.outcomes] for permit in seat.permits] == [[OutcomeKind.COMPLETED]] * 2
    assert all(permit.input_tokens > 10 and permit.output_tokens == 0 for permit in seat.permits)
    assert [(record.kind, record.outcome) for record in seat.records] == [(Kind.DECISION, "ok")] * 2
    assert seat.records[0].request_hash != seat.records[1].request_hash
    await client.aclose()


async def test_the_same_request_has_the_same_answer(build: Any) -> None:
    client, decisions, _ = build()
    first, second = [await decisions.decide(DecisionRequest("s", QUESTIONS)) for _ in range(2)]
    assert first.answers == second.answers
    await client.aclose()


async def test_many_at_once(build: Any) -> None:
    client, decisions, seat = build()
    requests = [DecisionRequest(f"state {number}", QUESTIONS) for number in range(20)]
    together = await asyncio.gather(*(decisions.decide(request) for request in requests))
    one_by_one = [await decisions.decide(request) for request in requests]
    assert [one.answers for one in together] == [one.answers for one in one_by_one]
    assert len(seat.records) == 40
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
        assert (await decisions.decide(request)).truncated
    else:
        with pytest.raises(ContextWindowExceededError, match="reads 1,000") as caught:
            await decisions.decide(request)
        assert not caught.value.sent
        assert not seat.permits
    await client.aclose()


async def test_what_is_no_request_is_a_type_error(build: Any) -> None:
    _, decisions, seat = build()
    with pytest.raises(TypeError, match="DecisionRequest, not dict"):
        await decisions.decide({"state": "s"})
    assert not seat.permits


def test_the_aliases_are_the_methods(build: Any) -> None:
    _, decisions, _ = build()
    assert decisions.getUpstreamRetries() == decisions.get_upstream_retries() == 3


def test_the_template_is_exported_for_providers_of_ones_own() -> None:
    import interlock.decisions as exported

    assert all(getattr(exported, name) is not None for name in exported.__all__)
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        exported.Nothing  # noqa: B018
