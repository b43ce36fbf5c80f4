"""HttpDecisionClient: a decision model behind one POST. A provider says where, what, and how the answer reads.

One request a call, no retries and no redirects. Nothing of the request hangs on an error: the transport's own errors
hold the headers, and the headers hold the key.
"""

from __future__ import annotations

import asyncio
import json
import re
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, ClassVar

import httpx2

from interlock.admission.outcome import Dimension, ReportedLimit
from interlock.catalog.entry import ModelEntry
from interlock.clients.environment import ClientEnvironment
from interlock.clients.failures import DETAIL_LIMIT, Refusal, read_refusal, upstream_error
from interlock.clients.first_byte import on_request
from interlock.clients.providers.error_body import ErrorBodies
from interlock.clients.providers.sdk import tls
from interlock.clients.writing import checked_url
from interlock.credentials import ApiKey
from interlock.errors import (
    ContextWindowExceededError,
    InvalidRequestError,
    MalformedResponseError,
    ProviderRefusalError,
    TransientUpstreamError,
    UpstreamError,
)

from .abstract import AbstractDecisionClient, DecisionAnswer
from .echo import repeats_state
from .request import DecisionRequest

_CONNECT_WITHIN_S = 30.0
#: A kind of error is one word. What is more may be the input.
_WORD = re.compile(r"[a-z0-9_.:-]{1,64}")

# Raised before a byte of the request left: nothing was seen, so nothing is owed.
_NEVER_CONNECTED = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout, httpx2.UnsupportedProtocol)


class HttpDecisionClient(AbstractDecisionClient):
    """What decision models over HTTP share. A subclass owns `path`, `encode` and `read`, `decode` where its answers are
    not of the System One wire, and `refusal` where its errors are not of the common form."""

    #: Under the base URL, which people write with and without its version.
    path: ClassVar[str]
    version: ClassVar[str] = "/v1"
    request_id_header: ClassVar[str | None] = None
    default_base_url: ClassVar[str | None] = None
    #: The credential id where neither the entry nor the provider's settings name one; None: none is needed.
    default_credential: ClassVar[str | None] = None
    tells_first_byte: ClassVar[bool] = True

    _http: httpx2.AsyncClient | None = None

    def __init__(self, entry: ModelEntry, environment: ClientEnvironment) -> None:
        super().__init__(entry, environment)
        self.connections = asyncio.Semaphore(environment.settings.max_connections)

    # What differs between them.

    @abstractmethod
    def encode(self, request: DecisionRequest) -> dict[str, Any]:
        """The body. The entry's `provider_options` are merged into it last."""

    @abstractmethod
    def read(self, body: dict[str, Any]) -> DecisionAnswer:
        """What the body of a 200 tells beside the answers: usage, model. `decode` reads the answers in it."""

    def refusal(self, status: int | None, body: Any, headers: Mapping[str, str]) -> Refusal:
        """What an error says: its status, its words."""
        return read_refusal(status, body, headers)

    def read_limits(self, headers: Mapping[str, str]) -> Mapping[Dimension, ReportedLimit] | None:
        """What the headers say of the account's limits."""
        return None

    # The rest is the same.

    async def send(self, request: DecisionRequest) -> DecisionAnswer:
        url = self.url()
        headers = {"content-type": "application/json", "accept": "application/json", **self._authorization()}
        wire = {**self.encode(request), **self.entry.provider_options}
        response = await self._post(url, json.dumps(wire, ensure_ascii=False).encode(), headers)
        if isinstance(response, UpstreamError):
            raise response  # outside the handler, so that the transport's error does not hang on it
        if response.status_code != 200:
            raise self._refused(response.status_code, _json(response), response, request)
        body = _json(response, pairs=_each_once)
        if not isinstance(body, dict):
            raise self._no_object(response)
        if body.get("error"):  # an error under a 200
            raise self._refused(None, body, response, request)
        return self._completed(self.read(body), response)

    async def aclose(self) -> None:
        http, self._http = self._http, None
        if http is not None:
            await http.aclose()

    def url(self) -> str:
        base = self.entry.base_url or self.environment.settings.base_url or self.default_base_url
        if base is None:
            raise InvalidRequestError(
                f"{self.entry.provider} needs a base_url, in the catalog's providers or at {self.entry.id}", sent=False
            )
        checked = checked_url(base, provider=self.entry.provider, model=self.entry.id)
        return checked.rstrip("/").removesuffix(self.version) + self.path

    @property
    def credential_id(self) -> str | None:
        return self.entry.credential or self.environment.settings.credential or self.default_credential

    async def _post(self, url: str, content: bytes, headers: dict[str, str]) -> httpx2.Response | UpstreamError:
        try:
            return await self._client().post(url, content=content, headers=headers)
        except httpx2.HTTPError as error:
            return _lost(error)

    def _client(self) -> httpx2.AsyncClient:
        if self._http is None:
            most = self.environment.settings.max_connections
            bodies = ErrorBodies(
                self.environment.clock,
                timeout_s=self.timeout_s,
                idle_timeout_s=self.environment.settings.idle_timeout_s,
            )
            self._http = httpx2.AsyncClient(
                timeout=httpx2.Timeout(self.timeout_s, connect=min(_CONNECT_WITHIN_S, self.timeout_s)),
                limits=httpx2.Limits(max_connections=most, max_keepalive_connections=most),
                event_hooks={"request": [on_request, bodies.on_request], "response": [bodies.on_response]},
                verify=tls(),
                follow_redirects=False,  # a redirect would carry the key to whoever is named in it
            )
        return self._http

    def _authorization(self) -> dict[str, str]:
        if self.credential_id is None:
            return {}
        key = self.environment.credentials.get(self.credential_id, ApiKey).key.get_secret_value()
        return {"authorization": f"Bearer {key}"}

    def _request_id(self, response: httpx2.Response) -> str | None:
        return response.headers.get(self.request_id_header) if self.request_id_header else None

    def _completed(self, answer: DecisionAnswer, response: httpx2.Response) -> DecisionAnswer:
        headers = {name.lower(): value for name, value in response.headers.items()}
        return replace(
            answer,
            request_id=self._request_id(response) or answer.request_id,
            reported=self.read_limits(headers) or answer.reported,
        )

    def _no_object(self, response: httpx2.Response) -> MalformedResponseError:
        kind = response.headers.get("content-type", "no content type").split(";")[0]
        return MalformedResponseError(
            f"the decision server answered 200 with {len(response.content)} bytes of {kind} that are no JSON object",
            status=200,
            request_id=self._request_id(response),
        )

    def _refused(
        self, status: int | None, body: Any, response: httpx2.Response, request: DecisionRequest
    ) -> UpstreamError:
        """The error a status stands for. Of the provider's words only those are kept that do not repeat the state."""
        if status == 401 and self.credential_id is not None:
            self.environment.credentials.refresh(self.credential_id)
        headers = {name.lower(): value for name, value in response.headers.items()}
        said = self.refusal(status, body, headers)
        refusal = replace(
            said,
            headers=headers,
            request_id=self._request_id(response) or said.request_id,
            echoes=repeats_state(said.message.strip()[:DETAIL_LIMIT], request.state),
        )
        error = upstream_error(
            refusal,
            model=self.entry.id,
            provider=self.entry.provider,
            credential=self.credential_id,
            now=self.environment.wall(),
        )
        code = error.provider_code or ""
        if not _WORD.fullmatch(code) or repeats_state(code, request.state):
            error.provider_code = None
            if isinstance(error, ProviderRefusalError):
                error.category = None
        if status == 413:
            error = ContextWindowExceededError(
                str(error), model=error.model, provider=error.provider, status=413, request_id=error.request_id,
                provider_code=error.provider_code,
            )  # fmt: skip
        error.reported = self.read_limits(headers)
        return error


def _lost(error: httpx2.HTTPError) -> UpstreamError:
    never = isinstance(error, _NEVER_CONNECTED)
    what = "could not be reached" if never else "closed the connection or did not answer in time"
    return TransientUpstreamError(f"the decision server {what} ({type(error).__name__})", sent=not never)


def _json(response: httpx2.Response, pairs: Callable[[list[tuple[str, Any]]], Any] | None = None) -> Any:
    try:
        return json.loads(response.content, object_pairs_hook=pairs)
    except (ValueError, RecursionError):
        return None


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Of two answers to one question, or two probabilities of one option, neither can be believed."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise MalformedResponseError("the answer has one name twice in one object")
    return found
