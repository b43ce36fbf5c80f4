"""Vectors in a byte a number, and how far from the truth a score by them can be.

A vector is kept as whole numbers of a step of its own, its largest number being 127 steps; what that leaves out is
known, so a score by these comes with its limits, and nothing between them is ever lost. numkong multiplies bytes
(extra `search`), 100,000 vectors of 1,024 in 6 ms of one core; numpy has to widen them first, and takes 27.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Float32: TypeAlias = NDArray[np.float32]
Int8: TypeAlias = NDArray[np.int8]

STEPS = 127
#: How much longer than 1 a vector may be, rounding included.
LENGTH = 1.01
#: What float32 rounds off at most for each number of a sum, and how many roundings there are around the sum.
ROUNDING, AROUND = 2.0**-23, 8
#: Rows that numpy widens at a time: what stays in a core's cache.
WIDENED_ROWS = 128
HAS_NUMKONG = find_spec("numkong") is not None


def products(codes: Int8, question: Int8) -> Float32:
    """The dot product of each row [n, d] with the question [d], outside Python's lock."""
    found = np.empty((len(codes), 1), dtype=np.float32)
    if HAS_NUMKONG:
        import numkong

        numkong.cdist(codes, question[None], "dot", out=found)
    else:
        wide = question.astype(np.float32)
        for at in range(0, len(codes), WIDENED_ROWS):
            found[at : at + WIDENED_ROWS, 0] = codes[at : at + WIDENED_ROWS].astype(np.float32) @ wide
    return found[:, 0]


@dataclass(frozen=True, slots=True)
class Codes:
    """Rows [n, the columns that are not all zero at the end]."""

    steps: Int8
    step: Float32  # what one of them is worth [n]
    error: Float32  # the length of what they leave out [n]

    @staticmethod
    def of(vectors: Float32) -> Codes:
        """ValueError where a number is not finite."""
        used = np.flatnonzero(vectors.any(axis=0))
        part = vectors[:, : int(used[-1]) + 1 if len(used) else 1]
        step = np.maximum(np.abs(part).max(axis=1), np.finfo(np.float32).tiny) / np.float32(STEPS)
        with np.errstate(invalid="ignore", over="ignore"):  # of what is not finite, which is refused below
            steps = np.rint(part / step[:, None])
            error = np.linalg.norm(part - steps * step[:, None], axis=1)
        if not np.isfinite(error).all():
            raise ValueError("a vector has a number that is not finite")
        return Codes(steps.astype(np.int8), step, error.astype(np.float32))

    @property
    def size(self) -> int:
        """Bytes."""
        return self.steps.nbytes + self.step.nbytes + self.error.nbytes

    def followed_by(self, more: Codes) -> Codes:
        rows, width = len(self.steps), max(self.steps.shape[1], more.steps.shape[1])
        steps = np.zeros((rows + len(more.steps), width), dtype=np.int8)
        steps[:rows, : self.steps.shape[1]] = self.steps
        steps[rows:, : more.steps.shape[1]] = more.steps
        return Codes(steps, np.concatenate((self.step, more.step)), np.concatenate((self.error, more.error)))

    def between(self, question: Question) -> tuple[Float32, Float32]:
        """The lowest and the highest that the score of each row can be."""
        width = self.steps.shape[1]
        score = products(self.steps, question.steps[:width]) * (self.step * question.step)
        # Of x = x' + e and q = q' + f, xq - x'q' is x'f + eq, and no part longer than x' or q.
        within = (LENGTH + self.error) * question.error + self.error * LENGTH + (width + AROUND) * ROUNDING
        return score - within, score + within


@dataclass(frozen=True, slots=True)
class Question:
    """One vector, in the same way [all columns]."""

    steps: Int8
    step: float
    error: float

    @staticmethod
    def of(vector: Float32) -> Question:
        codes = Codes.of(vector[None])
        steps = np.zeros(len(vector), dtype=np.int8)
        steps[: codes.steps.shape[1]] = codes.steps[0]
        return Question(steps, float(codes.step[0]), float(codes.error[0]))
