"""`systemone-decision`: the System One wire, hosted by TypeSafe or by any server that speaks it.

`POST {base_url}/v1/systemone` with a bearer key; a provider without a `credential` (a server of one's own) sends none.
"""

from __future__ import annotations

import json
from typing import Any

import httpx2

from interlock.clients.failures import Refusal, upstream_error
from interlock.credentials import ApiKey
from interlock.errors import (
    ContextWindowExceededError,
    MalformedResponseError,
    TransientUpstreamError,
    UpstreamError,
)

from ..abstract import AbstractDecisionClient, DecisionAnswer
from ..echo import repeats_state
from ..request import DecisionRequest
from ..wire import decode_model, decode_usage, encode

DEFAULT_BASE_URL = "https://api.typesafe.ai"
_PATH = "/v1/systemone"
_REQUEST_ID = "x-typesafe-request-id"
_CONNECT_WITHIN_S = 30.0

# Raised before a byte of the request left: nothing was seen, so nothing is owed.
_NEVER_CONNECTED = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout, httpx2.UnsupportedProtocol)


class SystemOneDecisionClient(AbstractDecisionClient):
    """One request a decision; no retries and no redirects of its own."""

    _http: httpx2.AsyncClient | None = None

    async def send(self, request: DecisionRequest) -> DecisionAnswer:
        headers = {"content-type": "application/json", "accept": "application/json", **self._authorization()}
        wire = {**encode(request, model=self.entry.wire_model_id), **self.entry.provider_options}
        content = json.dumps(wire, ensure_ascii=False).encode()
        response = await self._post(content, headers)
        if isinstance(response, UpstreamError):
            # Raised outside the handler: the transport's error holds the request, and the request holds the key.
            raise response
        if response.status_code != 200:
            raise self._refused(response, request)
        body = _json(response)
        return DecisionAnswer(
            body=body,
            usage=decode_usage(body),
            request_id=response.headers.get(_REQUEST_ID),
            served_model=decode_model(body),
        )

    async def _post(self, content: bytes, headers: dict[str, str]) -> httpx2.Response | UpstreamError:
        try:
            return await self._client().post(self._url(), content=content, headers=headers)
        except httpx2.HTTPError as error:
            return _lost(error)

    async def aclose(self) -> None:
        http, self._http = self._http, None
        if http is not None:
            await http.aclose()

    def _client(self) -> httpx2.AsyncClient:
        if self._http is None:
            most = self.environment.settings.max_connections
            self._http = httpx2.AsyncClient(
                timeout=httpx2.Timeout(self.timeout_s, connect=min(_CONNECT_WITHIN_S, self.timeout_s)),
                limits=httpx2.Limits(max_connections=most, max_keepalive_connections=most),
                follow_redirects=False,
            )
        return self._http

    def _url(self) -> str:
        base = self.entry.base_url or self.environment.settings.base_url or DEFAULT_BASE_URL
        return base.rstrip("/").removesuffix("/v1") + _PATH

    @property
    def _credential(self) -> str | None:
        return self.entry.credential or self.environment.settings.credential

    def _authorization(self) -> dict[str, str]:
        if self._credential is None:
            return {}
        key = self.environment.credentials.get(self._credential, ApiKey).key.get_secret_value()
        return {"authorization": f"Bearer {key}"}

    def _refused(self, response: httpx2.Response, request: DecisionRequest) -> UpstreamError:
        """The error a status stands for. Of the provider's words only those are kept that do not repeat the state."""
        if response.status_code == 401 and self._credential is not None:
            self.environment.credentials.refresh(self._credential)
        word, message = read_detail(_error_body(response))
        refusal = Refusal(
            status=response.status_code,
            words=frozenset({word} if word else ()),
            message="" if repeats_state(message, request.state) else message,
            headers={name.lower(): value for name, value in response.headers.items()},
            request_id=response.headers.get(_REQUEST_ID),
        )
        error = upstream_error(
            refusal,
            model=self.entry.id,
            provider=self.entry.provider,
            credential=self._credential,
            now=self.environment.wall(),
        )
        if response.status_code == 413:
            return ContextWindowExceededError(
                str(error), model=error.model, provider=error.provider, status=413, request_id=error.request_id,
                provider_code=error.provider_code,
            )  # fmt: skip
        return error


def _lost(error: httpx2.HTTPError) -> UpstreamError:
    never = isinstance(error, _NEVER_CONNECTED)
    what = "could not be reached" if never else "closed the connection or did not answer in time"
    return TransientUpstreamError(f"the decision server {what} ({type(error).__name__})", sent=not never)


def _json(response: httpx2.Response) -> Any:
    kind = response.headers.get("content-type", "no content type").split(";")[0]
    read: Any = None
    try:
        read = json.loads(response.content)
    except (ValueError, RecursionError):
        read = None
    if not isinstance(read, dict):
        raise MalformedResponseError(
            f"the decision server answered 200 with {len(response.content)} bytes of {kind} that are no JSON object",
            status=200,
            request_id=response.headers.get(_REQUEST_ID),
        )
    return read


def _error_body(response: httpx2.Response) -> Any:
    try:
        return json.loads(response.content)
    except (ValueError, RecursionError):
        return None


def read_detail(body: Any) -> tuple[str | None, str]:
    """(the kind of error, what is said of it) from `{"detail": {...} | "..." | [...]}` or `{"error": ...}`. Pure.

    A list is validation errors, which can echo the input: of those only where and what kind is kept.
    """
    if not isinstance(body, dict):
        return None, ""
    detail = body.get("detail", body.get("error"))
    if isinstance(detail, str):
        return None, detail
    if isinstance(detail, list):
        return "validation_error", "; ".join(_complaint(item) for item in detail[:5] if isinstance(item, dict))
    if isinstance(detail, dict):
        word, said = detail.get("error_type", detail.get("type")), detail.get("message")
        return (word.lower() if isinstance(word, str) else None), (said if isinstance(said, str) else "")
    return None, ""


def _complaint(item: dict[str, Any]) -> str:
    place = item.get("loc")
    parts = [str(part) for part in place if isinstance(part, (str, int))] if isinstance(place, list) else []
    kind = item.get("type")
    return f"{'.'.join(parts) or 'somewhere'}: {kind if isinstance(kind, str) else 'invalid'}"
