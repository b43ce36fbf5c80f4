"""ResponseStream: a streamed answer. It owns its connection, its permit and its record.

    async with client.stream_response(conversation) as pieces:
        async for piece in pieces:
            print(piece.text, end="")
    print(pieces.response.usage)

However it ends (read to the end, `break`, cancelled, out of time, forgotten) it is settled and recorded at once, and
the connection goes back; nothing waits for a generator to be finalised. Errors before the first delivered piece come as
they are, so the job may run again; after it, what would be a re-run is a `StreamInterruptedError` with the partial
text. In SAFE mode nothing is delivered before the whole answer is there.
"""

from __future__ import annotations

import asyncio
import contextlib
import warnings
import weakref
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any

from interlock.admission.outcome import OutcomeKind
from interlock.catalog.tokens import estimate_text
from interlock.catalog.usage import Usage
from interlock.errors import StreamBufferError, StreamInterruptedError, TransientUpstreamError, UpstreamError

from .conversation import Conversation
from .delivery import MAX_CONTINUATIONS, deliver, joined, start
from .lifecycle import CallAttempt
from .options import StreamingMode
from .outcomes import outcome_of
from .partial import PartialObject
from .record import CallSeat
from .response import LLMResponse, Piece, PieceKind, StopReason
from .watch import AttemptTimeout, Watch

if TYPE_CHECKING:
    from .abstract import AbstractLLMClient, Call, WireStream

#: Characters a SAFE stream may hold back.
BUFFER_LIMIT = 5 * 1024 * 1024

#: Seconds of silence after which a complete answer counts as ended, whatever the connection does.
TAIL_S = 2.0

_END: Any = object()


class ResponseStream:
    """An async iterator of `Piece`, and an async context manager. One reader. `response` is there after the last piece.

    Nothing is sent before the first piece is asked for. A turn that the provider pauses is continued as further calls,
    which `prepare` makes ready.
    """

    def __init__(
        self,
        client: AbstractLLMClient,
        call: Call,
        seat: CallSeat,
        mode: StreamingMode,
        prepare: Callable[[Conversation], Call],
        response_model: type[Any] | None = None,
    ) -> None:
        self._client, self._call, self._seat, self._mode = client, call, seat, mode
        self._asked, self._prepare = call.conversation, prepare
        self._paused: LLMResponse | None = None  # the turn so far
        self._continuations = 0
        self._draft = client.draft()
        self._object = None if response_model is None else PartialObject(response_model)
        self._waiting: deque[Piece] = deque()  # read, and not yet given out
        self._attempt: CallAttempt | None = None
        self._wire: WireStream | None = None
        self._watch: Watch | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closing: asyncio.Task[None] | None = None
        self._holds_connection = False
        self._delivered = False
        self._ended = self._closed = False
        self._late_failure: Exception | None = None
        self._response: LLMResponse | None = None

    @property
    def response(self) -> LLMResponse:
        """The whole response. Only after the last piece."""
        if self._response is None:
            raise RuntimeError("the stream has not been read to its end, so it has no response")
        return self._response

    @property
    def partial(self) -> str:
        """The text that has come so far."""
        return (self._paused.text if self._paused else "") + self._draft.partial

    @property
    def partial_object(self) -> Any:
        """With a `response_model`: what has been given out of the answer, as plain values that are not validated yet.
        None before there is anything of it."""
        return None if self._object is None else self._object.value

    async def finish(self) -> LLMResponse:
        """Read what is left and return the response."""
        async for _ in self:
            pass
        return self.response

    async def aclose(self) -> None:
        """Stop: settle to what was seen, record, give the connection back. After the end it does nothing. A task that
        waits for the next piece meanwhile finds the stream at its end."""
        self._closed = True
        if not self._ended:
            if self._watch is not None:
                self._watch.interrupt()
            self._abandon()
        await self._close_wire()

    async def __aenter__(self) -> ResponseStream:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def __aiter__(self) -> ResponseStream:
        return self

    async def __anext__(self) -> Piece:
        if self._late_failure is not None:
            failure, self._late_failure = self._late_failure, None
            raise failure
        while not self._waiting:
            if self._ended:
                raise StopAsyncIteration
            await self._read_on()
        piece = self._waiting.popleft()
        self._delivered = True
        if self._object is not None:
            self._object.add(piece)
        return piece

    async def _read_on(self) -> None:
        """Read until there is something to give out: the next pieces, or in SAFE mode the whole answer."""
        ended = await self._read()
        while not ended and self._mode is StreamingMode.SAFE:
            if self._draft.size_bytes > BUFFER_LIMIT:
                await self._fail(_too_large())
            ended = await self._read()

    async def _read(self) -> bool:
        """One event, or the end. True: the stream is over, and its response is among the pieces."""
        if self._attempt is None:
            await self._client.connections.acquire()
            self._holds_connection = True
            if self._ended:  # closed by someone else while this waited
                self._let_go()
                return True
            self._start()
        try:
            event = await self._next_event()
            if self._ended:
                await self._close_wire()
                return True
            if event is not _END:
                self._take(self._client.read_one(event, self._draft))
                self._hurry_once_complete()
                return False
        except Exception as error:
            if self._ended:
                await self._close_wire()
                return True
            failure: Exception | None = None
            if not self._draft.complete:
                assert self._attempt is not None
                self._attempt.learn(reported=self._client.limits_in(error))
                failure = self._attempt.placed(self._client.failure(error))
        except BaseException:
            self._abandon()
            await self._close_wire()
            raise
        else:
            failure = None if self._draft.complete else self._without_end()
        if failure is not None:
            await self._fail(failure)
        return await self._complete()

    def _hurry_once_complete(self) -> None:
        """What may still follow the end (a usage report) follows at once. A server that then holds the connection open
        holds nobody up."""
        if self._draft.complete and self._watch is not None:
            self._watch.hurry(TAIL_S)

    async def _next_event(self) -> Any:
        client = self._client
        assert self._watch is not None
        assert self._attempt is not None
        with self._watch as watch:
            if self._wire is None:
                with self._attempt.leaving(tells=client.tells_first_byte):
                    wire = self._wire = await client.open(self._call.body, watch.alive)
                self._draft.request_id, self._draft.reported = wire.request_id, wire.reported
                self._attempt.learn(request_id=wire.request_id, reported=wire.reported)
            try:
                return await self._wire.events.__anext__()
            except StopAsyncIteration:
                return _END

    def _start(self) -> None:
        try:
            self._attempt = start(self._client, self._call, self._seat, continuation=self._continuations > 0)
        except BaseException:
            self._let_go()
            raise
        environment = self._client.environment
        self._loop = asyncio.get_running_loop()
        late = weakref.WeakMethod(self._out_of_time)

        def unattended(expired: AttemptTimeout) -> None:
            found = late()
            if found is not None:
                found(expired)

        self._watch = Watch(
            environment.clock,
            total_s=self._client.timeout_s,
            idle_s=float(environment.settings.idle_timeout_s),
            unattended=unattended,
        )

    def _take(self, pieces: Any) -> None:
        if pieces:
            assert self._attempt is not None
            self._attempt.first_piece()
            before = len(self._paused.blocks) if self._paused else 0
            self._waiting.extend(
                pieces if not before else [replace(one, block_index=one.block_index + before) for one in pieces]
            )

    async def _complete(self) -> bool:
        """The wire's end. True: the response is among the pieces; False: the turn was paused and goes on."""
        assert self._attempt is not None
        self._ended = True
        self._let_go()
        try:
            await self._close_wire()
            response = await deliver(self._client, self._call, self._attempt, self._draft.answer())
        except BaseException:
            if not self._attempt.ended:
                self._attempt.abandon(self._seen())
            if not self._delivered:
                self._waiting.clear()
            raise
        if self._paused is not None:
            response = joined(self._paused, response)
        paused = response.stop_reason is StopReason.PAUSE_TURN and self._continuations < MAX_CONTINUATIONS
        if paused and not self._closed:
            self._continue(response)
            return False
        self._response = response
        self._waiting.append(Piece(kind=PieceKind.RESPONSE, response=response))
        return True

    def _continue(self, so_far: LLMResponse) -> None:
        """The next read sends the turn so far back, for the provider to go on with."""
        self._call = self._prepare(self._asked.assistant(so_far.blocks))
        self._paused, self._draft = so_far, self._client.draft()
        self._continuations += 1
        self._attempt = self._watch = None
        self._ended = False

    async def _fail(self, failure: Exception) -> None:
        """Settle, record, give the connection back, and raise."""
        assert self._attempt is not None
        self._ended = True
        self._let_go()
        if not self._delivered:
            self._waiting.clear()
        raised = self._as_raised(failure)
        self._note(self._attempt)
        ending = self._attempt.fail(raised, kind=self._settled_as(failure))
        await self._close_wire()
        await ending
        raise raised

    def _as_raised(self, failure: Exception) -> Exception:
        """After the first delivered piece a transient failure is an interruption: asking again would repeat text."""
        if not isinstance(failure, UpstreamError):
            return failure
        failure.usage = failure.usage or self._seen()
        failure.request_id = failure.request_id or self._draft.request_id
        if not (self._delivered and failure.retryable):
            return failure
        known = {
            name: getattr(failure, name) for name in ("model", "provider", "status", "retry_after_s", "request_id")
        }
        return StreamInterruptedError(
            f"the stream broke after its first piece: {failure}",
            partial=self.partial,
            usage=failure.usage,
            provider_code=failure.provider_code or failure.code,
            **known,
        )

    @staticmethod
    def _settled_as(failure: Exception) -> OutcomeKind:
        return outcome_of(failure)[0]

    def _without_end(self) -> Exception:
        provider, model = self._client.entry.provider, self._client.entry.id
        return TransientUpstreamError(
            f"{self._client.where} ended the stream without its terminal marker, for {model}",
            model=model,
            provider=provider,
            request_id=self._draft.request_id,
            provider_code="stream_cut",
        )

    def _seen(self) -> Usage | None:
        """Usage of an answer that is not whole: what was reported, and at least what the text that came amounts to."""
        wrote = estimate_text(self._draft.produced)
        usage = self._draft.usage
        if usage is None:
            return Usage(output_tokens=wrote, estimated=True) if wrote else None
        if not wrote:  # the count so far is a placeholder of the wire
            return replace(usage, output_tokens=None, estimated=True)
        return replace(usage, output_tokens=max(usage.output_tokens or 0, wrote), estimated=True)

    def _abandon(self) -> None:
        """Nobody wants the rest. Synchronous: it works while the task is being cancelled."""
        self._ended = True
        self._let_go()
        if self._attempt is not None:
            self._note(self._attempt)
            self._attempt.abandon(self._seen())

    def _note(self, attempt: CallAttempt) -> None:
        """What is known of an answer that is not whole."""
        draft = self._draft
        attempt.learn(text=draft.partial or None, served_model=draft.served_model, request_id=draft.request_id)

    def _out_of_time(self, expired: AttemptTimeout) -> None:
        """The attempt's time is up and nobody is reading: end it here, and tell the reader when he comes."""
        if self._ended or self._attempt is None or self._loop is None:
            return
        self._ended = True
        self._let_go()
        failure = self._client.failure(expired)
        self._late_failure = self._as_raised(failure)
        self._note(self._attempt)
        self._attempt.fail(self._late_failure, kind=self._settled_as(failure))
        self._closing = self._loop.create_task(self._close_wire())

    def _let_go(self) -> None:
        """Time stops, and the next call may have the connection."""
        if self._watch is not None:
            self._watch.stop()
        if self._holds_connection:
            self._holds_connection = False
            self._client.connections.release()

    async def _close_wire(self) -> None:
        wire, self._wire = self._wire, None
        if wire is not None:
            with contextlib.suppress(Exception):  # the answer is settled; how the socket closes changes nothing
                await wire.aclose()

    def __del__(self) -> None:
        attempt, wire, loop = self._attempt, self._wire, self._loop
        if self._ended or attempt is None or loop is None:
            return
        warnings.warn("a response stream was dropped without aclose(): use `async with`", ResourceWarning, stacklevel=2)
        self._abandon()
        if wire is not None and not loop.is_closed():
            loop.call_soon_threadsafe(_close_later, loop, wire)


def _too_large() -> StreamBufferError:
    return StreamBufferError(
        f"the answer is larger than the {BUFFER_LIMIT:,} characters that a SAFE stream holds back: stream it LIVE"
    )


def _close_later(loop: asyncio.AbstractEventLoop, wire: WireStream) -> None:
    task = loop.create_task(_closed(wire))
    _closing.add(task)
    task.add_done_callback(_closing.discard)


#: Keeps the tasks that close forgotten connections alive until they are done.
_closing: set[asyncio.Task[None]] = set()


async def _closed(wire: WireStream) -> None:
    with contextlib.suppress(Exception):
        await wire.aclose()
