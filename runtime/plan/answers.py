"""What a model, or a job that is not run, would have given: made up, of the expected size, the same every time."""

from __future__ import annotations

import dataclasses
import random
import typing
import zlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NoReturn

from interlock.catalog.usage import Usage
from interlock.clients.conversation import Message, TextBlock
from interlock.clients.response import LLMResponse, Piece, PieceKind, StopReason
from interlock.clients.simulator.answers import first_sentence, keywords, source_of
from interlock.clients.simulator.filling import UnfillableSchemaError, fill
from interlock.clients.structured import Shape, WrongShape
from interlock.errors import InvalidRequestError

from ..calls import LLMCall, StreamedCall, WholeResponse
from ..job import Job, job_name
from ..model_calls import DecisionCall, EmbeddingCall
from .guard import RehearsalError

if TYPE_CHECKING:
    from interlock.catalog.spec import ModelBinding
    from interlock.decisions import DecisionRequest, DecisionResponse
    from interlock.embeddings.response import EmbeddingsResponse

#: Characters of a made-up text for a token of it, and the most of them.
CHARACTERS, MOST_CHARACTERS = 4, 60_000


class NotKnown:
    """Stands for a result that nobody can make up. It may be passed on; whoever looks into it is told whose it is."""

    def __init__(self, whose: str, remedy: str) -> None:
        self._told = f"the pipeline cannot go on without the result of {whose}, which is not run while it is planned: "
        self._told += remedy

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise RehearsalError(self._told)

    __bool__ = __call__ = __len__ = __iter__ = __getitem__ = __contains__ = __str__ = __format__ = _refuse
    __int__ = __float__ = __add__ = __radd__ = __lt__ = __gt__ = __le__ = __ge__ = _refuse

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):  # Python and libraries ask for these of anything
            raise AttributeError(name)
        self._refuse()

    def __repr__(self) -> str:
        return "<not known: a result that is not made up>"


class Answers:
    """`width` is that of the catalog's vectors."""

    def __init__(self, width: int, seed: int = 0) -> None:
        self._width, self._seed = width, seed

    def of(self, job: Job[Any], bindings: tuple[ModelBinding, ...], tokens: int) -> Any:
        """The result of a job. `tokens` is the expected size of its answer."""
        kind = type(job)
        if isinstance(job, LLMCall) and kind.run is LLMCall.run:
            response = self.response(job, bindings[0], tokens)
            return response if job.response_model is None else response.parsed
        if isinstance(job, WholeResponse):
            response = self.response(job.call, bindings[0], tokens)
            if isinstance(job, StreamedCall):
                job.sink.put(Piece(kind=PieceKind.TEXT, text=response.text))
            return response
        if isinstance(job, EmbeddingCall) and kind.run is EmbeddingCall.run:
            return self.embeddings(job, bindings[0])
        if isinstance(job, DecisionCall) and kind.run is DecisionCall.run:
            return self.decisions(job.request, bindings[0])
        return self.result(job)

    def response(self, call: LLMCall[Any], binding: ModelBinding, tokens: int) -> LLMResponse:
        said = [call.conversation.system or "", *(message.text for message in call.conversation.messages[-2:])]
        prompt = "\n".join(said)
        parsed = None
        if call.response_model is not None:
            whose = f"{job_name(call)} for {getattr(call.response_model, '__name__', call.response_model)}"
            parsed = self._filled(call.response_model, prompt, whose)
        return LLMResponse(
            message=Message(role="assistant", blocks=(TextBlock(_text(prompt, tokens)),)),
            stop_reason=StopReason.END_TURN,
            usage=Usage(input_tokens=binding.input_tokens, output_tokens=tokens, estimated=True),
            model=binding.entry.id,
            provider=binding.entry.provider,
            parsed=parsed,
        )

    def embeddings(self, job: EmbeddingCall, binding: ModelBinding) -> EmbeddingsResponse:
        import numpy as np

        from interlock.embeddings.response import EmbeddingsResponse

        seed = zlib.crc32("".join(job.texts)[:2_000].encode("utf-8", "replace"), self._seed)
        vectors = np.random.default_rng(seed).standard_normal((len(job.texts), self._width), dtype=np.float32)
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        return EmbeddingsResponse(
            vectors=vectors,
            usage=Usage(input_tokens=binding.input_tokens * binding.calls, estimated=True),
            model=binding.entry.id,
            provider=binding.entry.provider,
            requests=binding.calls,
        )

    def decisions(self, request: DecisionRequest, binding: ModelBinding) -> DecisionResponse:
        """At random: what a model would say of the state is not known, and pipelines branch on it."""
        from interlock.decisions import DecisionResponse

        rng = random.Random(zlib.crc32(request.text.encode("utf-8", "replace"), self._seed))
        return DecisionResponse(
            answers={name: _decided(question, rng) for name, question in request.questions.items()},
            usage=Usage(input_tokens=binding.input_tokens, estimated=True),
            model=binding.entry.id,
            provider=binding.entry.provider,
        )

    def result(self, job: Job[Any]) -> Any:
        """What a job of the user's own gives: by its `rehearse()`, or made up from what its `run` is annotated with."""
        name = job_name(job)
        rehearse: Callable[[], Any] | None = getattr(job, "rehearse", None)
        if rehearse is not None:
            try:
                return rehearse()
            except RehearsalError:
                raise
            except Exception as error:
                raise RehearsalError(f"rehearse() of job {name} failed: {type(error).__name__}: {error}") from error
        remedy = (
            "annotate what its run gives with a type that can be made up (a pydantic model, a dataclass, str ...), "
        )
        remedy += "or give the job `def rehearse(self)` that returns an example"
        return self.made_up(_given_by(type(job)), _fields_text(job), f"job {name}", remedy)

    def made_up(self, wanted: Any, text: str, whose: str, remedy: str) -> Any:
        """A value of a type, or NotKnown where there is no type, or none that can be made up."""
        if wanted is None or wanted is type(None):
            return None
        if wanted is typing.Any or wanted is dataclasses.MISSING:
            return NotKnown(whose, remedy)
        try:
            return self._filled(wanted, text, whose)
        except RehearsalError:
            return NotKnown(whose, remedy)

    def _filled(self, wanted: Any, text: str, whose: str) -> Any:
        try:
            shape = Shape.of(wanted)
            return shape.validate(fill(shape.schema, source_of(text, self._seed)))
        except (UnfillableSchemaError, WrongShape, InvalidRequestError) as error:
            raise RehearsalError(
                f"no answer can be made up for {whose} ({error}), so the pipeline cannot be planned"
            ) from None


def _decided(question: Any, rng: random.Random) -> Any:
    from interlock.decisions.questions import Choice, Noul
    from interlock.decisions.response import ChoiceAnswer, NoulAnswer, ScoreAnswer

    if isinstance(question, Noul):
        return NoulAnswer(noul=rng.random())
    names = question.names if isinstance(question, Choice) else tuple(question.levels)
    weights = [rng.random() ** 3 + 1e-6 for _ in names]
    shares = [weight / sum(weights) for weight in weights]
    if isinstance(question, Choice):
        probabilities = dict(zip(names, shares, strict=True))
        return ChoiceAnswer(choice=max(names, key=probabilities.__getitem__), probabilities=probabilities)
    expected = sum(level * share for level, share in enumerate(shares))
    return ScoreAnswer(score=expected, probabilities=tuple(shares), levels=names)


def _text(prompt: str, tokens: int) -> str:
    """A text of about so many tokens, from the words of the prompt."""
    wanted = min(max(tokens, 1) * CHARACTERS, MOST_CHARACTERS)
    sentence = first_sentence(prompt) or "Nothing was said."
    more = " ".join(keywords(prompt, 40)) or "nothing"
    text = f"{sentence} {more}. "
    return (text * (wanted // len(text) + 1))[:wanted].strip()


def _given_by(kind: type[Any]) -> Any:
    """What the `run` of a job's class is annotated with, or the R of its Job[R]; MISSING for neither."""
    try:
        hints = typing.get_type_hints(kind.run)
    except Exception:  # names that exist for type checkers only
        hints = {}
    if "return" in hints and not isinstance(hints["return"], typing.TypeVar):
        return hints["return"]
    for base in getattr(kind, "__orig_bases__", ()):
        if typing.get_origin(base) is Job:
            (given,) = typing.get_args(base)
            if not isinstance(given, typing.TypeVar | typing.ForwardRef | str):
                return given
    return dataclasses.MISSING


def given_by_function(function: Callable[..., Any]) -> Any:
    """What a function is annotated with; MISSING for nothing."""
    try:
        return typing.get_type_hints(function).get("return", dataclasses.MISSING)
    except Exception:
        return dataclasses.MISSING


def _fields_text(job: Job[Any]) -> str:
    """The words in a job's fields, for what is made up to be made of."""
    fields: Mapping[str, Any] = getattr(job, "__dict__", {})
    return " ".join(str(value)[:2_000] for value in fields.values() if isinstance(value, str | int | float))
