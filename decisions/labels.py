"""A distribution over labels from the log-probabilities of a chat model's next token. Pure.

Each option has a label of one token. The model's first real token is looked at: what its alternatives give to a label,
in any of the label's spellings ("B", " B", "b", "**B"), is summed. A label that is not among the alternatives can have
no more than the least of them, nor more than what they leave: that bound is what it is given, never 0. What is left is
normalised over the labels, if there is enough of it: a model that wanted to say something else has not answered.
"""

from __future__ import annotations

import math
import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from interlock.errors import MalformedResponseError

#: As many labels as the alternatives that a provider lists for a token.
MOST_LABELS = 20
#: Without the I, with which a model begins to say that it cannot answer.
LABELS = tuple(letter for letter in string.ascii_uppercase if letter != "I")[:MOST_LABELS]
#: Less than this on all labels together is no answer.
LEAST_MASS = 0.5
#: No label has less before the labels are normalised: a bound may round to nothing.
SMALLEST = 1e-9
#: Some servers write this for "nothing known".
_SENTINEL = -9000.0
#: Beyond this a log-probability above 0 is no rounding.
_ROUNDING = 1e-3
#: What the alternatives together may have beyond 1.
_OVER = 0.01

_AROUND = string.whitespace + "\"'`*_()[]{}<>.,:;#-" + "\u2581\u0120\u010a"


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelDistribution:
    """`probabilities` by label, summing to 1. `mass` is what the labels had together before that; those in `bounded`
    were not among the alternatives, and have the most that they can have had."""

    probabilities: Mapping[str, float]
    mass: float
    bounded: frozenset[str]


def label_distribution(tokens: Any, labels: Sequence[str], *, least_mass: float = LEAST_MASS) -> LabelDistribution:
    """From the `logprobs.content` of a chat completion. MalformedResponseError: there are none, none of its tokens says
    anything, or the labels have less than `least_mass`."""
    by_spelling = _by_spelling(labels)
    listed = _first_said(tokens)
    found = dict.fromkeys(labels, 0.0)
    for token, probability in listed:
        label = by_spelling.get(_bare(token))
        if label is not None:
            found[label] += probability
    mass = math.fsum(found.values())
    if mass < least_mass:
        raise MalformedResponseError(
            f"the {len(labels)} labels have a probability of {mass:.2f} together, and {least_mass:g} is the least that "
            "counts as an answer: the model was about to say something else"
        )
    missing = frozenset(label for label, probability in found.items() if probability == 0.0)
    bound = _bound([probability for _, probability in listed])
    filled = {label: bound if label in missing else max(each, SMALLEST) for label, each in found.items()}
    total = math.fsum(filled.values())
    return LabelDistribution(
        probabilities={label: each / total for label, each in filled.items()}, mass=min(mass, 1.0), bounded=missing
    )


def _by_spelling(labels: Sequence[str]) -> dict[str, str]:
    """Raises ValueError for labels that one token could mean both of."""
    spelled = {_bare(label): label for label in labels}
    bare = sorted(spelled)
    if len(spelled) < len(labels) or not all(bare):
        raise ValueError(f"labels must differ in their letters: {', '.join(labels)}")
    for one, other in pairwise(bare):
        if other.startswith(one):
            raise ValueError(f"labels {spelled[one]!r} and {spelled[other]!r} may begin with the same token")
    return spelled


def _bare(token: str) -> str:
    return token.strip(_AROUND).casefold()


def _first_said(tokens: Any) -> list[tuple[str, float]]:
    """The alternatives of the first token that is no blank, quote or markup."""
    if not isinstance(tokens, Sequence) or isinstance(tokens, (str, bytes)) or not tokens:
        raise MalformedResponseError("the answer came without log-probabilities")
    for token in tokens:
        if not isinstance(token, Mapping) or not isinstance(token.get("token"), str):
            raise MalformedResponseError("a log-probability belongs to no token")
        if _bare(token["token"]):
            return _alternatives(token)
    raise MalformedResponseError("the answer has no token that says anything")


def _alternatives(token: Mapping[str, Any]) -> list[tuple[str, float]]:
    """Each alternative once, with its probability. The token itself is one of them, listed or not."""
    listed = token.get("top_logprobs")
    given = [token, *(listed if isinstance(listed, list) else ())]
    found: dict[str, float] = {}
    for each in given:
        name = each.get("token") if isinstance(each, Mapping) else None
        if not isinstance(name, str):
            raise MalformedResponseError("an alternative of a token is no token")
        probability = _probability(each.get("logprob"))
        if probability is not None:
            found.setdefault(name, probability)
    if math.fsum(found.values()) > 1.0 + _OVER:
        raise MalformedResponseError("the alternatives of a token have more than a probability of 1 together")
    return list(found.items())


def _probability(logprob: Any) -> float | None:
    """None where the server knows nothing of it."""
    if isinstance(logprob, bool) or not isinstance(logprob, (int, float)) or math.isnan(logprob):
        raise MalformedResponseError("a log-probability is no number")
    if logprob > _ROUNDING:
        raise MalformedResponseError(f"a log-probability is {logprob:g}, and none is above 0")
    return None if logprob <= _SENTINEL else math.exp(min(logprob, 0.0))


def _bound(listed: Sequence[float]) -> float:
    """The most that a token can have which is not listed."""
    least = min(listed, default=0.0)
    return max(min(least, 1.0 - math.fsum(listed)), SMALLEST)


def mean(distributions: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The average of distributions over the same keys, in the order of the first. It sums to 1 where they do."""
    return {key: math.fsum(each[key] for each in distributions) / len(distributions) for key in distributions[0]}
