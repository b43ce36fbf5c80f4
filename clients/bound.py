"""BoundLLMClient: one model on one job's reservation. It walks a call from its check to its record."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from interlock.catalog.spec import ModelBinding

from .answer import Answer
from .conversation import Conversation
from .delivery import MAX_CONTINUATIONS, deliver, joined, start
from .lifecycle import CallAttempt
from .options import CallOptions, StreamingMode
from .record import CallSeat
from .response import LLMResponse, StopReason
from .stream import ResponseStream
from .watch import Watch

if TYPE_CHECKING:
    from .abstract import AbstractLLMClient, Call


class BoundLLMClient:
    """Fulfils `LLMClient`. Light: it holds a template, a binding and a seat."""

    __slots__ = ("_binding", "_client", "_seat")

    def __init__(self, client: AbstractLLMClient, binding: ModelBinding, seat: CallSeat) -> None:
        self._client, self._binding, self._seat = client, binding, seat

    @property
    def binding(self) -> ModelBinding:
        return self._binding

    async def single_response(
        self,
        conversation: Conversation | str,
        *,
        options: CallOptions | None = None,
        response_model: type[Any] | None = None,
    ) -> LLMResponse:
        """Ask once and return the whole answer. A turn that the provider pauses is continued as further calls."""
        asked = Conversation.of(conversation)
        response = await self._ask(asked, options, response_model)
        for _ in range(MAX_CONTINUATIONS):
            if response.stop_reason is not StopReason.PAUSE_TURN:
                break
            further = asked.assistant(response.blocks)
            response = joined(response, await self._ask(further, options, response_model, continuation=True))
        return response

    def stream_response(
        self,
        conversation: Conversation | str,
        *,
        options: CallOptions | None = None,
        response_model: type[Any] | None = None,
        mode: StreamingMode = StreamingMode.LIVE,
    ) -> ResponseStream:
        """Ask once and read the answer in pieces. What is wrong with the request is raised here, before any sending.
        A paused turn is continued, as in a whole answer."""

        def prepare(asked: Conversation) -> Call:
            return self._client.prepare(self._binding, asked, options, response_model, stream=True)

        call = prepare(Conversation.of(conversation))
        return ResponseStream(self._client, call, self._seat, StreamingMode(mode), prepare, response_model)

    def get_upstream_retries(self) -> int:
        """How many re-runs this provider advises. What counts is the job's own `upstream_retries`."""
        return self._client.upstream_retries

    singleResponse = single_response
    streamResponse = stream_response
    getUpstreamRetries = get_upstream_retries

    async def _ask(
        self,
        conversation: Conversation,
        options: CallOptions | None,
        response_model: type[Any] | None,
        *,
        continuation: bool = False,
    ) -> LLMResponse:
        client = self._client
        call = client.prepare(self._binding, conversation, options, response_model, stream=False)
        async with client.connections:
            attempt = start(client, call, self._seat, continuation=continuation)
            answer = await self._sent(call, attempt)
        return await deliver(client, call, attempt, answer)

    async def _sent(self, call: Call, attempt: CallAttempt) -> Answer:
        client = self._client
        watch = Watch(client.environment.clock, total_s=client.timeout_s)
        try:
            with watch, attempt.leaving(tells=client.tells_first_byte):
                reply = await client.send(call.body)
            return client.read(reply)
        except Exception as error:
            attempt.learn(reported=client.limits_in(error))
            failure = attempt.placed(client.failure(error))
        except BaseException:
            attempt.abandon()
            raise
        finally:
            watch.stop()
        # Raised outside the handler, so that no SDK error (and no request header) hangs on its chain.
        await attempt.fail(failure)
        raise failure
