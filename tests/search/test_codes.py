"""Vectors kept in bytes: what they cannot decide is named, and nothing that is nearest is ever missing."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from search.places import brute_force, some, unit

from interlock.errors import StoreError
from interlock.runtime.search import codes, open_collection
from interlock.runtime.search.codes import Codes, Question
from interlock.runtime.search.scan import HeldVectors


def kinds(kind: str, rows: int, width: int, rng: np.random.Generator) -> Any:
    """Directions as models make them, and as none would."""
    found = rng.standard_normal((rows, width))
    if kind == "one number is nearly all":
        found[:, rng.integers(width)] *= 200
    elif kind == "falling":
        found *= (1 + np.arange(width)) ** -0.8
    elif kind == "one axis each":
        found = np.eye(width)[rng.integers(width, size=rows)] + 1e-7 * found
    elif kind == "nearly the same":
        found = found[:1] + 1e-3 * found
    elif kind == "signs":  # of which bytes leave nothing out, so all that is off is rounding
        found = np.sign(found)
    return unit(found)


KINDS = ["even", "one number is nearly all", "falling", "one axis each", "nearly the same", "signs"]


@pytest.mark.parametrize("with_numkong", [True, False])
@settings(max_examples=40, deadline=None)
@given(st.sampled_from(KINDS), st.integers(1, 300), st.integers(1, 80), st.integers(0, 10_000))
def test_the_true_score_lies_within_its_limits(with_numkong: bool, kind: str, rows: int, width: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    vectors = kinds(kind, rows + 1, width, rng).astype(np.float32)
    kept, question = vectors[:rows], vectors[rows]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(codes, "HAS_NUMKONG", with_numkong)
        low, high = Codes.of(kept).between(Question.of(question))
    true = kept.astype(np.float64) @ question.astype(np.float64)
    assert (low <= true).all()
    assert (true <= high).all()


@pytest.mark.parametrize("kind", KINDS)
def test_the_nearest_are_always_among_the_candidates(kind: str) -> None:
    rng = np.random.default_rng(5)
    vectors = kinds(kind, 3_000, 96, rng).astype(np.float32)
    held = HeldVectors()
    assert held.add([(np.arange(1, 2_991, dtype=np.int64), vectors[:2_990])], most=10**9)
    for question in vectors[2_990:]:
        wanted = {index + 1 for index, _ in brute_force(vectors[:2_990], question, 10)}
        assert wanted <= set(held.candidates(question, 10))


def test_few_come_into_question() -> None:
    """Else each search would read the file after all."""
    rng = np.random.default_rng(6)
    for kind, most in (("even", 200), ("falling", 400)):
        vectors = kinds(kind, 20_001, 256, rng).astype(np.float32)
        held = HeldVectors()
        held.add([(np.arange(20_000, dtype=np.int64), vectors[:20_000])], most=10**9)
        assert 10 <= len(held.candidates(vectors[20_000], 10)) <= most


def test_bytes_are_multiplied_alike_with_numkong_and_without(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(7)
    for rows, width in ((1, 1), (7, 3), (129, 64), (500, 1_024), (3, 4_096)):
        kept = rng.integers(-127, 128, (rows, width), dtype=np.int8)
        question = rng.integers(-127, 128, width, dtype=np.int8)
        true = kept.astype(np.int64) @ question.astype(np.int64)
        for present in (True, False):
            monkeypatch.setattr(codes, "HAS_NUMKONG", present)
            assert codes.products(kept, question) == pytest.approx(true, rel=1e-6, abs=2)


def test_numkong_is_what_multiplies_here() -> None:
    assert codes.HAS_NUMKONG


async def test_a_stored_vector_that_is_not_finite_is_reported(tmp_path: Path) -> None:
    documents, vectors = some(5)
    async with await open_collection(f"sqlite:///{tmp_path}/docs.db") as collection:
        await collection.add(documents, vectors, model="m")
        broken = vectors[2].copy()
        broken[0] = np.nan
        with closing(sqlite3.connect(tmp_path / "docs.db", isolation_level=None)) as other:
            other.execute("UPDATE interlock_vectors_1 SET vector = ? WHERE key = 3", (broken.tobytes(),))
        with pytest.raises(StoreError, match="a stored document or vector is damaged"):
            await collection.search(vectors[0])
