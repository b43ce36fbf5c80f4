"""Reading a Responses request, and refusing what the real one refuses, in its words."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..counting import DOCUMENT_TOKENS, IMAGE_TOKENS
from ..exchange import Ask, AskedTool
from ..replying import is_sealed
from .openai_reading import NAME, require_strict
from .prompting import Prompt
from .wire import WireError

_PARAMETERS_TEXT = """
access_programs background background_options context_management conversation image include input instructions
max_output_tokens max_tool_calls metadata model moderation parallel_tool_calls previous_response_id prompt
prompt_cache_key prompt_cache_options prompt_cache_retention reasoning safety_identifier service_tier store stream
stream_options temperature text tool_choice tools top_logprobs top_p truncation user
"""
_PARAMETERS = frozenset(_PARAMETERS_TEXT.split())
_ROLES = ("user", "assistant", "system", "developer")
_LIFETIMES_S = {"30m": 1_800.0, "12h": 43_200.0}
#: Items of tools that the provider runs itself, and answers to them: taken as they are.
_HOSTED = frozenset({
    "web_search_call", "file_search_call", "code_interpreter_call", "image_generation_call", "mcp_list_tools",
    "mcp_call", "mcp_approval_request", "mcp_approval_response", "computer_call", "computer_call_output", "compaction",
})  # fmt: skip
_LEAST_OUTPUT = 16
_LOGPROBS = "message.output_text.logprobs"


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponsesReader:
    """It keeps no responses: what refers to an earlier one is not found."""

    refused_parameters: frozenset[str]
    seed: int
    strict_schemas: bool = True
    caches: bool = False

    def read(self, body: dict[str, Any]) -> Ask:
        self._parameters(body)
        prompt = Prompt()
        tools = self._tools(body.get("tools") or [], prompt)
        instructions = body.get("instructions") or ""
        prompt.add(instructions)
        text, system = self._input(body["input"], prompt)
        schema, any_json = self._format((body.get("text") or {}).get("format"), prompt)
        reasoning: Mapping[str, Any] = body.get("reasoning") or {}
        explicit_only = (body.get("prompt_cache_options") or {}).get("mode") == "explicit"
        if self.caches and not explicit_only:
            prompt.mark_all(_LIFETIMES_S["30m"])
        return Ask(
            model=str(body["model"]),
            text=text,
            system="\n".join(part for part in (instructions, system) if part),
            prompt=prompt.text,
            max_output_tokens=_limit(body),
            streamed=bool(body.get("stream")),
            schema=schema,
            any_json=any_json,
            tools=tools,
            forced_tool=_forced(body.get("tool_choice"), tools),
            thinking_tokens=1 if reasoning.get("effort") not in (None, "none") else 0,
            thinking_shown=bool(reasoning.get("summary") or reasoning.get("generate_summary")),
            extra_input_tokens=prompt.extra_tokens,
            marks=prompt.marks,
            logprobs=(body.get("top_logprobs") or 0) if _LOGPROBS in (body.get("include") or ()) else None,
        )

    def _parameters(self, body: dict[str, Any]) -> None:
        for name in body:
            if name not in _PARAMETERS:
                raise WireError(400, f"Unknown parameter: '{name}'.", param=name, code="unknown_parameter")
            if name in self.refused_parameters:
                message = f"Unsupported parameter: '{name}' is not supported with this model."
                raise WireError(400, message, param=name, code="unsupported_parameter")
        for name in ("model", "input"):
            if body.get(name) is None:
                message = f"Missing required parameter: '{name}'."
                raise WireError(400, message, param=name, code="missing_required_parameter")
        earlier = body.get("previous_response_id")
        if earlier is not None:
            message = f"Previous response with id '{earlier}' not found."
            raise WireError(400, message, param="previous_response_id", code="previous_response_not_found")

    def _input(self, given: Any, prompt: Prompt) -> tuple[str, str]:
        """The text of the last turn of the user or of tools, and the system text."""
        if isinstance(given, str):
            prompt.add(given)
            return given, ""
        if not isinstance(given, list) or not given:
            message = "Invalid type for 'input': expected a non-empty list of input items or a string."
            raise WireError(400, message, param="input", code="invalid_type")
        turn: list[str] = []
        system: list[str] = []
        open_calls: list[str] = []
        for index, item in enumerate(given):
            kind, role = item.get("type", "message"), item.get("role")
            if kind == "message":
                text = _message(item, index, prompt)
                if role in ("system", "developer"):
                    system.append(text)
                else:
                    turn = [*turn, text] if role == "user" else []
            elif kind == "function_call":
                prompt.add(f"{item['name']}{item['arguments']}")
                open_calls.append(item["call_id"])
                turn = []
            elif kind == "function_call_output":
                turn.append(_output(item, index, open_calls, prompt))
            elif kind == "reasoning":
                self._reasoning(item, index, given, prompt)
            elif kind in _HOSTED:
                prompt.add(json.dumps(item))
            elif kind == "item_reference":
                message = (
                    f"Item with id '{item['id']}' not found. Items are not persisted when `store` is set to false."
                )
                raise WireError(
                    404, f"{message} Try again with `store` set to true, or remove this item.", param="input"
                )
            else:
                message = f"Invalid value: '{kind}'."
                raise WireError(400, message, param=f"input[{index}].type", code="invalid_value")
        if open_calls:
            message = f"No tool output found for function call {open_calls[0]}."
            raise WireError(400, message, param="input")
        return "\n".join(turn), "\n".join(system)

    def _reasoning(self, item: Mapping[str, Any], index: int, items: list[Any], prompt: Prompt) -> None:
        sealed = item.get("encrypted_content")
        if sealed is not None and not is_sealed(sealed, self.seed):
            clipped = f"{str(sealed)[:4]}...{str(sealed)[-4:]}"
            reason = "Reason: Encrypted content could not be decrypted or parsed."
            message = f"The encrypted content {clipped} could not be verified. {reason}"
            raise WireError(400, message, code="invalid_encrypted_content")
        following = items[index + 1] if index + 1 < len(items) else {}
        kind, role = following.get("type", "message"), following.get("role", "assistant")
        if not following or (kind == "message" and role != "assistant") or kind == "function_call_output":
            message = f"Item '{item['id']}' of type 'reasoning' was provided without its required following item."
            raise WireError(400, message, param="input")
        prompt.add("".join(part["text"] for part in item.get("summary") or ()))

    def _format(self, form: Mapping[str, Any] | None, prompt: Prompt) -> tuple[Mapping[str, Any] | None, bool]:
        kind = form.get("type") if form is not None else "text"
        if form is None or kind == "text":
            return None, False
        if kind == "json_object":
            if "json" not in prompt.text.lower():
                message = "Response input messages must contain the word 'json' in some form to use 'text.format'"
                raise WireError(400, f"{message} of type 'json_object'.", param="input")
            return None, True
        if kind != "json_schema":
            message = "Supported values are: 'json_object', 'json_schema', and 'text'."
            raise WireError(400, f"Invalid value: '{kind}'. {message}", param="text.format.type", code="invalid_value")
        for name in ("name", "schema"):
            if not form.get(name):
                param = f"text.format.{name}"
                raise WireError(
                    400, f"Missing required parameter: '{param}'.", param=param, code="missing_required_parameter"
                )
        schema: Mapping[str, Any] = form["schema"]
        if form.get("strict") and self.strict_schemas:
            require_strict(schema, f"response_format '{form['name']}'", "text.format.schema")
        prompt.add(json.dumps(schema))
        return schema, False

    def _tools(self, given: list[Any], prompt: Prompt) -> tuple[AskedTool, ...]:
        tools = []
        for index, tool in enumerate(given):
            if tool["type"] != "function":
                continue  # hosted tools come and go: those are let through, and never called
            name, schema = tool.get("name"), tool.get("parameters") or {}
            if not isinstance(name, str) or not NAME.fullmatch(name):
                param = f"tools[{index}].name"
                message = f"Invalid '{param}': string does not match pattern. Expected '^[a-zA-Z0-9_-]+$'."
                raise WireError(400, message, param=param, code="invalid_value")
            if tool.get("strict") and self.strict_schemas:
                require_strict(schema, f"function '{name}'", f"tools[{index}].parameters")
            tools.append(AskedTool(name=name, schema=schema, description=tool.get("description") or ""))
            prompt.add(json.dumps(tool))
        return tuple(tools)


def _message(item: Mapping[str, Any], index: int, prompt: Prompt) -> str:
    role, content = item.get("role"), item.get("content")
    if role not in _ROLES:
        supported = "'assistant', 'system', 'developer', and 'user'"
        message = f"Invalid value: '{role}'. Supported values are: {supported}."
        raise WireError(400, message, param=f"input[{index}].role", code="invalid_value")
    if isinstance(content, str):
        prompt.add(content)
        return content
    return _parts(content, f"input[{index}].content", prompt)


def _parts(content: Any, where: str, prompt: Prompt) -> str:
    texts: list[str] = []
    for position, part in enumerate(content):
        kind = part["type"]
        if kind in ("input_text", "output_text", "refusal"):
            texts.append(part["refusal" if kind == "refusal" else "text"])
            prompt.add(texts[-1])
        elif kind in ("input_image", "input_file"):
            prompt.extra_tokens += IMAGE_TOKENS if kind == "input_image" else DOCUMENT_TOKENS
            prompt.add(f"[{kind}]")
        else:
            supported = "'input_text', 'input_image', 'output_text', 'refusal', and 'input_file'"
            message = f"Invalid value: '{kind}'. Supported values are: {supported}."
            raise WireError(400, message, param=f"{where}[{position}]", code="invalid_value")
        point = part.get("prompt_cache_breakpoint")
        if point is not None:
            prompt.mark(_LIFETIMES_S.get(point.get("ttl"), _LIFETIMES_S["30m"]))
    return "\n".join(texts)


def _output(item: Mapping[str, Any], index: int, open_calls: list[str], prompt: Prompt) -> str:
    call = item["call_id"]
    if call not in open_calls:
        message = f"No tool call found for function call output with call_id {call}."
        raise WireError(400, message, param="input")
    open_calls.remove(call)
    output = item["output"]
    if isinstance(output, str):
        prompt.add(output)
        return output
    return _parts(output, f"input[{index}].output", prompt)


def _limit(body: dict[str, Any]) -> int | None:
    limit = body.get("max_output_tokens")
    if limit is None:
        return None
    if not isinstance(limit, int) or isinstance(limit, bool):
        message = "Invalid type for 'max_output_tokens': expected an integer."
        raise WireError(400, message, param="max_output_tokens", code="invalid_type")
    if limit < _LEAST_OUTPUT:
        message = (
            f"Invalid 'max_output_tokens': integer below minimum value. Expected a value >= {_LEAST_OUTPUT}, but got "
            f"{limit} instead."
        )
        raise WireError(400, message, param="max_output_tokens", code="integer_below_min_value")
    return limit


def _forced(choice: Any, tools: tuple[AskedTool, ...]) -> AskedTool | None:
    if choice in (None, "auto", "none"):
        return None
    named: Any = None
    if choice == "required":
        named = tools[0].name if tools else None
    elif choice["type"] == "allowed_tools":
        if choice["mode"] != "required":
            return None
        named = choice["tools"][0]["name"]
    elif choice["type"] == "function":
        named = choice["name"]
    for tool in tools:
        if tool.name == named:
            return tool
    message = f"Tool choice '{named or choice}' not found in 'tools' parameter."
    raise WireError(400, message, param="tool_choice")
