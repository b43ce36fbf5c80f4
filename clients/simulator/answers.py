"""Answers worked out from the request's own text, the same every time: a first sentence, its frequent words.

`default_answer` is what the provider says when it is told nothing else. It obeys a JSON schema or a forced tool.
"""

from __future__ import annotations

import re
import zlib
from collections import Counter
from operator import itemgetter
from typing import Any

from .exchange import Answer, Ask
from .filling import Source, fill

_SENTENCE_CHARS = 400
_READ_CHARS = 8_000  # more of a text than this changes nothing worth the time
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|\n+|(?<=[。！？])")
_WORD = re.compile(r"[^\W\d_][\w'-]*")
_NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?![\w.])")
_COMMON_TEXT = """
the and for that this with from are was were been have has had not but you your our their they them his her
its will would can could should may about into over under than then there here what which who whom when where
why how all any each few more most other some such only own same too very just also does did doing being these
those please need want make made like get got let say said tell one two
"""
_COMMON = frozenset(_COMMON_TEXT.split())


def first_sentence(text: str) -> str:
    """The first sentence, at most 400 characters; empty for a text without one."""
    text, start = text[:_READ_CHARS].strip(), 0
    for end in _SENTENCE_END.finditer(text):
        sentence = text[start : end.start()].strip()
        if sentence:
            return sentence[:_SENTENCE_CHARS]
        start = end.end()
    return text[start : start + _SENTENCE_CHARS].strip()


def keywords(text: str, count: int = 8) -> list[str]:
    """The most frequent words that say something, in lower case; ties in order of appearance."""
    seen = Counter(_WORD.findall(text[:_READ_CHARS].lower()))
    telling = [(-times, word) for word, times in seen.items() if len(word) > 2 and word not in _COMMON]
    telling.sort(key=itemgetter(0))
    return [word for _, word in telling[:count]]


def source_of(text: str, seed: int) -> Source:
    """What a schema is filled from."""
    return Source(
        sentence=first_sentence(text) or "Nothing was said.",
        words=tuple(keywords(text)) or ("nothing",),
        numbers=tuple(float(number) for number in _NUMBER.findall(text[:_READ_CHARS])[:16]),
        text=text[:_READ_CHARS].lower(),
        seed=zlib.crc32(text.encode(), seed),
    )


def default_answer(ask: Ask, seed: int = 0) -> Answer:
    """The first sentence and the frequent words; or the schema or forced tool, filled from the text."""
    schema = ask.forced_tool.schema if ask.forced_tool is not None else ask.schema
    thinking = _thinking(ask) if ask.thinking_tokens else None
    if schema is not None:
        return Answer(json=fill(schema, source_of(ask.text, seed)), thinking=thinking)
    sentence, words = first_sentence(ask.text), keywords(ask.text, 5)
    if ask.any_json:
        return Answer(json={"answer": sentence, "keywords": words}, thinking=thinking)
    if not sentence:
        return Answer(text="Nothing was asked.", thinking=thinking)
    text = sentence if len(words) < 2 else f"{sentence} Keywords: {', '.join(words)}."
    return Answer(text=text, thinking=thinking)


def _thinking(ask: Ask) -> str:
    words = ", ".join(keywords(ask.text, 5)) or "nothing"
    return f"The request is about {words}."


def as_answer(given: Any) -> Answer:
    """What an answer function gave: an Answer, text, or a JSON value."""
    if isinstance(given, Answer):
        return given
    return Answer(text=given) if isinstance(given, str) else Answer(json=given)
