"""What a synchronous `run` is given: the same resources under the same names, each call blocking its own thread.

The work itself happens on the runtime's event loop; the thread waits for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from interlock.clients.conversation import Conversation
from interlock.clients.options import CallOptions, StreamingMode
from interlock.decisions.batch import CONCURRENCY
from interlock.embeddings.cutting import Split
from interlock.embeddings.purpose import EmbeddingPurpose

from .requirements import Asked

if TYPE_CHECKING:
    from sqlalchemy import CursorResult, Executable, ScalarResult
    from sqlalchemy.ext.asyncio import AsyncEngine

    from interlock.catalog.spec import ModelBinding
    from interlock.clients.client import LLMClient
    from interlock.clients.response import LLMResponse, Piece
    from interlock.clients.stream import ResponseStream
    from interlock.decisions import DecisionBatch, DecisionClient, DecisionRequest, DecisionResponse
    from interlock.decisions.questions import Question
    from interlock.embeddings import EmbeddingsClient, EmbeddingsResponse

    from .database import DatabaseSession, Parameters
    from .resources import JobResources

T = TypeVar("T")


class _Bridge:
    """From the job's thread to the runtime's loop and back."""

    __slots__ = ("_loop",)

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()


class BlockingResources:
    """JobResources for a thread."""

    def __init__(self, resources: JobResources, loop: asyncio.AbstractEventLoop) -> None:
        self._resources, self._bridge = resources, _Bridge(loop)

    @property
    def step_id(self) -> str | None:
        return self._resources.step_id

    @property
    def run_id(self) -> str | None:
        return self._resources.run_id

    @property
    def job_id(self) -> str:
        return self._resources.job_id

    @property
    def attempt(self) -> int:
        return self._resources.attempt

    def get_llm_client(self, asked: Asked | ModelBinding | None = None) -> BlockingLLMClient:
        return BlockingLLMClient(self._bridge.wait(_on_loop(self._resources.get_llm_client, asked)), self._bridge)

    def get_embeddings_client(self, asked: Asked | ModelBinding | None = None) -> BlockingEmbeddingsClient:
        client = self._bridge.wait(_on_loop(self._resources.get_embeddings_client, asked))
        return BlockingEmbeddingsClient(client, self._bridge)

    def get_decision_client(self, asked: Asked | ModelBinding | None = None) -> BlockingDecisionClient:
        return BlockingDecisionClient(
            self._bridge.wait(_on_loop(self._resources.get_decision_client, asked)), self._bridge
        )

    def database(self, name: str) -> BlockingDatabaseSession:
        return BlockingDatabaseSession(self._resources.database(name), self._bridge)

    def account(self, name: str) -> int:
        return self._resources.account(name)

    getLLMClient = get_llm_client
    getEmbeddingsClient = get_embeddings_client
    getDecisionClient = get_decision_client


async def _on_loop(get: Callable[..., Any], *given: Any) -> Any:
    return get(*given)


class BlockingLLMClient:
    def __init__(self, inner: LLMClient, bridge: _Bridge) -> None:
        self._inner, self._bridge = inner, bridge

    def single_response(
        self,
        conversation: Conversation | str,
        *,
        options: CallOptions | None = None,
        response_model: type[Any] | None = None,
    ) -> LLMResponse:
        return self._bridge.wait(
            self._inner.single_response(conversation, options=options, response_model=response_model)
        )

    def stream_response(
        self,
        conversation: Conversation | str,
        *,
        options: CallOptions | None = None,
        response_model: type[Any] | None = None,
        mode: StreamingMode = StreamingMode.LIVE,
    ) -> BlockingStream:
        """`with client.stream_response(conversation) as pieces`, then `for piece in pieces` and `pieces.response`."""
        begin = partial(
            self._inner.stream_response, conversation, options=options, response_model=response_model, mode=mode
        )
        return BlockingStream(self._bridge.wait(_on_loop(begin)), self._bridge)

    def get_upstream_retries(self) -> int:
        return self._inner.get_upstream_retries()

    singleResponse = single_response
    streamResponse = stream_response
    getUpstreamRetries = get_upstream_retries


class BlockingStream:
    """A streamed answer, read by a thread."""

    def __init__(self, inner: ResponseStream, bridge: _Bridge) -> None:
        self._inner, self._bridge = inner, bridge

    def __enter__(self) -> BlockingStream:
        self._bridge.wait(self._inner.__aenter__())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __iter__(self) -> BlockingStream:
        return self

    def __next__(self) -> Piece:
        piece = self._bridge.wait(_next_or_none(self._inner))
        if piece is None:
            raise StopIteration
        return piece

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

    def finish(self) -> LLMResponse:
        """Read what is left and return the response."""
        return self._bridge.wait(self._inner.finish())

    def close(self) -> None:
        self._bridge.wait(self._inner.aclose())


async def _next_or_none(stream: ResponseStream) -> Piece | None:
    """A future cannot carry StopAsyncIteration to the thread."""
    return await anext(stream, None)


class BlockingEmbeddingsClient:
    def __init__(self, inner: EmbeddingsClient, bridge: _Bridge) -> None:
        self._inner, self._bridge = inner, bridge

    def embed(
        self,
        text: str,
        purpose: EmbeddingPurpose = EmbeddingPurpose.DOCUMENT,
        *,
        truncate: bool = False,
        split: Split | None = None,
    ) -> EmbeddingsResponse:
        return self._bridge.wait(self._inner.embed(text, purpose, truncate=truncate, split=split))

    def embed_batch(
        self,
        texts: Sequence[str],
        purpose: EmbeddingPurpose = EmbeddingPurpose.DOCUMENT,
        *,
        truncate: bool = False,
        split: Split | None = None,
    ) -> EmbeddingsResponse:
        return self._bridge.wait(self._inner.embed_batch(texts, purpose, truncate=truncate, split=split))

    def get_upstream_retries(self) -> int:
        return self._inner.get_upstream_retries()

    embedBatch = embed_batch
    getUpstreamRetries = get_upstream_retries


class BlockingDecisionClient:
    def __init__(self, inner: DecisionClient, bridge: _Bridge) -> None:
        self._inner, self._bridge = inner, bridge

    def decide(self, request: DecisionRequest) -> DecisionResponse:
        return self._bridge.wait(self._inner.decide(request))

    def decide_batch(
        self,
        states: Iterable[DecisionRequest | Any],
        questions: Mapping[str, Question] | None = None,
        *,
        concurrency: int = CONCURRENCY,
    ) -> DecisionBatch:
        return self._bridge.wait(self._inner.decide_batch(states, questions, concurrency=concurrency))

    def get_upstream_retries(self) -> int:
        return self._inner.get_upstream_retries()

    decideBatch = decide_batch
    getUpstreamRetries = get_upstream_retries


class BlockingDatabaseSession:
    def __init__(self, inner: DatabaseSession, bridge: _Bridge) -> None:
        self._inner, self._bridge = inner, bridge

    @property
    def begun(self) -> bool:
        """Whether a transaction is open."""
        return self._inner.begun

    @property
    def engine(self) -> AsyncEngine:
        """The engine itself, for a job whose permit only counts (`transaction=False`)."""
        return self._inner.engine

    def execute(self, statement: Executable, parameters: Parameters | None = None) -> CursorResult[Any]:
        return self._bridge.wait(self._inner.execute(statement, parameters))

    def scalar(self, statement: Executable, parameters: Parameters | None = None) -> Any:
        return self._bridge.wait(self._inner.scalar(statement, parameters))

    def scalars(self, statement: Executable, parameters: Parameters | None = None) -> ScalarResult[Any]:
        return self._bridge.wait(self._inner.scalars(statement, parameters))
