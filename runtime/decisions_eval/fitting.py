"""The temperature that makes the probabilities of one question honest: the one with the least log-loss. Pure.

The log-loss is convex in 1 / T, so a golden section finds its least. What a temperature is worth is judged on examples
it was not fitted on: each fifth of them by the temperature of the other four.
"""

from __future__ import annotations

import math

import numpy as np

from interlock.decisions.temperature import SMALLEST

from .metrics import Floats, Ints

COLDEST, HOTTEST = 0.1, 10.0
#: Fewer examples than this say nothing about a temperature.
FEWEST = 20
FOLDS = 5
_GOLDEN = (math.sqrt(5) - 1) / 2
_STEPS = 40
#: A gain in log-loss that is none.
_NOTHING = 1e-9


def at_temperature(probabilities: Floats, temperature: float) -> Floats:
    """Every row at that temperature, as `decisions.temperature.scaled` does it to one."""
    if temperature == 1.0:
        return probabilities
    logs = np.log(np.maximum(probabilities, SMALLEST)) / temperature
    weights = np.exp(logs - logs.max(axis=1, keepdims=True))
    scaled: Floats = weights / weights.sum(axis=1, keepdims=True)
    return scaled


def fit_temperature(probabilities: Floats, truths: Ints) -> float:
    """Within 0.1 and 10: beyond that the examples are too few, or all right (`at_its_end`)."""
    logs = np.log(np.maximum(probabilities, SMALLEST))
    rows = np.arange(len(truths))

    def loss(log_temperature: float) -> float:
        scaled = logs / math.exp(log_temperature)
        highest = scaled.max(axis=1)
        totals = np.log(np.exp(scaled - highest[:, None]).sum(axis=1)) + highest
        return float((totals - scaled[rows, truths]).mean())

    low, high = math.log(COLDEST), math.log(HOTTEST)
    left, right = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
    at_left, at_right = loss(left), loss(right)
    for _ in range(_STEPS):
        if at_left <= at_right:
            high, right, at_right = right, left, at_left
            left = high - _GOLDEN * (high - low)
            at_left = loss(left)
        else:
            low, left, at_left = left, right, at_right
            right = low + _GOLDEN * (high - low)
            at_right = loss(right)
    best = (low + high) / 2
    # Where every temperature is as good (all options as probable), or none better than none, it stays as it is.
    return round(math.exp(best), 4) if loss(best) < loss(0.0) - _NOTHING else 1.0


def at_its_end(temperature: float) -> bool:
    """Whether it ran as far as it goes: there is no least log-loss, and so no temperature to apply."""
    return not COLDEST * 1.001 < temperature < HOTTEST / 1.001


def cross_fitted(probabilities: Floats, truths: Ints, folds: int = FOLDS) -> Floats:
    """Every row at a temperature that was fitted without it."""
    scaled = np.empty_like(probabilities)
    for fold in range(folds):
        inside = np.arange(len(truths)) % folds == fold
        if inside.any():
            temperature = fit_temperature(probabilities[~inside], truths[~inside])
            scaled[inside] = at_temperature(probabilities[inside], temperature)
    return scaled
