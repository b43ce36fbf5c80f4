"""A distribution from the log-probabilities of one token, whatever a server lists."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, strategies as st

from interlock.decisions.labels import LABELS, MOST_LABELS, SMALLEST, label_distribution, mean
from interlock.errors import MalformedResponseError


def token(*top: tuple[str, float], said: str | None = None) -> list[dict[str, Any]]:
    """One token of a completion, with these alternatives."""
    name = top[0][0] if said is None else said
    listed = [{"token": each, "logprob": logprob} for each, logprob in top]
    return [{"token": name, "logprob": dict(top).get(name, -1.0), "top_logprobs": listed}]


def test_b67_spellings_are_summed_and_a_missing_label_has_its_bound() -> None:
    top = [("No", -0.1), (" Yes", -3.0), ("yes", -4.0), ("<think>", -5.0)]
    found = label_distribution(token(*top), ("yes", "no", "maybe"))
    no, yes = math.exp(-0.1), math.exp(-3) + math.exp(-4)
    left = 1 - (no + yes + math.exp(-5))
    bound = min(math.exp(-5), left)
    total = no + yes + bound
    assert found.probabilities == pytest.approx({"yes": yes / total, "no": no / total, "maybe": bound / total})
    assert found.bounded == {"maybe"}
    assert found.mass == pytest.approx(no + yes)
    assert sum(found.probabilities.values()) == pytest.approx(1)


@pytest.mark.parametrize("spelling", ["B", " B", "b", "**B", '"B', "(B)", "B.", "▁B", "ĠB", "\nB"])
def test_b67_a_label_is_known_in_any_spelling(spelling: str) -> None:
    found = label_distribution(token((spelling, -0.05), ("A", -4.0)), ("A", "B"))
    assert found.probabilities["B"] > 0.9
    assert not found.bounded


@pytest.mark.parametrize("first", ["\n", '"', " ", "**", "```", "{"])
def test_b67_what_says_nothing_is_passed_over(first: str) -> None:
    tokens = token((first, -0.1), ("A", -3.0)) + token(("B", -0.2), ("A", -2.0))
    assert label_distribution(tokens, ("A", "B")).probabilities["B"] > 0.8


def test_b67_labels_that_begin_alike_are_refused() -> None:
    for labels in (("no", "none"), ("yes", "Yes"), ("A", "A."), ("A", "**")):
        with pytest.raises(ValueError, match="labels"):
            label_distribution(token(("no", -0.1)), labels)


def test_b67_a_sentinel_is_nothing_known_and_no_probability() -> None:
    found = label_distribution(token(("A", -0.1), ("B", -9999.0), ("C", -3.0)), ("A", "B", "C"))
    assert "B" in found.bounded
    # It has the most it can have had: no more than the least that is listed, nor than what is left.
    left = 1 - math.exp(-0.1) - math.exp(-3)
    assert found.probabilities["B"] == pytest.approx(min(left, math.exp(-3)))


@pytest.mark.parametrize("logprob", [0.69, math.nan, "x", None, True])
def test_b67_what_is_no_log_probability_is_malformed(logprob: Any) -> None:
    tokens = token(("A", -0.1), ("B", -2.0))
    tokens[0]["top_logprobs"][1]["logprob"] = logprob
    with pytest.raises(MalformedResponseError, match="log-probability"):
        label_distribution(tokens, ("A", "B"))


def test_a_rounding_above_0_is_forgiven() -> None:
    found = label_distribution(token(("A", 1e-6), ("B", -20.0)), ("A", "B"))
    assert found.probabilities["A"] <= 1.0


@pytest.mark.parametrize("tokens", [None, [], "text", [{}], [{"token": 3}], token((" ", -0.1)), [{"token": "A"}]])
def test_b67_no_log_probabilities_are_malformed(tokens: Any) -> None:
    with pytest.raises(MalformedResponseError):
        label_distribution(tokens, ("A", "B"))


def test_a_model_that_was_about_to_say_something_else_has_not_answered() -> None:
    tokens = token(("I", -0.2), ("Sorry", -4.0), ("A", -3.0), ("B", -4.0))
    with pytest.raises(MalformedResponseError, match=r"0\.07 together"):
        label_distribution(tokens, ("A", "B"))
    assert label_distribution(tokens, ("A", "B"), least_mass=0.05).probabilities["A"] > 0.5


LOGPROBS = st.floats(-30, 0) | st.just(-9999.0)


@given(
    st.dictionaries(st.sampled_from([*LABELS, *(f" {label}" for label in LABELS), "The", "I"]), LOGPROBS, min_size=1)
)
def test_b67_whatever_is_listed_a_distribution_is_one_or_is_refused(listed: dict[str, float]) -> None:
    labels = LABELS[:5]
    try:
        found = label_distribution(token(*listed.items()), labels)
    except MalformedResponseError:
        return
    assert list(found.probabilities) == list(labels)
    assert sum(found.probabilities.values()) == pytest.approx(1)
    assert all(SMALLEST / 2 < each <= 1 for each in found.probabilities.values())
    seen = [each for label, each in found.probabilities.items() if label not in found.bounded]
    assert all(found.probabilities[label] <= max(seen) for label in found.bounded)


@given(st.lists(st.lists(st.floats(0.01, 1), min_size=3, max_size=3), min_size=1, max_size=6))
def test_a_mean_of_distributions_is_one(given_weights: list[list[float]]) -> None:
    distributions = [dict(zip("abc", (each / sum(row) for each in row), strict=True)) for row in given_weights]
    averaged = mean(distributions)
    assert sum(averaged.values()) == pytest.approx(1)
    for key in "abc":
        assert (
            min(row[key] for row in distributions) - 1e-9
            <= averaged[key]
            <= max(row[key] for row in distributions) + 1e-9
        )


def test_a_mean_is_of_all() -> None:
    assert mean([{"a": 0.9, "b": 0.1}, {"a": 0.5, "b": 0.5}, {"a": 0.1, "b": 0.9}]) == pytest.approx(
        {"a": 0.5, "b": 0.5}
    )


def test_more_than_all_is_malformed() -> None:
    with pytest.raises(MalformedResponseError, match="more than a probability of 1"):
        label_distribution(token(("A", -0.1), ("B", -0.1)), ("A", "B"))


def test_a_label_that_is_listed_as_all_but_impossible_is_no_less_than_one_that_is_not_listed() -> None:
    found = label_distribution(token(("A", 0.0), ("B", -22.0)), ("A", "B", "C"))
    assert found.bounded == {"C"}
    assert found.probabilities["B"] >= found.probabilities["C"] >= SMALLEST / 2


def test_there_are_as_many_labels_as_alternatives_and_none_begins_an_apology() -> None:
    assert len(LABELS) == len(set(LABELS)) == MOST_LABELS == 20
    with pytest.raises(MalformedResponseError, match="the least that"):
        label_distribution(token(("I", -0.01), ("A", -5.0)), LABELS)
