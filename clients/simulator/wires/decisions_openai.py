"""OpenAI's Decisions wire: questions and answers are lists; a predicate for yes or no."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from ..buckets import Charge
from ..deciding import keys_of
from ..exchange import Ask, AskedDecision, Reply
from .decision_reading import MOST_LEVELS, MOST_OPTIONS
from .decisions import choice_confidence, decisions_of, score_confidence
from .openai_common import OpenAIWire
from .wire import Event, Target, WireError, encode

MOST_QUESTIONS = 400
_KINDS = {"predicate": "noul", "choice": "choice", "score": "score"}
_FIELDS = frozenset(("model", "input", "questions", "prompt_cache_key", "prompt_cache_options", "safety_identifier"))


class OpenAIDecisionsWire(OpenAIWire):
    name: ClassVar[str] = "openai-decisions"
    id_prefixes: ClassVar[tuple[str, str]] = ("dec_", "call_")

    def __init__(self, *, seed: int, decimals: int | None) -> None:
        self._seed, self._decimals = seed, decimals

    def read(self, body: dict[str, Any], target: Target) -> Ask:
        for name in body.keys() - _FIELDS:
            raise WireError(400, f"Unknown parameter: '{name}'.", param=name, code="unknown_parameter")
        state = _state(body.get("input"))
        questions = _questions(body.get("questions"))
        model = body.get("model")
        if not isinstance(model, str) or not model:
            raise _missing("model")
        prompt = f"{state}\n{json.dumps(body['questions'], ensure_ascii=False)}"
        return Ask(model=model, text=state, prompt=prompt, decision=AskedDecision(state=state, questions=questions))

    def counted_body(self, body: dict[str, Any], target: Target) -> dict[str, Any]:
        return body

    def counted(self, tokens: int) -> dict[str, Any]:
        return {"input_tokens": tokens}

    def too_long(self, tokens: int, window: int) -> WireError:
        message = f"Your input exceeds the context window of this model: {tokens} tokens, {window} is the most."
        return WireError(400, message, param="input", code="context_length_exceeded")

    def start_charge(self, ask: Ask, input_tokens: int, cached_tokens: int) -> Charge:
        return Charge(1, input_tokens, input_tokens, 0)

    def settle_charge(self, ask: Ask, output_tokens: int, cached_tokens: int) -> Charge:
        return Charge()

    def produced_charge(self, tokens: int) -> Charge:
        return Charge()

    def single(self, ask: Ask, reply: Reply) -> dict[str, Any]:
        asked = ask.decision
        assert asked is not None
        values = decisions_of(asked, reply, self._seed)
        if reply.refusal is not None:
            answers: list[dict[str, Any]] = [{"type": "refusal", "name": _name(key)} for key in asked.questions]
        else:
            answers = [self._answer(key, asked.questions[key], value) for key, value in values.items()]
        read = reply.cache_read_tokens
        return {
            "model": reply.model,
            "answers": answers,
            "usage": {
                "input_tokens": reply.input_tokens + read,
                "input_tokens_details": {"cached_tokens": read, "cache_write_tokens": reply.cache_write_tokens},
                "output_tokens": reply.output_tokens,
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": reply.input_tokens + read + reply.output_tokens,
            },
        }

    def _answer(self, key: str, question: Mapping[str, Any], value: Any) -> dict[str, Any]:
        name = _name(key)
        if question["type"] == "noul":
            return {"type": "predicate", "name": name, "probability": self._rounded(value)}
        exact = list(value.values()) if isinstance(value, Mapping) else list(value)
        keys, best = keys_of(question), max(range(len(exact)), key=lambda at: exact[at])
        if question["type"] == "choice":
            listed = [{"value": each, "probability": self._rounded(p)} for each, p in zip(keys, exact, strict=True)]
            confidence = self._rounded(choice_confidence(exact))
            said: dict[str, Any] = {"type": "choice", "choice": keys[best]}
            return {**said, "name": name, "probabilities": listed, "confidence": confidence}
        return {
            "type": "score",
            "name": name,
            "score": self._rounded(sum(at * each for at, each in enumerate(exact))),
            "probabilities": [
                {"value": at, "label": question["criteria"][at], "probability": self._rounded(each)}
                for at, each in enumerate(exact)
            ],
            "confidence": self._rounded(score_confidence(exact, best)),
        }

    def _rounded(self, value: float) -> float:
        return value if self._decimals is None else round(value, self._decimals)

    def events(self, ask: Ask, reply: Reply) -> Iterator[Event]:
        yield Event("end", encode(self.single(ask, reply)))

    def error_event(self, kind: str, message: str, reply: Reply, sent: int) -> bytes:
        return encode({"error": {"message": message, "type": kind}})

    def keepalive(self, kind: str, reply: Reply) -> bytes:
        return b" "


def _name(key: str) -> str | None:
    """Questions are kept by their place, which is before the first blank, and their name, if they have one."""
    return key.partition(" ")[2] or None


def _state(given: Any) -> str:
    """The text of an input: as it is, or of its messages."""
    if isinstance(given, str):
        return given
    if not isinstance(given, list) or not given:
        raise _missing("input")
    texts: list[str] = []
    for message in given:
        content = message.get("content") if isinstance(message, dict) else None
        parts = [{"type": "input_text", "text": content}] if isinstance(content, str) else content
        for part in parts if isinstance(parts, list) else ():
            texts.append(part["text"] if part.get("type") == "input_text" else json.dumps(part.get("data")))
    return "\n".join(texts)


def _questions(given: Any) -> dict[str, dict[str, Any]]:
    if not isinstance(given, list) or not 1 <= len(given) <= MOST_QUESTIONS:
        raise WireError(400, f"Invalid 'questions': 1 to {MOST_QUESTIONS} are taken.", param="questions")
    return {f"{at} {each.get('name') or ''}": _question(at, each) for at, each in enumerate(given)}


def _question(at: int, given: dict[str, Any]) -> dict[str, Any]:
    kind, where = _KINDS.get(given.get("type", "")), f"questions[{at}]"
    if kind is None:
        raise WireError(400, f"Invalid value: '{given.get('type')}'.", param=f"{where}.type", code="invalid_value")
    if not given.get("instructions"):
        raise _missing(f"{where}.instructions")
    read = {"type": kind, "instructions": given["instructions"]}
    if kind == "choice":
        choices = given.get("choices") or []
        values = [choice["value"] for choice in choices]
        if not 2 <= len(values) <= MOST_OPTIONS or len(set(values)) < len(values):
            raise WireError(
                400, f"Invalid '{where}.choices': 2 to {MOST_OPTIONS} unique ones.", param=f"{where}.choices"
            )
        read["criteria"] = {choice["value"]: choice.get("description") for choice in choices}
    elif kind == "score":
        levels = given.get("levels") or []
        if not 2 <= len(levels) <= MOST_LEVELS:
            raise WireError(400, f"Invalid '{where}.levels': 2 to {MOST_LEVELS}.", param=f"{where}.levels")
        read["criteria"] = [level["label"] for level in levels]
    return read


def _missing(param: str) -> WireError:
    message = f"Missing required parameter: '{param}'."
    return WireError(400, message, param=param, code="missing_required_parameter")
