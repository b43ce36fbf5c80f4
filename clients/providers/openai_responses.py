"""`openai`: OpenAI models over the Responses API. Stateless: nothing is stored there, and reasoning comes back to it as
the encrypted items that it gave."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from ..abstract import AbstractLLMClient
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
from ..options import Tool
from ..response import Piece
from ..turns import refused
from ..writing import json_text
from .openai_sdk import EFFORTS, TOOL_CHOICES, OpenAISdkClient, add_cache_key, data_url
from .responses_reading import ResponsesReader, reasoning_item
from .sdk import as_json, part_of

#: Cache marks that are sent at most; of more, the last ones count.
MOST_CACHE_MARKS = 4
#: A mark's lifetime as this wire counts it: a minimum, of which it knows two.
CACHE_TTLS = {"5m": "30m", "1h": "12h"}
#: What of a request the endpoint that counts tokens takes.
COUNTED = frozenset({
    "model", "input", "instructions", "tools", "tool_choice", "parallel_tool_calls", "text", "reasoning", "truncation",
})  # fmt: skip
#: Where a content part may carry a cache mark.
_MARKABLE = frozenset({"input_text", "input_image", "input_file"})


def _marked(part: dict[str, Any], cache: bool) -> dict[str, Any]:
    return {**part, "prompt_cache_breakpoint": {"mode": "explicit"}} if cache else part


def _text(block: TextBlock) -> dict[str, Any]:
    return _marked({"type": "input_text", "text": block.text}, block.cache)


def _image(block: ImageBlock) -> dict[str, Any]:
    url = block.url if block.data is None else data_url(block.data, block.media_type)
    return _marked({"type": "input_image", "image_url": url, "detail": "auto"}, block.cache)


def _document(block: DocumentBlock) -> dict[str, Any]:
    if block.data is None:
        return _marked({"type": "input_file", "file_url": block.url}, block.cache)
    file = {"filename": block.name, "file_data": data_url(block.data, block.media_type)}
    return _marked({"type": "input_file", **file}, block.cache)


def _tool_use(block: ToolUseBlock) -> dict[str, Any]:
    arguments = json_text(block.input, f"the input of tool call {block.id!r}")
    return {"type": "function_call", "call_id": block.id, "name": block.name, "arguments": arguments}


def _tool_result(block: ToolResultBlock) -> dict[str, Any]:
    # The wire has no word for a failed tool: it is said in the text.
    output = f"[error] {block.content}" if block.is_error else block.content
    return {"type": "function_call_output", "call_id": block.tool_use_id, "output": output}


def _thinking(block: ThinkingBlock) -> dict[str, Any] | None:
    """The item as it came. Thinking without one (not encrypted, or of another provider) stays out: it is refused."""
    return reasoning_item(block.signature)


def _server_tool(block: ServerToolBlock) -> dict[str, Any]:
    """The item as it came. One of the caller's own making answers such an item (`mcp_approval_response`)."""
    return {**block.payload, "type": block.kind}


class OpenAIResponsesClient(OpenAISdkClient):
    """OpenAI's Responses API."""

    encoders: ClassVar = {
        TextBlock: _text,
        ImageBlock: _image,
        DocumentBlock: _document,
        ToolUseBlock: _tool_use,
        ToolResultBlock: _tool_result,
        ThinkingBlock: _thinking,
        ServerToolBlock: _server_tool,
    }
    takes = frozenset({"temperature", "top_p", "tools", "tool_choice", "parallel_tool_calls"})
    reserved = AbstractLLMClient.reserved | {
        "input", "max_output_tokens", "store", "background", "previous_response_id", "conversation",
    }  # fmt: skip
    signs_as: ClassVar[str | None] = "openai-responses"
    path = "/responses"
    call_ids = re.compile(r".{1,64}")

    # Writing.

    def encode(self, ask: Ask) -> dict[str, Any]:
        options = ask.options
        items = [item for message in ask.conversation.messages for item in self._items(message)]
        if not items:
            raise refused("the conversation holds nothing that can be sent", model=self.entry.id)
        wire: dict[str, Any] = {
            "model": ask.entry.wire_model_id,
            "input": items,
            "max_output_tokens": ask.max_output_tokens,
            "store": False,
        }
        if ask.system is not None:
            wire["instructions"] = ask.system
        for name in ("temperature", "top_p"):
            if getattr(options, name) is not None:
                wire[name] = getattr(options, name)
        _add_tools(wire, ask)
        self._add_reasoning(wire, ask)
        if ask.structure is not None and ask.structure.mode == "native":
            form = {"name": ask.structure.shape.name, "schema": ask.structure.schema, "strict": True}
            wire["text"] = {"format": {"type": "json_schema", **form}}
        if ask.stream:
            wire["stream"] = True
        _settle_marks(wire, ask)
        add_cache_key(wire, ask)
        return wire

    def with_options(self, wire: dict[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
        """What is to be included joins what stands there: reasoning could not go back without it."""
        asked, there = options.get("include"), wire.get("include", [])
        if isinstance(asked, (list, tuple)):
            options = {**options, "include": [*there, *(each for each in asked if each not in there)]}
        return super().with_options(wire, options)

    def _items(self, message: Message) -> list[dict[str, Any]]:
        """A turn's blocks in their order: calls, results, reasoning and what the provider's own tools did are items of
        their own, what stands between them is a message."""
        items: list[dict[str, Any]] = []
        for block in message.blocks:
            part = self.encoders[type(block)](block)
            if part is None:
                continue
            if isinstance(block, ServerToolBlock) or not part["type"].startswith("input_"):
                items.append(part)
            elif message.role == "assistant":
                items.append(_said(block))
            elif items and items[-1].get("role") == "user":
                items[-1]["content"].append(part)
            else:
                items.append({"role": "user", "content": [part]})
        return items

    def _add_reasoning(self, wire: dict[str, Any], ask: Ask) -> None:
        if ask.entry.thinking.mode == "none":
            return
        # An entry whose model always thinks gives even an immediate answer some room for it.
        wire["reasoning"] = {"effort": EFFORTS[ask.depth] if ask.thinking_tokens else "none"}
        summary = self.environment.settings.options.get("reasoning_summary")
        if summary and ask.thinking_tokens:
            wire["reasoning"]["summary"] = summary
        wire["include"] = ["reasoning.encrypted_content"]

    # Sending.

    async def count_tokens(self, body: bytes) -> int | None:
        response = await self.post_to("/responses/input_tokens", as_json(part_of(body, COUNTED)))
        return self.read_count(response, "input_tokens")

    # Reading.

    def read_reply(self, payload: Any, draft: Draft) -> None:
        ResponsesReader(draft, self._failed).whole(payload)

    def read_event(self, event: Any, draft: Draft) -> Sequence[Piece]:
        return ResponsesReader(draft, self._failed).event(event)

    def _failed(self, error: Any, draft: Draft) -> Exception:
        """An error that came inside an answer that began with 200."""
        found = self._said_no(None, {"error": error}, None)
        found.usage, found.request_id = draft.usage, draft.request_id
        return found


def _said(block: Any) -> dict[str, Any]:
    """What the model said before, as a message of its own: its phase goes back with it."""
    if not isinstance(block, TextBlock):
        raise refused(f"the Responses wire takes no {type(block).__name__} in an assistant's turn")
    said = {"role": "assistant", "content": block.text}
    return said if block.signature is None else {**said, "phase": block.signature}


def _add_tools(wire: dict[str, Any], ask: Ask) -> None:
    if not ask.tools:
        return
    wire["tools"] = [_tool(tool) for tool in ask.tools]
    chosen = ask.tool_choice
    if chosen is not None:
        wire["tool_choice"] = TOOL_CHOICES.get(chosen) or {"type": "function", "name": chosen}
    parallel = ask.options.parallel_tool_calls
    if ask.structure is not None and ask.structure.tool_name is not None and not ask.options.tools:
        parallel = False
    if parallel is not None and "parallel_tool_calls" not in ask.entry.unsupported:
        wire["parallel_tool_calls"] = parallel


def _tool(tool: Tool) -> dict[str, Any]:
    # Strict is this wire's default and would refuse most schemas: the caller's own is taken as it is.
    return {
        "type": "function", "name": tool.name, "description": tool.description, "parameters": dict(tool.schema),
        "strict": False,
    }  # fmt: skip


def _settle_marks(wire: dict[str, Any], ask: Ask) -> None:
    """Cache marks where the caller put them, and on the last part with `cache=True`: only where the entry says `marks`,
    at most four. Otherwise this provider caches by itself."""
    said = [item for item in wire["input"] if item.get("role") == "user" and isinstance(item.get("content"), list)]
    parts = [part for item in said for part in item["content"]]
    parts = [part for part in parts if part["type"] in _MARKABLE]
    mark: dict[str, Any] = {"mode": "explicit"}
    if ask.options.cache and parts:
        parts[-1]["prompt_cache_breakpoint"] = mark
    lifetime = ask.options.cache_ttl or ask.entry.cache_ttl
    if lifetime is not None:
        mark = {**mark, "ttl": CACHE_TTLS[lifetime]}
    marked = [part for part in parts if "prompt_cache_breakpoint" in part]
    kept = len(marked) - MOST_CACHE_MARKS if ask.entry.caching == "marks" else len(marked)
    for at, part in enumerate(marked):
        if at < kept:
            del part["prompt_cache_breakpoint"]
        else:
            part["prompt_cache_breakpoint"] = mark
