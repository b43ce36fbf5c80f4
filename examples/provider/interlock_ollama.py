"""`ollama`: models that an Ollama server serves, over its own chat wire (`POST /api/chat`, a JSON object a line)."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, ClassVar

import httpx2

from interlock.clients import AbstractLLMClient, Ask, Draft, ImageBlock, Piece, Reply, StopReason, TextBlock, WireStream
from interlock.clients.failures import read_refusal, upstream_error
from interlock.clients.first_byte import on_request
from interlock.clients.turns import refused
from interlock.errors import TransientUpstreamError, UpstreamError


def _image(block: ImageBlock) -> dict[str, Any]:
    if block.data is None:
        raise refused("Ollama takes no image by URL: send its data")
    return {"images": [base64.b64encode(block.data).decode()]}


class OllamaClient(AbstractLLMClient):
    # How a conversation is written.
    encoders: ClassVar = {TextBlock: lambda block: {"content": block.text}, ImageBlock: _image}
    takes = frozenset({"temperature", "top_p", "seed", "stop"})
    reserved = AbstractLLMClient.reserved | {"options"}
    tells_first_byte = True
    _http: httpx2.AsyncClient | None = None

    def encode(self, ask: Ask) -> dict[str, Any]:
        options = {
            name: value for name in sorted(self.takes) if (value := getattr(ask.options, name)) not in (None, ())
        }
        messages = [{"role": "system", "content": ask.system}] if ask.system else []
        for message in ask.conversation.messages:
            for block in message.blocks:
                messages.append({"role": message.role, "content": "", **self.encoders[type(block)](block)})
        wire = {"model": ask.entry.wire_model_id, "messages": messages, "stream": ask.stream}
        if ask.structure is not None and ask.structure.mode == "native":
            wire["format"] = ask.structure.schema
        return {**wire, "options": {**options, "num_predict": ask.max_output_tokens}}

    # How an answer is read: a whole one has the form of a stream's lines.
    def read_reply(self, payload: Any, draft: Draft) -> None:
        self.read_event(payload, draft)

    def read_event(self, event: Any, draft: Draft) -> Sequence[Piece]:
        if "error" in event:
            raise self._error(None, event)
        draft.served_model = event["model"]
        piece = draft.text("text", event["message"]["content"])
        if event["done"]:  # the wire's own end: without it the stream was cut
            draft.complete = True
            draft.stop(StopReason.MAX_TOKENS if event.get("done_reason") == "length" else StopReason.END_TURN)
            draft.count(input_tokens=event.get("prompt_eval_count"), output_tokens=event.get("eval_count"))
        return [piece] if piece else []

    # How its errors are read.
    def read_error(self, error: Exception) -> UpstreamError | None:
        if isinstance(error, httpx2.HTTPStatusError):
            return self._error(error.response.status_code, error.response.json())
        if isinstance(error, httpx2.TransportError):
            return TransientUpstreamError(f"{self.entry.provider}: {type(error).__name__}: {error}")
        return self.malformed("answered what is no JSON") if isinstance(error, ValueError) else None

    def _error(self, status: int | None, body: Any) -> UpstreamError:
        return upstream_error(read_refusal(status, body), model=self.entry.id, provider=self.entry.provider,
                              credential=None, now=self.environment.wall())  # fmt: skip

    # How it is sent: one request a call.
    async def send(self, body: bytes) -> Reply:
        response = await self._post(body)
        return Reply(payload=json.loads(await response.aread()))

    async def open(self, body: bytes, alive: Callable[[], None]) -> WireStream:
        response = await self._post(body)

        async def lines() -> AsyncIterator[Any]:
            async for line in response.aiter_lines():
                alive()
                yield json.loads(line)

        return WireStream(events=lines(), aclose=response.aclose)

    async def _post(self, body: bytes) -> httpx2.Response:
        if self._http is None:
            self._http = httpx2.AsyncClient(timeout=self.timeout_s, event_hooks={"request": [on_request]})
        url = f"{self.entry.base_url or self.environment.settings.base_url}/api/chat"
        response = await self._http.send(self._http.build_request("POST", url, content=body), stream=True)
        if response.is_error:
            await response.aread()
        return response.raise_for_status()

    async def aclose(self) -> None:
        if self._http is not None:
            await self._http.aclose()
