"""Decisions worked out from a state and a question, the same every time: what of an option's words the state says, and
a little that its text alone decides. Ids, other questions and their order make no difference. Pure."""

from __future__ import annotations

import json
import math
import re
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, Final

from .answers import default_answer, keywords
from .exchange import Answer, Ask, AskedDecision

_WORDS: Final = 64
_PER_WORD: Final = 1.6
_NOISE: Final = 1.2
#: What the option that stands first is favoured by, where a chat model chooses among lettered ones.
_FIRST_PLACE: Final = 0.7
_LETTERED: Final = re.compile(r"^([A-Z]|\d{1,3})\. (.+)$", re.MULTILINE)


def answer_to(ask: Ask, seed: int = 0) -> Answer:
    """What a request is answered with where nobody says otherwise."""
    if ask.embeddings is not None:
        return Answer(text="")  # the wire works the vectors out
    if ask.decision is not None:
        return Answer(json=decided(ask.decision, seed))
    if lettered(ask.text):
        distribution = lettered_distribution(ask.text, seed)
        if '"probabilities"' in ask.system:
            return Answer(json={"probabilities": {label: round(each, 4) for label, each in distribution.items()}})
        if ask.logprobs is not None:
            return Answer(text=max(distribution, key=lambda label: distribution[label]))
    return default_answer(ask, seed)


def decided(asked: AskedDecision, seed: int = 0) -> dict[str, Any]:
    """By question: the probability of yes, of each option, or of each level in a list."""
    said = _telling(_text(asked.state))
    return {name: _decide(said, _text(asked.state), question, seed) for name, question in asked.questions.items()}


def completed(asked: AskedDecision, given: Any, seed: int = 0) -> dict[str, Any]:
    """What was given as the answer, in full: an option's name or a level's number is all but certain, and what was not
    said is worked out."""
    said = given if isinstance(given, Mapping) else {}
    return {
        name: _given(asked.questions[name], said[name]) if name in said else default
        for name, default in decided(asked, seed).items()
    }


def keys_of(question: Mapping[str, Any]) -> list[str]:
    """The options of a choice; the numbers of the levels of a score."""
    criteria = question.get("criteria")
    if question["type"] == "choice":
        return list(criteria or ())
    return [str(level) for level in range(len(criteria or ()))]


def lettered(text: str) -> list[tuple[str, str]]:
    """Options as a prompt lists them: `A. billing`. Empty where there are none."""
    found = _LETTERED.findall(text)
    return found if len(found) > 1 and found[0][0] in ("A", "1") else []


def lettered_distribution(text: str, seed: int = 0) -> dict[str, float]:
    """How probable each lettered option of a prompt is, by its letter. The first place is favoured, as by chat
    models."""
    options, before = lettered(text), _LETTERED.sub("", text)
    said = _telling(before)
    logits = [_logit(said, before, option, seed) for _, option in options]
    logits[0] += _FIRST_PLACE
    return dict(zip((letter for letter, _ in options), _softmax(logits), strict=True))


def _decide(said: frozenset[str], state: str, question: Mapping[str, Any], seed: int) -> Any:
    kind, instructions, criteria = question["type"], _text(question.get("instructions")), question.get("criteria")
    if kind == "noul":
        sides = criteria if isinstance(criteria, Mapping) else {}
        yes = _logit(said, state, f"{instructions} {_text(sides.get('true'))}", seed)
        no = _logit(said, state, f"no {_text(sides.get('false'))}", seed)
        return _softmax([yes, no])[0]
    if kind == "choice":
        texts = [f"{name} {_text(meaning)}" for name, meaning in (criteria or {}).items()]
        return dict(zip(criteria or (), _softmax([_logit(said, state, text, seed) for text in texts]), strict=True))
    return _softmax([_logit(said, state, f"{instructions} {_text(level)}", seed) for level in criteria or ()])


def _given(question: Mapping[str, Any], given: Any) -> Any:
    kind, keys = question["type"], keys_of(question)
    if kind == "noul":
        return float(given)
    said: Any = given
    if isinstance(given, (str, int)) and str(given) in keys:
        rest = 0.1 / max(1, len(keys) - 1)
        said = {key: 0.9 if key == str(given) else rest for key in keys}
    elif isinstance(given, Sequence):
        said = dict(zip(keys, given, strict=False))
    numbers = {key: float(said.get(key, 0.0)) for key in keys}
    return numbers if kind == "choice" else list(numbers.values())


def _text(value: Any) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    return json.dumps(value, sort_keys=True, ensure_ascii=False)


def _telling(text: str) -> frozenset[str]:
    return frozenset(keywords(text, _WORDS))


def _logit(said: frozenset[str], state: str, option: str, seed: int) -> float:
    shared = len(said & _telling(option))
    digest = zlib.crc32(f"{state}\0{option}".encode("utf-8", "surrogatepass"), seed)
    return _PER_WORD * shared + _NOISE * (digest / 2**31 - 1)


def _softmax(logits: Sequence[float]) -> list[float]:
    highest = max(logits, default=0.0)
    weights = [math.exp(each - highest) for each in logits]
    total = math.fsum(weights)
    return [each / total for each in weights]
