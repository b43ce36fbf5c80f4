"""The clients a job is given, each call of them interruptible when the job is asked to stop."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

from interlock.clients.conversation import Conversation
from interlock.clients.options import CallOptions, StreamingMode
from interlock.decisions.batch import CONCURRENCY
from interlock.embeddings.cutting import Split
from interlock.embeddings.purpose import EmbeddingPurpose

from .stopper import Stopper

if TYPE_CHECKING:
    from interlock.clients.client import LLMClient
    from interlock.clients.response import LLMResponse, Piece
    from interlock.clients.stream import ResponseStream
    from interlock.decisions import DecisionBatch, DecisionClient, DecisionRequest, DecisionResponse
    from interlock.decisions.questions import Question
    from interlock.embeddings import EmbeddingsClient, EmbeddingsResponse


class GuardedLLMClient:
    __slots__ = ("_inner", "_stopper")

    def __init__(self, inner: LLMClient, stopper: Stopper) -> None:
        self._inner, self._stopper = inner, stopper

    async def single_response(
        self,
        conversation: Conversation | str,
        *,
        options: CallOptions | None = None,
        response_model: type[Any] | None = None,
    ) -> LLMResponse:
        return await self._stopper.run(
            self._inner.single_response(conversation, options=options, response_model=response_model)
        )

    def stream_response(
        self,
        conversation: Conversation | str,
        *,
        options: CallOptions | None = None,
        response_model: type[Any] | None = None,
        mode: StreamingMode = StreamingMode.LIVE,
    ) -> Any:
        self._stopper.check()
        inner = self._inner.stream_response(conversation, options=options, response_model=response_model, mode=mode)
        return GuardedStream(inner, self._stopper)

    def get_upstream_retries(self) -> int:
        return self._inner.get_upstream_retries()

    singleResponse = single_response
    streamResponse = stream_response
    getUpstreamRetries = get_upstream_retries


class GuardedStream:
    """A ResponseStream that can be interrupted between two pieces. Closing it is never refused."""

    __slots__ = ("_inner", "_stopper")

    def __init__(self, inner: ResponseStream, stopper: Stopper) -> None:
        self._inner, self._stopper = inner, stopper

    async def __aenter__(self) -> GuardedStream:
        self._stopper.check()
        self._stopper.opened(self)
        await self._stopper.run(self._inner.__aenter__())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopper.closed(self)
        await self._inner.__aexit__(kind, error, trace)

    def __aiter__(self) -> GuardedStream:
        return self

    async def __anext__(self) -> Piece:
        self._stopper.check()
        self._stopper.opened(self)
        return await self._stopper.run(self._inner.__anext__())

    @property
    def response(self) -> LLMResponse:
        """The whole answer, once the stream has ended."""
        return self._inner.response

    @property
    def partial(self) -> str:
        """The text that has come so far."""
        return self._inner.partial

    @property
    def partial_object(self) -> Any:
        """With a `response_model`: what has come of the answer, as plain values that are not validated yet."""
        return self._inner.partial_object

    async def finish(self) -> LLMResponse:
        """Read what is left and return the response."""
        self._stopper.check()
        self._stopper.opened(self)
        return await self._stopper.run(self._inner.finish())

    async def aclose(self) -> None:
        self._stopper.closed(self)
        await self._inner.aclose()


class GuardedEmbeddingsClient:
    __slots__ = ("_inner", "_stopper")

    def __init__(self, inner: EmbeddingsClient, stopper: Stopper) -> None:
        self._inner, self._stopper = inner, stopper

    async def embed(
        self,
        text: str,
        purpose: EmbeddingPurpose = EmbeddingPurpose.DOCUMENT,
        *,
        truncate: bool = False,
        split: Split | None = None,
    ) -> EmbeddingsResponse:
        return await self._stopper.run(self._inner.embed(text, purpose, truncate=truncate, split=split))

    async def embed_batch(
        self,
        texts: Sequence[str],
        purpose: EmbeddingPurpose = EmbeddingPurpose.DOCUMENT,
        *,
        truncate: bool = False,
        split: Split | None = None,
    ) -> EmbeddingsResponse:
        return await self._stopper.run(self._inner.embed_batch(texts, purpose, truncate=truncate, split=split))

    def get_upstream_retries(self) -> int:
        return self._inner.get_upstream_retries()

    embedBatch = embed_batch
    getUpstreamRetries = get_upstream_retries


class GuardedDecisionClient:
    __slots__ = ("_inner", "_stopper")

    def __init__(self, inner: DecisionClient, stopper: Stopper) -> None:
        self._inner, self._stopper = inner, stopper

    async def decide(self, request: DecisionRequest) -> DecisionResponse:
        return await self._stopper.run(self._inner.decide(request))

    async def decide_batch(
        self,
        states: Iterable[DecisionRequest | Any],
        questions: Mapping[str, Question] | None = None,
        *,
        concurrency: int = CONCURRENCY,
    ) -> DecisionBatch:
        return await self._stopper.run(self._inner.decide_batch(states, questions, concurrency=concurrency))

    def get_upstream_retries(self) -> int:
        return self._inner.get_upstream_retries()

    decideBatch = decide_batch
    getUpstreamRetries = get_upstream_retries
