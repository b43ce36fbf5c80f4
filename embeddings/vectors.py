"""From a provider's numbers to unit vectors of the catalog's one width. Pure.

Every vector leaves here as float32 of L2 length 1 within 1e-6. The sum of squares is taken after dividing by the
largest component, so neither very large nor very small vectors overflow or vanish on the way. A row that is already a
unit vector in float32 comes back bit for bit, so normalising twice is normalising once.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from interlock.errors import MalformedResponseError

Float32: TypeAlias = NDArray[np.float32]
Float64: TypeAlias = NDArray[np.float64]

# A row rounded to float32 is off unit length by at most half a unit in the last place of its largest component.
_UNIT_WITHIN = 2e-7
# Rows handled at once, so the float64 copies of a large batch do not stand beside it whole.
_SLAB = 2_048


class VectorError(MalformedResponseError):
    """A vector that has no direction or not the declared width. `row` is the index (0-based) of its text.

    It is not retried: the same model gives the same text the same vector.
    """

    code = "bad_vector"
    retryable = False

    def __init__(self, message: str, *, row: int | None = None, **known: Any) -> None:
        super().__init__(message, **known)
        self.row = row


def read_row(value: Any, row: int = 0) -> Float64 | Float32:
    """One vector of a wire: numbers, an array, or base64 of little-endian float32. VectorError if it is none of them.

    float32 stays float32, everything else becomes float64.
    """
    if isinstance(value, str):
        return _from_base64(value, row)
    try:
        read = np.asarray(value)
    except (ValueError, TypeError, OverflowError):
        raise VectorError(f"vector {row} is not a list of numbers", row=row) from None
    if read.ndim != 1 or read.dtype.kind not in "fiu":
        # None, text, booleans, nested lists and integers beyond 64 bits end here.
        raise VectorError(f"vector {row} is not a flat list of numbers", row=row)
    if read.dtype == np.float32:
        return read
    with np.errstate(over="ignore"):
        return read.astype(np.float64)


def _from_base64(text: str, row: int) -> Float32:
    try:
        raw = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise VectorError(f"vector {row} is text that is not base64", row=row) from None
    if len(raw) % 4:
        raise VectorError(f"vector {row} is base64 of {len(raw)} bytes, which is no whole number of float32", row=row)
    return np.frombuffer(raw, dtype="<f4").astype(np.float32)


def fit(
    vectors: Sequence[Any] | NDArray[Any], *, declared: int, width: int, indexes: Sequence[int] | None = None
) -> Float32:
    """Unit vectors [n, width] from vectors of the `declared` width, in their order.

    Wider ones are cut to the first `width` components and normalised again; narrower ones are padded with zeros, which
    changes neither lengths nor angles. VectorError: a vector of another width than declared, without a direction (all
    zero, or zero in what is left after the cut), or with a component that is not finite. `indexes` are the numbers an
    error calls the vectors by, where they are a part of more.
    """
    names = range(len(vectors)) if indexes is None else indexes
    out = np.zeros((len(vectors), width), dtype=np.float32)
    for start in range(0, len(vectors), _SLAB):
        part = slice(start, start + _SLAB)
        kept = normalise(_stacked(vectors[part], declared, names[part])[:, :width], indexes=names[part])
        out[part, : kept.shape[1]] = kept
    return out


def _stacked(vectors: Sequence[Any] | NDArray[Any], declared: int, names: Sequence[int]) -> NDArray[Any]:
    rows = [read_row(value, name) for name, value in zip(names, vectors, strict=True)]
    for name, read in zip(names, rows, strict=True):
        if len(read) != declared:
            raise VectorError(
                f"vector {name} has {len(read)} dimensions where the catalog entry declares {declared}",
                row=name,
            )
    return np.stack(rows)


def normalise(rows: NDArray[Any], *, indexes: Sequence[int] | None = None) -> Float32:
    """Rows [n, d] at L2 length 1, as float32. VectorError names the first row that is zero or not finite."""
    names = range(len(rows)) if indexes is None else indexes
    wide: Float64 = rows.astype(np.float64)
    _refuse(np.logical_not(np.isfinite(wide).all(axis=1)), names, "holds a component that is not a finite number")
    peak = np.abs(wide).max(axis=1, keepdims=True, initial=0.0)
    _refuse(peak[:, 0] == 0.0, names, "is zero, so it has no direction")
    scaled = wide / peak
    length = np.sqrt(np.square(scaled).sum(axis=1, keepdims=True))
    unit: Float32 = (scaled / length).astype(np.float32)
    if rows.dtype == np.float32:
        already = np.abs(peak[:, 0] * length[:, 0] - 1.0) <= _UNIT_WITHIN
        unit[already] = rows[already]
    unit += np.float32(0.0)  # -0.0 becomes 0.0, so equal vectors are equal bytes
    return unit


def average(parts: Float32, owners: Sequence[int], weights: Sequence[float]) -> Float32:
    """One unit vector for each text of which `parts` [n, d] are the unit vectors: `owners`, ascending from 0, say whose
    each is, `weights` how much it counts. A text of one part keeps its vector as it is. VectorError where the parts of
    a text cancel each other out."""
    whose = np.asarray(owners, dtype=np.intp)
    starts = np.flatnonzero(np.diff(whose, prepend=-1))
    out = parts[starts]
    ends = np.append(starts[1:], len(whose))
    for text in np.flatnonzero(ends - starts > 1):
        own = slice(starts[text], ends[text])
        weighted = np.asarray(weights[own], dtype=np.float64) @ parts[own].astype(np.float64)
        out[text] = normalise(weighted[None, :], indexes=[int(whose[starts[text]])])[0]
    return out


def _refuse(bad: Any, names: Sequence[int], what: str) -> None:
    if bad.any():
        name = names[int(np.argmax(bad))]
        raise VectorError(f"vector {name} {what}", row=name)
