"""`litellm`: whatever LiteLLM reaches, by its own model names (`anthropic/...`, `mistral/...`, `ollama/...`).

LiteLLM speaks OpenAI's chat form to its caller and each provider's own wire to the provider. It is used as a translator
only: no retries, no fallbacks, no callbacks, no cache, and a connection pool that belongs to this client. What it makes
up is not believed: a `stop` at the end of a stream that its provider never ended, and token counts that no provider
reported. The key is the provider settings' credential; without one LiteLLM looks for its own variables, unless a
`base_url` is set: what the environment holds for a provider goes to no other server.

Importing LiteLLM takes seconds. What it would fetch by itself (a price list, a table of headers, tokenizers) and `.env`
are kept off.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import cache
from typing import Any, ClassVar, cast

import httpx2
import openai

from interlock.admission.outcome import Dimension, ReportedLimit
from interlock.errors import (
    CredentialError,
    InvalidRequestError,
    MalformedResponseError,
    TransientUpstreamError,
    UpstreamError,
)

from ..abstract import AbstractLLMClient, Reply, WireStream
from ..answer import Draft
from ..asking import Ask
from ..conversation import Message
from ..failures import DETAIL_LIMIT
from ..hints import anthropic_limits, openai_limits
from ..listing import ListedModel, NoModelListError
from ..response import Piece
from ..writing import checked_url
from .litellm_reading import (
    Overheard,
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
from .litellm_writing import ENCODERS, settle_marks, with_rest
from .openai_chat import OpenAIChatCompletionsClient
from .sdk import CONNECT_TIMEOUT_S, SHOWN, Made, _digest

#: Where there is no key, and LiteLLM is to look for none.
_NO_KEY = "none"
#: Providers for which LiteLLM takes a token from the environment all the same.
_FINDS_TOKENS = frozenset({"gigachat", "vertex_ai", "vertex_ai_beta", "watsonx", "watsonx_text"})
#: Fields of the request that stand for Interlock's own decisions.
_OFF: Mapping[str, Any] = {"num_retries": 0, "max_retries": 0, "no-log": True, "caching": False, "drop_params": False}


@cache
def _litellm() -> Any:
    """The library, kept from the network and from `.env`."""
    with _environment(LITELLM_OFFLINE_MODE="true", LITELLM_LOCAL_MODEL_COST_MAP="True", LITELLM_MODE="PRODUCTION"):
        import litellm
        from litellm.anthropic_beta_headers_manager import get_provider_name

        get_provider_name("anthropic")  # reads a table that it would fetch at the first call
    litellm.disable_hf_tokenizer_download = True  # to count tokens that a stream did not report
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


class LiteLLMClient(OpenAIChatCompletionsClient):
    """A model behind LiteLLM."""

    tells_first_byte: ClassVar[bool] = False  # connections of its own, for some providers
    encoders: ClassVar = ENCODERS
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
    call_ids = None

    _sender: Any = None
    _openai: openai.AsyncOpenAI | None = None
    _azure: openai.AsyncAzureOpenAI | None = None

    @property
    def base_url(self) -> str | None:  # type: ignore[override]  # each of LiteLLM's providers has its own
        return self.entry.base_url or self.environment.settings.base_url

    @property
    def ambient(self) -> bool:
        """Without a credential LiteLLM looks for its own variables."""
        return self.credential_id is None

    @property
    def where(self) -> str:
        return f"{self.entry.provider} at {self.host}" if self.base_url else self.entry.provider

    # Writing.

    def encode(self, ask: Ask) -> dict[str, Any]:
        wire, mode = super().encode(ask), ask.entry.thinking.mode
        if wire.get("reasoning_effort") == "none" and mode != "effort":
            del wire["reasoning_effort"]  # most providers have no such word
        elif mode == "budget":
            del wire["reasoning_effort"]  # for which LiteLLM has budgets of its own, beyond what was reserved
            wire["thinking"] = {"type": "enabled", "budget_tokens": ask.thinking_tokens}
        if ask.thinking_tokens and mode != "effort" and ask.options.tool_choice is None:
            wire.pop("tool_choice", None)  # a thinking model refuses to be forced; it is offered the tool
        settle_marks(wire, ask)
        return wire

    def _assistant(self, message: Message) -> list[dict[str, Any]]:
        return with_rest(super()._assistant(message), message)

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
            headers = [(name.encode(), value.encode()) for name, value in provider_headers(chain).items()]
            return self._said_no(status, said, httpx2.Response(200, headers=headers))
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

    def limits_in(self, error: Exception) -> Mapping[Dimension, ReportedLimit]:
        return self.read_limits(provider_headers(chain_of(error)), now=self.environment.wall())

    # Sending.

    def ready(self) -> None:
        key = self._key()
        if self._sender is None:
            if self.base_url is not None:
                checked_url(self.base_url, provider=self.entry.provider, model=self.entry.id)
            self._make_senders()
        if self._made is None or self._made.digest != _digest(key):
            self._made = Made(_digest(key), self._sender)

    async def send(self, body: bytes) -> Reply:
        answers = _sending().Answers()
        answer = await self._asked(body, answers)
        await answers.aclose()
        headers = _headers(answer, answers)
        return Reply(
            payload=answer.model_dump(),
            request_id=_request_id(headers),
            reported=self.read_limits(headers, now=self.environment.wall()),
        )

    async def open(self, body: bytes, alive: Callable[[], None]) -> WireStream:
        answers = _sending().Answers(alive)
        stream = await self._asked(body, answers)
        headers = _headers(stream, answers)

        async def aclose() -> None:
            try:
                await stream.aclose()
            finally:
                await answers.aclose()

        return WireStream(
            events=_Chunks(stream, answers, alive, lambda body: self._said_no(None, body, None)),
            aclose=aclose,
            request_id=_request_id(headers),
            reported=self.read_limits(headers, now=self.environment.wall()),
        )

    async def list_models(self) -> Sequence[ListedModel]:
        raise NoModelListError("LiteLLM reaches many providers and has no one list of what a key can call")

    async def aclose(self) -> None:
        self._sender = self._openai = self._azure = None
        await super().aclose()

    async def _asked(self, body: bytes, answers: Any) -> Any:
        library = _litellm()
        asked = json.loads(body)
        key = self._key()
        _, provider, own_key, own_url = library.get_llm_provider(asked["model"], api_base=self.base_url)
        given = {"api_key": key} if key is not None else {}
        if self.base_url is not None:
            given["api_base"] = self.base_url
        through = self._through(provider, key or own_key, self.base_url or own_url)
        with answers.kept():
            try:
                answer = await library.acompletion(**asked, **_OFF, **given, client=through, timeout=self.timeout_s)
            except BaseException as error:
                await answers.aclose()  # one that came while the caller was being cancelled is in nobody's hands
                answers.overheard.end()
                if answers.overheard.error is not None and isinstance(error, Exception) and answers.is_well:
                    raise self._said_no(None, answers.overheard.error, None) from None
                if answers.page is not None and isinstance(error, Exception):
                    raise self._a_page(answers.page) from None
                raise
        if answers.page is not None:
            await answers.aclose()
            raise self._a_page(answers.page)
        return answer

    def _a_page(self, kind: str) -> MalformedResponseError:
        return self.malformed(f"answered HTTP 200 with {kind} that is not of its wire", status=200)

    def _through(self, provider: str, key: str | None, url: str | None) -> Any:
        """What carries the requests for one of LiteLLM's providers. It looks at the class for two of them."""
        sdk, sender = self._openai, self._sender
        if key == _NO_KEY and provider in _FINDS_TOKENS:
            told = f"LiteLLM would send {provider}'s token in the environment to the base_url: name a credential"
            raise CredentialError(f"{self.where}: {told}, for {self.entry.id}", sent=False)
        if provider in ("azure", "azure_text"):
            return self._azure_sdk(key, url)
        if provider == "openai" and url is None and key is None:
            key = os.environ.get("OPENAI_API_KEY")  # LiteLLM would give it to any server
        if sdk is not None:
            sdk.api_key, sdk.base_url = key or _NO_KEY, url or "https://api.openai.com/v1"
        return sdk if provider == "openai" else sender

    def _key(self) -> str | None:
        key = super()._key()
        return _NO_KEY if key is None and self.base_url is not None else key

    def _azure_sdk(self, key: str | None, url: str | None) -> Any:
        key = None if key == _NO_KEY else key or os.environ.get("AZURE_API_KEY")
        url = url or os.environ.get("AZURE_API_BASE")
        if key is None or url is None:
            raise CredentialError(
                f"{self.entry.provider}: Azure needs a credential and a base_url, for {self.entry.id}", sent=False
            )
        if self._azure is None:
            version = self.environment.settings.options.get("api_version")
            self._azure = openai.AsyncAzureOpenAI(
                api_key=key, azure_endpoint=url, api_version=version or _litellm().AZURE_DEFAULT_API_VERSION,
                http_client=self._http, timeout=self._timeout, max_retries=0,
            )  # fmt: skip
        self._azure.api_key = key
        return self._azure

    @property
    def _timeout(self) -> httpx2.Timeout:
        return httpx2.Timeout(self.timeout_s, connect=min(CONNECT_TIMEOUT_S, self.timeout_s))

    def _make_http(self) -> httpx2.AsyncClient:
        http = super()._make_http()
        http.event_hooks = {**http.event_hooks, "response": [*http.event_hooks["response"], _sending().on_response]}
        return http

    def _make_senders(self) -> None:
        """What carries the requests: LiteLLM's own handler and the OpenAI SDK, on one pool."""
        import httpx

        self._http = self._http or self._make_http()
        url = self.base_url or "https://api.openai.com/v1"
        sdk = self.make_sdk(api_key=None, base_url=url, http=self._http, timeout=self._timeout)
        sdk._custom_headers = {}  # as in `SdkChatClient._sdk`
        self._openai = sdk
        self._sender = _sending().Sender(self._http, sdk, httpx.Timeout(**self._timeout.as_dict()))


def _sending() -> Any:
    """The module that needs LiteLLM itself."""
    _litellm()
    from . import litellm_sending

    return litellm_sending


class _Chunks:
    """LiteLLM's chunks as plain values: without an end and counts that it made up, with what it passed over. It tells
    Anthropic's stop reason before the end has come: that chunk waits."""

    def __init__(self, stream: Any, answers: Any, alive: Callable[[], None], read: Callable[[Any], Exception]) -> None:
        self._stream, self._answers, self._alive, self._read = stream, answers, alive, read
        self._overheard: Overheard = answers.overheard
        self._held: Any = None

    async def __anext__(self) -> Any:
        while True:
            chunk: Any = None
            try:
                chunk = await self._stream.__anext__()
            except StopAsyncIteration:
                return await self._rest()
            except Exception:
                if self._overheard.error is None:
                    raise
            if (failure := self._said_no()) is not None:
                raise failure  # outside the handler: LiteLLM's own keeps only the text of it
            self._alive()
            event = self._event(chunk)
            if not self._overheard.is_cut or not any(choice.get("finish_reason") for choice in event["choices"]):
                return event
            self._held = event

    async def _rest(self) -> Any:
        await self._answers.read_on()
        self._overheard.end()
        if (failure := self._said_no()) is not None:
            raise failure
        held, self._held = self._held, None
        if held is None:
            raise StopAsyncIteration
        return _endless(held) if self._overheard.is_cut else held

    def _said_no(self) -> Exception | None:
        body = self._overheard.error
        return None if body is None else self._read(body)

    def _event(self, chunk: Any) -> Any:
        event = chunk.model_dump()
        event["choices"] = event.get("choices") or []
        ended = self._stream.received_finish_reason or getattr(self._stream, "intermittent_finish_reason", None)
        if event.get("usage") and not any(getattr(one, "usage", None) for one in self._stream.chunks):
            event["usage"] = None
        if event["choices"] and (words := self._overheard.refusal()):
            first = event["choices"][0]
            first["delta"] = {**(first.get("delta") or {}), "refusal": words}
        return event if ended is not None else _endless(event)


def _endless(event: Any) -> Any:
    return {**event, "choices": [{**choice, "finish_reason": None} for choice in event["choices"]]}


def _headers(answer: Any, answers: Any) -> Mapping[str, str]:
    """As the provider sent them; where LiteLLM went its own way, what it kept of them."""
    if answers.headers is not None:
        return cast(Mapping[str, str], answers.headers)
    hidden = getattr(answer, "_hidden_params", None)
    hidden = hidden if isinstance(hidden, dict) else {}
    found = (
        hidden.get("headers") or getattr(answer, "_response_headers", None) or hidden.get("additional_headers") or {}
    )
    return {str(name).lower().removeprefix("llm_provider-"): str(value) for name, value in dict(found).items()}


def _request_id(headers: Mapping[str, str]) -> str | None:
    return headers.get("x-request-id") or headers.get("request-id")
