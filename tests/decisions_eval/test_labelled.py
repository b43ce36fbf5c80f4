"""Labelled lines: questions from JSON, labels checked by name, what is wrong said without the state."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from interlock.decisions import Choice, Noul, Option, Question, Score
from interlock.decisions.wire import encode_questions
from interlock.decisions.written import read_questions
from interlock.runtime.decisions_eval.labelled import LabelledLines

WRITTEN: dict[str, Any] = {
    "team": {"type": "choice", "instructions": "Which team?", "criteria": {"billing": "invoices", "sales": None}},
    "urgent": {"type": "noul", "instructions": "Is it urgent?"},
    "anger": {"type": "score", "instructions": "How cross?", "criteria": ["calm", "cross", "angry"]},
}


def read(*lines: Any) -> Any:
    labelled = LabelledLines()
    for number, line in enumerate(lines, 1):
        found = labelled.read(number, line)
    return found


def test_questions_of_the_first_line_hold_for_the_others_until_there_are_new_ones() -> None:
    labelled = LabelledLines()
    first = labelled.read(1, {"state": "a", "labels": {"team": "sales"}, "questions": WRITTEN})
    second = labelled.read(2, {"id": 7, "state": {"b": 1}, "labels": {"urgent": True, "anger": "cross"}})
    third = labelled.read(3, {"state": "c", "labels": {"urgent": False}, "questions": {"urgent": {
        "type": "noul", "instructions": "Now?"}}})  # fmt: skip
    assert (first.truths, second.truths, third.truths) == ({"team": 1}, {"urgent": 0, "anger": 1}, {"urgent": 1})
    assert list(second.request.questions) == ["urgent", "anger"]
    assert third.request.questions["urgent"].question == "Now?"
    assert labelled.read(2, {"state": "b", "labels": {"anger": 2}}).truths == {"anger": 2}  # read again, as it was
    assert second.arguments == {
        "state": {"b": 1},
        "questions": {name: WRITTEN[name] for name in ("urgent", "anger")},
    }


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ([], "must be an object"),
        ({"labels": {}}, "lacks state"),
        ({"state": "s"}, "lacks labels"),
        ({"state": "s", "labels": {"team": "sales"}, "label": 1}, "has 'label', which is none of"),
        ({"state": "s", "labels": {}}, "at least one question"),
        (
            {"state": "s", "labels": {"colour": "red"}},
            "a label for 'colour'; the questions are 'team', 'urgent', 'anger'",
        ),
        ({"state": "s", "labels": {"team": "legal"}}, r"one of its options \(billing, sales\), not 'legal'"),
        ({"state": "s", "labels": {"team": 1}}, "not 1"),
        ({"state": "s", "labels": {"urgent": "yes"}}, "must be true or false, not 'yes'"),
        ({"state": "s", "labels": {"urgent": 1}}, "must be true or false"),
        ({"state": "s", "labels": {"anger": 3}}, r"its text, or 0 to 2\), not 3"),
        ({"state": "s", "labels": {"anger": True}}, "not True"),
        ({"state": 3, "labels": {"urgent": True}}, "a state is text"),
        ({"state": "s", "labels": {"team": "sales"}, "questions": []}, "questions must be an object"),
    ],
)
def test_what_is_wrong_with_a_line_is_said(line: Any, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        read({"state": "a", "labels": {"team": "sales"}, "questions": WRITTEN}, line)


def test_without_questions_there_is_nothing_to_ask() -> None:
    with pytest.raises(ValueError, match="--questions FILE, or `questions` in the first line"):
        read({"state": "a", "labels": {"team": "sales"}})


@pytest.mark.parametrize(
    ("written", "why"),
    [
        ({"q": 3}, "question 'q': a question is an object, not int"),
        ({"q": {"type": "boolean", "instructions": "?"}}, "question 'q': its type is 'boolean'"),
        ({"q": {"type": "noul", "instructions": "?", "labels": 1}}, "has 'labels'"),
        ({"q": {"type": "choice", "instructions": "?", "criteria": ["a"]}}, "are an object"),
        ({"q": {"type": "choice", "instructions": "?", "criteria": {"a": None}}}, "2 to 255 options, not 1"),
        ({"q": {"type": "score", "instructions": "?", "criteria": {"a": 1}}}, "are a list"),
        ({"q": {"type": "noul", "instructions": "?", "criteria": {"yes": "x"}}}, "true and false"),
        ({"q": {"type": "noul"}}, "must be text, not NoneType"),
    ],
)
def test_a_question_that_is_none_is_named(written: Any, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        read_questions(written)


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8).filter(lambda text: text.strip())
QUESTIONS = st.one_of(
    st.builds(
        lambda q, names, meaning: Choice(q, tuple(Option(name, meaning) for name in names)),
        TEXTS, st.lists(TEXTS, min_size=2, max_size=4, unique=True), st.none() | TEXTS,
    ),
    st.builds(Noul, TEXTS, st.none() | TEXTS, st.none() | TEXTS),
    st.builds(lambda q, levels: Score(q, tuple(levels)), TEXTS, st.lists(TEXTS, min_size=2, max_size=4, unique=True)),
)  # fmt: skip


@settings(max_examples=30)
@given(st.dictionaries(TEXTS, QUESTIONS, min_size=1, max_size=4))
def test_what_is_written_is_read_back(questions: dict[str, Question]) -> None:
    assert read_questions(encode_questions(questions)) == questions
