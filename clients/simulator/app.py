"""The ASGI app: which path is which wire, and what every request has in common."""

from __future__ import annotations

import json
import re
from typing import Any
from urllib.parse import parse_qs

from .answering import Answering
from .connection import ClientLeftError, Connection, Message, Receive, Scope, Send
from .log import SeenRequest
from .routing import Route, Wires, route
from .settings import EVERY_MODEL, Serving
from .wires.wire import WireError

_SECRET = frozenset(
    {
        "authorization",
        "x-api-key",
        "api-key",
        "x-goog-api-key",
        "x-amz-security-token",
        "cookie",
        "proxy-authorization",
    }
)
_NO_KEY = frozenset({"cookie", "x-amz-security-token", "proxy-authorization"})
_SIGNED = re.compile(r"Credential=([^/,\s]+)/\d+/([^/,\s]+)/([^/,\s]+)/aws4_request")
_REDACTED = "[redacted]"


class SimulatedApp:
    """Every wire on one port, known by path."""

    def __init__(self, serving: Serving, wires: Wires) -> None:
        self._serving = serving
        self._wires = wires

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await _lifespan(receive, send)
            return
        if scope["type"] != "http":
            raise RuntimeError(f"the simulated provider speaks HTTP, not {scope['type']}")
        path: str = scope["path"]
        headers, key, signed_for = _headers(scope["headers"])
        query: bytes = scope.get("query_string", b"")
        found = route(self._wires, path, query, headers)
        entry = self._enter(path, headers, found, signed_for)
        connection = Connection(scope, receive, send, self._serving.sleep)
        try:
            await self._serve(scope["method"], found, connection, entry, key or _key_in(query))
        except ClientLeftError:
            entry.cut = "client"
        finally:
            self._serving.log.finish(entry, self._serving.now())
            await connection.aclose()

    def _enter(self, path: str, headers: dict[str, str], found: Route, signed_for: str | None) -> SeenRequest:
        log = self._serving.log
        entry = SeenRequest(
            number=log.total,
            at_s=self._serving.now(),
            wire=found.wire.name,
            path=path,
            kind=found.kind,
            model=found.target.model or "",
            body={},
            headers=headers,
            signed_for=signed_for,
        )
        log.add(entry)
        return entry

    async def _serve(
        self, method: str, found: Route, connection: Connection, entry: SeenRequest, key: str | None
    ) -> None:
        data = await connection.body()
        wire, kind = found.wire, found.kind
        answering = Answering(self._serving, wire, found.target, connection, entry, key)
        try:
            if kind == "other":
                raise WireError(404, f"Not found: {method} {entry.path}")
            if method != ("GET" if kind == "models" else "POST"):
                raise WireError(405, f"Method not allowed: {method} {entry.path}")
            if kind == "models":
                self._serving.check_key(wire, key)
                await answering.give(wire.models(self._known(), found.target))
                return
            body = _parsed(data)
            entry.body = body
            entry.model = found.target.model or str(body.get("model", ""))
            if kind == "count":
                await answering.count(body)
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


def _headers(raw: list[tuple[bytes, bytes]]) -> tuple[dict[str, str], str | None, str | None]:
    """The headers with their secrets taken out, the key, and what an AWS signature was made for.

    A signature is not checked: its key is the access key id, and what it was made for `region/service`.
    """
    key: str | None = None
    signed_for: str | None = None
    headers: dict[str, str] = {}
    for raw_name, raw_value in raw:
        name, value = raw_name.decode("latin-1").lower(), raw_value.decode("latin-1")
        if name in _SECRET:
            signed = _SIGNED.search(value) if value.startswith("AWS4-") else None
            if signed is not None:
                key, signed_for = signed[1], f"{signed[2]}/{signed[3]}"
            elif name not in _NO_KEY:
                key = value.removeprefix("Bearer ").strip() or key
            value = _REDACTED
        headers[name] = value
    return headers, key, signed_for


def _key_in(query: bytes) -> str | None:
    """A key in the query, which is never logged."""
    found = parse_qs(query.decode("latin-1")).get("key")
    return found[0] if found else None


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
