"""Log probabilities of an answer's tokens: the tokens said are likely, their alternatives are other cases of them.

A letter that stands for an option has the other letters as alternatives, each with some of its probability in another
spelling, and a few words a model might have begun with instead.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

_TOKEN = re.compile(r"\s*\S{1,8}|\s+")
_SAID = math.log(0.9)
#: What is left for anything but a letter.
_ELSE = 0.02
_OPENINGS = ("The", "Option", "**", "I", "Answer")
#: Of a letter's probability, what its other spelling has.
_SPELLED = 0.1


def logprobs_of(text: str, alternatives: int, labels: Mapping[str, float] | None = None) -> list[dict[str, Any]]:
    """One entry a token. `labels`: how probable each of the letters was, where `text` is one of them."""
    if labels:
        return [_label(text, labels, alternatives)]
    return [_token(token, alternatives) for token in _TOKEN.findall(text)]


def _label(text: str, labels: Mapping[str, float], alternatives: int) -> dict[str, Any]:
    probabilities: dict[str, float] = {}
    for label, probability in labels.items():
        share = probability * (1.0 - _ELSE)
        probabilities |= {label: share * (1.0 - _SPELLED), f" {label}": share * _SPELLED}
    probabilities |= {opening: _ELSE / 2 ** (rank + 1) for rank, opening in enumerate(_OPENINGS)}
    ranked = sorted(probabilities, key=lambda token: -probabilities[token])
    top = [_one(token, math.log(max(probabilities[token], 1e-12))) for token in ranked[:alternatives]]
    return _one(text, math.log(max(probabilities.get(text, _ELSE), 1e-12))) | {"top_logprobs": top}


def _token(token: str, alternatives: int) -> dict[str, Any]:
    others = dict.fromkeys((token.upper(), token.lower(), token.strip(), f" {token.strip()}"))
    others.pop(token, None)
    said = _one(token, _SAID)
    top = [said, *(_one(other, math.log(0.1 / 2 ** (rank + 1))) for rank, other in enumerate(others))]
    return said | {"top_logprobs": top[:alternatives]}


def _one(token: str, logprob: float) -> dict[str, Any]:
    return {"token": token, "logprob": logprob, "bytes": list(token.encode("utf-8", "surrogatepass"))}
