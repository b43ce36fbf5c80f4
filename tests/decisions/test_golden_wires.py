"""Each wire as it stands in golden/: what is sent for one request, and what is read from a fixed answer.

A change there is a change of what users send. `REQUEST` is sent as it is; the answers are of the form that each
provider documents, and all say the same.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from interlock.catalog import Limits
from interlock.clients.simulator import Step
from interlock.decisions import Choice, DecisionRequest, Noul, Score
from interlock.errors import MalformedResponseError, ProviderRefusalError

from .served import OVER_HTTP, Served

GOLDEN = Path(__file__).parent / "golden"
REQUEST = DecisionRequest(
    {"ticket": "Charged twice", "lines": [1, 2.5, None, True], "from": "Zoë"},
    {
        "department": Choice.of(
            "Which team should handle this?", {"billing": "Invoices, refunds", "technical": None, "sales": None}
        ),
        "is_urgent": Noul.of("Does this convey urgency?", yes="time-sensitive", no="no urgency"),
        "paid": Noul.of("Was it paid?", yes="money moved"),
        "anger": Score.of("How frustrated?", "Calm", "Frustrated", "Very angry"),
    },
)


@pytest.fixture(params=OVER_HTTP, ids=str)
def served(request: pytest.FixtureRequest) -> Served:
    return request.param


def golden(served: Served) -> dict[str, Any]:
    return json.loads((GOLDEN / f"{served}.json").read_text(encoding="utf-8"))


@pytest.fixture
def build(served: Served, provider: Any, make_entry: Any, make_environment: Any, make_seat: Any) -> Any:
    client = served.client(make_entry, make_environment, provider, environment={"limits": Limits(max_concurrent=1)})
    seat = make_seat(client.entry)
    return client, client.bound(seat.binding, seat), seat


async def test_what_is_sent(served: Served, provider: Any, build: Any) -> None:
    client, decisions, _ = build
    await decisions.decide(REQUEST)
    sent = sorted((request.body for request in provider.requests), key=json.dumps)
    assert sent == golden(served)["requests"]
    assert {request.path for request in provider.requests} == {golden(served)["path"]}
    assert {request.headers["content-type"] for request in provider.requests} == {"application/json"}
    await client.aclose()


async def test_what_is_read(served: Served, provider: Any, build: Any) -> None:
    client, decisions, _ = build
    wanted = golden(served)
    provider.script(*(Step.body(answer, "application/json") for answer in wanted["answers"]))
    request = REQUEST.only(wanted.get("asked", REQUEST.questions))
    response = await decisions.decide(request)
    department = response.choice("department")
    assert dict(department.probabilities) == pytest.approx(
        {"billing": 0.88, "technical": 0.12, "sales": 0.0}, abs=wanted["within"]
    )
    assert department.choice == "billing"
    assert response.served_model == wanted["served_model"]
    assert response.usage.total_input_tokens == wanted["input_tokens"]
    assert response.usage.cache_read_tokens == wanted.get("cache_read_tokens")
    if len(request.questions) == 4:
        assert response.noul("is_urgent").noul == 0.95
        assert response.score("anger").score == 1.05
        assert response.score("anger").probabilities == (0.0, 0.95, 0.05)
        assert response.score("anger").confidence == pytest.approx(0.925)
    await client.aclose()


def openai_answer(**changed: Any) -> dict[str, Any]:
    return {**golden(Served("openai-decision"))["answers"][0], **changed}


ANSWERS: list[dict[str, Any]] = json.loads((GOLDEN / "openai-decision.json").read_text())["answers"][0]["answers"]


def with_answer(place: int, **changed: Any) -> list[dict[str, Any]]:
    return [{**each, **changed} if at == place else each for at, each in enumerate(ANSWERS)]


@pytest.mark.parametrize(
    ("answers", "why"),
    [
        (None, "no list of answers"),
        (ANSWERS[:3], "3 answers to 4 questions"),
        (ANSWERS[::-1], "is to another question"),
        (with_answer(0, name="is_urgent"), "is to another question"),
        (with_answer(1, type="choice"), "not of type predicate"),
        (with_answer(1, probability=1.2), "is 1.2"),
        (with_answer(0, choice="legal"), "not one of its 3 options"),
        (with_answer(0, choice="sales"), "another option has 0.88"),
        (with_answer(0, probabilities={}), "are no list"),
        (
            with_answer(0, probabilities=[*ANSWERS[0]["probabilities"], {"value": True, "probability": 0.0}]),
            "no option",
        ),
        (
            with_answer(0, probabilities=ANSWERS[0]["probabilities"] + ANSWERS[0]["probabilities"][:1]),
            "that has another",
        ),
        (with_answer(0, probabilities=ANSWERS[0]["probabilities"][:2]), "'sales' of 'department' has no probability"),
        (with_answer(3, probabilities=[{"value": "0", "probability": 1.0}]), "of no option"),
        (
            with_answer(
                3, probabilities=[{"value": v, "probability": p} for v, p in ((0, 0.0), (True, 0.95), (2, 0.05))]
            ),
            "of no option",
        ),
        (with_answer(3, score=2.0), "its probabilities make it 1.050"),
        ([3, *ANSWERS[1:]], "is not an object"),
    ],
)
def test_openais_lists_are_read_strictly(answers: Any, why: str) -> None:
    from interlock.decisions.openai_wire import decode
    from interlock.decisions.wire import decode_answers

    with pytest.raises(MalformedResponseError, match=why):
        decode_answers(decode({"answers": answers}, REQUEST.questions, model="m"), REQUEST.questions)


def test_a_question_that_openai_refuses_is_named() -> None:
    from interlock.decisions.openai_wire import decode

    with pytest.raises(ProviderRefusalError, match="will not answer question 'paid'") as caught:
        decode({"answers": with_answer(2, type="refusal")}, REQUEST.questions, model="m")
    assert caught.value.category == "refusal"
    assert "Zoë" not in str(caught.value)
