"""`sparrow`: a local decision model of 3 MB inside its own wheel. No key, no network; about a millisecond a request.

Know what it is: mean-pooled word vectors and a small network. It sorts texts into topics passably; its yes/no answers
are near chance. It reads the first 512 tokens of a state. The package cuts silently; here the state is cut before it is
handed over, and the response says how much was read (`truncated`, `read_characters`). A question or option longer than
that is refused, for nobody would see that its end was not read.

`wire_model_id` names the model: `sparrow-nano-general-v1.1`, `sparrow-nano-robot-v1.2` or another that
`sparrow-decider models` lists; `sparrow-decider` is the package's own default.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from functools import lru_cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any, ClassVar

from interlock.catalog.cut import beginning
from interlock.catalog.usage import Usage
from interlock.errors import ConfigurationError, ContextWindowExceededError

from ..abstract import AbstractDecisionClient, DecisionAnswer
from ..questions import Choice, Question, Score
from ..request import DecisionRequest
from ..wire import encode_questions

if find_spec("sparrow_decider") is None:  # said here, once, so that the registry can name the extra
    raise ModuleNotFoundError("No module named 'sparrow_decider'", name="sparrow_decider")

# Work of about a millisecond stays on the event loop; more of it goes to a thread.
_CHARACTERS_INLINE = 2_000
_OPTIONS_INLINE = 32
# Texts whose tokens are remembered: so many, none longer than this.
_TEXTS = 2_048
_LONG = 4_000
_DEFAULT = "sparrow-decider"


class SparrowDecisionClient(AbstractDecisionClient):
    """Decides in this process. `usage.input_tokens` are the tokens of the state and the questions that were read."""

    CUTS_STATE: ClassVar[bool] = True

    async def check(self, request: DecisionRequest) -> None:
        """ConfigurationError: no such model on this machine. ContextWindowExceededError: a question is too long."""
        await super().check(request)
        model = await self._loaded()
        for name, question in request.questions.items():
            if any(model.count(text) > model.longest for text in _texts(question)):
                raise ContextWindowExceededError(
                    f"a text of question {name!r} is longer than the {model.longest} tokens {self.entry.id} reads",
                    model=self.entry.id,
                    sent=False,
                )

    async def send(self, request: DecisionRequest) -> DecisionAnswer:
        model, state = await self._loaded(), request.state_text
        asked = request.questions.values()
        # The package reads the state anew for every question.
        if len(state) * len(asked) > _CHARACTERS_INLINE or sum(map(_options, asked)) > _OPTIONS_INLINE:
            return await asyncio.to_thread(_decide, model, request, state)
        return _decide(model, request, state)

    async def _loaded(self) -> _Model:
        name = self.entry.wire_model_id
        loaded = _LOADED.get(name)
        return await asyncio.to_thread(_load, name) if loaded is None else loaded


def _options(question: Question) -> int:
    if isinstance(question, Choice):
        return len(question.options)
    return len(question.levels) if isinstance(question, Score) else 2


def _decide(model: _Model, request: DecisionRequest, whole: str) -> DecisionAnswer:
    state = whole.strip()  # as the package reads it
    read, tokens = state, model.count(state)
    if tokens > model.longest:
        read, tokens = beginning(state, model.longest, model.count), model.longest
    tokens += sum(model.count(text) for question in request.questions.values() for text in _texts(question))
    return DecisionAnswer(
        body={"answers": model.ask(read, encode_questions(request.questions))},
        usage=Usage(input_tokens=tokens, output_tokens=0),
        served_model=model.name,
        read_characters=whole.index(read) + len(read) if len(read) < len(state) else None,
    )


def _texts(question: Question) -> list[str]:
    if isinstance(question, Choice):
        return [question.question, *(f"{option.name} {option.description or ''}" for option in question.options)]
    if isinstance(question, Score):
        return [question.question, *question.levels]
    return [question.question, *(meaning for meaning in (question.yes, question.no) if meaning)]


class _Model:
    """A loaded model: it never changes, so threads share it."""

    def __init__(self, decider: Any) -> None:
        self.name: str = decider.name
        self.longest: int = decider.static.max_len
        self.ask: Callable[[str, dict[str, dict[str, Any]]], dict[str, Any]] = decider.ask
        self._tokens = decider.static.tok = _RememberedTokens(decider.static.tok, self.longest + 1)

    def count(self, text: str) -> int:
        """Tokens of `text`, counted to one more than the model reads."""
        return len(self._tokens.encode(text, self.longest + 1))


class _RememberedTokens:
    """The model's tokenizer, which reads a text once where the package reads a state anew for every question, and the
    questions anew for every state."""

    def __init__(self, tokenizer: Any, most: int) -> None:
        self._encode: Callable[[str, int], list[int]] = tokenizer.encode
        self._most = most
        self._remembered = lru_cache(maxsize=_TEXTS)(lambda text: tuple(self._encode(text, most)))

    def encode(self, text: str, max_len: int) -> list[int]:
        if len(text) > _LONG or max_len > self._most:
            return self._encode(text, max_len)
        return list(self._remembered(text)[:max_len])


# The weights are read-only, so every runtime of a process shares them.
_LOADED: dict[str, _Model] = {}
_LOADING = threading.Lock()


def _load(name: str) -> _Model:
    with _LOADING:
        if name not in _LOADED:
            _LOADED[name] = _read(name)
        return _LOADED[name]


def _read(name: str) -> _Model:
    package = import_module("sparrow_decider")
    try:
        decider = package.Decider.load(None if name == _DEFAULT else name)
    except FileNotFoundError:
        known = ", ".join(package.available_models())
        raise ConfigurationError(f"there is no sparrow model {name!r} on this machine; there are {known}") from None
    if decider.static is None:
        raise ConfigurationError(f"the sparrow model {name!r} is of a kind that is not supported here")
    return _Model(decider)
