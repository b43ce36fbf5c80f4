"""Every vector of a collection compared with a question: exact, so what it finds is what there is.

Of the three ways, the first is the quickest and the others hold nothing in memory:

- held: a copy of the vectors in memory, in blocks that threads take in turn. A block leaves out the columns that are
  zero in all its rows, so a model of 256 numbers costs a quarter of the column's 1,024.
- sqlite-vec, where the driver can load it: one statement, outside Python's lock.
- rows read in steps and multiplied with numpy.

Rows are multiplied one by one (`dots`). As one product with a matrix the library would spread them over threads that
wait for each other by spinning: twice the CPU, and several times the time on a machine that has something else to do.

All give candidates by a score in float32; the caller scores these again, exactly.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from .documents import sound

if TYPE_CHECKING:
    import sqlite3

Float32: TypeAlias = NDArray[np.float32]
Int64: TypeAlias = NDArray[np.int64]

#: Rows of a block, which is what a thread takes at a time: 32 MB of 1,024 numbers each.
BLOCK_ROWS = 8_192
#: Rows that a thread multiplies at a time.
PIECE_ROWS = 2_048
#: Rows read from the file at once.
STEP_ROWS = 512
#: How many more candidates than wanted are scored exactly: float32 may swap neighbours, though not distant ones.
SLACK = 32
_NUMBERS = np.dtype("<f4")
_VECDOT = hasattr(np, "vecdot")  # since numpy 2.0


def dots(rows: Float32, question: Float32) -> Float32:
    """The dot product of each row [n, d] with the question [d], without Python's lock and in this thread alone."""
    found: Float32 = np.vecdot(rows, question) if _VECDOT else np.einsum("ij,j->i", rows, question)
    return found


def steps(connection: sqlite3.Connection, table: str, width: int, since: int = 0) -> Iterator[tuple[Int64, Float32]]:
    """(keys, vectors of that width) of the rows from the key `since` on, some at a time."""
    found = connection.execute(f"SELECT key, vector FROM {table} WHERE key >= ? ORDER BY key", (since,))
    while rows := found.fetchmany(STEP_ROWS):
        keys = np.array([row[0] for row in rows], dtype=np.int64)
        with sound():
            vectors = np.frombuffer(b"".join([row[1] for row in rows]), dtype=_NUMBERS).reshape(len(rows), width)
        yield keys, vectors


def scan_with_extension(connection: sqlite3.Connection, table: str, question: Float32, count: int) -> list[int]:
    """Keys of the nearest, by sqlite-vec. Of unit vectors the nearest are those of the highest cosine."""
    nearest = f"SELECT key, vec_distance_l2(vector, ?) AS far FROM {table} ORDER BY far LIMIT ?"
    return [row[0] for row in connection.execute(nearest, (question.tobytes(), count))]


def scan_in_steps(read: Iterable[tuple[Int64, Float32]], question: Float32, count: int) -> list[int]:
    """The same by numpy, with no more than a step's vectors in memory."""
    keys, scores = np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.float32)
    for some, vectors in read:
        keys, scores = np.concatenate((keys, some)), np.concatenate((scores, dots(vectors, question)))
        if len(keys) > STEP_ROWS + count:
            best = highest(scores, count)
            keys, scores = keys[best], scores[best]
    found: list[int] = keys[highest(scores, count)].tolist()
    return found


def highest(scores: Float32, count: int) -> Int64:
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
    vectors: Float32  # [rows, the columns that are not all zero at the end]
    gone: NDArray[np.bool_] | None = None

    @staticmethod
    def of(keys: Int64, vectors: Float32) -> _Block:
        used = np.flatnonzero(vectors.any(axis=0))
        width = int(used[-1]) + 1 if len(used) else 1
        return _Block(keys, np.ascontiguousarray(vectors[:, :width]))

    def with_more(self, keys: Int64, vectors: Float32) -> _Block:
        whole = np.zeros((len(self.keys), vectors.shape[1]), dtype=_NUMBERS)
        whole[:, : self.vectors.shape[1]] = self.vectors
        block = _Block.of(np.concatenate((self.keys, keys)), np.concatenate((whole, vectors)))
        if self.gone is not None:
            block.gone = np.concatenate((self.gone, np.zeros(len(keys), dtype=np.bool_)))
        return block

    def score(self, question: Float32, rows: slice, into: Float32) -> None:
        """The scores of some rows, written into their places."""
        into[:] = dots(self.vectors[rows], question[: self.vectors.shape[1]])
        if self.gone is not None:
            into[self.gone[rows]] = -np.inf


class HeldVectors:
    """The vectors of a table, kept in memory and brought up to date by what has changed.

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
        return sum(block.vectors.nbytes for block in self._blocks)

    def add(self, read: Iterable[tuple[Int64, Float32]], *, most: int) -> bool:
        """Take in rows of higher keys. False, and nothing is held, where that would be more than `most` bytes."""
        waiting: list[tuple[Int64, Float32]] = []
        rows = 0
        for some in read:
            waiting.append(some)
            rows += len(some[0])
            if rows > BLOCK_ROWS - STEP_ROWS:
                self._append(waiting)
                rows = 0
            if self.size > most:
                break
        self._append(waiting)
        if self.size <= most:
            return True
        self._blocks.clear()
        return False

    def _append(self, waiting: list[tuple[Int64, Float32]]) -> None:
        if not waiting:
            return
        keys = np.concatenate([keys for keys, _ in waiting])
        vectors = np.concatenate([vectors for _, vectors in waiting])
        waiting.clear()
        last = self._blocks[-1] if self._blocks else None
        if last is not None and len(last.keys) + len(keys) <= BLOCK_ROWS:
            self._blocks[-1] = last.with_more(keys, vectors)
        else:
            self._blocks.append(_Block.of(keys, vectors))
        self.next_key = int(keys[-1]) + 1

    def keep_only(self, keys: Iterable[int]) -> None:
        """Forget every row whose key is not among these."""
        self.dead, there = 0, np.fromiter(keys, dtype=np.int64)
        for block in self._blocks:
            gone = ~np.isin(block.keys, there)
            block.gone = gone if gone.any() else None
            self.dead += int(gone.sum())

    def nearest(self, question: Float32, count: int, threads: Executor | None = None, helpers: int = 1) -> list[int]:
        """Keys of the nearest, the nearest first. So many of the `threads` help this one."""
        if not self._blocks:
            return []
        scores = np.empty(len(self), dtype=np.float32)
        pieces, at = list[tuple[_Block, slice, int]](), 0
        for block in self._blocks:
            rows = range(0, len(block.keys), PIECE_ROWS)
            pieces += [(block, slice(start, start + PIECE_ROWS), at + start) for start in rows]
            at += len(block.keys)
        left = iter(pieces)  # taken in turn by whoever is free, so nobody waits for a slower one

        def work() -> None:
            for block, rows, place in left:
                size = min(rows.stop, len(block.keys)) - rows.start
                block.score(question, rows, scores[place : place + size])

        others = [threads.submit(work) for _ in range(helpers)] if threads is not None and len(pieces) > 1 else []
        work()
        for other in others:
            other.result()
        best = highest(scores, count)
        keys = np.concatenate([block.keys for block in self._blocks])
        found: list[int] = keys[best[np.isfinite(scores[best])]].tolist()
        return found
