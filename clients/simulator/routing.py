"""Which path is which wire. Paths are known by their end, so a base URL may carry any prefix."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import parse_qs

from .log import Kind
from .wires.wire import Target, Wire

_BEDROCK = re.compile(
    r"/model/(?P<model>.+)/(?P<call>converse|converse-stream|invoke|invoke-with-response-stream|count-tokens)$"
)
_GEMINI = re.compile(
    r"/models/(?P<model>[^/:]+):(?P<call>generateContent|streamGenerateContent|countTokens|embedContent|batchEmbedContents)$"
)
_MANTLE = "/anthropic/v1/"  # of bedrock-mantle.{region}.api.aws
_TYPESAFE = "/typesafe/"  # what the provider's own URL puts before TypeSafe's paths


@dataclass(frozen=True, slots=True, kw_only=True)
class Wires:
    anthropic: Wire
    mantle: Wire
    chat: Wire
    responses: Wire
    converse: Wire
    invoke: Wire
    gemini: Wire
    systemone: Wire
    openrouter: Wire
    decisions: Wire
    embeddings: Wire
    titan: Wire
    cohere: Wire
    gemini_embeddings: Wire


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    wire: Wire
    kind: Kind
    target: Target


def route(wires: Wires, path: str, query: bytes, headers: Mapping[str, str]) -> Route:
    bedrock = _BEDROCK.search(path)
    if bedrock is not None:
        return _bedrock(wires, bedrock["model"], bedrock["call"], path, headers)
    gemini = _GEMINI.search(path)
    if gemini is not None and "mbedContent" in gemini["call"]:
        target = Target(model=gemini["model"], streamed=False, path=path, headers=headers)
        return Route(wire=wires.gemini_embeddings, kind="embeddings", target=target)
    if gemini is not None:
        kind: Kind = "count" if gemini["call"] == "countTokens" else "chat"
        streamed = gemini["call"] == "streamGenerateContent"
        target = Target(model=gemini["model"], streamed=streamed, path=_with_alt(path, query), headers=headers)
        return Route(wire=wires.gemini, kind=kind, target=target)
    wire, kind = _by_end(wires, path, query, headers)
    return Route(wire=wire, kind=kind, target=Target(path=path, headers=headers, query=_asked(query)))


def _bedrock(wires: Wires, model: str, call: str, path: str, headers: Mapping[str, str]) -> Route:
    embeds = None
    if call == "invoke":
        embeds = wires.titan if "titan-embed" in model else wires.cohere if "cohere.embed" in model else None
    if embeds is not None:
        target = Target(model=model, streamed=False, path=path, headers=headers)
        return Route(wire=embeds, kind="embeddings", target=target)
    wire = wires.invoke if call.startswith("invoke") else wires.converse
    kind: Kind = "count" if call == "count-tokens" else "chat"
    target = Target(model=model, streamed=call.endswith("-stream"), path=path, headers=headers)
    return Route(wire=wire, kind=kind, target=target)


def _by_end(wires: Wires, path: str, query: bytes, headers: Mapping[str, str]) -> tuple[Wire, Kind]:
    if path.endswith("/chat/completions"):
        return wires.chat, "chat"
    if path.endswith("/embeddings"):
        return wires.embeddings, "embeddings"
    if path.endswith("/systemone"):
        return wires.systemone, "decision"
    if path.endswith("/decisions"):
        return wires.openrouter if path.endswith("/alpha/decisions") else wires.decisions, "decision"
    if _TYPESAFE in path:
        return wires.systemone, "models" if path.endswith("/models") else "other"
    if path.endswith("/responses"):
        return wires.responses, "chat"
    if path.endswith("/responses/input_tokens"):
        return wires.responses, "count"
    anthropic = wires.mantle if _MANTLE in path else wires.anthropic
    if path.endswith("/messages"):
        return anthropic, "chat"
    if path.endswith("/messages/count_tokens"):
        return anthropic, "count"
    if path.endswith(("/foundation-models", "/inference-profiles")):
        return wires.converse, "models"
    wire = wires.chat
    if "anthropic-version" in headers:
        wire = anthropic
    elif "x-goog-api-key" in headers or b"key=" in query or "/v1beta" in path or "/publishers/google/" in path:
        wire = wires.gemini
    return wire, "models" if path.endswith("/models") else "other"


def _asked(query: bytes) -> dict[str, str]:
    """What the query says, without a key that stands in it."""
    return {name: values[0] for name, values in parse_qs(query.decode("latin-1")).items() if name != "key"}


def _with_alt(path: str, query: bytes) -> str:
    """The path, with how a stream is to be framed where the query says it."""
    alt = parse_qs(query.decode("latin-1")).get("alt")
    return f"{path}?alt={alt[0]}" if alt else path
