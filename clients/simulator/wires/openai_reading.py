"""Reading a chat completions request, and refusing what the real one refuses, in its words."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..counting import DOCUMENT_TOKENS, IMAGE_TOKENS
from ..exchange import Ask, AskedTool
from .schemas import require_all_properties, require_closed_objects
from .wire import WireError, texts

_PARAMETERS_TEXT = """
messages model audio frequency_penalty function_call functions logit_bias logprobs max_completion_tokens
max_tokens metadata modalities moderation n parallel_tool_calls prediction presence_penalty prompt_cache_key
prompt_cache_options prompt_cache_retention reasoning_effort response_format safety_identifier seed
service_tier stop store stream stream_options temperature tool_choice tools top_logprobs top_p user verbosity
web_search_options
"""
_PARAMETERS = frozenset(_PARAMETERS_TEXT.split())
NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_ROLES = ("system", "developer", "user", "assistant", "tool", "function")


@dataclass(slots=True)
class _Prompt:
    parts: list[str] = field(default_factory=list)
    extra_tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Reader:
    refused_parameters: frozenset[str]
    strict_schemas: bool = True

    def read(self, body: dict[str, Any]) -> Ask:
        for name in body:
            if name not in _PARAMETERS:
                raise WireError(400, f"Unknown parameter: '{name}'.", param=name, code="unknown_parameter")
            if name in self.refused_parameters:
                message = f"Unsupported parameter: '{name}' is not supported with this model."
                raise WireError(400, message, param=name, code="unsupported_parameter")
        for name in ("model", "messages"):
            if name not in body:
                message = f"Missing required parameter: '{name}'."
                if name == "model":
                    raise WireError(400, "you must provide a model parameter")
                raise WireError(400, message, param=name, code="missing_required_parameter")
        prompt = _Prompt()
        text, system = _messages(body["messages"], prompt)
        tools = _tools(body, prompt)
        schema, any_json = self._format(body, prompt)
        stop = body.get("stop") or []
        if body.get("n") not in (None, 1):
            raise WireError(400, "The simulated provider gives one choice: 'n' must be 1.", param="n")
        reasons = body.get("reasoning_effort") not in (None, "none")
        return Ask(
            model=str(body["model"]),
            text=text,
            system=system,
            prompt="".join(prompt.parts),
            max_output_tokens=_limit(body),
            streamed=bool(body.get("stream")),
            schema=schema,
            any_json=any_json,
            tools=tools,
            forced_tool=_forced(body, tools),
            stop_sequences=(stop,) if isinstance(stop, str) else texts(stop, "stop"),
            extra_input_tokens=prompt.extra_tokens,
            thinking_tokens=1 if reasons else 0,
            thinking_shown=False,
            include_usage=_include_usage(body),
            logprobs=_logprobs(body),
        )

    def _format(self, body: dict[str, Any], prompt: _Prompt) -> tuple[Mapping[str, Any] | None, bool]:
        form = body.get("response_format")
        if form is None:
            return None, False
        kind = form.get("type") if isinstance(form, Mapping) else None
        if kind == "text":
            return None, False
        if kind == "json_object":
            if "json" not in "".join(prompt.parts).lower():
                message = "'messages' must contain the word 'json' in some form, to use 'response_format' of type"
                raise WireError(400, f"{message} 'json_object'.", param="messages")
            return None, True
        if kind != "json_schema":
            message = "Supported values are: 'json_object', 'json_schema', and 'text'."
            raise WireError(400, f"Invalid value: '{kind}'. {message}", param="response_format", code="invalid_value")
        named: Mapping[str, Any] = form.get("json_schema") or {}
        name = named.get("name")
        if not isinstance(name, str) or not NAME.fullmatch(name):
            message = "Missing required parameter: 'response_format.json_schema.name'."
            param = "response_format.json_schema.name"
            raise WireError(400, message, param=param, code="missing_required_parameter")
        schema = named.get("schema", {})
        if named.get("strict") and self.strict_schemas:
            require_strict(schema, f"response_format '{name}'", "response_format")
        prompt.parts.append(json.dumps(schema))
        return schema, False


def require_strict(schema: Mapping[str, Any], holder: str, param: str) -> None:
    open_at = require_closed_objects(schema)
    if open_at is not None:
        message = "'additionalProperties' is required to be supplied and to be false."
        raise WireError(
            400,
            f"Invalid schema for {holder}: In context={open_at!r}, {message}",
            param=param,
            code="invalid_json_schema",
        )
    missing = require_all_properties(schema)
    if missing is not None:
        message = "'required' is required to be supplied and to be an array including every key in properties."
        raise WireError(
            400,
            f"Invalid schema for {holder}: In context={missing[0]!r}, {message} Missing '{missing[1]}'.",
            param=param,
            code="invalid_json_schema",
        )


def _limit(body: dict[str, Any]) -> int | None:
    if body.get("max_tokens") is not None and body.get("max_completion_tokens") is not None:
        message = "Setting 'max_tokens' and 'max_completion_tokens' at the same time is not supported."
        raise WireError(400, message, code="invalid_parameter_combination")
    name = "max_completion_tokens" if body.get("max_completion_tokens") is not None else "max_tokens"
    limit = body.get(name)
    if limit is None:
        return None
    if not isinstance(limit, int) or isinstance(limit, bool):
        raise WireError(400, f"Invalid type for '{name}': expected an integer.", param=name, code="invalid_type")
    if limit < 1:
        message = f"Invalid '{name}': integer below minimum value. Expected a value >= 1, but got {limit} instead."
        raise WireError(400, message, param=name, code="integer_below_min_value")
    return limit


def _include_usage(body: dict[str, Any]) -> bool:
    options = body.get("stream_options")
    if options is None:
        return False
    if not body.get("stream"):
        message = "The 'stream_options' parameter is only allowed when 'stream' is enabled."
        raise WireError(400, message, param="stream_options")
    return bool(options.get("include_usage"))


def _logprobs(body: dict[str, Any]) -> int | None:
    top = body.get("top_logprobs")
    if not body.get("logprobs"):
        if top:
            message = "The 'top_logprobs' parameter is only allowed when 'logprobs' is enabled."
            raise WireError(400, message, param="top_logprobs")
        return None
    if top is not None and not 0 <= top <= 20:
        message = "Invalid 'top_logprobs': must be between 0 and 20."
        raise WireError(400, message, param="top_logprobs", code="integer_above_max_value")
    return top or 0


def _messages(messages: Any, prompt: _Prompt) -> tuple[str, str]:
    """The text of the last turn of the user or of tools, and the system text."""
    if not isinstance(messages, list) or not messages:
        message = "Invalid 'messages': empty array. Expected an array with minimum length 1, but got an empty array."
        raise WireError(400, message, param="messages", code="empty_array")
    system: list[str] = []
    turn: list[str] = []
    open_calls: list[str] = []
    for index, message in enumerate(messages):
        role = message.get("role") if isinstance(message, Mapping) else None
        if role not in _ROLES:
            supported = "'system', 'assistant', 'user', 'function', 'tool', and 'developer'"
            raise WireError(
                400,
                f"Invalid value: '{role}'. Supported values are: {supported}.",
                param=f"messages[{index}].role",
                code="invalid_value",
            )
        if role == "tool":
            _tool_turn(message, index, open_calls)
        elif open_calls:
            raise WireError(400, _unanswered(open_calls), param=f"messages.[{index}].role")
        text = _content(message, index, prompt)
        if role in ("system", "developer"):
            system.append(text)
        elif role == "assistant":
            turn = []
            open_calls = _calls(message, prompt)
        else:
            turn.append(text)
    if open_calls:
        raise WireError(400, _unanswered(open_calls), param=f"messages.[{len(messages)}].role")
    return "\n".join(turn), "\n".join(system)


def _tool_turn(message: Mapping[str, Any], index: int, open_calls: list[str]) -> None:
    call = message.get("tool_call_id")
    if call not in open_calls:
        text = "messages with role 'tool' must be a response to a preceeding message with 'tool_calls'."
        raise WireError(400, f"Invalid parameter: {text}", param=f"messages.[{index}].role")
    open_calls.remove(call)


def _unanswered(calls: list[str]) -> str:
    return (
        "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'. "
        f"The following tool_call_ids did not have response messages: {', '.join(calls)}"
    )


def _calls(message: Mapping[str, Any], prompt: _Prompt) -> list[str]:
    ids = []
    for call in message.get("tool_calls") or ():
        function = call.get("function", {})
        prompt.parts.append(f"{function.get('name', '')}{function.get('arguments', '')}")
        ids.append(call["id"])
    return ids


def _content(message: Mapping[str, Any], index: int, prompt: _Prompt) -> str:
    content = message.get("content")
    if content is None:
        if message["role"] == "assistant":
            return ""
        text = f"Invalid value for 'content': expected a string, got null. (messages[{index}].content)"
        raise WireError(400, text, param=f"messages.[{index}].content", code="invalid_type")
    if isinstance(content, str):
        prompt.parts.append(content)
        return content
    texts = []
    for part in content:
        kind = part.get("type")
        if kind in ("text", "refusal"):
            texts.append(part[kind])
        elif kind in ("image_url", "file", "input_audio"):
            prompt.extra_tokens += IMAGE_TOKENS if kind == "image_url" else DOCUMENT_TOKENS
        else:
            text = f"Invalid value: '{kind}'. Supported values are: 'text', 'image_url', 'input_audio', and 'file'."
            raise WireError(400, text, param=f"messages[{index}].content", code="invalid_value")
    prompt.parts.extend(texts)
    return "\n".join(texts)


def _tools(body: dict[str, Any], prompt: _Prompt) -> tuple[AskedTool, ...]:
    given = body.get("tools")
    if given is None:
        return ()
    if not given:
        message = "Invalid 'tools': empty array. Expected an array with minimum length 1, but got an empty array."
        raise WireError(400, message, param="tools", code="empty_array")
    tools = []
    for index, tool in enumerate(given):
        function = tool.get("function") or {}
        name = function.get("name")
        if not isinstance(name, str) or not NAME.fullmatch(name):
            param = f"tools[{index}].function.name"
            message = f"Invalid '{param}': string does not match pattern. Expected '^[a-zA-Z0-9_-]+$'."
            raise WireError(400, message, param=param, code="invalid_value")
        schema = function.get("parameters") or {}
        if function.get("strict"):
            require_strict(schema, f"function '{name}'", f"tools[{index}].function.parameters")
        tools.append(AskedTool(name=name, schema=schema, description=function.get("description") or ""))
        prompt.parts.append(json.dumps(function))
    return tuple(tools)


def _forced(body: dict[str, Any], tools: tuple[AskedTool, ...]) -> AskedTool | None:
    choice = body.get("tool_choice")
    if choice is None:
        return None
    if not tools:
        raise WireError(400, "'tool_choice' is only allowed when 'tools' are specified.", param="tool_choice")
    if choice == "required":
        return tools[0]
    if choice in ("auto", "none"):
        return None
    name = (choice.get("function") or {}).get("name") if isinstance(choice, Mapping) else None
    for tool in tools:
        if tool.name == name:
            return tool
    message = f"Tool choice '{name}' not found in 'tools' parameter."
    raise WireError(400, f"Invalid value for 'tool_choice': {message}", param="tool_choice")
