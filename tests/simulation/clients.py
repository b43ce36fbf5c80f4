"""Clients of the simulated provider: the real templates of chat, embeddings and decisions; the wire is a call."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

from interlock.catalog.tokens import estimate_text
from interlock.catalog.usage import Usage
from interlock.clients import registry
from interlock.clients.abstract import AbstractLLMClient, Reply, WireStream
from interlock.clients.conversation import TextBlock
from interlock.clients.measure import FIRST_TOOL_TOKENS, raw_input_tokens
from interlock.decisions.abstract import AbstractDecisionClient, DecisionAnswer
from interlock.embeddings.abstract import AbstractEmbeddingsClient, EmbeddingAnswer

from .upstream import CURRENT, Fate, Upstream


async def _whole(upstream: Upstream, fate: Fate) -> None:
    """Until a whole answer is there. Whoever leaves meanwhile is seen to leave."""
    try:
        await upstream.clock.sleep(fate.latency_s)
        if fate.error is not None:
            raise fate.error()
    except BaseException as error:
        upstream.left(fate, type(error).__name__)
        raise
    upstream.ended(fate, "answered", fate.usage[1] if fate.usage else 0)


class ChatClient(AbstractLLMClient):
    encoders = {TextBlock: lambda block: block.text}  # noqa: RUF012

    def encode(self, ask: Any) -> dict[str, Any]:
        size = raw_input_tokens(ask.conversation, options=ask.options)
        if ask.structure is not None:
            size += FIRST_TOOL_TOKENS + estimate_text(ask.structure.shape.schema_text)
        return {
            "size": size,
            "turns": [[block.text for block in message.blocks] for message in ask.conversation.messages],
            "max_tokens": ask.max_output_tokens,
        }

    def _arrive(self, body: bytes, *, streamed: bool) -> tuple[Upstream, Fate]:
        said, upstream = json.loads(body), CURRENT[0]
        return upstream, upstream.arrive(self.entry.wire_model_id, said["size"], said["max_tokens"], streamed=streamed)

    async def send(self, body: bytes) -> Reply:
        upstream, fate = self._arrive(body, streamed=False)
        await _whole(upstream, fate)
        return Reply(payload=fate, request_id=str(fate.request.number), reported=fate.reported)

    async def open(self, body: bytes, alive: Callable[[], None]) -> WireStream:
        upstream, fate = self._arrive(body, streamed=True)
        if fate.error is not None and fate.break_after is None:
            upstream.left(fate, "refused")
            raise fate.error()

        async def close() -> None:
            upstream.left(fate, "left")

        return WireStream(
            events=Events(upstream, fate), aclose=close, request_id=str(fate.request.number), reported=fate.reported
        )

    def read_reply(self, payload: Fate, draft: Any) -> None:
        draft.text(0, payload.text)
        _end(payload, draft)

    def read_event(self, event: Any, draft: Any) -> Any:
        kind, value = event
        if kind == "start":
            draft.count(input_tokens=value, output_tokens=1)
        elif kind == "text":
            piece = draft.text(0, value)
            return [piece] if piece else []
        else:
            _end(value, draft)
            draft.complete = True
        return []

    def read_error(self, error: Exception) -> Any:
        return None


def _end(fate: Fate, draft: Any) -> None:
    draft.stop(fate.stop)
    if not fate.text:
        draft.refuse("policy", "no")
    if fate.usage is not None:
        draft.count(input_tokens=fate.usage[0], output_tokens=fate.usage[1])


class Events:
    """An answer as it comes: its start, its pieces, its end, each after a while."""

    def __init__(self, upstream: Upstream, fate: Fate) -> None:
        self._upstream, self._fate = upstream, fate
        pieces = [("text", piece) for piece in fate.pieces[: fate.break_after]]
        end = [("end", fate)] if fate.break_after is None else []
        self._events: deque[Any] = deque([("start", fate.request.input_tokens), *pieces, *end])

    async def __anext__(self) -> Any:
        upstream, fate = self._upstream, self._fate
        # A connection that stays open after the end is a fault too: what is given back late is given back twice.
        if self._events or fate.error is not None or upstream.manners.faults:
            await upstream.clock.sleep(fate.latency_s / 4)
        if not self._events:
            if fate.error is not None:
                upstream.left(fate, "cut")
                raise fate.error()
            raise StopAsyncIteration
        event = self._events.popleft()
        if event[0] == "text":
            fate.request.pieces += 1
        elif event[0] == "end":
            upstream.ended(fate, "answered", fate.usage[1] if fate.usage else 1)
        return event


class VectorClient(AbstractEmbeddingsClient):
    async def send(self, texts: Sequence[str], purpose: Any) -> EmbeddingAnswer:
        upstream = CURRENT[0]
        fate = upstream.arrive(self.entry.wire_model_id, sum(map(estimate_text, texts)), 0, streamed=False)
        await _whole(upstream, fate)
        usage = None if fate.usage is None else Usage(input_tokens=fate.usage[0], output_tokens=0)
        vectors = [[1.0 + len(text)] * 4 for text in texts]
        return EmbeddingAnswer(vectors=vectors, usage=usage, request_id=str(fate.request.number))


class VerdictClient(AbstractDecisionClient):
    async def send(self, request: Any) -> DecisionAnswer:
        upstream = CURRENT[0]
        fate = upstream.arrive(self.entry.wire_model_id, estimate_text(request.text), 0, streamed=False)
        await _whole(upstream, fate)
        usage = None if fate.usage is None else Usage(input_tokens=fate.usage[0], output_tokens=0)
        answers = {name: {"type": "noul", "noul": 0.5} for name in request.questions}
        return DecisionAnswer(body={"answers": answers}, usage=usage, request_id=str(fate.request.number))


KEYS = {"sim-chat": ChatClient, "sim-vectors": VectorClient, "sim-verdicts": VerdictClient}


@contextmanager
def registered() -> Iterator[None]:
    """The simulated provider's keys, as if a package had brought them."""
    known = registry._known()
    for key, class_ in KEYS.items():
        known[key] = SimpleNamespace(load=lambda class_=class_: class_)  # type: ignore[assignment]
    registry.provider_class.cache_clear()
    try:
        yield
    finally:
        for key in KEYS:
            del known[key]
        registry.provider_class.cache_clear()
