"""Every vector of a collection compared with a question, so what is found is what there is.

Of the three ways, the first is the quickest and the others hold nothing in memory:

- held: a copy of the vectors in bytes (`codes.py`), a quarter of their size. It names the few that can be among the
  nearest, and these are read and scored exactly.
- sqlite-vec, where the driver can load it: one statement, outside Python's lock.
- rows read in steps and multiplied with numpy.

Rows are multiplied one by one (`dots`). As one product with a matrix the library would spread them over threads that
wait for each other by spinning: twice the CPU, and several times the time on a machine that has something else to do.

All give candidates; the caller scores these again, with their documents. What sqlite-vec says is in float32: where that
cannot tell which are the nearest, because very many are as near, numpy decides.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from .codes import Codes, Question
from .documents import sound

if TYPE_CHECKING:
    import sqlite3

Float32: TypeAlias = NDArray[np.float32]
Float64: TypeAlias = NDArray[np.float64]
Int64: TypeAlias = NDArray[np.int64]

#: Rows that are kept in one piece: as few as leave the work to the library, as many as are quick to put together.
BLOCK_ROWS = 4_096
#: Rows read from the file at once.
STEP_ROWS = 512
#: How many more candidates than wanted are scored by the caller: its sums may round otherwise in the last digit.
SLACK = 32
#: By how much a squared distance in float32 may be off: for each number summed, of the distance; and for the lengths,
#: which are 1 within 5e-7.
_SUMS_OFF, _LENGTHS_OFF = 2.0**-23, 4e-6
_NUMBERS = np.dtype("<f4")
_VECDOT = hasattr(np, "vecdot")  # since numpy 2.0


def dots(rows: Float32, question: Float32) -> Float64:
    """The dot product of each row [n, d] with the question [d], without Python's lock and in this thread alone. In
    float64: of rows that are nearly the same float32 would not know the nearest."""
    wide, asked = rows.astype(np.float64), question.astype(np.float64)
    found: Float64 = np.vecdot(wide, asked) if _VECDOT else np.einsum("ij,j->i", wide, asked)
    return found


def steps(connection: sqlite3.Connection, table: str, width: int, since: int = 0) -> Iterator[tuple[Int64, Float32]]:
    """(keys, vectors of that width) of the rows from the key `since` on, some at a time."""
    wanted = f"SELECT key, vector FROM {table} WHERE key >= ? ORDER BY key"
    yield from _arrays(connection.execute(wanted, (since,)), width)


def chosen(
    connection: sqlite3.Connection, table: str, width: int, keys: Sequence[int]
) -> Iterator[tuple[Int64, Float32]]:
    """The same of the rows with these keys."""
    wanted = f"SELECT key, vector FROM {table} WHERE key IN (SELECT value FROM json_each(?)) ORDER BY key"
    yield from _arrays(connection.execute(wanted, (json.dumps(keys),)), width)


def _arrays(found: sqlite3.Cursor, width: int) -> Iterator[tuple[Int64, Float32]]:
    while rows := found.fetchmany(STEP_ROWS):
        keys = np.array([row[0] for row in rows], dtype=np.int64)
        with sound():
            vectors = np.frombuffer(b"".join([row[1] for row in rows]), dtype=_NUMBERS).reshape(len(rows), width)
        yield keys, vectors


def scan_with_extension(connection: sqlite3.Connection, table: str, question: Float32, count: int) -> list[int] | None:
    """Keys of a few rows, the `count` nearest among them, by sqlite-vec: of unit vectors the nearest are those of the
    highest cosine. None where its float32 cannot tell which these are."""
    nearest = f"SELECT key, vec_distance_l2(vector, ?) AS far FROM {table} ORDER BY far LIMIT ?"
    found = connection.execute(nearest, (question.tobytes(), count + SLACK)).fetchall()
    if any(far is None for _, far in found):
        return None
    if len(found) == count + SLACK:
        wanted, last = found[count - 1][1] ** 2, found[-1][1] ** 2
        if last - wanted <= len(question) * _SUMS_OFF * last + _LENGTHS_OFF:
            return None
    return [key for key, _ in found]


def scan_in_steps(read: Iterable[tuple[Int64, Float32]], question: Float32, count: int) -> list[int]:
    """The same by numpy, with no more than a step's vectors in memory."""
    most = count + SLACK
    keys, scores = np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.float64)
    for some, vectors in read:
        found = dots(vectors, question)
        with sound():
            if not np.isfinite(found).all():
                raise ValueError("a vector has a number that is not finite")
        keys, scores = np.concatenate((keys, some)), np.concatenate((scores, found))
        if len(keys) > STEP_ROWS + most:
            best = highest(scores, most)
            keys, scores = keys[best], scores[best]
    nearest: list[int] = keys[highest(scores, most)].tolist()
    return nearest


def highest(scores: Float64, count: int) -> Int64:
    """Indexes of the `count` highest scores, the highest first."""
    where: Any = np.arange(len(scores))
    sample = scores[::16]
    if len(sample) > 4 * count:
        # As many as are wanted lie at or above this already, so nothing below can be among them.
        floor = np.partition(sample, -count)[-count]
        where = np.flatnonzero(scores >= floor)
    order: Int64 = where[np.argsort(-scores[where], kind="stable")[:count]]
    return order


@dataclass(slots=True)
class _Block:
    keys: Int64
    codes: Codes
    gone: NDArray[np.bool_] | None = None

    def with_more(self, keys: Int64, codes: Codes) -> _Block:
        gone = None if self.gone is None else np.concatenate((self.gone, np.zeros(len(keys), dtype=np.bool_)))
        return _Block(np.concatenate((self.keys, keys)), self.codes.followed_by(codes), gone)

    def between(self, question: Question) -> tuple[Float32, Float32]:
        """The lowest and the highest that each row's score can be; -inf for what is gone."""
        low, high = self.codes.between(question)
        if self.gone is not None:
            low[self.gone] = high[self.gone] = -np.inf
        return low, high


class HeldVectors:
    """The vectors of a table, coarsely, kept in memory and brought up to date by what has changed.

    A key never means another vector: what is replaced gets a new one. So new rows are those of higher keys, and what
    has gone are keys that are no longer there.
    """

    def __init__(self) -> None:
        self._blocks: list[_Block] = []
        self.next_key = 0  # the first one that is not here
        self.dead = 0

    def __len__(self) -> int:
        return sum(len(block.keys) for block in self._blocks)

    @property
    def size(self) -> int:
        """Bytes of vectors."""
        return sum(block.codes.size for block in self._blocks)

    def add(self, read: Iterable[tuple[Int64, Float32]], *, most: int) -> bool:
        """Take in rows of higher keys. False, and nothing is held, where that would be more than `most` bytes."""
        for keys, vectors in read:
            with sound():
                codes = Codes.of(vectors)
            last = self._blocks[-1] if self._blocks else None
            if last is not None and len(last.keys) + len(keys) <= BLOCK_ROWS:
                self._blocks[-1] = last.with_more(keys, codes)
            else:
                self._blocks.append(_Block(keys, codes))
            self.next_key = int(keys[-1]) + 1
            if self.size > most:
                self._blocks.clear()
                return False
        return True

    def keep_only(self, keys: Iterable[int]) -> None:
        """Forget every row whose key is not among these."""
        self.dead, there = 0, np.fromiter(keys, dtype=np.int64)
        for block in self._blocks:
            gone = ~np.isin(block.keys, there)
            block.gone = gone if gone.any() else None
            self.dead += int(gone.sum())

    def candidates(self, question: Float32, count: int) -> list[int]:
        """Keys of every row that can be among the `count` nearest, of vectors of length 1; no others are."""
        if not self._blocks:
            return []
        asked = Question.of(question)
        ends = [block.between(asked) for block in self._blocks]
        low, high = (np.concatenate(each) for each in zip(*ends, strict=True))
        # So many lie at or above this for certain.
        floor = np.partition(low, -count)[-count] if count < len(low) else -np.inf
        keys = np.concatenate([block.keys for block in self._blocks])
        found: list[int] = keys[(high >= floor) & (high > -np.inf)].tolist()
        return found
