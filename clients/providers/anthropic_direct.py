"""`anthropic-direct`: Claude over Anthropic's Messages API."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, ClassVar

import anthropic
import httpx2
from anthropic import AsyncStream

from interlock.admission.outcome import Dimension, ReportedLimit
from interlock.catalog.words import Depth, Input

from ..answer import Draft
from ..asking import Ask
from ..conversation import (
    DocumentBlock,
    ImageBlock,
    Message,
    ServerToolBlock,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
)
from ..hints import anthropic_limits
from ..listing import MOST_PAGES, PAGE, ListedModel, items_of, text_of, tokens_of
from ..response import Piece
from ..schema import ANTHROPIC
from ..turns import refused
from .anthropic_reading import CONTAINER, caller_in, citations_in, container_of, read_event, read_reply
from .sdk import SdkChatClient, as_json, part_of

#: The API takes at most this many cache marks; of more, the last ones count.
MOST_CACHE_MARKS = 4

#: What of a request the endpoint that counts tokens takes.
COUNTED = frozenset({"model", "messages", "system", "tools", "tool_choice", "thinking", "output_config"})

#: What it takes by its bytes. Anything else is an error of the provider's, after it was sent.
_IMAGES = ("image/jpeg", "image/png", "image/gif", "image/webp")
_DOCUMENTS = ("application/pdf",)

_MARK = {"type": "ephemeral"}
#: Parts that a mark of ours may stand on: what the provider made itself goes back as it came.
_MARKABLE = frozenset({"text", "image", "document", "tool_use", "tool_result"})

EFFORTS: Mapping[Depth, str] = {
    Depth.IMMEDIATE: "low",
    Depth.QUICK: "low",
    Depth.STANDARD: "medium",
    Depth.THOROUGH: "high",
}


def _marked(part: dict[str, Any], cache: bool) -> dict[str, Any]:
    return {**part, "cache_control": _MARK} if cache else part


def _text(block: TextBlock) -> dict[str, Any] | None:
    if not block.text.strip():
        return None  # only its signature kept it: a text without any is refused
    return _marked({"type": "text", "text": block.text, **citations_in(block.signature)}, block.cache)


def _source(data: bytes | None, url: str | None, media_type: str) -> dict[str, Any]:
    if data is None:
        return {"type": "url", "url": url}
    return {"type": "base64", "media_type": media_type, "data": base64.b64encode(data).decode()}


def _image(block: ImageBlock) -> dict[str, Any]:
    if block.data is not None and block.media_type not in _IMAGES:
        raise refused(f"Anthropic takes no {block.media_type}; images are {', '.join(_IMAGES)}")
    return _marked({"type": "image", "source": _source(block.data, block.url, block.media_type)}, block.cache)


def _document(block: DocumentBlock) -> dict[str, Any]:
    source = _source(block.data, block.url, block.media_type)
    if block.data is not None and block.media_type.startswith("text/"):
        try:
            source = {"type": "text", "media_type": "text/plain", "data": block.data.decode()}
        except UnicodeDecodeError:
            raise refused(f"the document {block.name!r} is not UTF-8 text") from None
    elif block.data is not None and block.media_type not in _DOCUMENTS:
        raise refused(f"Anthropic takes no {block.media_type}; documents are {', '.join(_DOCUMENTS)} and text")
    return _marked({"type": "document", "source": source, "title": block.name}, block.cache)


def _tool_use(block: ToolUseBlock) -> dict[str, Any]:
    part = {"type": "tool_use", "id": block.id, "name": block.name, "input": dict(block.input)}
    return {**part, **caller_in(block.signature)}


def _tool_result(block: ToolResultBlock) -> dict[str, Any]:
    part: dict[str, Any] = {"type": "tool_result", "tool_use_id": block.tool_use_id}
    if block.content.strip():  # an empty text inside is refused; no content at all is not
        part["content"] = block.content
    if block.is_error:
        part["is_error"] = True
    return _marked(part, block.cache)


def _thinking(block: ThinkingBlock) -> dict[str, Any] | None:
    """Back byte for byte. Thinking that another provider did has no signature, and is refused here: it stays out."""
    if block.redacted is not None:
        return {"type": "redacted_thinking", "data": block.redacted}
    if block.signature is None:
        return None
    return {"type": "thinking", "thinking": block.text, "signature": block.signature}


def _server_tool(block: ServerToolBlock) -> dict[str, Any] | None:
    """Back as it came. A container is no part of the conversation (`container_of`)."""
    return None if block.kind == CONTAINER else {**block.payload, "type": block.kind}


class AnthropicDirectClient(SdkChatClient):
    """Claude, directly from Anthropic."""

    encoders: ClassVar = {
        TextBlock: _text,
        ImageBlock: _image,
        DocumentBlock: _document,
        ToolUseBlock: _tool_use,
        ToolResultBlock: _tool_result,
        ThinkingBlock: _thinking,
        ServerToolBlock: _server_tool,
    }
    takes = frozenset({"temperature", "top_p", "stop", "tools", "tool_choice", "parallel_tool_calls"})
    dialect = ANTHROPIC
    signs_as: ClassVar[str | None] = "anthropic"
    call_ids = re.compile(r"[a-zA-Z0-9_-]+")
    path = "/v1/messages"
    request_id_header = "request-id"
    default_base_url: ClassVar[str | None] = "https://api.anthropic.com"
    default_credential: ClassVar[str | None] = "anthropic-api-key"

    # Writing.

    def encode(self, ask: Ask) -> dict[str, Any]:
        options = ask.options
        wire: dict[str, Any] = {
            "model": ask.entry.wire_model_id,
            "max_tokens": ask.max_output_tokens,
            "messages": self._messages(ask.conversation.messages),
        }
        if ask.system is not None:
            wire["system"] = [{"type": "text", "text": ask.system}]
        if ask.tools:
            wire["tools"] = [
                {"name": tool.name, "description": tool.description, "input_schema": dict(tool.schema)}
                for tool in ask.tools
            ]
            choice = _tool_choice(ask)
            if choice is not None:
                wire["tool_choice"] = choice
        if options.stop:
            wire["stop_sequences"] = list(options.stop)
        for name in ("temperature", "top_p"):
            if getattr(options, name) is not None:
                wire[name] = getattr(options, name)
        _add_depth(wire, ask)
        if ask.structure is not None and ask.structure.mode == "native":
            wire.setdefault("output_config", {})["format"] = {"type": "json_schema", "schema": ask.structure.schema}
        if ask.stream:
            wire["stream"] = True
        container = container_of(ask.conversation.messages)
        if container is not None:
            wire[CONTAINER] = container
        _settle_marks(wire, ask)
        return wire

    def with_options(self, wire: dict[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
        """What is said of a container without naming one is said of the one that the turn works in."""
        told, begun = options.get(CONTAINER), wire.get(CONTAINER)
        if isinstance(told, Mapping) and told.get("id") is None and isinstance(begun, str):
            options = {**options, CONTAINER: {**told, "id": begun}}
        return super().with_options(wire, options)

    def _messages(self, messages: Sequence[Message]) -> list[dict[str, Any]]:
        turns: list[dict[str, Any]] = []
        for message in messages:
            parts = [part for block in message.blocks if (part := self.encoders[type(block)](block)) is not None]
            if parts:
                turns.append({"role": message.role, "content": parts})
        if not turns:
            raise refused("the conversation holds nothing that can be sent", model=self.entry.id)
        last = turns[-1]["content"][-1]
        if turns[-1]["role"] == "assistant" and last["type"] == "text":
            last["text"] = last["text"].rstrip()  # the API refuses white space at the end of a begun answer
        return turns

    # Reading.

    def read_reply(self, payload: Any, draft: Draft) -> None:
        read_reply(payload, draft)

    def read_event(self, event: Any, draft: Draft) -> Sequence[Piece]:
        return read_event(event, draft)

    # Sending.

    def make_sdk(self, *, api_key: str | None, base_url: str, http: httpx2.AsyncClient, timeout: httpx2.Timeout) -> Any:
        return anthropic.AsyncAnthropic(
            api_key=api_key or "none",
            base_url=base_url,
            http_client=http,
            timeout=timeout,
            max_retries=0,
            open_telemetry=False,
        )

    def stream_class(self) -> Any:
        return AsyncStream[object]

    def read_limits(self, headers: Mapping[str, str], *, now: datetime) -> dict[Dimension, ReportedLimit]:
        return anthropic_limits(headers, now=now)

    async def count_tokens(self, body: bytes) -> int | None:
        response = await self.post_to("/v1/messages/count_tokens", as_json(part_of(body, COUNTED)))
        return self.read_count(response, "input_tokens")

    async def list_models(self) -> Sequence[ListedModel]:
        found: list[ListedModel] = []
        query = {"limit": str(PAGE)}
        for _ in range(MOST_PAGES):
            page = await self.get("/v1/models", query)
            found += [_listed(item) for item in items_of(page, "data") if item.get("lifecycle") != "retired"]
            last = text_of(page.get("last_id"))
            if not page.get("has_more") or last is None:
                return found
            query = {"limit": str(PAGE), "after_id": last}
        raise ValueError(f"its list of models has more than {MOST_PAGES} pages")


def _tool_choice(ask: Ask) -> dict[str, Any] | None:
    chosen, parallel = ask.tool_choice, ask.options.parallel_tool_calls
    forced = ask.structure is not None and ask.structure.tool_name is not None and ask.options.tool_choice is None
    if forced and ask.thinking_tokens:
        chosen = None  # a thinking model refuses to be forced; it is offered the tool
    if forced and not ask.options.tools:
        parallel = False
    if chosen is None and parallel is None:
        return None
    known = chosen in ("auto", "any", "none") or chosen is None
    choice: dict[str, Any] = {"type": chosen or "auto"} if known else {"type": "tool", "name": chosen}
    if parallel is not None and chosen != "none":
        choice["disable_parallel_tool_use"] = not parallel
    return choice


def _add_depth(wire: dict[str, Any], ask: Ask) -> None:
    """How much it may think. An adaptive model that is given no room for it is told not to; one that always thinks has
    room even for an immediate answer (`budgets` in its entry), and is told to be brief."""
    mode = ask.entry.thinking.mode
    if mode == "budget" and ask.thinking_tokens:
        wire["thinking"] = {"type": "enabled", "budget_tokens": ask.thinking_tokens}
    elif mode == "adaptive" and not ask.thinking_tokens:
        wire["thinking"] = {"type": "disabled"}
    elif mode == "adaptive" and ask.depth is not Depth.IMMEDIATE:
        wire["thinking"] = {"type": "adaptive"}
    if mode in ("adaptive", "effort") and ask.thinking_tokens:
        wire["output_config"] = {"effort": EFFORTS[ask.depth]}


def _settle_marks(wire: dict[str, Any], ask: Ask) -> None:
    """Cache marks where the caller and `cache=True` put them: none where the entry has no cache, at most four, and all
    with the one lifetime that was asked for."""
    options = ask.options
    tools, system = wire.get("tools", []), wire.get("system", [])
    parts = [part for message in wire["messages"] for part in message["content"]]
    markable = [part for part in parts if part["type"] in _MARKABLE]
    if options.cache:
        for place in (tools, system, markable):
            if place:
                place[-1] = place[-1] if place is markable else {**place[-1], "cache_control": _MARK}
        if markable:
            markable[-1]["cache_control"] = _MARK
    marked = [part for part in (*tools, *system, *parts) if "cache_control" in part]
    kept = marked[-MOST_CACHE_MARKS:] if ask.entry.caching == "marks" else []
    lifetime = options.cache_ttl or ask.entry.cache_ttl
    for part in marked:
        if any(part is one for one in kept):
            part["cache_control"] = {**_MARK, "ttl": lifetime} if lifetime else _MARK
        else:
            del part["cache_control"]


def _listed(item: Mapping[str, Any]) -> ListedModel:
    takes = item.get("capabilities")
    images, documents = (takes.get(name) if isinstance(takes, dict) else None for name in ("image_input", "pdf_input"))
    known = {Input.IMAGES: images, Input.DOCUMENTS: documents}
    given = {each for each, told in known.items() if isinstance(told, dict) and told.get("supported") is True}
    return ListedModel(
        wire_model_id=item["id"],
        name=text_of(item.get("display_name")),
        context_window=tokens_of(item.get("max_input_tokens")),
        max_output_tokens=tokens_of(item.get("max_tokens")),
        inputs=frozenset({Input.TEXT, *given}) if isinstance(takes, dict) else None,
    )
