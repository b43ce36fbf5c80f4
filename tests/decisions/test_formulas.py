"""Confidence by the published formulas, against what other people's code computes."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from interlock.decisions import ChoiceAnswer, NoulAnswer, ScoreAnswer
from interlock.decisions.formulas import choice_confidence, expected_level, score_confidence, uniform_spread


def distributions(most: int = 12) -> st.SearchStrategy[list[float]]:
    weights = st.lists(st.floats(0, 1), min_size=1, max_size=most).filter(lambda found: sum(found) > 1e-6)
    return weights.map(lambda found: [weight / sum(found) for weight in found])


@given(distributions())
def test_every_confidence_is_within_0_and_1(probabilities: list[float]) -> None:
    assert 0.0 <= choice_confidence(probabilities) <= 1.0
    assert 0.0 <= score_confidence(probabilities) <= 1.0
    assert -1e-9 <= expected_level(probabilities) <= len(probabilities) - 1 + 1e-9


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_not_even_a_badly_rounded_sum_leaves_0_and_1(values: list[float]) -> None:
    assert 0.0 <= choice_confidence(values) <= 1.0
    assert 0.0 <= score_confidence(values) <= 1.0


@given(st.integers(2, 12), st.data())
def test_certain_is_1_and_uniform_is_0(n: int, data: st.DataObject) -> None:
    certain = [0.0] * n
    certain[data.draw(st.integers(0, n - 1))] = 1.0
    assert choice_confidence(certain) == score_confidence(certain) == 1.0
    assert choice_confidence([1 / n] * n) == pytest.approx(0, abs=1e-9)


@given(distributions())
def test_the_same_as_the_reference_implementation(probabilities: list[float]) -> None:
    reference = pytest.importorskip("jevcompat.validate", reason="jevcompat is not installed")
    assert choice_confidence(probabilities) == pytest.approx(reference.choice_confidence(probabilities), abs=1e-9)
    assert score_confidence(probabilities) == pytest.approx(reference.score_confidence(probabilities), abs=1e-9)


def test_the_published_examples() -> None:
    assert choice_confidence([0.88, 0.12, 0.0]) == pytest.approx(0.82)
    assert score_confidence([0.0, 0.95, 0.05]) == pytest.approx(0.925)
    assert expected_level([0.0, 0.95, 0.05]) == pytest.approx(1.05)
    assert uniform_spread(3) == pytest.approx(2 / 3)


def test_answers_compute_their_own() -> None:
    choice = ChoiceAnswer(choice="a", probabilities={"b": 0.12, "a": 0.88, "c": 0.0}, reported_confidence=0.1)
    assert choice.confidence == pytest.approx(0.82)
    assert choice.ranked == (("a", 0.88), ("b", 0.12), ("c", 0.0))
    assert NoulAnswer(noul=0.95).confidence == pytest.approx(0.9)
    assert NoulAnswer(noul=0.5).yes
    assert not NoulAnswer(noul=0.49).yes
    assert sum(NoulAnswer(noul=0.3).probabilities.values()) == 1.0
    score = ScoreAnswer(score=1.05, probabilities=(0.0, 0.95, 0.05), levels=("calm", "cross", "angry"))
    assert score.confidence == pytest.approx(0.925)
    assert score.level == 1
