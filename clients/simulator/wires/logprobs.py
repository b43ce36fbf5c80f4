"""Log probabilities of an answer's tokens: the tokens said are likely, their alternatives are other cases of them."""

from __future__ import annotations

import math
import re
from typing import Any

_TOKEN = re.compile(r"\s*\S{1,8}|\s+")
_SAID = math.log(0.9)


def logprobs_of(text: str, alternatives: int) -> list[dict[str, Any]]:
    return [_token(token, alternatives) for token in _TOKEN.findall(text)]


def _token(token: str, alternatives: int) -> dict[str, Any]:
    others = dict.fromkeys((token.upper(), token.lower(), token.strip(), f" {token.strip()}"))
    others.pop(token, None)
    said = _one(token, _SAID)
    top = [said, *(_one(other, math.log(0.1 / 2 ** (rank + 1))) for rank, other in enumerate(others))]
    return said | {"top_logprobs": top[:alternatives]}


def _one(token: str, logprob: float) -> dict[str, Any]:
    return {"token": token, "logprob": logprob, "bytes": list(token.encode("utf-8", "surrogatepass"))}
