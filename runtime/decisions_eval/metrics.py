"""How good probabilities are, judged by what was right. Pure.

A question's answers are a matrix: one row an example, one column an option (or level; yes, no), and a vector with the
column that was right. Source of the calibration error: Naeini, Cooper, Hauskrecht, Obtaining Well Calibrated
Probabilities Using Bayesian Binning (2015); of the bound: Wilson, Probable Inference (1927).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from interlock.decisions.temperature import SMALLEST

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Truths = NDArray[np.bool_]
Kind = Literal["choice", "noul", "score"]

#: Bins of equal width that a reliability diagram has.
BINS = 10
#: Of a normal distribution, for a bound that holds 95 times in 100 (one side).
_Z = 1.645


@dataclass(frozen=True, slots=True, kw_only=True)
class Bin:
    """Answers as sure as `low` to `high`: how many, how sure on average, and how often they were right."""

    low: float
    high: float
    count: int
    said: float
    was: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Threshold:
    """Acting only on answers at least `value` sure is right `precision` of the time (in these examples; `at_least` with
    a confidence of 95%), and leaves `covered` of them all acted on."""

    value: float
    precision: float
    at_least: float
    covered: float


def sureness(kind: Kind, probabilities: Floats, truths: Ints, chosen: Ints) -> tuple[Floats, Truths]:
    """How sure each answer is, and whether it is right: of a noul the probability of yes, and whether it was yes; of
    the others the probability of what was chosen, and whether that was right."""
    if kind == "noul":
        return probabilities[:, 0], truths == 0
    return probabilities[np.arange(len(chosen)), chosen], chosen == truths


def accuracy(chosen: Ints, truths: Ints) -> float:
    """The share of answers that were right."""
    return float((chosen == truths).mean())


def majority(truths: Ints) -> float:
    """The accuracy of always answering what is most often right."""
    return float(np.bincount(truths).max() / len(truths))


def log_loss(probabilities: Floats, truths: Ints) -> float:
    """The mean of -log(probability of what was right), each row adding up to 1; a probability of 0 counts as 0.0001."""
    right = probabilities[np.arange(len(truths)), truths]
    return float(-np.log(np.maximum(right, SMALLEST)).mean())


def reliability(sure: Floats, right: Truths, bins: int = BINS) -> tuple[Bin, ...]:
    """The bins that hold any answer."""
    # Rounded first: 0.3 belongs to the bin that begins there, whatever it was computed from.
    places = np.minimum(np.round(sure * bins, 9).astype(np.int64), bins - 1)
    found = []
    for place in range(bins):
        inside = places == place
        count = int(inside.sum())
        if count:
            said, was = float(sure[inside].mean()), float(right[inside].mean())
            found.append(Bin(low=place / bins, high=(place + 1) / bins, count=count, said=said, was=was))
    return tuple(found)


def calibration_error(bins: Sequence[Bin]) -> float:
    """The mean distance between how sure answers were and how often they were right, by bin (ECE)."""
    total = sum(each.count for each in bins)
    return sum(each.count * abs(each.said - each.was) for each in bins) / total if total else 0.0


def threshold(sure: Floats, right: Truths, precision: float) -> Threshold | None:
    """The lowest value at which the answers at least as sure are right that often; None where there is none."""
    order = np.argsort(-sure, kind="stable")
    ranked, hits = sure[order], right[order].cumsum()
    counts = np.arange(1, len(ranked) + 1)
    last_of_its_value = np.append(ranked[1:] != ranked[:-1], True)
    enough = np.flatnonzero((hits / counts >= precision) & last_of_its_value)
    if not len(enough):
        return None
    place = int(enough[-1])
    share = float(hits[place] / counts[place])
    return Threshold(
        value=float(ranked[place]),
        precision=share,
        at_least=lower_bound(int(hits[place]), place + 1),
        covered=(place + 1) / len(ranked),
    )


def lower_bound(hits: int, count: int) -> float:
    """What the true share is above, with a confidence of 95% (Wilson)."""
    share, z2 = hits / count, _Z * _Z
    spread = _Z * math.sqrt(share * (1 - share) / count + z2 / (4 * count * count))
    return max(0.0, (share + z2 / (2 * count) - spread) / (1 + z2 / count))
