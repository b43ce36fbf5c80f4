"""A streamed call as its reader sees it: `async with ctx.stream(LLMCall(...)) as pieces`.

The job reads at the provider's pace into a bounded buffer and ends on its own, so a slow reader holds neither a
connection nor a reservation.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import TYPE_CHECKING, Any

from interlock.clients.conversation import TextBlock, ThinkingBlock, ToolUseBlock
from interlock.clients.partial import PartialObject
from interlock.clients.response import Piece, PieceKind
from interlock.errors import StreamBufferError

from .current import check_may_wait_for

if TYPE_CHECKING:
    from interlock.clients.response import LLMResponse

    from .handle import JobHandle

#: What a reader may be behind, in characters.
LARGEST_BUFFER = 5 * 1024 * 1024


class Sink:
    """Where a streaming job puts its pieces. Bounded: StreamBufferError beyond `largest` characters unread."""

    def __init__(self, largest: int = LARGEST_BUFFER, *, keeps: bool = False) -> None:
        self._largest = largest
        self._pieces: deque[Piece] = deque()
        self._size = 0
        self._wake: asyncio.Future[None] | None = None
        #: Whether a piece was ever put: from then on the stream cannot be begun again unseen.
        self.delivered = False
        #: Everything that was put, where a journal wants it of a stream that has no response.
        self.kept: list[Piece] | None = [] if keeps else None

    def put(self, piece: Piece) -> None:
        self.delivered = True
        self._size += len(piece.text)
        if self._size > self._largest:
            raise StreamBufferError(f"the stream's reader is more than {self._largest:,} characters behind")
        self._pieces.append(piece)
        if self.kept is not None:
            self.kept.append(piece)
        self.wake()

    def replay(self, pieces: Iterable[Piece]) -> None:
        """What was read in an earlier life of the run, however much of it."""
        self._pieces.extend(pieces)

    def wake(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    def take(self) -> Piece | None:
        if not self._pieces:
            return None
        piece = self._pieces.popleft()
        self._size -= len(piece.text)
        return piece

    async def more(self) -> None:
        """Until something was put, or `wake` was called."""
        if self._wake is not None:
            raise RuntimeError("a stream is read by one task at a time, and another one waits for its next piece")
        self._wake = asyncio.get_running_loop().create_future()
        try:
            await self._wake
        finally:
            self._wake = None


def pieces_of(response: LLMResponse) -> list[Piece]:
    """A response in pieces, one a block."""
    pieces: list[Piece] = []
    for index, block in enumerate(response.blocks):
        if isinstance(block, ThinkingBlock):
            pieces.append(Piece(kind=PieceKind.THINKING, text=block.text, block_index=index))
        elif isinstance(block, ToolUseBlock):
            arguments = json.dumps(block.input, ensure_ascii=False)
            pieces.append(Piece(kind=PieceKind.TOOL_JSON, text=arguments, block_index=index, tool=block.name))
        elif isinstance(block, TextBlock):
            pieces.append(Piece(kind=PieceKind.TEXT, text=block.text, block_index=index))
    return [piece for piece in pieces if piece.text]


class CallStream:
    """The pieces of one streamed call, in order; the last one is of kind RESPONSE, and then there is `response`.

    Leaving the block early stops the job: what came is settled and recorded. An error of the call is raised where the
    pieces end.
    """

    def __init__(
        self,
        submit: Callable[[], JobHandle[LLMResponse]],
        sink: Sink,
        response_model: type[Any] | None = None,
    ) -> None:
        self._submit, self._sink = submit, sink
        self._object = None if response_model is None else PartialObject(response_model)
        self._handle: JobHandle[LLMResponse] | None = None
        self._told = False

    async def __aenter__(self) -> CallStream:
        check_may_wait_for("a streamed call")
        self._handle = self._submit()
        if self._handle.done:  # read back from the journal
            error = self._handle.exception()
            self._sink.replay(pieces_of(self._handle.result()) if error is None else getattr(error, "pieces", ()))
        self._handle._execution.on_done(self._sink.wake)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, asyncio.CancelledError) and self._handle is not None:
            self._handle._execution.interrupted()
        await self.aclose()

    def __aiter__(self) -> CallStream:
        return self

    async def __anext__(self) -> Piece:
        if self._handle is None:
            raise RuntimeError("a stream is read inside its block: async with ctx.stream(...) as pieces")
        while True:
            piece = self._sink.take()
            if piece is not None:
                if self._object is not None:
                    self._object.add(piece)
                return piece
            if self._handle.done:
                if self._told:
                    raise StopAsyncIteration
                self._told = True
                return Piece(kind=PieceKind.RESPONSE, response=self._handle.result())  # or raises its failure
            await self._sink.more()

    @property
    def handle(self) -> JobHandle[LLMResponse]:
        """The job behind the stream."""
        if self._handle is None:
            raise RuntimeError("the stream has not been begun")
        return self._handle

    @property
    def response(self) -> LLMResponse:
        """The whole answer, once the pieces have ended."""
        return self.handle.result()

    @property
    def partial_object(self) -> Any:
        """With a `response_model`: what has been read of the answer, as plain values that are not validated yet. None
        before there is anything of it."""
        return None if self._object is None else self._object.value

    async def aclose(self) -> None:
        """Stop the job unless it is over, and wait until it has given everything back."""
        if self._handle is not None and not self._handle.done:
            self._handle.cancel("its stream was left")
            await self._handle._execution.settled()
