"""A malformed question cannot be made, and a request holds only what JSON can."""

from __future__ import annotations

import copy
import enum
import json
import pickle
import warnings
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import given, strategies as st
from pydantic import BaseModel, ConfigDict, TypeAdapter

from interlock.decisions import Choice, DecisionRequest, Noul, Option, Question, Score
from interlock.decisions.written import read_questions


class Ticket(BaseModel):
    text: str
    amount: float = 0.0


def test_a_choice_is_given_its_options_in_any_form() -> None:
    plain = Choice.of("Which team?", "billing", "technical")
    assert plain.names == ("billing", "technical")
    described = Choice.of("Which team?", {"billing": "invoices", "technical": None})
    assert described.options == (Option("billing", "invoices"), Option("technical"))
    assert Choice.of("Which team?", Option("billing", "invoices"), "technical") == described
    assert hash(described) == hash(copy.deepcopy(described))


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: Choice.of("q"), "2 to 255 options, not 0"),
        (lambda: Choice.of("q", "only"), "2 to 255 options, not 1"),
        (lambda: Choice.of("q", *map(str, range(256))), "not 256"),
        (lambda: Choice.of("q", "a", "b", "a"), "option 'a' twice"),
        (lambda: Choice.of("q", "a", " "), "name is empty"),
        (lambda: Choice.of("q", {"a": "", "b": None}), "description of option 'a' is empty"),
        (lambda: Choice.of("q", {"a": 3, "b": None}), "must be text, not int"),
        (lambda: Choice.of("q", 1, 2), "must be text, not int"),
        (lambda: Choice.of("", "a", "b"), "question of a choice is empty"),
        (lambda: Choice.of("\ud800", "a", "b"), "lone surrogate"),
        (lambda: Noul.of("  "), "question of a noul is empty"),
        (lambda: Noul.of("q", yes=""), "meaning of yes is empty"),
        (lambda: Noul.of(None), "must be text, not NoneType"),
        (lambda: Score.of("q", "one"), "2 to 10 levels, not 1"),
        (lambda: Score.of("q", *map(str, range(11))), "2 to 10 levels, not 11"),
        (lambda: Score.of("q", "low", ""), "level 1 is empty"),
        (lambda: Score.of("q", "low", "low"), "level 'low' twice"),
        (lambda: Score.of("", "low", "high"), "question of a score is empty"),
        (lambda: Choice("q", ("a", "b")), "option of a choice is str: make it with Option or Choice.of"),
        (lambda: Choice("q", None), "options of a choice are several, not NoneType"),
        (lambda: Choice("q", (Option("a"), Option("b")), type="noul"), "the type of a choice is 'choice'"),
        (lambda: Noul("q", type="choice"), "the type of a noul is 'noul'"),
        (lambda: Score("q", ("a", "b"), type="choice"), "the type of a score is 'score'"),
        (lambda: Score("q", "abc"), "levels of a score are several, not str"),
        (lambda: Score("q", 3), "levels of a score are several, not int"),
    ],
)
def test_malformed_questions_are_refused_when_made(make: Any, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        make()


def test_the_largest_questions_are_allowed() -> None:
    assert len(Choice.of("q", *map(str, range(255))).options) == 255
    assert len(Score.of("q", *map(str, range(10))).levels) == 10


@pytest.mark.parametrize(
    "question",
    [
        Choice.of("Which?", {"a": "first", "b": None}),
        Noul.of("Is it?", yes="it is"),
        Score.of("How much?", "none", "some", "all"),
    ],
)
def test_a_question_survives_json_and_pickle(question: Question) -> None:
    adapter: TypeAdapter[Question] = TypeAdapter(Question)
    assert adapter.validate_json(adapter.dump_json(question)) == question
    assert pickle.loads(pickle.dumps(question)) == question


@pytest.mark.parametrize(
    "state", ["text", "", {"a": [1, 2.5, None, True, {"b": "c"}]}, [], {}, [{"x": 1}], Ticket(text="t")]
)
def test_a_state_is_text_a_structure_or_a_model(state: Any) -> None:
    request = DecisionRequest(state, {"q": Noul.of("Is it?")})
    assert json.loads(json.dumps(request.state)) == request.state
    assert "Is it?" in request.text
    for other in (pickle.loads(pickle.dumps(request)), copy.deepcopy(request)):
        assert other == request
        assert hash(other) == hash(request)


def test_a_nested_model_becomes_plain_json() -> None:
    request = DecisionRequest({"ticket": Ticket(text="t", amount=2.5)}, {"q": Noul.of("?")})
    assert request.state == {"ticket": {"text": "t", "amount": 2.5}}


class Mood(str, enum.Enum):  # noqa: UP042 - as older code has it
    CROSS = "cross"


class Rank(enum.IntEnum):
    FIRST = 1


def test_what_is_an_enum_or_a_number_of_numpy_is_asked_as_its_value() -> None:
    request = DecisionRequest({Mood.CROSS: [Rank.FIRST, np.float64(2.5)]}, {Mood.CROSS: Noul.of(Mood.CROSS)})
    assert request.state == {"cross": [1, 2.5]}
    assert {type(each) for each in request.state["cross"]} == {int, float}  # type: ignore[index]
    assert request.text == '{\n  "cross": [\n    1,\n    2.5\n  ]\n}\ncross: noul: cross'
    options = Choice.of(Mood.CROSS, {Mood.CROSS: Mood.CROSS, "calm": None})
    assert [f"{option.name} {option.description}" for option in options.options] == ["cross cross", "calm None"]
    assert f"{Score.of('q', Mood.CROSS, 'calm').levels}" == "('cross', 'calm')"


class Holding(BaseModel):
    model_config = ConfigDict(arbitrary_types_allowed=True)
    number: int = 0
    thing: object = None
    raw: bytes = b""


@pytest.mark.parametrize("model", [Holding(thing=object()), Holding(raw=b"\xff4111")])
@pytest.mark.parametrize("wrap", [lambda model: model, lambda model: {"deep": [model]}])
def test_a_model_that_json_cannot_hold_is_refused_and_nothing_of_it_is_told(model: Any, wrap: Any) -> None:
    with pytest.raises(ValueError, match="Holding that JSON cannot hold") as caught:
        DecisionRequest(wrap(model), {"q": Noul.of("?")})
    assert type(caught.value) is ValueError
    assert caught.value.__context__ is None
    assert "4111" not in repr(caught.value)


def test_pydantic_says_nothing_of_a_model_that_does_not_hold_what_it_declares() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # pydantic's would quote the value
        request = DecisionRequest(Holding.model_construct(number="card 4111"), {"q": Noul.of("?")})
    assert request.state == {"number": "card 4111", "thing": None, "raw": ""}


def test_the_state_is_a_copy() -> None:
    state: dict[str, Any] = {"lines": ["one"]}
    request = DecisionRequest(state, {"q": Noul.of("?")})
    state["lines"].append("two")
    assert request.state == {"lines": ["one"]}


def test_equal_requests_hash_alike_whatever_the_order() -> None:
    one = DecisionRequest({"a": 1, "b": 2}, {"p": Noul.of("p"), "q": Noul.of("q")})
    two = DecisionRequest({"b": 2, "a": 1}, {"q": Noul.of("q"), "p": Noul.of("p")})
    assert one == two
    assert hash(one) == hash(two)


CYCLE: list[Any] = []
CYCLE.append(CYCLE)


@pytest.mark.parametrize(
    ("state", "why"),
    [
        (None, "not NoneType"),
        (3, "not int"),
        (True, "not bool"),
        (b"bytes", "not bytes"),
        ({"secret-name": float("nan")}, "state, item 0 is not a finite number"),
        ([1, {"a": float("inf")}], "state, item 1, item 0 is not a finite number"),
        ({1: "a"}, "a key of state is int"),
        ({"secret-name": object()}, "state, item 0 is object"),
        ({"a": {1, 2}}, "is set"),
        ("\ud800", "lone surrogate"),
        ({"\ud800": 1}, "lone surrogate"),
        (CYCLE, "contains itself"),
    ],
)
def test_a_state_that_json_cannot_hold_is_refused_without_quoting_it(state: Any, why: str) -> None:
    with pytest.raises(ValueError, match=why) as caught:
        DecisionRequest(state, {"q": Noul.of("?")})
    assert "secret-name" not in str(caught.value)


@pytest.mark.parametrize(
    ("questions", "why"),
    [
        ({}, "at least one question"),
        ({"": Noul.of("?")}, "id must be text that is not empty"),
        ({3: Noul.of("?")}, "id must be text"),
        ({"q": "Is it?"}, "question 'q' is str"),
        ({"q": None}, "question 'q' is NoneType"),
        ([Noul.of("?")], "must be a mapping"),
    ],
)
def test_questions_are_checked_by_name(questions: Any, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        DecisionRequest("state", questions)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
        max_leaves=12,
    )
)
def test_any_json_structure_is_kept_as_it_is(value: Any) -> None:
    try:
        request = DecisionRequest([value], {"q": Noul.of("?")})
    except ValueError as error:
        assert "surrogate" in str(error)  # noqa: PT017
        return
    assert request.state == [value]
    assert request.state_text.encode()


def test_what_a_wire_cannot_carry_is_refused_where_it_is_made() -> None:
    with pytest.raises(ValueError, match="a question's id holds a lone surrogate"):
        DecisionRequest("x", {"\ud800": Noul.of("Is it?")})
    with pytest.raises(ValueError, match="state, item 0 is a number of more than"):
        DecisionRequest({"of": 10**5_000}, {"a": Noul.of("Is it?")})


def test_yaml_says_true_without_quotes() -> None:
    written = yaml.safe_load("a: {type: noul, instructions: 'Is it?', criteria: {true: surely, no: never}}")
    assert read_questions(written) == {"a": Noul.of("Is it?", yes="surely", no="never")}
    with pytest.raises(ValueError, match="question 'a': it has 1, which is none of type"):
        read_questions({"a": {1: 2, "b": 3, "type": "noul"}})
