"""How sure an answer is, recomputed from its probabilities by the published formulas. Pure.

Source: the System One documentation, as written down in the jevcompat specification, section 4.5. Servers differ in
what they call confidence, so it is always computed here and a reported one is only kept beside it.
"""

from __future__ import annotations

from collections.abc import Sequence


def choice_confidence(probabilities: Sequence[float]) -> float:
    """(max - 1/n) / (1 - 1/n): 0 if uniform, 1 if certain. 1 where there is nothing to choose."""
    n = len(probabilities)
    if n < 2:
        return 1.0
    return _within_one((max(probabilities) - 1 / n) / (1 - 1 / n))


def score_confidence(probabilities: Sequence[float]) -> float:
    """max(0, 1 - sum p_i |i - mode| / D), D the uniform distribution's mean absolute deviation from its centre.

    Of several most probable levels the lowest is the mode.
    """
    n = len(probabilities)
    if n < 2:
        return 1.0
    mode = max(range(n), key=lambda level: probabilities[level])
    spread = sum(p * abs(level - mode) for level, p in enumerate(probabilities))
    return _within_one(1 - spread / uniform_spread(n))


def uniform_spread(levels: int) -> float:
    """The mean absolute deviation of the uniform distribution over 0..levels-1 from its centre."""
    centre = (levels - 1) / 2
    return sum(abs(level - centre) for level in range(levels)) / levels


def expected_level(probabilities: Sequence[float]) -> float:
    """sum of i * p_i."""
    return sum(level * p for level, p in enumerate(probabilities))


def _within_one(value: float) -> float:
    return min(max(value, 0.0), 1.0)
