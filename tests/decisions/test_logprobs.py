"""A chat model read as a decision model: what it is asked, how orders are averaged, what is no answer."""

from __future__ import annotations

import math
import traceback
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from interlock.catalog.entry import Limits, ProviderSettings, Thinking
from interlock.clients.simulator import Step
from interlock.decisions import Choice, DecisionRequest, Noul, Score
from interlock.decisions.prompting import orders, prompt
from interlock.decisions.providers.logprobs import LogprobsDecisionClient
from interlock.errors import (
    ConfigurationError,
    MalformedResponseError,
    OutputTruncatedError,
    ProviderRefusalError,
    ResponseShapeError,
    UpstreamError,
)

TEAMS = Choice.of("Which team?", "billing", "technical", "sales")


@pytest.fixture
def build(provider: Any, make_entry: Any, make_environment: Any, make_seat: Any) -> Any:
    def build(options: dict[str, Any] | None = None, **fields: Any) -> Any:
        entry = make_entry("logprobs-decision", **{"wire_model_id": "a-model", "prices": {"input": "1"}, **fields})
        settings = ProviderSettings(base_url=provider.openai_url, credential="openai-api-key", options=options or {})
        client = LogprobsDecisionClient(entry, make_environment(settings, limits=entry.limits))
        seat = make_seat(entry)
        return client, client.bound(seat.binding, seat), seat

    return build


def completion(*top: tuple[str, float], finish: str = "stop", **message: Any) -> Step:
    listed = [{"token": token, "logprob": logprob, "bytes": None} for token, logprob in top]
    content = [{**listed[0], "top_logprobs": listed}] if listed else []
    choice = {
        "index": 0, "message": {"role": "assistant", "content": top[0][0] if top else None, **message},
        "finish_reason": finish, "logprobs": {"content": content, "refusal": None} if top else None,
    }  # fmt: skip
    usage = {"prompt_tokens": 20, "completion_tokens": 1, "total_tokens": 21}
    return Step.body({"id": "c", "model": "a-model-1", "choices": [choice], "usage": usage}, "application/json")


def cut_off(content: str | None) -> Step:
    choice = {"index": 0, "message": {"role": "assistant", "content": content}, "finish_reason": "length"}
    usage = {"prompt_tokens": 20, "completion_tokens": 4, "total_tokens": 24}
    return Step.body({"id": "c", "model": "a-model-1", "choices": [choice], "usage": usage}, "application/json")


async def test_what_is_asked(build: Any, provider: Any) -> None:
    client, decisions, _ = build()
    await decisions.decide(DecisionRequest("Charged twice", {"team": TEAMS}))
    bodies = [request.body for request in provider.requests]
    assert len(bodies) == 3
    assert all(body["temperature"] == 0 and body["logprobs"] is True and body["top_logprobs"] == 20 for body in bodies)
    assert {body["max_tokens"] for body in bodies} == {4}
    assert sorted(body["messages"][1]["content"].partition("Options:\n")[2] for body in bodies) == [
        "A. billing\nB. technical\nC. sales",
        "A. sales\nB. billing\nC. technical",
        "A. technical\nB. sales\nC. billing",
    ]
    await client.aclose()


async def test_what_the_entry_says_of_its_model_is_kept_to(build: Any, provider: Any) -> None:
    client, decisions, _ = build(
        {"limit_field": "max_completion_tokens", "rotations": 1},
        unsupported={"temperature"},
        thinking=Thinking(mode="effort"),
        provider_options={"seed": 7},
    )
    await decisions.decide(DecisionRequest("s", {"team": TEAMS}))
    (body,) = [request.body for request in provider.requests]
    assert "temperature" not in body
    assert (body["max_completion_tokens"], body["reasoning_effort"], body["seed"]) == (4, "none", 7)
    await client.aclose()


async def test_all_orders_together_favour_no_place(build: Any) -> None:
    """The simulated model favours what stands first. Asked once, the order of the options changes the answer; asked in
    every order, it does not."""
    turned = Choice(TEAMS.question, TEAMS.options[1:] + TEAMS.options[:1])
    found: dict[int, list[dict[str, float]]] = {}
    for rotations in (1, 3):
        client, decisions, _ = build({"rotations": rotations})
        for question in (TEAMS, turned):
            response = await decisions.decide(DecisionRequest("Charged twice", {"team": question}))
            assert response.requests == rotations
            found.setdefault(rotations, []).append(dict(response.choice("team").probabilities))
        await client.aclose()
    assert found[3][0] == pytest.approx(found[3][1])
    assert found[1][0]["billing"] > found[1][1]["billing"] + 0.05


async def test_an_average_is_the_mean_of_what_each_order_said(build: Any, provider: Any) -> None:
    client, decisions, _ = build({"rotations": 2}, limits=Limits(max_concurrent=1))
    provider.script(
        completion(("A", math.log(0.8)), (" B", math.log(0.2))), completion(("A", math.log(0.6)), ("B", math.log(0.4)))
    )
    response = await decisions.decide(DecisionRequest("s", {"q": Noul.of("Is it?")}))
    assert response.noul("q").noul == pytest.approx((0.8 + 0.4) / 2, abs=1e-3)
    assert response.noul("q").method == "logprobs"
    assert response.usage.input_tokens == 40
    assert response.served_model == "a-model-1"
    await client.aclose()


async def test_a_score_is_put_forwards_and_backwards(build: Any, provider: Any) -> None:
    client, decisions, _ = build()
    response = await decisions.decide(DecisionRequest("s", {"q": Score.of("How?", "low", "middle", "high")}))
    options = [request.body["messages"][1]["content"].partition("Options:\n")[2] for request in provider.requests]
    assert sorted(options) == ["A. high\nB. middle\nC. low", "A. low\nB. middle\nC. high"]
    levels = response.score("q").probabilities
    assert response.score("q").score == pytest.approx(levels[1] + 2 * levels[2])
    await client.aclose()


@pytest.mark.parametrize("structured", ["native", "prompt"])
async def test_b67_a_model_without_log_probabilities_states_its_distribution_and_the_answer_says_so(
    build: Any, provider: Any, structured: str
) -> None:
    client, decisions, seat = build(unsupported={"logprobs"}, structured=structured)
    response = await decisions.decide(DecisionRequest("s", {"team": TEAMS, "q": Noul.of("Is it?")}))
    assert [answer.method for answer in response.answers.values()] == ["stated", "stated"]
    assert sum(response.choice("team").probabilities.values()) == pytest.approx(1, abs=0.01)
    assert response.requests == 2
    for request in provider.requests:
        assert "logprobs" not in request.body
        assert ("response_format" in request.body) == (structured == "native")
    assert [permit.output_tokens for permit in seat.permits] == [76, 64]
    await client.aclose()


async def test_more_options_than_alternatives_are_stated(build: Any) -> None:
    client, decisions, _ = build()
    many = Choice.of("Which?", *(f"option {n}" for n in range(21)))
    response = await decisions.decide(DecisionRequest("s", {"many": many, "few": TEAMS}))
    assert (response.choice("many").method, response.choice("few").method) == ("stated", "logprobs")
    assert response.requests == 1 + 3
    await client.aclose()


@pytest.mark.parametrize(
    ("step", "expected", "why"),
    [
        (completion(content="A"), ResponseShapeError, "list `logprobs` under its `unsupported`"),
        (completion(("I", -0.1), ("A", -3.0)), MalformedResponseError, "the least that counts"),
        (completion(("A", 0.69)), MalformedResponseError, "above 0"),
        (completion(("\n", -0.1)), MalformedResponseError, "no token that says anything"),
        (completion(("A", -0.1), refusal="I will not."), ProviderRefusalError, "will not answer"),
        (completion(("A", -0.1), finish="content_filter"), ProviderRefusalError, "will not answer"),
        (cut_off(None), OutputTruncatedError, "cut off at 4 .* with its thinking off"),
    ],
)
async def test_b67_what_is_no_answer_is_said_with_its_usage(
    build: Any, provider: Any, step: Step, expected: type[UpstreamError], why: str
) -> None:
    provider.script(step)
    client, decisions, seat = build({"rotations": 1})
    with pytest.raises(expected, match=why) as caught:
        await decisions.decide(DecisionRequest("s", {"team": TEAMS}))
    assert type(caught.value) is expected
    assert seat.records[0].usage.input_tokens == 20
    await client.aclose()


@pytest.mark.parametrize(
    "said",
    [
        "no json", "{}", '{"probabilities": [1]}', '{"probabilities": {"A": 1}}',
        '{"probabilities": {"A": 2, "B": 0, "C": 0}}', '{"probabilities": {"A": 0.3, "B": 0.1, "C": 0.1}}',
        '{"probabilities": {"A": true, "B": 0, "C": 0}}',
    ],
)  # fmt: skip
async def test_a_stated_distribution_is_read_strictly(build: Any, provider: Any, said: str) -> None:
    provider.script(Step.answer(said))
    client, decisions, _ = build(unsupported={"logprobs"})
    with pytest.raises(MalformedResponseError):
        await decisions.decide(DecisionRequest("s", {"team": TEAMS}))
    await client.aclose()


@pytest.mark.parametrize(
    "said", ['{"probabilities": {"A": 0.5, "B', '{"probabilities": {"A": 0.6, "B": 0.2, "C": 0.2}}']
)
async def test_b12_a_distribution_that_was_cut_off_is_that_whether_it_parses_or_not(
    build: Any, provider: Any, said: str
) -> None:
    provider.script(cut_off(said))
    client, decisions, seat = build(unsupported={"logprobs"})
    with pytest.raises(OutputTruncatedError, match=r"cut off at 76 output tokens before it had answered$"):
        await decisions.decide(DecisionRequest("s", {"team": TEAMS}))
    assert seat.records[0].usage.output_tokens == 4
    await client.aclose()


async def test_what_a_model_wrote_instead_of_a_distribution_is_not_told(build: Any, provider: Any) -> None:
    state = "my card ends in 4444"
    provider.script(Step.answer(f'{{"{state}": 1, "{state}": 2}}'))
    client, decisions, seat = build(unsupported={"logprobs"})
    with pytest.raises(MalformedResponseError, match="not one JSON object with `probabilities`") as caught:
        await decisions.decide(DecisionRequest(state, {"team": TEAMS}))
    assert "my card" not in "".join(traceback.format_exception(caught.value)) + str(seat.records[0])
    await client.aclose()


@pytest.mark.parametrize("rotations", [0, -1, True, "2", 1.5])
async def test_rotations_are_a_whole_number(build: Any, rotations: Any) -> None:
    _, decisions, _ = build({"rotations": rotations})
    with pytest.raises(ConfigurationError, match="rotations of logprobs-decision"):
        await decisions.decide(DecisionRequest("s", {"team": TEAMS}))


NAMES = st.lists(st.text("abcdef", min_size=1, max_size=4), min_size=2, max_size=9, unique=True)


@settings(max_examples=40)
@given(NAMES, st.integers(1, 12))
def test_every_order_has_every_option_and_all_rotations_every_place(names: Sequence[str], rotations: int) -> None:
    turned = orders(Choice.of("?", *names), rotations)
    assert len(turned) == min(rotations, len(names))
    assert len({each.names for each in turned}) == len(turned)
    assert all(sorted(each.names) == sorted(names) for each in turned)
    if rotations >= len(names):
        for place in range(len(names)):
            assert {each.names[place] for each in turned} == set(names)


def test_a_prompt_shows_the_state_the_question_and_what_options_mean() -> None:
    request = DecisionRequest({"ticket": "Zoë"}, {"q": Noul.of("Is it urgent?", yes="time matters")})
    (first, second) = orders(request.questions["q"], 4)
    assert (
        prompt(request, first)
        == '{\n  "ticket": "Zoë"\n}\n\nQuestion: Is it urgent?\nOptions:\nA. yes: time matters\nB. no'
    )
    assert prompt(request, second).endswith("A. no\nB. yes: time matters")
