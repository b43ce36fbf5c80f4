"""Every vector leaves as a unit vector of the one width, or not at all."""

from __future__ import annotations

import base64
import copy
import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st
from hypothesis.extra import numpy as arrays

from interlock.embeddings.vectors import VectorError, fit, normalise, read_row
from interlock.errors import MalformedResponseError

COMPONENT = st.floats(min_value=-1e300, max_value=1e300, allow_nan=False).filter(lambda x: x == 0 or abs(x) > 1e-300)


def rows_of(dtype: Any, elements: st.SearchStrategy[float]) -> st.SearchStrategy[Any]:
    shapes = arrays.array_shapes(min_dims=2, max_dims=2, min_side=1, max_side=12)
    return arrays.arrays(dtype, shapes, elements=elements).filter(lambda rows: bool(np.any(rows != 0, axis=1).all()))


@given(rows_of(np.float64, COMPONENT), st.integers(1, 24))
def test_length_is_one_after_any_cut_or_pad(rows: Any, width: int) -> None:
    declared = rows.shape[1]
    try:
        fitted = fit(rows, declared=declared, width=width)
    except VectorError:
        assert not np.any(rows[:, :width] != 0, axis=1).all()
        return
    assert fitted.shape == (len(rows), width)
    assert fitted.dtype == np.float32
    assert np.abs(np.linalg.norm(fitted.astype(np.float64), axis=1) - 1).max() < 1e-6
    assert not fitted[:, declared:].any()


@given(rows_of(np.float32, st.floats(-(2.0**100), 2.0**100, width=32)))
def test_normalising_twice_is_normalising_once(rows: Any) -> None:
    once = normalise(rows)
    assert normalise(once).tobytes() == once.tobytes()


@given(rows_of(np.float64, st.floats(-1e3, 1e3).filter(lambda x: x == 0 or abs(x) > 1e-3)))
def test_directions_and_angles_are_kept(rows: Any) -> None:
    expected = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    fitted = fit(rows, declared=rows.shape[1], width=rows.shape[1] + 5).astype(np.float64)
    np.testing.assert_allclose(fitted @ fitted.T, expected @ expected.T, atol=1e-6)


@pytest.mark.parametrize(
    ("row", "why"),
    [
        ([0, 0, 0], "zero"),
        ([0.0, -0.0, 0.0], "zero"),
        ([float("nan"), 1, 2], "finite"),
        ([float("inf"), 1, 2], "finite"),
        ([None, 1, 2], "numbers"),
        (["1", "2", "3"], "numbers"),
        ([[1, 2, 3]], "flat"),
        ([10**400, 1, 2], "numbers"),
        ([True, False, True], "numbers"),
        ([1 + 2j, 1, 1], "numbers"),
        ({"a": 1}, "numbers"),
        (None, "numbers"),
        ([1, [2], 3], "numbers"),
        ("not base64!", "base64"),
        (base64.b64encode(b"12345").decode(), "float32"),
    ],
)
def test_b31_what_has_no_direction_is_a_typed_error(row: Any, why: str) -> None:
    with pytest.raises(VectorError, match=why) as caught:
        fit([[1.0, 2.0, 3.0], row], declared=3, width=3)
    assert caught.value.row == 1
    assert isinstance(caught.value, MalformedResponseError)
    assert not caught.value.retryable  # the same text gives the same vector again


@pytest.mark.parametrize("row", [[1e200] * 3, [1e-200] * 3, [5e-324] * 3, [1e308] * 3, [3, 3, 3], [7.5, 7.5, 7.5]])
def test_b31_squares_neither_overflow_nor_underflow(row: list[float]) -> None:
    np.testing.assert_allclose(fit([row], declared=3, width=3)[0], [3**-0.5] * 3, atol=1e-7)


def test_b31_minus_zero_is_zero() -> None:
    given_rows = np.array([[-0.0, 1.0], [0.0, 1.0]], dtype=np.float32)
    first, second = normalise(given_rows)
    assert first.tobytes() == second.tobytes()


@pytest.mark.parametrize("width", [1535, 1537, 0])
def test_b31_another_width_than_declared_is_an_error(width: int) -> None:
    with pytest.raises(VectorError, match=f"{width} dimensions where the catalog entry declares 1536"):
        fit([[1.0] * width], declared=1536, width=1536)


def test_b31_a_cut_unit_vector_is_a_unit_vector_again() -> None:
    rng = np.random.default_rng(3)
    unit = normalise(rng.normal(size=(4, 3072)))
    cut = fit(unit, declared=3072, width=768)
    assert np.abs(np.linalg.norm(cut.astype(np.float64), axis=1) - 1).max() < 1e-6
    np.testing.assert_allclose(cut, unit[:, :768] / np.linalg.norm(unit[:, :768], axis=1, keepdims=True), atol=1e-6)


def test_b31_a_cut_that_leaves_nothing_is_an_error() -> None:
    with pytest.raises(VectorError, match="zero"):
        fit([[0.0, 0.0, 1.0]], declared=3, width=2)


@given(arrays.arrays(np.float32, 8, elements=st.floats(-10, 10, width=32)))
def test_b25_base64_and_numbers_read_the_same(row: Any) -> None:
    encoded = base64.b64encode(row.astype("<f4").tobytes()).decode()
    assert read_row(encoded).tobytes() == row.tobytes()
    np.testing.assert_array_equal(read_row([float(x) for x in row]), row)


@pytest.mark.parametrize("text", ["AACAPw=", "AACAPw==*", "AACAPw", "AACA", "\u00e9AAA"])
def test_b25_text_that_is_no_base64_of_float32_is_named(text: str) -> None:
    with pytest.raises(VectorError, match="vector 3 is") as caught:
        read_row(text, 3)
    assert caught.value.row == 3


@pytest.mark.parametrize("off", [1e-4, 1e-5, 2e-6, -2e-6, -1e-5])
def test_b31_a_length_that_is_nearly_one_becomes_one(off: float) -> None:
    rows = np.full((1, 64), 0.125 * (1 + off), dtype=np.float32)
    assert abs(np.linalg.norm(normalise(rows)[0].astype(np.float64)) - 1.0) <= 1e-6


def test_rows_are_called_by_the_numbers_of_their_texts() -> None:
    with pytest.raises(VectorError, match="vector 41 is zero") as caught:
        fit([[1.0], [0.0]], declared=1, width=4, indexes=[7, 41])
    assert caught.value.row == 41


@pytest.mark.parametrize("rows", [130, 2_100])
def test_a_vector_far_down_is_called_by_its_own_number(rows: int) -> None:
    """Rows are taken in slabs of 128 and read 2,048 at a time."""
    for array in (np.ones((rows, 3)), np.ones((rows, 3), dtype=np.float32)):
        array[-1] = 0.0
        for vectors in (array, array.tolist()):
            with pytest.raises(VectorError, match=f"vector {rows - 1} is zero") as caught:
                fit(vectors, declared=3, width=3)
            assert caught.value.row == rows - 1
            with pytest.raises(VectorError, match=f"vector {rows + 8} is zero"):
                fit(vectors, declared=3, width=3, indexes=range(9, rows + 9))
        with pytest.raises(VectorError, match=f"vector {rows - 1} is zero"):
            normalise(array)


@pytest.mark.parametrize("width", [1, 127, 128, 129, 1536, 3072, 4096])
@pytest.mark.parametrize("spread", [0.0, 6.0, 30.0])
def test_b31_float32_rows_of_any_width_and_spread_are_of_length_one_and_stay_so(width: int, spread: float) -> None:
    rng = np.random.default_rng(width)
    magnitudes = 10.0 ** rng.uniform(-spread, min(spread, 30.0), size=(300, 1))
    rows = (rng.standard_normal((300, width)) * magnitudes).astype(np.float32)
    rows[:, 0] += np.float32(1e-30)
    once = normalise(rows)
    assert np.abs(np.linalg.norm(once.astype(np.float64), axis=1) - 1).max() < 1e-6
    assert normalise(once).tobytes() == once.tobytes()
    exact = rows.astype(np.float64) / np.linalg.norm(rows.astype(np.float64), axis=1, keepdims=True)
    np.testing.assert_allclose(once, exact, atol=1e-6)


def test_a_truth_value_among_rows_of_numbers_is_named() -> None:
    with pytest.raises(VectorError, match="vector 2 is not a flat list of numbers"):
        fit([[1.0, 2.0], [3.0, 4.0], [True, False]], declared=2, width=2)


def test_more_rows_than_a_slab_keep_their_order() -> None:
    rows = np.eye(5, dtype=np.float32)[np.arange(5000) % 5]
    assert fit(rows, declared=5, width=6).argmax(axis=1).tolist() == (np.arange(5000) % 5).tolist()


def test_no_rows_are_no_rows() -> None:
    assert fit([], declared=3, width=4).shape == (0, 4)


def test_the_error_survives_pickle_and_copy() -> None:
    error = VectorError("vector 3 is zero", row=3, model="m")
    for other in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert (str(other), other.row, other.model, other.code) == ("vector 3 is zero", 3, "m", "bad_vector")
