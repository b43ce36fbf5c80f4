"""Reading an Anthropic Messages request, and refusing what the real one refuses, in its words."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..counting import DOCUMENT_TOKENS, IMAGE_TOKENS
from ..exchange import Ask, AskedTool
from ..replying import sign
from .schemas import require_closed_objects, unsupported_words
from .wire import WireError, texts

_PARAMETERS_TEXT = """
max_tokens messages model cache_control container context_management diagnostics inference_geo mcp_servers
metadata output_config output_format service_tier speed stop_sequences stream system thinking tool_choice
tools temperature top_p top_k user_profile_id workspace_id betas anthropic_version
"""
_PARAMETERS = frozenset(_PARAMETERS_TEXT.split())
_MARKS_S = {"5m": 300.0, "1h": 3_600.0}
_OWN = frozenset({"container_upload", "compaction", "fallback"})  # blocks that are of no tool, and go back as they came
_TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")


@dataclass(slots=True)
class _Prompt:
    """The text that counts as input, in the order a cache sees it: tools, system, messages."""

    parts: list[str] = field(default_factory=list)
    marks: list[tuple[int, float]] = field(default_factory=list)  # parts so far, lifetime
    extra_tokens: int = 0

    def add(self, text: str, holder: Any = None) -> None:
        self.parts.append(text)
        mark = holder.get("cache_control") if isinstance(holder, Mapping) else None
        if mark is not None:
            self.marks.append((len(self.parts), _MARKS_S.get(mark.get("ttl", "5m"), 300.0)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Reader:
    """`refused_parameters` are parameters the model does not take any more."""

    refused_parameters: frozenset[str]
    seed: int
    strict_schemas: bool = True

    def read(self, body: dict[str, Any]) -> Ask:
        self._parameters(body)
        prompt = _Prompt()
        tools = _tools(body, prompt)
        system = _system(body.get("system"), prompt)
        text = self._messages(body, prompt)
        if len(prompt.marks) > 4:
            raise WireError(
                400, f"A maximum of 4 blocks with cache_control may be provided. Found {len(prompt.marks)}."
            )
        if body.get("cache_control") is not None:
            prompt.marks.append((len(prompt.parts), _MARKS_S.get(body["cache_control"].get("ttl", "5m"), 300.0)))
        schema = self._schema(body)
        if schema is not None:
            prompt.add(json.dumps(schema))
        thinking_tokens, shown = _thinking(body)
        forced = _forced(body, tools)
        if forced is not None and thinking_tokens:
            raise WireError(400, "Thinking may not be enabled when tool_choice forces tool use.")
        return Ask(
            model=body["model"],
            text=text,
            system=system,
            prompt="".join(prompt.parts),
            max_output_tokens=body["max_tokens"],
            streamed=bool(body.get("stream")),
            schema=schema,
            tools=tools,
            forced_tool=forced,
            stop_sequences=texts(body.get("stop_sequences") or [], "stop_sequences"),
            thinking_tokens=thinking_tokens,
            thinking_shown=shown,
            extra_input_tokens=prompt.extra_tokens,
            marks=tuple(("".join(prompt.parts[:end]), lifetime_s) for end, lifetime_s in prompt.marks),
        )

    def _parameters(self, body: dict[str, Any]) -> None:
        for name in body:
            if name not in _PARAMETERS or name in self.refused_parameters:
                raise WireError(400, f"{name}: Extra inputs are not permitted")
        for name in ("model", "max_tokens", "messages"):
            if name not in body:
                raise WireError(400, f"{name}: Field required")
        if not isinstance(body["model"], str) or not body["model"]:
            raise WireError(400, "model: Input should be a valid string")
        limit = body["max_tokens"]
        if not isinstance(limit, int) or isinstance(limit, bool):
            raise WireError(400, "max_tokens: Input should be a valid integer")
        if limit < 0:
            raise WireError(400, "max_tokens: Input should be greater than or equal to 0")

    def _schema(self, body: dict[str, Any]) -> dict[str, Any] | None:
        form = (body.get("output_config") or {}).get("format") or body.get("output_format")
        if form is None:
            return None
        if not isinstance(form, Mapping) or form.get("type") != "json_schema":
            raise WireError(400, "output_config.format.type: Input should be 'json_schema'")
        if not isinstance(form.get("schema"), dict):
            raise WireError(400, "output_config.format.schema: Field required")
        schema: dict[str, Any] = form["schema"]
        if self.strict_schemas:
            path = require_closed_objects(schema)
            if path is not None:
                message = "For 'object' type, 'additionalProperties' must be explicitly set to false"
                raise WireError(400, f"output_config.format.schema: {message}")
            refused = unsupported_words(schema)
            if refused is not None:
                message = f"For '{refused[0]}' type, properties {', '.join(refused[1])} are not supported"
                raise WireError(400, f"output_config.format.schema: {message}")
        return schema

    def _messages(self, body: dict[str, Any], prompt: _Prompt) -> str:
        messages = body["messages"]
        if not isinstance(messages, list):
            raise WireError(400, "messages: Input should be a valid list")
        if not messages:
            raise WireError(400, "messages: at least one message is required")
        last_user = ""
        open_calls: list[str] = []
        for index, message in enumerate(messages):
            role, blocks = _turn(message, index, last=index == len(messages) - 1)
            if index == 0 and role != "user":
                raise WireError(400, 'messages: first message must use the "user" role')
            _answered(index, role, blocks, open_calls)
            texts = self._blocks(index, role, blocks, prompt)
            open_calls = [block["id"] for block in blocks if block.get("type") == "tool_use"]
            if role == "user":
                last_user = "\n".join(texts)
            elif index == len(messages) - 1 and texts and texts[-1] != texts[-1].rstrip():
                raise WireError(400, "messages: final assistant content cannot end with trailing whitespace")
        if open_calls:
            raise WireError(400, _unanswered(len(messages) - 1, open_calls))
        return last_user

    def _blocks(self, index: int, role: str, blocks: list[dict[str, Any]], prompt: _Prompt) -> list[str]:
        """Count the blocks of a turn in, and give its text."""
        texts: list[str] = []
        for position, block in enumerate(blocks):
            kind = block.get("type")
            where = f"messages.{index}.content.{position}"
            if kind == "text":
                texts.append(_text(block, "messages"))
                prompt.add(block["text"], block)
            elif kind == "tool_use":
                prompt.add(f"{block['name']}{json.dumps(block.get('input'))}", block)
            elif kind == "tool_result":
                found = _result_text(block, prompt)
                texts.append(found)
                prompt.add(found, block)
            elif kind == "thinking":
                thinking, signature = block.get("thinking", ""), block.get("signature")
                if role != "assistant" or (thinking and signature != sign(thinking, self.seed)):
                    raise WireError(400, f"{where}: Invalid `signature` in `thinking` block")
                prompt.add(thinking)
            elif kind == "redacted_thinking":
                prompt.add(str(block.get("data", "")))
            elif kind in ("image", "document"):
                prompt.extra_tokens += IMAGE_TOKENS if kind == "image" else DOCUMENT_TOKENS
                prompt.add(f"[{kind}]", block)
            elif kind is None:
                raise WireError(400, f"{where}.type: Field required")
            elif isinstance(kind, str) and ("tool" in kind or kind in _OWN):  # the provider's tools come and go
                _check_own(where, block, blocks[:position])
                prompt.add(json.dumps(block), block)
            else:
                raise WireError(400, f"{where}: Input tag '{kind}' found using 'type' does not match any of the tags")
        return texts


def _check_own(where: str, block: Mapping[str, Any], before: list[dict[str, Any]]) -> None:
    """A result of the provider's own tool follows the call that it is of."""
    call = block.get("tool_use_id")
    if call is not None and call not in [one.get("id") for one in before if str(one.get("type")).endswith("_tool_use")]:
        message = f"unexpected `tool_use_id` found in `{block['type']}` blocks: {call}. Each must have a corresponding"
        raise WireError(400, f"{where}: {message} `server_tool_use` block before it.")


def _turn(message: Any, index: int, *, last: bool) -> tuple[str, list[dict[str, Any]]]:
    if not isinstance(message, Mapping):
        raise WireError(400, f"messages.{index}: Input should be a valid dictionary or object")
    role = message.get("role")
    if role not in ("user", "assistant"):
        raise WireError(400, f"messages.{index}.role: Input should be 'user' or 'assistant'")
    content = message.get("content")
    if isinstance(content, str):
        blocks: list[dict[str, Any]] = [{"type": "text", "text": content}] if content else []
    elif isinstance(content, list) and all(isinstance(block, dict) for block in content):
        blocks = content
    else:
        raise WireError(400, f"messages.{index}.content: Input should be a valid string or list")
    if not blocks and not (last and role == "assistant"):
        message_text = "all messages must have non-empty content except for the optional final assistant message"
        raise WireError(400, f"messages.{index}: {message_text}")
    return role, blocks


def _answered(index: int, role: str, blocks: list[dict[str, Any]], open_calls: list[str]) -> None:
    """Every call of the turn before has its result here, and no result is without its call."""
    results = [block.get("tool_use_id") for block in blocks if block.get("type") == "tool_result"]
    missing = [call for call in open_calls if call not in results] if role == "user" else open_calls
    if missing:
        raise WireError(400, _unanswered(index - 1, missing))
    for position, block in enumerate(blocks):
        if block.get("type") != "tool_result":
            continue
        call = block.get("tool_use_id")
        if call not in open_calls:
            raise WireError(
                400,
                f"messages.{index}.content.{position}: unexpected `tool_use_id` found in `tool_result` blocks: {call}. "
                "Each `tool_result` block must have a corresponding `tool_use` block in the previous message.",
            )
    for call in open_calls:
        if results.count(call) > 1:
            raise WireError(
                400,
                f"messages.{index}.content: each tool_use must have a single result. "
                f"Found multiple `tool_result` blocks with id: {call}",
            )
    if results and any(block.get("type") != "tool_result" for block in blocks[: len(results)]):
        raise WireError(400, _unanswered(index - 1, open_calls))  # results stand first in their turn


def _unanswered(index: int, calls: list[str]) -> str:
    return (
        f"messages.{index}: `tool_use` ids were found without `tool_result` blocks immediately after: "
        f"{', '.join(calls)}. Each `tool_use` block must have a corresponding `tool_result` block in the next message."
    )


def _text(block: Mapping[str, Any], where: str) -> str:
    text = block.get("text")
    if not isinstance(text, str):
        raise WireError(400, f"{where}: text: Input should be a valid string")
    if not text:
        raise WireError(400, f"{where}: text content blocks must be non-empty")
    if not text.strip():
        raise WireError(400, f"{where}: text content blocks must contain non-whitespace text")
    return text


def _result_text(block: Mapping[str, Any], prompt: _Prompt) -> str:
    content = block.get("content") or ""
    if isinstance(content, str):
        return content
    texts = []
    for part in content:
        if part.get("type") == "text":
            texts.append(_text(part, "messages"))
        else:
            prompt.extra_tokens += IMAGE_TOKENS
    return "\n".join(texts)


def _system(system: Any, prompt: _Prompt) -> str:
    if system is None or system == "":
        return ""
    if isinstance(system, str):
        system = [{"type": "text", "text": system}]
    if not isinstance(system, list):
        raise WireError(400, "system: Input should be a valid list")
    texts: list[str] = []
    for block in system:
        texts.append(_text(block, "system"))
        prompt.add(texts[-1], block)
    return "\n".join(texts)


def _tools(body: dict[str, Any], prompt: _Prompt) -> tuple[AskedTool, ...]:
    tools = []
    given: list[dict[str, Any]] = body.get("tools") or []
    for index, tool in enumerate(given):
        name = tool.get("name")
        if not isinstance(name, str):
            raise WireError(400, f"tools.{index}.name: Field required")
        if not _TOOL_NAME.fullmatch(name):
            raise WireError(400, f"tools.{index}.custom.name: String should match pattern '^[a-zA-Z0-9_-]{{1,128}}$'")
        schema = tool.get("input_schema")
        if tool.get("type", "custom") == "custom":
            if not isinstance(schema, dict):
                raise WireError(400, f"tools.{index}.custom.input_schema: Field required")
            if schema.get("type") != "object":
                raise WireError(400, f"tools.{index}.custom.input_schema.type: Input should be 'object'")
        tools.append(AskedTool(name=name, schema=schema or {}, description=tool.get("description") or ""))
        prompt.add(json.dumps({key: value for key, value in tool.items() if key != "cache_control"}), tool)
    if len({tool.name for tool in tools}) < len(tools):
        raise WireError(400, "tools: Tool names must be unique.")
    return tuple(tools)


def _forced(body: dict[str, Any], tools: tuple[AskedTool, ...]) -> AskedTool | None:
    choice = body.get("tool_choice")
    if choice is None:
        return None
    kind = choice.get("type") if isinstance(choice, Mapping) else None
    if kind not in ("auto", "any", "tool", "none"):
        raise WireError(400, "tool_choice.type: Input should be 'auto', 'any', 'tool' or 'none'")
    if not tools:
        raise WireError(400, "tool_choice may only be specified while providing `tools`.")
    if kind == "any":
        return tools[0]
    if kind != "tool":
        return None
    for tool in tools:
        if tool.name == choice.get("name"):
            return tool
    raise WireError(400, f"Tool '{choice.get('name')}' not found in provided tools")


def _thinking(body: dict[str, Any]) -> tuple[int, bool]:
    """The thinking budget and whether the thinking is shown."""
    thinking = body.get("thinking")
    if thinking is None:
        return 0, True
    kind = thinking.get("type") if isinstance(thinking, Mapping) else None
    shown = isinstance(thinking, Mapping) and thinking.get("display") != "omitted"
    if kind == "enabled":
        budget = thinking.get("budget_tokens")
        if not isinstance(budget, int):
            raise WireError(400, "thinking.enabled.budget_tokens: Field required")
        if budget < 1024:
            raise WireError(400, "thinking.enabled.budget_tokens: Input should be greater than or equal to 1024")
        if budget >= body["max_tokens"]:
            raise WireError(400, "`max_tokens` must be greater than `thinking.budget_tokens`.")
        return budget, shown
    if kind in ("adaptive", "between_tools"):
        return max(1, body["max_tokens"] // 2), shown
    if kind == "disabled":
        return 0, shown
    raise WireError(400, "thinking.type: Input should be 'adaptive', 'between_tools', 'disabled' or 'enabled'")
