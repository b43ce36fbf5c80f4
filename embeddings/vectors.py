"""From a provider's numbers to unit vectors of the catalog's one width. Pure.

Every vector leaves here as float32 of L2 length 1 within 1e-6: lengths are summed in float64, and where the squares of
a row do not fit, it is divided by its largest component first, so neither very large nor very small vectors overflow or
vanish on the way. A row that is already a unit vector in float32 comes back bit for bit, so normalising
twice is normalising once. The work is one pass over memory: rows are taken in slabs that stay in the processor's cache.
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

# A float32 row whose length is measured as 1 within this is a unit vector: what normalising leaves is well inside.
_UNIT_WITHIN = 5e-7
# Lengths between these are taken plainly: their squares, and what they are divided by, are ordinary float32 numbers.
_SHORTEST, _LONGEST = 1e-15, 1e15
# Rows read from a wire's lists at once, rows normalised at once, and components summed in float32.
_READ_ROWS, _SLAB_ROWS, _BLOCK = 2_048, 128, 128


class VectorError(MalformedResponseError):
    """A vector that has no direction or not the declared width (`VectorWidthError`). `row` is the index (0-based) of
    its text.

    It is not retried: the same model gives the same text the same vector.
    """

    code = "bad_vector"
    retryable = False

    def __init__(self, message: str, *, row: int | None = None, **known: Any) -> None:
        super().__init__(message, **known)
        self.row = row


class VectorWidthError(VectorError):
    """A vector of another width than the entry declares: so will be the others."""


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
    kept = min(declared, width)
    out = np.empty((len(vectors), width), dtype=np.float32)
    out[:, kept:] = 0.0
    for start in range(0, len(vectors), _READ_ROWS):
        part = slice(start, start + _READ_ROWS)
        rows = _stacked(vectors[part], declared, names[part])
        _normalise_into(out[part, :kept], rows[:, :kept], names[part])
    return out


def _stacked(vectors: Sequence[Any] | NDArray[Any], declared: int, names: Sequence[int]) -> NDArray[Any]:
    """The rows as one array of float32 or float64 [n, declared]."""
    together = _together(vectors)
    if together is not None and together.shape[1] == declared:
        return together
    rows = [read_row(value, name) for name, value in zip(names, vectors, strict=True)]
    for name, read in zip(names, rows, strict=True):
        if len(read) != declared:
            raise VectorWidthError(
                f"vector {name} has {len(read)} dimensions where the catalog entry declares {declared}",
                row=name,
            )
    return np.stack(rows)


def _together(vectors: Sequence[Any] | NDArray[Any]) -> NDArray[Any] | None:
    """All rows read in one go; None where they have to be looked at one by one, to be read or to be named."""
    try:
        found = np.asarray(vectors)
    except (ValueError, TypeError, OverflowError):
        return None
    if found.ndim != 2 or found.dtype.kind not in "fiu":
        return None
    if not isinstance(vectors, np.ndarray) and any(isinstance(row[0], bool) for row in vectors if len(row)):
        return None  # a truth value among numbers would have become one
    return found if found.dtype in (np.float32, np.float64) else found.astype(np.float64)


def normalise(rows: NDArray[Any], *, indexes: Sequence[int] | None = None) -> Float32:
    """Rows [n, d] at L2 length 1, as float32. VectorError names the first row that is zero or not finite."""
    out = np.empty(rows.shape, dtype=np.float32)
    with np.errstate(over="ignore"):
        wide = rows if rows.dtype == np.float32 else rows.astype(np.float64)
    _normalise_into(out, wide, range(len(rows)) if indexes is None else indexes)
    return out


def _normalise_into(out: Float32, rows: Float32 | Float64, names: Sequence[int]) -> None:
    """A slab at a time, so that what is read twice is read from the processor's cache."""
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        for start in range(0, len(rows), _SLAB_ROWS):
            part = slice(start, start + _SLAB_ROWS)
            _normalise_slab(out[part], rows[part], names[part])


def _normalise_slab(out: Float32, rows: Float32 | Float64, names: Sequence[int]) -> None:
    single = rows.dtype == np.float32
    length: Float64 = np.sqrt(_squares(rows) if single else np.einsum("ij,ij->i", rows, rows))
    plain = (length > _SHORTEST) & (length < _LONGEST)  # of NaN neither
    scale = np.divide(1.0, length, out=np.zeros_like(length), where=plain)
    if single:
        scale[np.abs(length - 1.0) <= _UNIT_WITHIN] = 1.0
        np.multiply(rows, scale.astype(np.float32)[:, None], out=out)
    else:
        np.multiply(rows, scale[:, None], out=out, casting="same_kind")
    if not plain.all():
        odd = np.flatnonzero(~plain)
        out[odd] = _carefully(rows[odd].astype(np.float64), [names[int(row)] for row in odd])
    out += np.float32(0.0)  # -0.0 becomes 0.0, so equal vectors are equal bytes


def _squares(rows: NDArray[Any]) -> Float64:
    """The sums of squares of float32 rows: in float32 over short blocks, which is fast, and those in float64, which
    keeps the whole within 1e-6."""
    whole = rows.shape[1] - rows.shape[1] % _BLOCK
    blocks, rest = rows[:, :whole].reshape(len(rows), -1, _BLOCK), rows[:, whole:]
    sums: Float64 = np.einsum("ijk,ijk->ij", blocks, blocks).sum(axis=1, dtype=np.float64)
    if rest.shape[1]:
        sums += np.einsum("ij,ij->i", rest, rest)
    return sums


def _carefully(wide: Float64, names: Sequence[int]) -> Float64:
    """Rows whose squares do not fit: each is divided by its largest component first. VectorError for a row that is
    zero or not finite."""
    _refuse(np.logical_not(np.isfinite(wide).all(axis=1)), names, "holds a component that is not a finite number")
    peak = np.abs(wide).max(axis=1, keepdims=True, initial=0.0)
    _refuse(peak[:, 0] == 0.0, names, "is zero, so it has no direction")
    scaled: Float64 = wide / peak
    scaled /= np.sqrt(np.square(scaled).sum(axis=1, keepdims=True))
    return scaled


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
