"""What the SDKs on httpx2 share: anthropic and openai, which one generator made, and google-genai.

The SDK does what only it should: authentication, headers, the event stream's framing, its error classes. Everything
else about it is switched off: retries, tracing, and whatever it would read from the environment. The request is sent as
the very bytes that were checked and hashed, and answers are read as plain JSON values, so a field that a server leaves
out is a missing key here and not an attribute error somewhere else.
"""

from __future__ import annotations

import json
import ssl
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from hashlib import sha256
from typing import Any, ClassVar
from urllib.parse import urlsplit

import httpx2

from interlock.admission.outcome import Dimension, ReportedLimit
from interlock.catalog.entry import ProviderSettings
from interlock.credentials import ApiKey
from interlock.errors import (
    CredentialError,
    InvalidRequestError,
    MalformedResponseError,
    TransientUpstreamError,
    UpstreamError,
)

from ..abstract import AbstractLLMClient, Events, Reply, WireStream
from ..answer import MOST_TOKENS
from ..failures import read_refusal, upstream_error
from ..first_byte import on_request
from ..listing import NeededCredential
from ..writing import checked_url
from .arriving import notice
from .error_body import ErrorBodies

#: Seconds to connect. A provider that cannot be reached within this is not there.
CONNECT_TIMEOUT_S = 15.0
#: Of a body that is not of the wire, this many characters are shown.
SHOWN = 200
#: Where a request carries the `Made` it was sent by.
_MADE = "interlock_made"

#: Headers that carry a secret as it is.
_SECRET_HEADERS = ("x-api-key", "api-key", "x-goog-api-key", "x-amz-security-token")

#: No request left this machine, and another try may work.
_NEVER_LEFT = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout, httpx2.ProxyError)
#: No request left this machine, and none ever will: what was given is wrong.
_CANNOT_LEAVE = (httpx2.UnsupportedProtocol, httpx2.LocalProtocolError, httpx2.InvalidURL, TypeError, ValueError)


@cache
def tls() -> ssl.SSLContext:
    """Loading the certificates takes tens of milliseconds: once a process."""
    return httpx2.create_ssl_context()


def _secrets_in(headers: Mapping[str, str]) -> list[str]:
    """What a request proves with who sends it."""
    kind, _, token = headers.get("authorization", "").partition(" ")
    found = [headers.get(name, "") for name in _SECRET_HEADERS]
    return [*found, token] if kind.lower() == "bearer" else found


def _digest(key: str | None) -> bytes:
    return b"" if key is None else sha256(key.encode()).digest()


@dataclass(slots=True, eq=False)
class Made:
    """An SDK's client. `digest` is its key's, so that no second copy of that lies about; `accepted`: whether what it
    calls with has ever been answered."""

    digest: bytes
    sdk: Any
    accepted: bool = False


class SdkChatClient(AbstractLLMClient):
    """A chat provider whose SDK is one of these. The SDK's client is made at the first call, and again when the key
    has been rotated; its connections are kept. `post` and `post_streamed` are those of the generated two."""

    tells_first_byte: ClassVar[bool] = True
    path: ClassVar[str]
    request_id_header: ClassVar[str | None] = None
    default_base_url: ClassVar[str | None] = None
    #: The credential id where neither the entry nor the provider's settings name one; None: none is needed.
    default_credential: ClassVar[str | None] = None
    #: Further ids under which the default credential may be found.
    credential_aliases: ClassVar[tuple[str, ...]] = ()

    _http: httpx2.AsyncClient | None = None
    _made: Made | None = None

    # What differs between them.

    @abstractmethod
    def make_sdk(self, *, api_key: str | None, base_url: str, http: httpx2.AsyncClient, timeout: httpx2.Timeout) -> Any:
        """The SDK's client: no retries, nothing from the environment."""

    def stream_class(self) -> Any:
        """The SDK's `AsyncStream[object]`, for `post_streamed`."""
        raise NotImplementedError

    @abstractmethod
    def read_limits(self, headers: Mapping[str, str], *, now: datetime) -> dict[Dimension, ReportedLimit]:
        """What the headers say of the account's limits."""

    def path_of(self, *, streamed: bool) -> str:
        """Where a request goes."""
        return self.path

    def headers(self) -> dict[str, str]:
        """What a request carries beside what the SDK gives it."""
        return {}

    async def post(self, body: bytes) -> httpx2.Response:
        """One request and its whole response."""
        return await self.post_to(self.path_of(streamed=False), body)

    async def post_to(self, path: str, body: bytes) -> httpx2.Response:
        response: httpx2.Response = await self._sdk().post(
            path, content=body, cast_to=httpx2.Response, options={"headers": self.headers()}
        )
        return response

    async def post_streamed(self, body: bytes) -> tuple[httpx2.Response, Events, Callable[[], Awaitable[None]]]:
        """One request, its response up to the headers, the events to come, and how to let go of them."""
        stream = await self._sdk().post(
            self.path_of(streamed=True),
            content=body,
            cast_to=object,
            stream=True,
            stream_cls=self.stream_class(),
            options={"headers": self.headers()},
        )

        async def aclose() -> None:
            await stream.close()
            leftover = getattr(stream, "_iterator", None)
            if leftover is not None:
                await leftover.aclose()

        return stream.response, stream, aclose

    async def get(self, path: str, query: Mapping[str, str]) -> Mapping[str, Any]:
        """What stands at a path beside the model's: one request through the SDK's client, and its body."""
        response: httpx2.Response = await self._sdk().get(
            path, cast_to=httpx2.Response, options={"headers": self.headers(), "params": dict(query)}
        )
        payload: Mapping[str, Any] = self._reply(response).payload
        return payload

    # The rest is the same.

    @classmethod
    def needed_credential(cls, credential: str | None, settings: ProviderSettings) -> NeededCredential:
        """What a call is signed with, where the catalog names `credential` (or nothing)."""
        needed = credential or cls.default_credential
        return NeededCredential(id=needed, aliases=cls.credential_aliases if needed == cls.default_credential else ())

    @property
    def credential_id(self) -> str | None:
        return self.entry.credential or self.environment.settings.credential or self.default_credential

    @property
    def base_url(self) -> str:
        url = self.entry.base_url or self.environment.settings.base_url or self.default_base_url
        if url is None:
            raise InvalidRequestError(
                f"{self.entry.provider} needs a base_url, in the catalog's providers or at {self.entry.id}", sent=False
            )
        return url

    @property
    def host(self) -> str:
        return urlsplit(self.base_url).netloc.rpartition("@")[2]

    @property
    def where(self) -> str:
        return f"{self.entry.provider} at {self.host}"

    def ready(self) -> None:
        self._sdk()

    async def send(self, body: bytes) -> Reply:
        return self._reply(await self.post(body))

    async def open(self, body: bytes, alive: Callable[[], None]) -> WireStream:
        response, events, aclose = await self.post_streamed(body)
        kind = response.headers.get("content-type", "").lower()
        if "json" in kind or "html" in kind or response.status_code == 204:
            await response.aread()
            return self._unstreamed(self._reply(response))
        notice(response, alive)
        self._note_accepted(response)
        return WireStream(
            events=events,
            aclose=aclose,
            request_id=self._request_id(response.headers),
            reported=self.read_limits(response.headers, now=self.environment.wall()),
        )

    async def aclose(self) -> None:
        http, self._http, self._made = self._http, None, None
        if http is not None:
            await http.aclose()

    def read_error(self, error: Exception) -> UpstreamError | None:
        """Everything that an SDK call can raise, as one of ours."""
        status, body = getattr(error, "status_code", None), getattr(error, "body", None)
        if status is not None or body is not None:  # an error inside a stream has no status of its own
            return self._said_no(status, body, getattr(error, "response", None))
        return self._transport(error)

    def limits_in(self, error: Exception) -> Mapping[Dimension, ReportedLimit]:
        response = getattr(error, "response", None)
        if not isinstance(response, httpx2.Response):
            return {}
        return self.read_limits(response.headers, now=self.environment.wall())

    # Sending.

    def _sdk(self) -> Any:
        key = self._key()
        digest = _digest(key)
        if self._made is None or self._made.digest != digest:
            if self._http is None:
                self._http = self._make_http()
            timeout = httpx2.Timeout(self.timeout_s, connect=min(CONNECT_TIMEOUT_S, self.timeout_s))
            url = checked_url(self.base_url, provider=self.entry.provider, model=self.entry.id)
            made = self.make_sdk(api_key=key, base_url=url, http=self._http, timeout=timeout)
            # ANTHROPIC_CUSTOM_HEADERS and OPENAI_CUSTOM_HEADERS would come along, and no argument keeps them out.
            made._custom_headers = {}
            self._made = Made(digest, made)
        return self._made.sdk

    def _key(self) -> str | None:
        credential = self.credential_id
        if credential is None:
            return None
        aliases = self.credential_aliases if credential == self.default_credential else ()
        return self.environment.credentials.get(credential, ApiKey, aliases=aliases).key.get_secret_value()

    def _make_http(self) -> httpx2.AsyncClient:
        connections = self.environment.settings.max_connections
        bodies = ErrorBodies(
            self.environment.clock,
            timeout_s=self.timeout_s,
            idle_timeout_s=self.environment.settings.idle_timeout_s,
        )
        return httpx2.AsyncClient(
            limits=httpx2.Limits(max_connections=connections, max_keepalive_connections=connections),
            event_hooks={"request": [on_request, self._note_made, bodies.on_request], "response": [bodies.on_response]},
            follow_redirects=False,  # a redirect would carry the key to whoever is named in it
            verify=tls(),
        )

    async def _note_made(self, request: httpx2.Request) -> None:
        """By the time it is answered another key may be in use."""
        request.extensions = {**request.extensions, _MADE: self._made}
        if self.ambient:  # no store gave it, so nobody has told the redactor; a provider may echo it
            for secret in _secrets_in(request.headers):
                self.environment.redactor.add(secret)

    def _sent_by(self, response: httpx2.Response | None) -> Made | None:
        request = getattr(response, "_request", None)
        made: Made | None = self._made if request is None else request.extensions.get(_MADE, self._made)
        return made

    def _note_accepted(self, response: httpx2.Response) -> None:
        made = self._sent_by(response)
        if made is not None:
            made.accepted = True

    # Reading.

    def _request_id(self, headers: Mapping[str, str]) -> str | None:
        return headers.get(self.request_id_header) if self.request_id_header else None

    def _reply(self, response: httpx2.Response) -> Reply:
        request_id = self._request_id(response.headers)
        payload = read_json(response.content)
        if isinstance(payload, list) and payload and isinstance(payload[0], dict) and payload[0].get("error"):
            payload = payload[0]
        if not isinstance(payload, dict):
            raise self._not_of_the_wire(response, request_id)
        if payload.get("error"):
            raise self._said_no(None, payload, response)
        self._note_accepted(response)
        return Reply(
            payload=payload,
            request_id=request_id,
            reported=self.read_limits(response.headers, now=self.environment.wall()),
        )

    def read_count(self, response: httpx2.Response, field: str) -> int:
        """The number of tokens that an answer to a count tells."""
        reply = self._reply(response)
        tokens = reply.payload.get(field)
        if type(tokens) is not int or not 0 < tokens <= MOST_TOKENS:
            raise self.malformed(f"counted {str(tokens)[:40]!r} tokens", request_id=reply.request_id)
        return tokens

    def _not_of_the_wire(self, response: httpx2.Response, request_id: str | None) -> MalformedResponseError:
        kind = response.headers.get("content-type", "no content type")
        shown = " ".join(response.text.split())[:SHOWN]
        return self.malformed(
            f"answered HTTP {response.status_code} with {kind} that is not of its wire"
            + (f" ({shown!r})" if shown else " (an empty body)"),
            status=response.status_code,
            request_id=request_id,
        )

    def _unstreamed(self, reply: Reply) -> WireStream:
        """A server that answered whole although a stream was asked for."""

        async def nothing() -> None:
            return None

        return WireStream(
            events=_Once(reply.payload), aclose=nothing, request_id=reply.request_id, reported=reply.reported
        )

    def _said_no(self, status: int | None, body: Any, response: httpx2.Response | None) -> UpstreamError:
        headers: Mapping[str, str] = response.headers if response is not None else {}
        refusal = read_refusal(status, body, headers, self._request_id(headers))
        error = upstream_error(
            refusal,
            model=self.entry.id,
            provider=self.entry.provider,
            credential=self.credential_id,
            now=self.environment.wall(),
        )
        if isinstance(error, CredentialError) and self.may_be_rotated(error):
            return self._rotated(error, response)
        return error

    def may_be_rotated(self, error: CredentialError) -> bool:
        """Whether another key might do. 403 is about access, which another key of the same account has not either."""
        return error.status != 403

    @property
    def ambient(self) -> bool:
        """Whether its credentials are found by a library, and not in the stores."""
        return False

    def forget_ambient(self) -> None:
        """Let the next call find them anew."""

    def _rotated(self, error: CredentialError, response: httpx2.Response | None = None) -> UpstreamError:
        """A key that was refused is read again. A new one makes another try worthwhile; so does anew finding what a
        library found, if that has been accepted before. What was just found and is refused is refused for good."""
        made = self._sent_by(response)
        if made is None:
            return error
        if self.ambient:
            changed = made.accepted
            if self._made is made:
                self.forget_ambient()
                self._made = None
        else:
            changed = self._has_changed(made)
        if not changed:
            return error
        return TransientUpstreamError(
            f"{error}; the credential has since been replaced", status=error.status, request_id=error.request_id,
            provider_code="credential_rotated", sent=error.sent,
        )  # fmt: skip

    def _has_changed(self, made: Made) -> bool:
        credential = self.credential_id
        if credential is None:
            return False
        self.environment.credentials.refresh(credential)
        try:
            return _digest(self._key()) != made.digest
        except CredentialError:
            return False

    def _transport(self, error: Exception) -> UpstreamError:
        cause = error
        if not isinstance(error, httpx2.HTTPError) and isinstance(error.__cause__, Exception):
            cause = error.__cause__  # the SDK's wrapping says nothing but "Connection error."
        what = f"{type(cause).__name__}: {cause}" if str(cause) else type(cause).__name__
        told = f"{self.where}: {what}, for {self.entry.id}"
        if isinstance(cause, _NEVER_LEFT):
            return TransientUpstreamError(told, sent=False, provider_code=type(cause).__name__)
        if isinstance(cause, httpx2.DecodingError) or (
            cause is error and isinstance(error, (ValueError, RecursionError))
        ):
            return MalformedResponseError(told, provider_code=type(cause).__name__)
        if isinstance(cause, _CANNOT_LEAVE):
            return InvalidRequestError(told, sent=False, provider_code=type(cause).__name__)
        if isinstance(cause, (httpx2.HTTPError, httpx2.StreamError, OSError, EOFError)):
            return TransientUpstreamError(told, provider_code=type(cause).__name__)
        return UpstreamError(told, provider_code=type(cause).__name__)


def part_of(body: bytes, names: Collection[str]) -> dict[str, Any]:
    """Those fields of a request."""
    whole: dict[str, Any] = json.loads(body)
    return {name: value for name, value in whole.items() if name in names}


def as_json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def read_json(content: bytes) -> Any:
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        return None


class _Once:
    """A stream of one event."""

    def __init__(self, event: Any) -> None:
        self._events = [event]

    async def __anext__(self) -> Any:
        if not self._events:
            raise StopAsyncIteration
        return self._events.pop()
