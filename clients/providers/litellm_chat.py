"""`litellm`: whatever LiteLLM reaches, by its own model names (`anthropic/...`, `mistral/...`, `ollama/...`).

LiteLLM speaks OpenAI's chat form to its caller and each provider's own wire to the provider. It is used as a translator
only: no retries, no fallbacks, no callbacks, no cache, and a connection pool that belongs to this client. What it makes
up is not believed: a `stop` at the end of a stream that its provider never ended, and token counts that no provider
reported. The key is the provider settings' credential; without one LiteLLM looks for its own variables.

Importing LiteLLM takes seconds. Two of its habits at import are kept off: fetching a price list, reading `.env`.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import cache
from typing import Any, ClassVar

import httpx2
import openai

from interlock.admission.outcome import Dimension, ReportedLimit
from interlock.errors import CredentialError, InvalidRequestError, TransientUpstreamError, UpstreamError

from ..abstract import AbstractLLMClient, Reply, WireStream
from ..answer import Draft
from ..asking import Ask
from ..conversation import Message, ThinkingBlock
from ..failures import DETAIL_LIMIT
from ..hints import anthropic_limits, openai_limits
from ..listing import ListedModel, NoModelListError
from ..response import Piece
from ..writing import checked_url
from .litellm_reading import (
    answered_status,
    chain_of,
    is_litellm,
    is_made_up,
    lost_connection,
    provider_headers,
    read_body,
    read_thinking,
    with_cache_writes,
    words_of,
)
from .openai_chat import OpenAIChatCompletionsClient
from .sdk import CONNECT_TIMEOUT_S, SHOWN, tls

#: Fields of the request that stand for Interlock's own decisions.
_OFF: Mapping[str, Any] = {"num_retries": 0, "max_retries": 0, "no-log": True, "caching": False, "drop_params": False}


@cache
def _litellm() -> Any:
    """The library, with its import kept from the network and from `.env`."""
    with _environment(LITELLM_LOCAL_MODEL_COST_MAP="True", LITELLM_MODE="PRODUCTION"):
        import litellm
    litellm.suppress_debug_info = True  # it prints to the screen otherwise
    return litellm


@contextlib.contextmanager
def _environment(**values: str) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in values}
    os.environ.update({name: value for name, value in values.items() if before[name] is None})
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)


def _thinking(block: ThinkingBlock) -> dict[str, Any] | None:
    """LiteLLM hands these to the providers that want them back. Without a signature none does."""
    if block.redacted is not None:
        return {"type": "redacted_thinking", "data": block.redacted}
    if block.signature is None:
        return None
    return {"type": "thinking", "thinking": block.text, "signature": block.signature}


class LiteLLMClient(OpenAIChatCompletionsClient):
    """A model behind LiteLLM."""

    tells_first_byte: ClassVar[bool] = False  # connections of its own, for some providers
    encoders: ClassVar = {**OpenAIChatCompletionsClient.encoders, ThinkingBlock: _thinking}
    reserved = AbstractLLMClient.reserved | {
        "max_completion_tokens", "n", "client", "api_key", "api_base", "base_url", "timeout", "num_retries",
        "max_retries", "fallbacks", "context_window_fallback_dict", "mock_response", "caching", "no-log",
        "success_callback", "failure_callback", "callbacks", "drop_params",
    }  # fmt: skip
    signs_as: ClassVar[str | None] = "litellm"
    default_base_url = None
    default_credential = None
    limit_field = "max_tokens"
    keys_cache = False

    _sender: Any = None
    _openai: openai.AsyncOpenAI | None = None

    @property
    def base_url(self) -> str | None:  # type: ignore[override]  # each of LiteLLM's providers has its own
        return self.entry.base_url or self.environment.settings.base_url

    @property
    def where(self) -> str:
        return f"{self.entry.provider} at {self.host}" if self.base_url else self.entry.provider

    # Writing.

    def encode(self, ask: Ask) -> dict[str, Any]:
        wire = super().encode(ask)
        if wire.get("reasoning_effort") == "none" and ask.entry.thinking.mode != "effort":
            del wire["reasoning_effort"]  # most providers have no such word
        return wire

    def _assistant(self, message: Message) -> list[dict[str, Any]]:
        said = super()._assistant(message)
        thought = [part for block in message.blocks if isinstance(block, ThinkingBlock) if (part := _thinking(block))]
        return [{**one, "thinking_blocks": thought} for one in said] if thought else said

    # Reading.

    def read_event(self, event: Any, draft: Draft) -> Sequence[Piece]:
        thoughts = read_thinking(event, draft)
        return [*thoughts, *super().read_event(with_cache_writes(event), draft)]

    def read_error(self, error: Exception) -> UpstreamError | None:
        """LiteLLM wraps what happened several times over, and gives what has no status a 500 of its own: the truth is
        what it was made from."""
        chain = chain_of(error)
        body, status = read_body(chain), answered_status(chain)
        if status is not None and status >= 300:
            said = body if body is not None else {"message": words_of(chain)}
            return self._said_no(status, said, httpx2.Response(200, headers=provider_headers(chain)))
        lost = lost_connection(chain)
        if lost is not None:
            return self._lost(lost)
        if body is not None:  # an error inside a stream
            return self._said_no(None, body, None)
        if any(isinstance(one, StopAsyncIteration) for one in chain):
            told = f"{self.where} ended the stream without its terminal marker, for {self.entry.id}"
            return TransientUpstreamError(told, provider_code="stream_cut")
        if is_made_up(chain):
            return self.malformed(f"gave LiteLLM an answer that is not of its wire ({words_of(chain)[:SHOWN]})")
        if not is_litellm(error):
            return super().read_error(error)
        return self._unsent(error, chain)

    def _lost(self, error: BaseException) -> UpstreamError:
        name = type(error).__name__
        told = f"{self.where}: {name}: {error}, for {self.entry.id}"
        never_left = name in ("ConnectError", "ConnectTimeout", "PoolTimeout", "ProxyError")
        return TransientUpstreamError(told, sent=not never_left, provider_code=name)

    def _unsent(self, error: Exception, chain: Sequence[BaseException]) -> UpstreamError:
        """What LiteLLM itself refuses, and what a provider said inside a stream, of which it keeps only the text."""
        told = f"{self.where}: {words_of(chain)[:DETAIL_LIMIT]}, for {self.entry.id}"
        name, alone = type(error).__name__, all(type(one).__module__ == "litellm.exceptions" for one in chain)
        if alone and name == "AuthenticationError":
            return CredentialError(told, credential=self.credential_id, sent=False, provider_code=name)
        if alone and name in ("BadRequestError", "UnsupportedParamsError", "NotFoundError"):
            return InvalidRequestError(told, sent=False, provider_code=name)
        return self._said_no(None, {"message": words_of(chain)}, None)

    def read_limits(self, headers: Mapping[str, str], *, now: datetime) -> dict[Dimension, ReportedLimit]:
        return openai_limits(headers, now=now) or anthropic_limits(headers, now=now)

    # Sending.

    def ready(self) -> None:
        self._key()
        if self._sender is None:
            if self.base_url is not None:
                checked_url(self.base_url, provider=self.entry.provider, model=self.entry.id)
            self._sender, self._openai = self._make_senders()

    async def send(self, body: bytes) -> Reply:
        answer = await self._asked(body)
        headers = _headers(answer)
        return Reply(
            payload=answer.model_dump(),
            request_id=_request_id(headers),
            reported=self.read_limits(headers, now=self.environment.wall()),
        )

    async def open(self, body: bytes, alive: Callable[[], None]) -> WireStream:
        stream = await self._asked(body)
        headers = _headers(stream)
        return WireStream(
            events=_Chunks(stream, alive),
            aclose=stream.aclose,
            request_id=_request_id(headers),
            reported=self.read_limits(headers, now=self.environment.wall()),
        )

    async def list_models(self) -> Sequence[ListedModel]:
        raise NoModelListError("LiteLLM reaches many providers and has no one list of what a key can call")

    async def aclose(self) -> None:
        sender, sdk = self._sender, self._openai
        self._sender = self._openai = None
        if sender is not None:
            await sender.client.aclose()
        if sdk is not None:
            await sdk.close()
        await super().aclose()

    async def _asked(self, body: bytes) -> Any:
        library = _litellm()
        asked = json.loads(body)
        _, provider, _, _ = library.get_llm_provider(asked["model"], api_base=self.base_url)
        through = self._openai if provider == "openai" else self._sender
        key = self._key()
        given = {"api_key": key} if key is not None else {}
        if self.base_url is not None:
            given["api_base"] = self.base_url
        if provider == "openai" and self._openai is not None:
            self._openai.api_key = key or "none"
        return await library.acompletion(**asked, **_OFF, **given, client=through, timeout=self.timeout_s)

    def _make_senders(self) -> tuple[Any, openai.AsyncOpenAI]:
        """What carries the requests: LiteLLM's own handler on a pool of ours, and the OpenAI SDK for that route."""
        _litellm()
        import httpx
        from litellm.llms.custom_httpx.http_handler import AsyncHTTPHandler

        class Sender(AsyncHTTPHandler):
            """Sends once: the original makes a second try on a connection of its own."""

            async def single_connection_request(self, *given: Any, **named: Any) -> Any:
                raise httpx.ConnectError("the connection could not be made")

        timeout = httpx.Timeout(self.timeout_s, connect=min(CONNECT_TIMEOUT_S, self.timeout_s))
        many = self.environment.settings.max_connections
        sender = Sender(timeout=timeout, transport=httpx.AsyncHTTPTransport(verify=tls()))
        sender.client = httpx.AsyncClient(
            limits=httpx.Limits(max_connections=many, max_keepalive_connections=many), timeout=timeout,
            follow_redirects=False, trust_env=False, verify=tls(),
        )  # fmt: skip
        self._http = self._http or self._make_http()
        sdk = self.make_sdk(
            api_key=None, base_url=self.base_url or "https://api.openai.com/v1", http=self._http,
            timeout=httpx2.Timeout(self.timeout_s, connect=min(CONNECT_TIMEOUT_S, self.timeout_s)),
        )  # fmt: skip
        return sender, sdk


class _Chunks:
    """LiteLLM's chunks as plain values, without what it made up."""

    def __init__(self, stream: Any, alive: Callable[[], None]) -> None:
        self._stream, self._alive = stream, alive

    async def __anext__(self) -> Any:
        chunk = await self._stream.__anext__()
        self._alive()
        event = chunk.model_dump()
        ended = self._stream.received_finish_reason or getattr(self._stream, "intermittent_finish_reason", None)
        if ended is None:
            for choice in event.get("choices") or ():
                choice["finish_reason"] = None
        if event.get("usage") and not any(getattr(one, "usage", None) for one in self._stream.chunks):
            event["usage"] = None
        return event


def _headers(answer: Any) -> Mapping[str, str]:
    hidden = getattr(answer, "_hidden_params", None)
    hidden = hidden if isinstance(hidden, dict) else {}
    found = (
        hidden.get("headers") or getattr(answer, "_response_headers", None) or hidden.get("additional_headers") or {}
    )
    return {str(name).lower().removeprefix("llm_provider-"): str(value) for name, value in dict(found).items()}


def _request_id(headers: Mapping[str, str]) -> str | None:
    return headers.get("x-request-id") or headers.get("request-id")
