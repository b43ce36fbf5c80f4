"""`runtime.llm(Grade.SMALL).single_response("Say hello.")`: one call without a pipeline. Each is a job of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from interlock.catalog.spec import ModelSpec
from interlock.catalog.words import Grade
from interlock.clients.conversation import Conversation
from interlock.clients.options import NO_OPTIONS, CallOptions, StreamingMode
from interlock.decisions.batch import CONCURRENCY, DecisionBatch, requests_of
from interlock.decisions.gathering import gathered
from interlock.embeddings.cutting import Split
from interlock.embeddings.purpose import EmbeddingPurpose

from .calls import CallSettings, LLMCall, LLMCallSettings, StreamedCall, WholeResponse
from .job import Job
from .model_calls import DecisionCall, EmbeddingCall
from .streaming import CallStream, Sink

if TYPE_CHECKING:
    from interlock.clients.response import LLMResponse
    from interlock.decisions import DecisionRequest, DecisionResponse
    from interlock.decisions.questions import Question
    from interlock.embeddings.response import EmbeddingsResponse

    from .handle import JobHandle

R = TypeVar("R")


class _Runs(Protocol):
    async def run(self, job: Job[R]) -> R: ...

    def submit(self, job: Job[R]) -> JobHandle[R]: ...


class DirectLLM:
    """An LLMClient whose every call is admitted, recorded and settled by itself."""

    def __init__(self, runtime: _Runs, model: ModelSpec | Grade | str, settings: CallSettings) -> None:
        self._runtime, self._model, self._settings = runtime, model, settings

    async def single_response(
        self,
        conversation: Conversation | str,
        *,
        options: CallOptions | None = None,
        response_model: type[Any] | None = None,
    ) -> LLMResponse:
        """Ask once and return the whole answer. With `response_model` its `.parsed` is an instance of it."""
        return await self._runtime.run(WholeResponse(self._call(conversation, options, response_model)))

    def stream_response(
        self,
        conversation: Conversation | str,
        *,
        options: CallOptions | None = None,
        response_model: type[Any] | None = None,
        mode: StreamingMode = StreamingMode.LIVE,
    ) -> CallStream:
        """`async with runtime.llm(...).stream_response(...) as pieces`."""
        call, sink = self._call(conversation, options, response_model), Sink()
        return CallStream(lambda: self._runtime.submit(StreamedCall(call, sink, mode)), sink, response_model)

    def get_upstream_retries(self) -> int:
        return int(self._settings.get("upstream_retries", LLMCall.upstream_retries))

    def _call(
        self, conversation: Conversation | str, options: CallOptions | None, response_model: type[Any] | None
    ) -> LLMCall[Any]:
        settings: LLMCallSettings = {**self._settings, "model": self._model}
        call: LLMCall[Any] = LLMCall(conversation, response_model=response_model, **settings)
        return call if options is None or options == NO_OPTIONS else call.with_options(options)

    singleResponse = single_response
    streamResponse = stream_response
    getUpstreamRetries = get_upstream_retries


class DirectEmbeddings:
    """An EmbeddingsClient, likewise."""

    def __init__(self, runtime: _Runs, model: ModelSpec | str | None) -> None:
        self._runtime, self._model = runtime, model

    async def embed(
        self,
        text: str,
        purpose: EmbeddingPurpose = EmbeddingPurpose.DOCUMENT,
        *,
        truncate: bool = False,
        split: Split | None = None,
    ) -> EmbeddingsResponse:
        return await self.embed_batch((text,), purpose, truncate=truncate, split=split)

    async def embed_batch(
        self,
        texts: Sequence[str],
        purpose: EmbeddingPurpose = EmbeddingPurpose.DOCUMENT,
        *,
        truncate: bool = False,
        split: Split | None = None,
    ) -> EmbeddingsResponse:
        return await self._runtime.run(
            EmbeddingCall(texts, model=self._model, purpose=purpose, truncate=truncate, split=split)
        )

    def get_upstream_retries(self) -> int:
        return EmbeddingCall.upstream_retries

    embedBatch = embed_batch
    getUpstreamRetries = get_upstream_retries


class DirectDecisions:
    """A DecisionClient, likewise."""

    def __init__(self, runtime: _Runs, model: ModelSpec | str | None) -> None:
        self._runtime, self._model = runtime, model

    async def decide(
        self, state: DecisionRequest | Any, questions: Mapping[str, Question] | None = None
    ) -> DecisionResponse:
        return await self._runtime.run(DecisionCall(state, questions, model=self._model))

    async def decide_batch(
        self,
        states: Iterable[DecisionRequest | Any],
        questions: Mapping[str, Question] | None = None,
        *,
        concurrency: int = CONCURRENCY,
    ) -> DecisionBatch:
        """Requests, or states with the same questions, each a job of its own: admitted, tried again and recorded by
        itself, at most `concurrency` at a time. The outcomes are in their order; what failed is told by its index and
        stops no other. All are looked at first: where one is no state, nothing is sent."""

        async def one(request: DecisionRequest) -> DecisionResponse | Exception:
            handle = self._runtime.submit(DecisionCall(request, model=self._model))
            try:
                return await handle
            except asyncio.CancelledError:
                handle.cancel("its batch was left")
                raise
            except Exception as error:
                return error

        return DecisionBatch(tuple(await gathered(list(requests_of(states, questions)), one, limit=concurrency)))

    def get_upstream_retries(self) -> int:
        return DecisionCall.upstream_retries

    decideBatch = decide_batch
    getUpstreamRetries = get_upstream_retries
