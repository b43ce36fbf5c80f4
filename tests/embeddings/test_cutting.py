"""What is sent for a text that is too long: its beginning, or all of it in parts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from interlock.catalog.tokens import estimate_text
from interlock.embeddings.cutting import parts_of
from interlock.embeddings.packing import Caps
from interlock.embeddings.vectors import VectorError, average, normalise

WORDS = st.text("abcd éü漢 \n", max_size=400)


@given(st.lists(WORDS, max_size=6), st.integers(2, 30))
def test_the_parts_are_the_text_and_each_fits(texts: list[str], longest: int) -> None:
    parts = parts_of(texts, Caps(item_tokens=longest), count=estimate_text, split="average")
    together = ["".join(p for p, o in zip(parts.texts, parts.owners, strict=True) if o == i) for i in range(len(texts))]
    assert together == texts
    assert list(parts.owners) == sorted(parts.owners)
    assert all(estimate_text(part) <= longest for part in parts.texts)
    assert set(parts.split) == {index for index, text in enumerate(texts) if estimate_text(text) > longest}


@given(st.lists(WORDS, max_size=6), st.integers(1, 30))
def test_a_cut_text_is_a_beginning_that_fits(texts: list[str], longest: int) -> None:
    parts = parts_of(texts, Caps(item_tokens=longest), count=estimate_text, truncate=True)
    for index, (given_text, kept) in enumerate(zip(texts, parts.texts, strict=True)):
        assert given_text.startswith(kept)
        assert estimate_text(kept) <= longest
        assert (index in parts.cut_short) == (kept != given_text)


def test_a_part_ends_between_two_words() -> None:
    parts = parts_of(["one two three four five six"], Caps(item_tokens=12), count=len, split="average")
    assert list(parts.texts) == ["one two ", "three four ", "five six"]


def test_characters_and_bytes_count_too() -> None:
    by_length = parts_of(["x" * 25], Caps(item_characters=10), count=lambda text: 1, split="average")
    assert [len(part) for part in by_length.texts] == [10, 10, 5]
    by_bytes = parts_of(["ü" * 25], Caps(bytes=10), count=lambda text: 1, truncate=True)
    assert by_bytes.texts[0] == "ü" * 5


def test_a_text_much_longer_than_is_looked_at_in_one_go_is_split_whole() -> None:
    text = "word " * 50_000
    parts = parts_of([text], Caps(item_tokens=20_000), count=lambda text: len(text) // 4, split="average")
    assert "".join(parts.texts) == text
    assert len(parts.texts) == 4


@pytest.mark.parametrize(
    ("asked", "why"), [({"truncate": True, "split": "average"}, "not both"), ({"split": "sum"}, "average")]
)
def test_what_makes_no_sense_is_refused(asked: dict[str, object], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        parts_of(["x"], Caps(), count=len, **asked)  # type: ignore[arg-type]


def test_an_average_is_weighted_by_tokens_and_of_length_one() -> None:
    parts = normalise(np.array([[1.0, 0.0], [0.0, 1.0], [3.0, 4.0]]))
    mixed = average(parts, [0, 0, 1], [3, 1, 1])
    np.testing.assert_allclose(mixed[0], np.array([3.0, 1.0]) / np.sqrt(10), atol=1e-7)
    assert mixed[1].tobytes() == parts[2].tobytes()
    with pytest.raises(VectorError, match="vector 1 is zero"):
        average(normalise(np.array([[1.0, 0.0], [1.0, 0.0], [-1.0, 0.0]])), [0, 1, 1], [1, 1, 1])


@pytest.mark.parametrize("texts", [[5], ["a", None], [["a"]], b"ab"])
def test_what_is_no_text_is_refused_by_its_number(texts: Any) -> None:
    with pytest.raises(TypeError, match=r"text [01] is \w+, not str"):
        parts_of(texts, Caps(), count=len)
