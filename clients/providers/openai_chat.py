"""`openai-chat-completions`: OpenAI models over the chat completions wire."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, ClassVar

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
from .openai_reading import read_choice, read_usage
from .openai_sdk import EFFORTS, TOOL_CHOICES, OpenAISdkClient, add_cache_key, data_url


def _text(block: TextBlock) -> dict[str, Any]:
    return {"type": "text", "text": block.text}


def _image(block: ImageBlock) -> dict[str, Any]:
    url = block.url if block.data is None else data_url(block.data, block.media_type)
    return {"type": "image_url", "image_url": {"url": url}}


def _document(block: DocumentBlock) -> dict[str, Any]:
    if block.data is None:
        raise refused(f"the chat completions wire takes no document by URL ({block.name!r}): send its data")
    return {"type": "file", "file": {"filename": block.name, "file_data": data_url(block.data, block.media_type)}}


def _tool_use(block: ToolUseBlock) -> dict[str, Any]:
    arguments = json_text(block.input, f"the input of tool call {block.id!r}")
    return {"id": block.id, "type": "function", "function": {"name": block.name, "arguments": arguments}}


def _tool_result(block: ToolResultBlock) -> dict[str, Any]:
    # The wire has no word for a failed tool: it is said in the text.
    content = f"[error] {block.content}" if block.is_error else block.content
    return {"role": "tool", "tool_call_id": block.tool_use_id, "content": content}


def _left_out(block: ThinkingBlock | ServerToolBlock) -> None:
    """This wire has no place for thinking, nor for what a provider's own tools did: they stay out."""


class OpenAIChatCompletionsClient(OpenAISdkClient):
    """OpenAI's chat completions."""

    encoders: ClassVar = {
        TextBlock: _text,
        ImageBlock: _image,
        DocumentBlock: _document,
        ToolUseBlock: _tool_use,
        ToolResultBlock: _tool_result,
        ThinkingBlock: _left_out,
        ServerToolBlock: _left_out,
    }
    takes = frozenset({"temperature", "top_p", "seed", "stop", "tools", "tool_choice", "parallel_tool_calls"})
    reserved = frozenset({"model", "messages", "stream", "max_tokens", "max_completion_tokens", "n"})
    path = "/chat/completions"
    call_ids: ClassVar[re.Pattern[str] | None] = re.compile(r".{1,40}")
    #: The wire's name of the output limit, which is sent exactly as it was reserved.
    limit_field: ClassVar[str] = "max_completion_tokens"
    #: Whether it takes a key of its cache. Whoever imitates it may refuse one.
    keys_cache: ClassVar[bool] = True

    # Writing.

    def encode(self, ask: Ask) -> dict[str, Any]:
        options = ask.options
        wire: dict[str, Any] = {
            "model": ask.entry.wire_model_id,
            "messages": self._messages(ask),
            self.limit_field: ask.max_output_tokens,
        }
        for name in ("temperature", "top_p", "seed"):
            if getattr(options, name) is not None:
                wire[name] = getattr(options, name)
        if options.stop:
            wire["stop"] = list(options.stop)
        self._add_tools(wire, ask)
        if ask.entry.thinking.mode != "none":
            # An entry whose model always thinks gives even an immediate answer some room for it.
            wire["reasoning_effort"] = EFFORTS[ask.depth] if ask.thinking_tokens else "none"
        if ask.structure is not None and ask.structure.mode == "native":
            wire["response_format"] = {
                "type": "json_schema",
                "json_schema": {"name": ask.structure.shape.name, "schema": ask.structure.schema, "strict": True},
            }
        if ask.stream:
            wire["stream"] = True
            if self.environment.settings.options.get("include_usage", True):
                wire["stream_options"] = {"include_usage": True}
        if self.keys_cache:
            add_cache_key(wire, ask)
        return wire

    def _messages(self, ask: Ask) -> list[dict[str, Any]]:
        messages: list[dict[str, Any]] = []
        if ask.system is not None:
            messages.append({"role": "system", "content": ask.system})
        for message in ask.conversation.messages:
            messages += self._assistant(message) if message.role == "assistant" else self._user(message)
        return messages

    def _assistant(self, message: Message) -> list[dict[str, Any]]:
        odd = next((block for block in message.blocks if isinstance(block, ImageBlock | DocumentBlock)), None)
        if odd is not None:
            raise refused(f"the chat completions wire takes no {type(odd).__name__} in an assistant's turn")
        calls = [self._block(block) for block in message.blocks if isinstance(block, ToolUseBlock)]
        if not calls and not message.text:
            return []
        return [{"role": "assistant", "content": message.text or None, **({"tool_calls": calls} if calls else {})}]

    def _user(self, message: Message) -> list[dict[str, Any]]:
        results = [self._block(block) for block in message.blocks if isinstance(block, ToolResultBlock)]
        rest = [block for block in message.blocks if not isinstance(block, ToolResultBlock)]
        parts = [part for block in rest if (part := self._block(block)) is not None]
        if not parts:
            return results
        plain = len(parts) == 1 and parts[0].keys() == {"type", "text"}
        return [*results, {"role": "user", "content": parts[0]["text"] if plain else parts}]

    def _block(self, block: Any) -> Any:
        return self.encoders[type(block)](block)

    def _add_tools(self, wire: dict[str, Any], ask: Ask) -> None:
        if not ask.tools:
            return
        wire["tools"] = [_tool(tool) for tool in ask.tools]
        chosen = ask.tool_choice
        if chosen is not None:
            wire["tool_choice"] = TOOL_CHOICES.get(chosen) or {"type": "function", "function": {"name": chosen}}
        parallel = ask.options.parallel_tool_calls
        if ask.structure is not None and ask.structure.tool_name is not None and not ask.options.tools:
            parallel = False
        if parallel is not None and "parallel_tool_calls" not in ask.entry.unsupported:
            wire["parallel_tool_calls"] = parallel

    # Reading.

    def read_reply(self, payload: Any, draft: Draft) -> None:
        if self.read_event(payload, draft) or draft.complete:
            return
        _ = payload["choices"][0]  # an answer without any choice is malformed

    def read_event(self, event: Any, draft: Draft) -> Sequence[Piece]:
        served = event.get("model")
        if isinstance(served, str) and served:
            draft.served_model = served
        read_usage(event.get("usage"), draft)
        choices = event.get("choices")
        if not choices:
            return ()
        if not isinstance(choices, list):
            raise TypeError("choices is no list")
        return [
            piece for choice in choices if choice.get("index") in (0, "0", None) for piece in read_choice(choice, draft)
        ]


def _tool(tool: Tool) -> dict[str, Any]:
    function = {"name": tool.name, "description": tool.description, "parameters": dict(tool.schema)}
    return {"type": "function", "function": function}
