"""The ASGI app: which path is which wire, and what every request has in common."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from .answering import Answering
from .connection import ClientLeftError, Connection, Message, Receive, Scope, Send
from .log import Kind, SeenRequest
from .settings import EVERY_MODEL, Serving
from .wires.wire import Wire, WireError

_SECRET = frozenset({"authorization", "x-api-key", "api-key", "cookie", "proxy-authorization"})
_REDACTED = "[redacted]"


class SimulatedApp:
    """Paths are known by their end, so a base URL may carry any prefix."""

    def __init__(self, serving: Serving, anthropic: Wire, openai: Wire) -> None:
        self._serving = serving
        self._anthropic = anthropic
        self._openai = openai

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await _lifespan(receive, send)
            return
        if scope["type"] != "http":
            raise RuntimeError(f"the simulated provider speaks HTTP, not {scope['type']}")
        path: str = scope["path"]
        headers, key = _headers(scope["headers"])
        wire, kind = self._route(path, headers)
        entry = self._enter(path, headers, wire, kind)
        connection = Connection(scope, receive, send, self._serving.sleep)
        try:
            await self._serve(scope["method"], wire, kind, connection, entry, key)
        except ClientLeftError:
            entry.cut = "client"
        finally:
            self._serving.log.finish(entry, self._serving.now())
            await connection.aclose()

    def _route(self, path: str, headers: Mapping[str, str]) -> tuple[Wire, Kind]:
        if path.endswith("/chat/completions"):
            return self._openai, "chat"
        if path.endswith("/messages"):
            return self._anthropic, "chat"
        if path.endswith("/messages/count_tokens"):
            return self._anthropic, "count"
        wire = self._anthropic if "anthropic-version" in headers else self._openai
        return wire, "models" if path.endswith("/models") else "other"

    def _enter(self, path: str, headers: dict[str, str], wire: Wire, kind: Kind) -> SeenRequest:
        log = self._serving.log
        entry = SeenRequest(
            number=log.total,
            at_s=self._serving.now(),
            wire=wire.name,
            path=path,
            kind=kind,
            model="",
            body={},
            headers=headers,
        )
        log.add(entry)
        return entry

    async def _serve(
        self, method: str, wire: Wire, kind: Kind, connection: Connection, entry: SeenRequest, key: str | None
    ) -> None:
        data = await connection.body()
        answering = Answering(self._serving, wire, connection, entry, key)
        try:
            if kind == "other":
                raise WireError(404, f"Not found: {method} {entry.path}")
            if method != ("GET" if kind == "models" else "POST"):
                raise WireError(405, f"Method not allowed: {method} {entry.path}")
            if kind == "models":
                self._serving.check_key(key)
                await answering.give(wire.models(self._known()))
                return
            body = _parsed(data)
            entry.body = body
            entry.model = str(body.get("model", ""))
            if kind == "count":
                _, tokens = answering.read({"max_tokens": 1} | body)
                await answering.give({"input_tokens": tokens})
                return
        except WireError as error:
            await answering.refuse_error(error)
            return
        await answering.run(body)

    def _known(self) -> list[str]:
        serving = self._serving
        if serving.models is not None:
            return list(serving.models)
        named = [name for name in serving.limits if name != EVERY_MODEL]
        return named or ["simulated"]


def _headers(raw: list[tuple[bytes, bytes]]) -> tuple[dict[str, str], str | None]:
    """The headers with their secrets taken out, and the key."""
    key: str | None = None
    headers: dict[str, str] = {}
    for raw_name, raw_value in raw:
        name, value = raw_name.decode("latin-1").lower(), raw_value.decode("latin-1")
        if name in _SECRET:
            if name != "cookie":
                key = value.removeprefix("Bearer ").strip() or key
            value = _REDACTED
        headers[name] = value
    return headers, key


def _parsed(data: bytes) -> dict[str, Any]:
    try:
        body = json.loads(data)
    except ValueError:
        raise WireError(400, "The request body is not valid JSON.") from None
    if not isinstance(body, dict):
        raise WireError(400, "Input should be a valid dictionary")
    return body


async def _lifespan(receive: Receive, send: Send) -> None:
    while True:
        kind = (await receive())["type"]
        answer: Message = {"type": f"{kind}.complete"}
        await send(answer)
        if kind == "lifespan.shutdown":
            return
