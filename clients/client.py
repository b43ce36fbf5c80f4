"""LLMClient: what a job is given to call a model with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from .conversation import Conversation
from .options import CallOptions, StreamingMode
from .response import LLMResponse

if TYPE_CHECKING:
    from .stream import ResponseStream


class LLMClient(Protocol):
    """One model, bound to a reservation. Every call is sent once, recorded and settled, however it ends.

    Raises `UpstreamError` subclasses only (and `asyncio.CancelledError`, which it never swallows).
    """

    async def single_response(
        self,
        conversation: Conversation | str,
        *,
        options: CallOptions | None = None,
        response_model: type[Any] | None = None,
    ) -> LLMResponse:
        """Ask once and return the whole answer. With `response_model` its `.parsed` is an instance of it."""
        ...

    def stream_response(
        self,
        conversation: Conversation | str,
        *,
        options: CallOptions | None = None,
        response_model: type[Any] | None = None,
        mode: StreamingMode = StreamingMode.LIVE,
    ) -> ResponseStream:
        """Ask once and read the answer in pieces: `async with client.stream_response(...) as pieces`."""
        ...

    def get_upstream_retries(self) -> int:
        """How many re-runs this provider advises. What counts is the job's own `upstream_retries`."""
        ...

    # The mission's own spellings.
    async def singleResponse(
        self,
        conversation: Conversation | str,
        *,
        options: CallOptions | None = None,
        response_model: type[Any] | None = None,
    ) -> LLMResponse: ...

    def streamResponse(
        self,
        conversation: Conversation | str,
        *,
        options: CallOptions | None = None,
        response_model: type[Any] | None = None,
        mode: StreamingMode = StreamingMode.LIVE,
    ) -> ResponseStream: ...

    def getUpstreamRetries(self) -> int: ...
