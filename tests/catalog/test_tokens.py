"""The offline token estimate: finite, bounded, never an exception, corrected by what providers report."""

from __future__ import annotations

import argparse
import inspect
import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from interlock.catalog import TokenEstimator, estimate_document, estimate_text


@pytest.fixture(scope="module")
def count() -> Callable[[str], int]:
    """A real tokenizer, Llama 2's, which comes with wordllama. Its 32,000 words make it a frugal model's upper end."""
    tokenizers = pytest.importorskip("tokenizers")
    wordllama = pytest.importorskip("wordllama")
    file = next(Path(wordllama.__file__).parent.rglob("*tokenizer*.json"))
    tokenizer = tokenizers.Tokenizer.from_file(str(file))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return lambda text: len(tokenizer.encode(text, add_special_tokens=False).ids)


@pytest.mark.parametrize(
    "text",
    [
        inspect.getsource(json.decoder),
        "\n".join(inspect.getdoc(each) or "" for each in vars(argparse).values()),
        json.dumps([{"id": n, "name": f"user {n}", "city": "Lyon"} for n in range(100)]),
        "Die Würde des Menschen ist unantastbar. Sie zu achten und zu schützen ist Verpflichtung. " * 20,
        "Все люди рождаются свободными и равными в своем достоинстве и правах. " * 20,
        "すべての人間は、生まれながらにして自由であり、かつ、尊厳と権利とについて平等である。" * 20,
        "人人生而自由，在尊严和权利上一律平等。" * 20,
    ],
    ids=["code", "prose", "json", "German", "Russian", "Japanese", "Chinese"],
)
def test_the_estimate_is_near_a_real_tokenizer_and_rather_above(text: str, count: Callable[[str], int]) -> None:
    assert 0.8 * count(text) <= estimate_text(text) <= 1.6 * count(text)


@pytest.mark.parametrize(
    "text",
    [
        "<|endoftext|>",
        "<|im_start|>system",
        "<|fim_prefix|>",
        "\ud800 lone",
        "\x00\x01",
        "🤷🏽‍♀️" * 100,
        "שלום عليكم สวัสดี नमस्ते",
        b"\xff\xfe raw",
        bytearray(b"abc"),
        12345,
        ["a", "b"],
    ],
)
def test_b51_no_text_makes_the_estimate_raise(text: object) -> None:
    estimate = estimate_text(text)
    assert isinstance(estimate, int)
    assert 1 <= estimate <= 4 * len(str(text))


@pytest.mark.parametrize("nothing", [None, "", b""])
def test_b51_nothing_is_nothing(nothing: object) -> None:
    assert estimate_text(nothing) == 0


@pytest.mark.parametrize("character", ["a", " ", "\n", "7", "é", "漢", "\U0001f600", "\u2028"])
def test_b51_a_megabyte_of_one_character_is_estimated_in_bounded_time(character: str) -> None:
    begun = time.process_time()
    estimate = estimate_text(character * 2**20)
    assert time.process_time() - begun < 2
    assert 1 <= estimate <= 4 * 2**20


def test_b51_an_unknown_model_has_the_uncorrected_estimate() -> None:
    assert TokenEstimator().estimate("no-such-model", "hello there") == estimate_text("hello there")


@given(st.text(max_size=300), st.text(max_size=300))
def test_more_text_is_never_fewer_tokens(text: str, more: str) -> None:
    together = estimate_text(text + more)
    apart = estimate_text(text) + estimate_text(more)
    assert max(estimate_text(text), estimate_text(more)) <= together <= apart
    assert together <= 3 * len(text + more) + 1


def test_a_document_is_counted_by_its_size() -> None:
    assert estimate_document(0) == estimate_document(1) > 0
    assert estimate_document(10_000_000) > 100 * estimate_document(1)


@given(st.floats(0.5, 3.0), st.lists(st.integers(50, 5_000), min_size=90, max_size=90))
def test_reports_correct_a_models_estimates_and_no_other_models(ratio: float, sizes: list[int]) -> None:
    estimator = TokenEstimator()
    for size in sizes:
        estimator.observe("m", estimator.corrected("m", size), round(size * ratio))
    assert estimator.corrected("m", 10_000) == pytest.approx(10_000 * ratio, rel=0.1)
    assert estimator.corrected("other", 10_000) == 10_000


def test_the_first_reports_only_raise_an_estimate() -> None:
    """A burst is estimated before its own reports come: one small request ahead of it must not make it look smaller."""
    estimator = TokenEstimator()
    for _ in range(TokenEstimator.ENOUGH):
        estimator.observe("m", estimator.corrected("m", 1_000), 500)
        assert estimator.corrected("m", 1_000) == 1_000
    estimator.observe("m", estimator.corrected("m", 1_000), 500)
    assert estimator.corrected("m", 1_000) < 1_000
    estimator.observe("other", estimator.corrected("other", 1_000), 1_500)
    assert estimator.corrected("other", 1_000) > 1_000


def test_one_report_moves_an_estimate_half_the_way() -> None:
    """One odd request is not all there is."""
    estimator = TokenEstimator()
    estimator.observe("m", 1_000, 2_000)
    assert estimator.factor("m") == 1.5
    estimator.observe("m", 1_000, 2_000)
    assert estimator.factor("m") == 1.75


def test_a_report_of_nothing_says_nothing() -> None:
    estimator = TokenEstimator()
    for reported in [0, None, -1] * TokenEstimator.ENOUGH:
        estimator.observe("m", 1_000, reported)
    assert estimator.factor("m") == 1


def test_reports_of_requests_estimated_before_a_correction_do_not_overshoot() -> None:
    """A hundred in flight, all estimated with the first factor, all reported double."""
    estimator = TokenEstimator()
    in_flight = [estimator.corrected("m", 1_000) for _ in range(100)]
    for estimate in in_flight:
        estimator.observe("m", estimate, 2_000)
    assert 1_900 <= estimator.corrected("m", 1_000) <= 2_000


@given(st.lists(st.tuples(st.integers(-5, 10**9), st.none() | st.integers(-5, 10**9)), max_size=50))
def test_odd_reports_leave_a_factor_within_its_bounds(reports: list[tuple[int, int | None]]) -> None:
    estimator = TokenEstimator()
    for estimated, reported in reports:
        estimator.observe("m", estimated, reported)
    assert TokenEstimator.LOWEST <= estimator.factor("m") <= TokenEstimator.HIGHEST
