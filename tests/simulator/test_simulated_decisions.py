"""Decisions of the simulated provider: worked out from state and question, limited, scripted, refused by name."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest

from interlock.clients.simulator import PublishedLimits, SimulatedProvider, Step

QUESTIONS: dict[str, Any] = {
    "team": {
        "type": "choice",
        "instructions": "Which team?",
        "criteria": {"billing": "invoice, refund", "sales": None},
    },
    "urgent": {"type": "noul", "instructions": "Is it urgent?"},
    "anger": {"type": "score", "instructions": "How cross?", "criteria": ["calm", "cross", "angry"]},
}
PATHS = {"systemone": "/typesafe/v1/systemone", "openrouter-decisions": "/api/alpha/decisions"}


class Asker:
    def __init__(self, **settings: Any) -> None:
        self.provider = SimulatedProvider(now=lambda: 0.0, **settings)

    async def post(self, path: str, body: Any, key: str | None = "k") -> httpx2.Response:
        headers = {} if key is None else {"authorization": f"Bearer {key}"}
        transport = httpx2.ASGITransport(app=self.provider.app)
        async with httpx2.AsyncClient(transport=transport, base_url="http://simulated") as client:
            return await client.post(path, json=body, headers=headers)

    async def ask(
        self, state: Any = "invoice", questions: Any = None, path: str = PATHS["systemone"]
    ) -> httpx2.Response:
        return await self.post(path, {"model": "m", "state": state, "questions": questions or QUESTIONS})


async def test_answers_come_from_state_and_question_and_nothing_else() -> None:
    asker = Asker()
    first = (await asker.ask("I want a refund of the invoice")).json()["answers"]
    again = (await asker.ask("I want a refund of the invoice")).json()["answers"]
    other = (await asker.ask("We would like to talk to sales")).json()["answers"]
    renamed = {f"x{name}": QUESTIONS[name] for name in reversed(QUESTIONS)}
    turned = (await asker.ask("I want a refund of the invoice", renamed)).json()["answers"]
    assert first == again == {name.removeprefix("x"): answer for name, answer in turned.items()}
    assert first["team"]["choice"] == "billing"
    assert other["team"]["choice"] == "sales"
    assert first["urgent"] != other["urgent"] or first["anger"] != other["anger"]


@pytest.mark.parametrize(("decimals", "exact"), [(2, False), (None, True)])
async def test_probabilities_are_rounded_as_asked(decimals: int | None, exact: bool) -> None:
    told = (await Asker(decision_decimals=decimals).ask()).json()["answers"]["team"]["probabilities"]
    assert (sum(told.values()) == pytest.approx(1, abs=1e-9)) or not exact
    assert all((round(each, 2) == each) != exact for each in told.values())


@pytest.mark.parametrize("wire", PATHS)
async def test_limits_bind_and_input_alone_is_charged(wire: str) -> None:
    asker = Asker(limits=PublishedLimits(rpm=2))
    statuses = [(await asker.ask(path=PATHS[wire])).status_code for _ in range(3)]
    assert statuses == [200, 200, 429]
    assert [request.wire for request in asker.provider.requests] == [wire] * 3
    assert (asker.provider.count, asker.provider.refused) == (3, 1)
    refused = await asker.ask(path=PATHS[wire])
    assert int(refused.headers["retry-after"]) >= 1
    tokens = asker.provider.requests[0].input_tokens
    enough = Asker(limits=PublishedLimits(input_tpm=2 * tokens + 1, output_tpm=1))
    assert [(await enough.ask()).status_code for _ in range(3)] == [200, 200, 429]


async def test_answers_can_be_scripted_in_part() -> None:
    asker = Asker()
    asker.provider.script(Step.answer(json={"team": "sales", "urgent": True, "anger": [0.0, 0.25, 0.75]}))
    asker.provider.script(Step.answer(json={"team": {"billing": 0.7, "sales": 0.3}}))
    first, second = [(await asker.ask()).json()["answers"] for _ in range(2)]
    assert (first["team"]["choice"], first["team"]["probabilities"]["sales"]) == ("sales", 0.9)
    assert first["urgent"] == {"type": "noul", "noul": 1.0}
    assert first["anger"]["score"] == 1.75
    assert second["team"]["probabilities"] == {"billing": 0.7, "sales": 0.3}
    assert second["urgent"] == (await asker.ask()).json()["answers"]["urgent"]


@pytest.mark.parametrize(
    ("changed", "place"),
    [
        ({"type": "choice", "criteria": {str(n): None for n in range(256)}}, "criteria"),
        ({"type": "score", "criteria": [str(n) for n in range(11)]}, "criteria"),
        ({"type": "score", "criteria": {"0": "calm"}}, "criteria"),
        ({"type": "boolean"}, "q"),
        ("text", "q"),
    ],
)
async def test_what_is_no_question_is_a_422_that_echoes_it(changed: Any, place: str) -> None:
    refused = await Asker().ask("my card 4111", {"q": changed})
    assert refused.status_code == 422
    (complaint,) = refused.json()["detail"]
    assert complaint["loc"][-1] == place
    assert complaint["input"] in (changed, changed.get("criteria") if isinstance(changed, dict) else None)


async def test_keys_models_and_windows_are_refused_in_the_wires_words() -> None:
    asker = Asker(keys=["right"], models=["m"], context_window=50)
    missing = await asker.post(PATHS["systemone"], {}, key=None)
    assert (missing.status_code, missing.json()["detail"]["error_type"]) == (403, "authentication_error")
    assert (await asker.post(PATHS["systemone"], {}, key="wrong")).status_code == 401
    body = {"model": "other", "state": "s", "questions": {"q": QUESTIONS["urgent"]}}
    unknown = await asker.post(PATHS["systemone"], body, key="right")
    assert (unknown.status_code, unknown.json()["detail"]["message"]) == (400, "Unknown model: other")
    long = await asker.post(PATHS["systemone"], {**body, "model": "m", "state": "word " * 100}, key="right")
    assert (long.status_code, long.json()["detail"]["error_type"]) == (413, "request_too_large")
    there = await asker.post(PATHS["openrouter-decisions"], body, key="wrong")
    assert there.json() == {"error": {"code": 401, "message": "User not found."}}


async def test_openrouter_wants_both_sides_of_a_noul() -> None:
    one_sided = {"q": {"type": "noul", "instructions": "?", "criteria": {"true": "yes"}}}
    assert (await Asker().ask(questions=one_sided, path=PATHS["openrouter-decisions"])).status_code == 400
    assert (await Asker().ask(questions=one_sided)).status_code == 200


@pytest.mark.parametrize(
    ("questions", "param"),
    [
        ([], "questions"),
        ([{"type": "noul", "instructions": "?"}], "questions[0].type"),
        ([{"type": "predicate"}], "questions[0].instructions"),
        (
            [{"type": "choice", "instructions": "?", "choices": [{"value": "a"}, {"value": "a"}]}],
            "questions[0].choices",
        ),
        ([{"type": "score", "instructions": "?", "levels": [{"label": "a"}]}], "questions[0].levels"),
        ([{"type": "predicate", "instructions": "?"}] * 401, "questions"),
    ],
)
async def test_openais_decisions_name_the_parameter(questions: Any, param: str) -> None:
    refused = await Asker().post("/v1/decisions", {"model": "m", "input": "s", "questions": questions})
    assert refused.status_code == 400
    assert refused.json()["error"]["param"] == param


async def test_openai_may_refuse_a_question() -> None:
    asker = Asker()
    asker.provider.script(Step.refusal())
    body = {"model": "m", "input": "s", "questions": [{"type": "predicate", "instructions": "?", "name": "q"}]}
    refused = await asker.post("/v1/decisions", body)
    assert refused.json()["answers"] == [{"type": "refusal", "name": "q"}]


async def test_a_letter_that_stands_for_an_option_has_the_others_beside_it() -> None:
    asker = Asker()
    text = "I want a refund.\n\nQuestion: Which team?\nOptions:\nA. sales\nB. billing: refund\nC. technical"
    body = {"model": "m", "messages": [{"role": "user", "content": text}], "logprobs": True, "top_logprobs": 20}
    (choice,) = (await asker.post("/v1/chat/completions", body)).json()["choices"]
    (token,) = choice["logprobs"]["content"]
    tops = {each["token"]: each["logprob"] for each in token["top_logprobs"]}
    assert choice["message"]["content"] == token["token"] == "B" == max(tops, key=lambda name: tops[name])
    assert {"A", " A", "B", " B", "C", " C"} <= tops.keys()
    assert list(tops.values()) == sorted(tops.values(), reverse=True)
