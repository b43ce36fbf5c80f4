"""`bedrock-converse`: any model of Amazon Bedrock over Converse and ConverseStream.

botocore signs and reads; httpx2 carries. boto3's own call blocks a thread, and a thread cannot be cancelled: its socket
would stay open until the model has finished, with the tokens that costs. Here a cancelled call closes its connection.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any, ClassVar
from urllib.parse import quote

import httpx2

from interlock.catalog.tokens import estimate_text
from interlock.errors import UpstreamError

from ..abstract import Events
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
from ..listing import ListedModel
from ..response import Piece, PieceKind
from ..schema import ANTHROPIC
from ..turns import refused
from .aws import AwsChatClient, signed_headers
from .bedrock_models import bedrock_models
from .converse_reading import FrameDecoder, read_event, read_reply
from .sdk import as_json, part_of

MOST_CACHE_POINTS = 4
#: What of a request the endpoint that counts tokens takes.
COUNTED = frozenset({"messages", "system", "toolConfig", "additionalModelRequestFields"})
_IMAGE_FORMATS = {"image/png": "png", "image/jpeg": "jpeg", "image/gif": "gif", "image/webp": "webp"}
_DOCUMENT_FORMATS = {
    "application/pdf": "pdf", "text/csv": "csv", "application/msword": "doc", "text/html": "html", "text/plain": "txt",
    "application/vnd.openxmlformats-officedocument.wordprocessingml.document": "docx", "text/markdown": "md",
    "application/vnd.ms-excel": "xls",
    "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet": "xlsx",
}  # fmt: skip
#: What a document's name may hold; anything else is taken out.
_NOT_IN_A_NAME = re.compile(r"[^a-zA-Z0-9\s\-()\[\]]+")
#: How large a document's or image's name, and how many letters of it are kept.
_LONGEST_NAME = 200
_POINT = {"cachePoint": {"type": "default"}}

Part = dict[str, Any]


def _marked(part: Part, cache: bool) -> list[Part]:
    return [part, dict(_POINT)] if cache else [part]


def _text(block: TextBlock) -> list[Part]:
    return _marked({"text": block.text}, block.cache)


def _source(block: ImageBlock | DocumentBlock) -> Part:
    if block.data is not None:
        return {"bytes": base64.b64encode(block.data).decode()}
    if block.url is not None and block.url.startswith("s3://"):
        return {"s3Location": {"uri": block.url}}
    raise refused(f"Converse takes the bytes of a {type(block).__name__}, or an s3:// url, not {block.url!r}")


def _image(block: ImageBlock) -> list[Part]:
    form = _IMAGE_FORMATS.get(block.media_type)
    if form is None:
        raise refused(f"Converse takes no {block.media_type}; images are {', '.join(_IMAGE_FORMATS)}")
    return _marked({"image": {"format": form, "source": _source(block)}}, block.cache)


def _document(block: DocumentBlock) -> list[Part]:
    form = _DOCUMENT_FORMATS.get(block.media_type)
    if form is None:
        raise refused(f"Converse takes no {block.media_type}; documents are {', '.join(_DOCUMENT_FORMATS)}")
    name = " ".join(_NOT_IN_A_NAME.sub(" ", block.name).split())[:_LONGEST_NAME].strip() or "document"
    return _marked({"document": {"format": form, "name": name, "source": _source(block)}}, block.cache)


def _tool_use(block: ToolUseBlock) -> list[Part]:
    return [{"toolUse": {"toolUseId": block.id, "name": block.name, "input": dict(block.input)}}]


def _tool_result(block: ToolResultBlock) -> list[Part]:
    result: Part = {"toolUseId": block.tool_use_id, "content": [{"text": block.content.strip() or "(no output)"}]}
    if block.content.strip():
        result["content"] = [{"text": block.content}]
    if block.is_error:
        result["status"] = "error"
    return _marked({"toolResult": result}, block.cache)


def _thinking(block: ThinkingBlock) -> list[Part]:
    """Back with its signature, byte for byte. What was redacted, or never signed, is not wanted back."""
    if block.signature is None or block.redacted is not None:
        return []
    return [{"reasoningContent": {"reasoningText": {"text": block.text, "signature": block.signature}}}]


def _server_tool(block: ServerToolBlock) -> list[Part]:
    return [{block.kind: dict(block.payload)}]


class BedrockConverseClient(AwsChatClient):
    """Any chat model of Bedrock."""

    encoders: ClassVar = {
        TextBlock: _text,
        ImageBlock: _image,
        DocumentBlock: _document,
        ToolUseBlock: _tool_use,
        ToolResultBlock: _tool_result,
        ThinkingBlock: _thinking,
        ServerToolBlock: _server_tool,
    }
    takes = frozenset({"temperature", "top_p", "stop", "tools", "tool_choice"})
    reserved = AwsChatClient.reserved | {"modelId", "inferenceConfig", "toolConfig", "system"}
    dialect = ANTHROPIC
    signs_as: ClassVar[str | None] = "bedrock-converse"
    call_ids = re.compile(r"[a-zA-Z0-9_.:-]{1,64}")

    # Writing.

    def encode(self, ask: Ask) -> dict[str, Any]:
        config: dict[str, Any] = {"maxTokens": ask.max_output_tokens}
        options = ask.options
        named = {"temperature": options.temperature, "topP": options.top_p}
        config.update({name: value for name, value in named.items() if value is not None})
        if options.stop:
            config["stopSequences"] = list(options.stop)
        wire: dict[str, Any] = {"messages": self._messages(ask.conversation.messages), "inferenceConfig": config}
        if ask.system is not None:
            wire["system"] = [{"text": ask.system}]
        tools = self._tools(ask)
        if tools is not None:
            wire["toolConfig"] = tools
        if ask.structure is not None and ask.structure.mode == "native":
            schema = {"schema": json.dumps(ask.structure.schema), "name": ask.structure.shape.name}
            wire["outputConfig"] = {"textFormat": {"type": "json_schema", "structure": {"jsonSchema": schema}}}
        thinking = _thinking_fields(ask)
        if thinking:
            wire["additionalModelRequestFields"] = thinking
        _settle_points(wire, ask)
        return wire

    def _messages(self, messages: Sequence[Message]) -> list[dict[str, Any]]:
        turns: list[dict[str, Any]] = []
        for message in messages:
            parts = [part for block in message.blocks for part in self.encoders[type(block)](block)]
            if any("document" in part for part in parts) and not any("text" in part for part in parts):
                raise refused(f"Converse wants a text beside a document (a turn of {message.role} has none)",
                              model=self.entry.id)  # fmt: skip
            if parts:
                turns.append({"role": message.role, "content": parts})
        if not turns:
            raise refused("the conversation holds nothing that can be sent", model=self.entry.id)
        last = turns[-1]["content"][-1]
        if turns[-1]["role"] == "assistant" and "text" in last:
            last["text"] = last["text"].rstrip()  # white space at the end of a begun answer is refused
        return turns

    def _tools(self, ask: Ask) -> dict[str, Any] | None:
        """Converse wants the tools named wherever the history holds calls; those of the history stand in for them."""
        called = {
            block.name: block
            for message in ask.conversation.messages
            for block in message.blocks
            if isinstance(block, ToolUseBlock)
        }
        specs = [
            {"name": tool.name, "description": tool.description, "inputSchema": {"json": dict(tool.schema)}}
            for tool in ask.tools
        ]
        if not specs and not called:
            return None
        specs = specs or [{"name": name, "inputSchema": {"json": {"type": "object"}}} for name in called]
        for spec in specs:
            if not spec.get("description"):
                spec.pop("description", None)  # an empty one is refused
        config: dict[str, Any] = {"tools": [{"toolSpec": spec} for spec in specs]}
        chosen = ask.tool_choice
        forced = ask.structure is not None and ask.structure.tool_name is not None and ask.options.tool_choice is None
        if forced and ask.thinking_tokens:
            chosen = None  # a thinking model refuses to be forced; it is offered the tool
        if chosen == "none":
            raise refused("Converse has no tool_choice 'none': leave the tools out", model=self.entry.id)
        if chosen is not None and ask.tools:
            known: dict[str, Part] = {"auto": {"auto": {}}, "any": {"any": {}}}
            config["toolChoice"] = known.get(chosen, {"tool": {"name": chosen}})
        return config

    # Reading.

    def read_reply(self, payload: Any, draft: Draft) -> None:
        read_reply(payload, draft, self._slipped)

    def read_event(self, event: Any, draft: Draft) -> Sequence[Piece]:
        if isinstance(event, dict):  # a server that answered whole
            read_reply(event, draft, self._slipped)
            draft.complete = True
            return (Piece(kind=PieceKind.TEXT, text=draft.partial),) if draft.partial else ()
        name, payload = event
        if name == "error":
            raise self._said_no(None, payload, None)
        return read_event(name, payload, draft, self._slipped)

    def _slipped(self, reason: str, draft: Draft) -> Exception:
        return self.malformed(f"ended the answer with {reason}", usage=draft.usage, request_id=draft.request_id,
                              provider_code=reason)  # fmt: skip

    # Sending.

    def make_sdk(self, *, api_key: str | None, base_url: str, http: httpx2.AsyncClient, timeout: httpx2.Timeout) -> Any:
        return _Sender(self, base_url, http, timeout)

    async def post(self, body: bytes) -> httpx2.Response:
        return await self._whole(self.path_of(streamed=False), body)

    async def post_streamed(self, body: bytes) -> tuple[httpx2.Response, Events, Callable[[], Awaitable[None]]]:
        response = await self._asked(self.path_of(streamed=True), body)
        if response.status_code >= 300:
            await response.aread()
        return self._served(response), _Frames(response), response.aclose

    async def count_tokens(self, body: bytes) -> int | None:
        asked = as_json({"input": {"converse": part_of(body, COUNTED)}})
        tokens = self.read_count(await self._whole(self.counted_path, asked), "inputTokens")
        # The schema of a typed answer has no place in what is counted: that part is estimated.
        return tokens + sum(estimate_text(as_json(form)) for form in part_of(body, ("outputConfig",)).values())

    def path_of(self, *, streamed: bool) -> str:
        return f"/model/{quote(self.entry.wire_model_id, safe='')}/converse{'-stream' if streamed else ''}"

    async def _asked(self, path: str, body: bytes) -> httpx2.Response:
        sender: _Sender = self._sdk()
        return await sender.post(path, body)

    async def _whole(self, path: str, body: bytes) -> httpx2.Response:
        response = await self._asked(path, body)
        try:
            await response.aread()
        except BaseException:
            await response.aclose()
            raise
        return self._served(response)

    def _served(self, response: httpx2.Response) -> httpx2.Response:
        if response.status_code < 300:
            return response
        try:
            body = json.loads(response.content)
        except ValueError:
            body = response.text[:500]
        raise self._said_no(response.status_code, body, response)

    async def list_models(self) -> Sequence[ListedModel]:
        return await bedrock_models(self)

    def read_error(self, error: Exception) -> UpstreamError | None:
        return error if isinstance(error, UpstreamError) else super().read_error(error)


class _Sender:
    """Signs a request and sends it over httpx2: what stands in an SDK's place."""

    def __init__(
        self, client: BedrockConverseClient, base_url: str, http: httpx2.AsyncClient, timeout: httpx2.Timeout
    ) -> None:
        self._client, self._base_url, self._http, self._timeout = client, base_url.rstrip("/"), http, timeout

    async def post(self, path: str, body: bytes) -> httpx2.Response:
        url = f"{self._base_url}{path}"
        accept = "application/vnd.amazon.eventstream" if path.endswith("-stream") else "application/json"
        headers = {"content-type": "application/json", "accept": accept}
        headers = await signed_headers(self._client, url=url, headers=headers, body=body, service="bedrock")
        request = self._http.build_request("POST", url, content=body, headers=headers, timeout=self._timeout)
        return await self._http.send(request, stream=True)


class _Frames:
    """The events of a response in AWS's frames. It is only touched when the first one is asked for."""

    def __init__(self, response: httpx2.Response) -> None:
        self._response = response
        self._events: AsyncIterator[tuple[str, Mapping[str, Any]]] | None = None

    async def __anext__(self) -> Any:
        if self._events is None:
            self._events = self._read()
        return await self._events.__anext__()

    async def _read(self) -> AsyncIterator[tuple[str, Mapping[str, Any]]]:
        decoder = FrameDecoder()
        async for chunk in self._response.aiter_bytes():
            for event in decoder.feed(chunk):
                yield event


def _thinking_fields(ask: Ask) -> dict[str, Any]:
    """How much it may think, in the words of Claude: the one family whose thinking Converse passes on."""
    mode = ask.entry.thinking.mode
    if mode == "budget" and ask.thinking_tokens:
        return {"thinking": {"type": "enabled", "budget_tokens": ask.thinking_tokens}}
    if mode == "adaptive":
        return {"thinking": {"type": "adaptive" if ask.thinking_tokens else "disabled"}}
    return {}


def _settle_points(wire: dict[str, Any], ask: Ask) -> None:
    """Cache points where the caller and `cache=True` put them: none where the entry has no cache, at most four."""
    lists: list[list[Part]] = [wire.get("toolConfig", {}).get("tools", []), wire.get("system", [])]
    lists += [message["content"] for message in wire["messages"]]
    if ask.options.cache:
        for place in (lists[0], lists[1], lists[-1]):
            if place and "cachePoint" not in place[-1]:
                place.append(dict(_POINT))
    points = [(place, part) for place in lists for part in place if "cachePoint" in part]
    kept = points[-MOST_CACHE_POINTS:] if ask.entry.caching == "marks" else []
    lifetime = ask.options.cache_ttl or ask.entry.cache_ttl
    for place, part in points:
        if not any(part is one for _, one in kept):
            place[:] = [one for one in place if one is not part]
        elif lifetime == "1h":
            part["cachePoint"] = {"type": "default", "ttl": "1h"}
