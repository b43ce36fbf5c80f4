"""No vector is ever attached to another text."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, strategies as st

from interlock.embeddings.align import align
from interlock.errors import MalformedResponseError


@given(st.integers(0, 40), st.randoms(use_true_random=False), st.booleans())
def test_alignment_is_a_permutation(n: int, shuffled: random.Random, as_text: bool) -> None:
    indexes = list(range(n))
    shuffled.shuffle(indexes)
    values = [f"vector of text {index}" for index in indexes]
    wire: list[Any] = [str(index) for index in indexes] if as_text else list(indexes)
    assert align(values, wire, expected=n) == [f"vector of text {index}" for index in range(n)]


@given(st.lists(st.one_of(st.integers(-2, 6), st.none(), st.booleans(), st.text(max_size=2)), max_size=6))
def test_b25_anything_else_is_refused(indexes: list[Any]) -> None:
    n = len(indexes)
    values = list(range(n))
    read = [int(i) if isinstance(i, str) and i.isascii() and i.isdigit() else i for i in indexes]
    valid = not any(isinstance(i, bool) or not isinstance(i, int) for i in read) and sorted(read) == values
    if valid or all(index is None for index in indexes):
        assert sorted(align(values, indexes, expected=n)) == values
    else:
        with pytest.raises(MalformedResponseError):
            align(values, indexes, expected=n)


def test_b25_reordered_results_are_put_back() -> None:
    assert align(["c", "a", "d", "b"], [2, 0, 3, 1], expected=4) == ["a", "b", "c", "d"]


@pytest.mark.parametrize(
    ("indexes", "why"),
    [
        ([0, 1, 3], "4 texts were sent and 3 vectors came back"),
        ([0, 1, 1, 3], "two vectors carry the index 1"),
        ([], "0 vectors came back"),
        ([0, 1, 2, 4], "index is 4"),
        ([-1, 0, 1, 2], "index is -1"),
        ([0, 1, 2, None], "index is missing"),
        ([0, 1, 2, True], "index is True"),
        ([0, 1, 2, 3.0], "index is 3.0"),
        ([0, 1, 2, "٣"], "index is"),
        ([0, 1, 2, "9" * 5_000], "index is"),
    ],
)
def test_b25_gaps_and_duplicates_are_malformed_and_may_be_asked_again(indexes: list[Any], why: str) -> None:
    with pytest.raises(MalformedResponseError, match=why) as caught:
        align([object()] * len(indexes), indexes, expected=4)
    assert caught.value.retryable


@pytest.mark.parametrize("indexes", [None, [None, None, None]])
def test_b25_without_indexes_the_position_counts(indexes: Any) -> None:
    assert align([1, 2, 3], indexes, expected=3) == [1, 2, 3]


def test_b25_fewer_indexes_than_vectors_is_malformed() -> None:
    with pytest.raises(MalformedResponseError, match="3 vectors came with 2 indexes"):
        align([1, 2, 3], [0, 1], expected=3)
