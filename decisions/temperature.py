"""Temperature scaling: how sure an answer is, corrected by one number. Pure.

A distribution p becomes p^(1/T), normalised: above 1 it is less sure, below 1 surer, and the order of the options never
changes. Source: Guo, Pleiss, Sun, Weinberger, On Calibration of Modern Neural Networks (2017), section 4.2.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from .formulas import expected_level
from .response import Answer, ChoiceAnswer, NoulAnswer

#: What a probability of 0 is taken for: providers round, and the logarithm of 0 would drown everything else.
SMALLEST = 1e-4


def scaled(probabilities: Sequence[float], temperature: float) -> tuple[float, ...]:
    """The distribution at that temperature (above 0, finite). At 1 it is as it was."""
    if not (math.isfinite(temperature) and temperature > 0):
        raise ValueError(f"a temperature is a finite number above 0, not {temperature!r}")
    if temperature == 1.0:
        return tuple(probabilities)
    logs = [math.log(max(each, SMALLEST)) / temperature for each in probabilities]
    highest = max(logs)
    weights = [math.exp(each - highest) for each in logs]
    total = math.fsum(weights)
    return tuple(each / total for each in weights)


def calibrated(answer: Answer, temperature: float) -> Answer:
    """The answer at that temperature, with what the model had said kept beside it. Which option, level or side is the
    most probable stays as it was."""
    if isinstance(answer, ChoiceAnswer):
        raw = answer.probabilities
        probabilities = dict(zip(raw, scaled(tuple(raw.values()), temperature), strict=True))
        return replace(answer, probabilities=probabilities, raw_probabilities=raw, temperature=temperature)
    if isinstance(answer, NoulAnswer):
        yes = scaled((answer.noul, 1.0 - answer.noul), temperature)[0]
        return replace(answer, noul=yes, raw_noul=answer.noul, temperature=temperature)
    levels = scaled(answer.probabilities, temperature)
    return replace(
        answer,
        score=expected_level(levels),
        probabilities=levels,
        raw_score=answer.score,
        raw_probabilities=answer.probabilities,
        temperature=temperature,
    )
