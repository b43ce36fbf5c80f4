"""How LiteLLM's requests leave: on the connections of one client of ours, with every response in one hand.

LiteLLM reaches some providers through the OpenAI SDK and all others through a handler of its own, on httpx. `Sender` is
both to it. The handler's requests are carried by httpx2, whose pool loses nothing to a cancel (httpx's keeps a slot for
a connection that a cancelled request never opened), and what comes back is kept in `Answers` until the call is over:
LiteLLM forgets a response that came while its caller was being cancelled. Imported at the first call, after LiteLLM.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import httpx
import httpx2
from litellm.llms.custom_httpx.http_handler import AsyncHTTPHandler

from .arriving import notice
from .litellm_reading import Overheard

_answers: ContextVar[Answers | None] = ContextVar("answers", default=None)


class Answers:
    """The responses of one call. `alive` is called whenever bytes of one come: LiteLLM swallows pings."""

    def __init__(self, alive: Callable[[], None] | None = None) -> None:
        self._alive = alive
        self._kept: list[httpx2.Response] = []
        self._watched: _Watched | None = None
        self.overheard = Overheard()

    @property
    def headers(self) -> Mapping[str, str] | None:
        """Of the last response. None: it came another way than over these connections, or none came."""
        return self._kept[-1].headers if self._kept else None

    @property
    def is_well(self) -> bool:
        """Whether the last response's status says that all is well."""
        return bool(self._kept) and self._kept[-1].status_code < 300

    @property
    def page(self) -> str | None:
        """The content type of a web page that was answered as if all were well."""
        last = self._kept[-1] if self._kept else None
        kind = last.headers.get("content-type", "") if last is not None and last.status_code == 200 else ""
        return kind if "html" in kind.lower() else None

    @contextmanager
    def kept(self) -> Iterator[None]:
        """What is answered inside is kept here."""
        before = _answers.set(self)
        try:
            yield
        finally:
            _answers.reset(before)

    def add(self, response: httpx2.Response) -> None:
        self._kept.append(response)
        if self._alive is not None:
            notice(response, self._alive)
        if "content-encoding" not in response.headers:
            response.stream = self._watched = _Watched(response.stream, self.overheard.feed)

    async def read_on(self) -> None:
        """The bytes that LiteLLM leaves: up to the end that it does not wait for, then up to the last."""
        if self._watched is None:
            return
        was_cut = self.overheard.is_cut
        async for _ in self._watched:
            if was_cut and not self.overheard.is_cut:
                return

    async def aclose(self) -> None:
        """Give the connections back."""
        for response in self._kept:
            await response.aclose()


class _Watched(httpx2.AsyncByteStream):
    """A response's bytes, each of which is looked at. Where one reader stops another may go on."""

    def __init__(self, inner: Any, look: Callable[[bytes], None]) -> None:
        self._inner, self._look = inner, look
        self._bytes: AsyncIterator[bytes] | None = None

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        if self._bytes is None:
            self._bytes = aiter(self._inner)
        chunk = await anext(self._bytes)
        self._look(chunk)
        return chunk

    async def aclose(self) -> None:
        await self._inner.aclose()


async def on_response(response: httpx2.Response) -> None:
    """An httpx2 event hook. It comes before whoever asked can be cancelled."""
    answers = _answers.get()
    if answers is not None:
        answers.add(response)


class Sender(AsyncHTTPHandler):
    """What LiteLLM sends with. It sends once: the original makes a second try on a connection of its own."""

    def __init__(self, http: httpx2.AsyncClient, sdk: Any, timeout: httpx.Timeout) -> None:
        self._sdk = sdk
        super().__init__(timeout=timeout, transport=_Carrier(http), follow_redirects=False)
        self.client = self._client  # ours to close, not the garbage collector's

    async def single_connection_request(self, *given: Any, **named: Any) -> Any:
        raise httpx.ConnectError("the connection could not be made")

    async def post(self, url: str, *given: Any, **named: Any) -> Any:
        if "cast_to" in named:  # it takes this for the OpenAI SDK's client
            return await self._sdk.post(url, *given, **named)
        return await super().post(url, *given, **named)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.__dict__["_sdk"], name)


class _Carrier(httpx.AsyncBaseTransport):
    """httpx's requests on httpx2's connections. They are not closed with it: they are the client's."""

    def __init__(self, http: httpx2.AsyncClient) -> None:
        self._http = http

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        carried = self._http.build_request(
            request.method, str(request.url), headers=request.headers.raw, content=await request.aread(),
            timeout=httpx2.Timeout(**request.extensions["timeout"]),
        )  # fmt: skip
        try:
            answer = await self._http.send(carried, stream=True)
        except httpx2.HTTPError as error:
            raise _as_httpx(error, request) from error
        if answer.status_code >= 300:
            return _read_whole(answer, request)
        return httpx.Response(
            answer.status_code, headers=answer.headers.raw, stream=_Carried(answer, request), request=request
        )


class _Carried(httpx.AsyncByteStream):
    """A response's bytes, still encoded as they came. LiteLLM closes it before the wire's own end: where it is kept,
    whoever keeps it closes it."""

    def __init__(self, answer: httpx2.Response, request: httpx.Request) -> None:
        self._answer, self._request = answer, request
        self._is_kept = _answers.get() is not None

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for chunk in self._answer.aiter_raw():
                yield chunk
        except httpx2.HTTPError as error:
            raise _as_httpx(error, self._request) from error

    async def aclose(self) -> None:
        if not self._is_kept:
            await self._answer.aclose()


def _read_whole(answer: httpx2.Response, request: httpx.Request) -> httpx.Response:
    """An error, whose body has been read and unpacked."""
    unpacked = (b"content-encoding", b"content-length", b"transfer-encoding")
    headers = [(name, value) for name, value in answer.headers.raw if name.lower() not in unpacked]
    return httpx.Response(answer.status_code, headers=headers, content=answer.content, request=request)


def _as_httpx(error: httpx2.HTTPError, request: httpx.Request) -> httpx.TransportError:
    """The same under the name that LiteLLM looks for."""
    named = getattr(httpx, type(error).__name__, httpx.NetworkError)
    made: httpx.TransportError = named(str(error), request=request)
    return made
