"""The System One wire: strict about what is missing, lenient about what is extra, silent about the state."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
from hypothesis import given, strategies as st

from interlock.catalog.usage import Usage
from interlock.decisions import Choice, DecisionRequest, Noul, Score
from interlock.decisions.response import ChoiceAnswer, NoulAnswer, ScoreAnswer
from interlock.decisions.wire import decode_answers, decode_model, decode_usage, encode
from interlock.errors import MalformedResponseError

QUESTIONS: dict[str, Any] = {
    "department": Choice.of(
        "Which team should handle this?", {"billing": "Invoices", "technical": None, "sales": None}
    ),
    "is_urgent": Noul.of("Does this convey urgency?", yes="time-sensitive", no="no urgency"),
    "anger": Score.of("How frustrated?", "Calm", "Frustrated", "Very angry"),
}
BODY: dict[str, Any] = {
    "model": "jev-1.13.0",
    "answers": {
        "department": {
            "type": "choice",
            "choice": "billing",
            "probabilities": {"billing": 0.88, "technical": 0.12, "sales": 0.0},
            "confidence": 0.82,
        },
        "is_urgent": {"type": "noul", "noul": 0.95},
        "anger": {
            "type": "score",
            "score": 1.05,
            "legend": {"0": "Calm", "1": "Frustrated", "2": "Very angry"},
            "probabilities": {"0": 0.0, "1": 0.95, "2": 0.05},
            "confidence": 0.925,
        },
    },
    "usage": {"input_tokens": 304, "output_tokens": 18},
}


def changed(path: str, value: Any = None, *, drop: bool = False) -> dict[str, Any]:
    body = copy.deepcopy(BODY)
    at = body
    *parents, last = path.split("/")
    for part in parents:
        at = at[part]
    if drop:
        del at[last]
    else:
        at[last] = value
    return body


def test_a_request_is_written_as_the_wire_has_it() -> None:
    assert encode(DecisionRequest({"ticket": "Charged twice"}, QUESTIONS), model="jev-latest") == {
        "model": "jev-latest",
        "state": {"ticket": "Charged twice"},
        "questions": {
            "department": {
                "type": "choice",
                "instructions": "Which team should handle this?",
                "criteria": {"billing": "Invoices", "technical": None, "sales": None},
            },
            "is_urgent": {
                "type": "noul",
                "instructions": "Does this convey urgency?",
                "criteria": {"true": "time-sensitive", "false": "no urgency"},
            },
            "anger": {
                "type": "score",
                "instructions": "How frustrated?",
                "criteria": ["Calm", "Frustrated", "Very angry"],
            },
        },
    }


def test_a_noul_without_meanings_has_no_criteria() -> None:
    encoded = encode(DecisionRequest("s", {"a": Noul.of("?"), "b": Noul.of("?", no="never")}), model="m")["questions"]
    assert "criteria" not in encoded["a"]
    assert encoded["b"]["criteria"] == {"false": "never"}


def test_the_published_answer_is_read() -> None:
    answers = decode_answers(BODY, QUESTIONS)
    assert answers == {
        "department": ChoiceAnswer(
            choice="billing",
            probabilities={"billing": 0.88, "technical": 0.12, "sales": 0.0},
            reported_confidence=0.82,
        ),
        "is_urgent": NoulAnswer(noul=0.95),
        "anger": ScoreAnswer(
            score=1.05,
            probabilities=(0.0, 0.95, 0.05),
            levels=("Calm", "Frustrated", "Very angry"),
            reported_confidence=0.925,
        ),
    }
    assert decode_usage(BODY) == Usage(input_tokens=304, output_tokens=18)
    assert decode_model(BODY) == "jev-1.13.0"


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (None, "the response is missing"),
        ([], "the response is not an object"),
        ({}, "answers is missing"),
        ({"answers": []}, "answers is not an object"),
        (changed("answers/is_urgent", drop=True), "question 'is_urgent' has no answer"),
        (changed("answers/is_urgent", None), "answer to 'is_urgent' is missing"),
        (changed("answers/is_urgent/type", "boolean"), "'is_urgent' is not of type noul"),
        (changed("answers/is_urgent/type", drop=True), "'is_urgent' is not of type noul"),
        (changed("answers/is_urgent/noul", 1.95), "noul of 'is_urgent' is 1.95"),
        (changed("answers/is_urgent/noul", -0.2), "is -0.2"),
        (changed("answers/is_urgent/noul", 1.001), "is 1.001, not within"),
        (changed("answers/is_urgent/noul", -0.001), "is -0.001, not within"),
        (changed("answers/anger/probabilities/1", 1.01), "level '1' of 'anger' is 1.01, not within"),
        (changed("answers/is_urgent/noul", True), "not a finite number"),
        (changed("answers/is_urgent/noul", "0.9"), "not a finite number"),
        (changed("answers/is_urgent/noul", math.nan), "not a finite number"),
        (changed("answers/is_urgent/noul", 10**400), "not a finite number"),
        (changed("answers/department/probabilities/sales", drop=True), "option 'sales' of 'department' has no"),
        (changed("answers/department/probabilities", None), "probabilities of 'department' is missing"),
        (changed("answers/department/probabilities/sales", 0.3), "add up to 1.300"),
        (changed("answers/department/probabilities/billing", 0.5), "add up to 0.620"),
        (changed("answers/department/choice", "legal"), "not one of its 3 options"),
        (changed("answers/department/choice", drop=True), "not one of its 3 options"),
        (changed("answers/department/choice", ["billing"]), "not one of its 3 options"),
        (changed("answers/department/choice", "technical"), "'technical' with 0.12, and another option has 0.88"),
        (changed("answers/anger/probabilities/2", drop=True), "level '2' of 'anger' has no probability"),
        (changed("answers/anger/probabilities", {"1": 0.0, "2": 0.95, "3": 0.05}), "level '0' of 'anger'"),
        (changed("answers/anger/score", drop=True), "score of 'anger' is not a finite number"),
        (changed("answers/anger/score", 2.0), "score of 'anger' is 2, and its probabilities make it 1.050"),
        (changed("answers/anger/score", 1.1), "score of 'anger' is 1.1, and"),  # of three levels 0.04 is rounding
        (changed("answers/anger/score", 1.0), "score of 'anger' is 1, and"),
        (changed("answers/anger/legend", {"1": "Calm", "2": "F", "3": "V"}), "legend of 'anger'"),
    ],
)
def test_what_is_missing_or_impossible_is_named(body: Any, why: str) -> None:
    with pytest.raises(MalformedResponseError, match=why) as caught:
        decode_answers(body, QUESTIONS)
    assert caught.value.retryable


@pytest.mark.parametrize(
    "body",
    [
        changed("x_debug", {"any": "thing"}),
        changed("latency_ms", math.nan),
        changed("answers/extra", {"type": "box", "box": {}}),
        changed("answers/department/margin", 0.7),
        changed("answers/department/probabilities/other", 0.0),
        changed("answers/department/confidence", drop=True),
        changed("answers/anger/confidence", 7),
        changed("answers/anger/score", 1.09),
        changed("answers/anger/score", 1.01),
        changed("answers/anger/legend", drop=True),
        changed("answers/anger/legend", "text"),
        changed("usage", drop=True),
        changed("model", drop=True),
    ],
)
def test_what_is_extra_or_not_needed_is_ignored(body: Any) -> None:
    answers = decode_answers(body, QUESTIONS)
    assert list(answers) == list(QUESTIONS)
    assert answers["department"].confidence == pytest.approx(0.82)
    assert answers["anger"].confidence == pytest.approx(0.925)


@pytest.mark.parametrize(
    ("probabilities", "fine"),
    [
        ({"a": 0.5, "b": 0.46}, True),
        ({"a": 0.53, "b": 0.52}, True),
        ({"a": 0.5, "b": 0.44}, False),
        ({"a": 0.6, "b": 0.46}, False),
    ],
)
def test_a_sum_may_miss_1_by_rounding(probabilities: dict[str, float], fine: bool) -> None:
    body = {"answers": {"q": {"type": "choice", "choice": "a", "probabilities": probabilities}}}
    if fine:
        assert decode_answers(body, {"q": Choice.of("?", "a", "b")})
    else:
        with pytest.raises(MalformedResponseError, match="add up"):
            decode_answers(body, {"q": Choice.of("?", "a", "b")})


def test_many_options_may_miss_by_half_a_hundredth_each() -> None:
    names = [f"option {number}" for number in range(200)]
    question = {"q": Choice.of("?", *names)}
    probabilities = dict.fromkeys(names, 0.01)  # 1/200 rounded up

    def body(values: dict[str, float]) -> Any:
        return {"answers": {"q": {"type": "choice", "choice": names[0], "probabilities": values}}}

    assert decode_answers(body(probabilities), question)
    with pytest.raises(MalformedResponseError, match="add up to 2"):
        decode_answers(body({**probabilities, names[0]: 0.05}), question)


@pytest.mark.parametrize(("winner", "fine"), [(0.5, True), (0.495, True), (0.494, False)])
def test_a_winner_may_be_behind_by_rounding_only(winner: float, fine: bool) -> None:
    body = {"answers": {"q": {"type": "choice", "choice": "a", "probabilities": {"a": winner, "b": 0.5}}}}
    question = {"q": Choice.of("?", "a", "b")}
    if fine:
        assert decode_answers(body, question)["q"].choice == "a"  # type: ignore[union-attr]
    else:
        with pytest.raises(MalformedResponseError, match=r"another option has 0\.5"):
            decode_answers(body, question)


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        ({"input_tokens": 3, "output_tokens": 0}, Usage(input_tokens=3, output_tokens=0)),
        ({"input_tokens": 3.0}, Usage(input_tokens=3)),
        ({"input_tokens": -1, "output_tokens": True}, None),
        ({"input_tokens": 2.5, "output_tokens": "4"}, None),
        ({"input_tokens": math.nan, "output_tokens": math.inf}, None),
        ({}, None),
        ([], None),
    ],
)
def test_usage_is_whole_numbers_or_unknown(usage: Any, expected: Usage | None) -> None:
    assert decode_usage({"usage": usage}) == expected


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=10,
)
PATHS = [
    "answers",
    *(f"answers/{name}" for name in QUESTIONS),
    *(f"answers/{name}/type" for name in QUESTIONS),
    "answers/is_urgent/noul",
    "answers/department/choice",
    "answers/department/probabilities",
    *(f"answers/department/probabilities/{name}" for name in ("billing", "technical", "sales")),
    "answers/department/confidence",
    "answers/anger/score",
    "answers/anger/legend",
    "answers/anger/probabilities",
    *(f"answers/anger/probabilities/{level}" for level in range(3)),
    "usage",
    "model",
]


def assert_answers_hold(answers: dict[str, Any]) -> None:
    assert list(answers) == list(QUESTIONS)
    department, urgent, anger = answers["department"], answers["is_urgent"], answers["anger"]
    for values in (department.probabilities.values(), anger.probabilities, [urgent.noul]):
        assert all(0.0 <= value <= 1.0 for value in values)
    assert department.choice in QUESTIONS["department"].names
    assert department.probabilities[department.choice] >= max(department.probabilities.values()) - 0.00501
    assert 0.0 <= anger.score <= 2.0
    assert all(0.0 <= answer.confidence <= 1.0 for answer in answers.values())


@given(JSON)
def test_any_json_is_a_typed_error_or_a_valid_answer(body: Any) -> None:
    decode_usage(body)
    decode_model(body)
    with pytest.raises(MalformedResponseError):
        decode_answers(body, QUESTIONS)
    with pytest.raises(MalformedResponseError):
        decode_answers({"answers": body}, QUESTIONS)


@given(st.lists(st.tuples(st.sampled_from(PATHS), JSON | st.floats(0, 1), st.booleans()), min_size=1, max_size=3))
def test_any_damage_to_an_answer_is_a_typed_error_or_a_valid_answer(damage: list[tuple[str, Any, bool]]) -> None:
    body = copy.deepcopy(BODY)
    for path, value, drop in damage:
        at: Any = body
        *parents, last = path.split("/")
        for part in parents:
            at = at.get(part) if isinstance(at, dict) else None
        if isinstance(at, dict):
            if drop:
                at.pop(last, None)
            else:
                at[last] = value
    decode_usage(body)
    try:
        answers = decode_answers(body, QUESTIONS)
    except MalformedResponseError:
        return
    assert_answers_hold(answers)


def test_an_answer_is_read_by_its_id_and_kind() -> None:
    from interlock.decisions import DecisionResponse

    response = DecisionResponse(answers=decode_answers(BODY, QUESTIONS), usage=Usage(), model="m", provider="p")
    assert response.choice("department").choice == "billing"
    assert response.noul("is_urgent").yes
    assert response.score("anger").level == 1
    assert not response.truncated
    with pytest.raises(KeyError, match="no question 'team' was asked; there are 'department', 'is_urgent', 'anger'"):
        response.choice("team")
    with pytest.raises(TypeError, match=r"question 'anger' is a score, not a choice: read \.score\('anger'\)"):
        response.choice("anger")
    with pytest.raises(TypeError, match="is a choice, not a noul"):
        response.noul("department")
