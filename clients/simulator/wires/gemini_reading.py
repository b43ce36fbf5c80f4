"""Reading a generateContent request, and refusing what the real one refuses, in its words."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..counting import DOCUMENT_TOKENS, IMAGE_TOKENS
from ..exchange import Ask, AskedTool
from ..replying import is_sealed
from .openapi import json_schema
from .prompting import Prompt
from .wire import Target, WireError, texts

_PARAMETERS_TEXT = """
contents systemInstruction tools toolConfig safetySettings generationConfig cachedContent labels serviceTier store
modelArmorConfig
"""
_CONFIG_TEXT = """
stopSequences responseMimeType responseSchema responseJsonSchema _responseJsonSchema responseModalities candidateCount
maxOutputTokens temperature topP topK seed presencePenalty frequencyPenalty responseLogprobs logprobs
enableEnhancedCivicAnswers speechConfig thinkingConfig imageConfig mediaResolution audioTimestamp routingConfig
modelConfig
"""
_PARAMETERS = frozenset(_PARAMETERS_TEXT.split())
_CONFIG = frozenset(_CONFIG_TEXT.split())
_HOSTED = ("executableCode", "codeExecutionResult", "toolCall", "toolResponse")  # of tools that the provider runs
_UNDERSCORE = re.compile(r"(?<!^)_([a-z])")
_LIFETIME_S = 600.0  # how long what was cached by itself is taken to live
_UNSIGNED = ("skip_thought_signature_validator", "context_engineering_is_the_way_to_go")  # documented ways around
_ENCODED = frozenset(base64.b64encode(each.encode()).decode() for each in _UNSIGNED)


@dataclass(frozen=True, slots=True, kw_only=True)
class GeminiReader:
    seed: int
    caches: bool = False

    def read(self, body: dict[str, Any], target: Target) -> Ask:
        body = camel(body)
        _known(body, _PARAMETERS, "")
        if target.streamed and target.path.rpartition("?")[2] != "alt=sse":
            raise WireError(400, "The simulated provider streams server-sent events only: alt=sse.")
        config = camel(body.get("generationConfig"))
        _known(config, _CONFIG, " at 'generation_config'")
        if body.get("cachedContent"):
            raise WireError(403, "CachedContent not found (or permission denied)")
        prompt = Prompt()
        tools = _tools(body.get("tools") or [], prompt)
        if "/publishers/" not in target.path:
            _check_mixed(body.get("tools") or [], camel(body.get("toolConfig")))
        system = _instruction(body.get("systemInstruction"), prompt)
        thinking_tokens, shown = _thinking(config)
        text = self._contents(body.get("contents"), prompt, thinks=thinking_tokens > 0)
        schema, any_json = _format(config)
        if schema is not None:
            prompt.add(json.dumps(schema))
        if config.get("candidateCount") not in (None, 1):
            raise WireError(400, "The simulated provider gives one candidate: candidateCount must be 1.")
        if self.caches:
            prompt.mark_all(_LIFETIME_S)
        return Ask(
            model=target.model or "",
            text=text,
            system=system,
            prompt=prompt.text,
            max_output_tokens=_limit(config),
            streamed=bool(target.streamed),
            schema=schema,
            any_json=any_json,
            tools=tools,
            forced_tool=_forced(body.get("toolConfig") or {}, tools),
            stop_sequences=texts(config.get("stopSequences") or [], "stopSequences"),
            thinking_tokens=thinking_tokens,
            thinking_shown=shown,
            extra_input_tokens=prompt.extra_tokens,
            marks=prompt.marks,
            logprobs=(config.get("logprobs") or 0) if config.get("responseLogprobs") else None,
        )

    def _contents(self, contents: Any, prompt: Prompt, *, thinks: bool) -> str:
        """The text of the last turn of the user or of functions."""
        if not isinstance(contents, list) or not contents:
            raise WireError(400, "* GenerateContentRequest.contents: contents is not specified\n")
        last = ""
        open_calls = 0
        newest = max((at for at, turn in enumerate(contents) if _asks(turn)), default=0)
        for index, turn in enumerate(contents):
            role, parts = turn.get("role", "user"), [camel(part) for part in turn.get("parts") or []]
            if role not in ("user", "model", "function"):
                raise WireError(400, "Please use a valid role: user, model.")
            if not parts:
                where = f"GenerateContentRequest.contents[{index}].parts"
                raise WireError(400, f"* {where}: contents.parts must not be empty.\n")
            answers = sum("functionResponse" in part for part in parts)
            if answers != open_calls:
                message = "Please ensure that the number of function response parts is equal to the number of function"
                raise WireError(400, f"{message} call parts of the function call turn.")
            open_calls = sum("functionCall" in part for part in parts)
            found = [self._part(part, index, at, prompt) for at, part in enumerate(parts)]
            if role == "model":
                if thinks and index > newest:
                    _require_signed(parts, index)
            else:
                last = "\n".join(text for text in found if text)
        if open_calls:
            message = "Please ensure that function call turn comes immediately after a user turn or after a function"
            raise WireError(400, f"{message} response turn.")
        return last

    def _part(self, part: Mapping[str, Any], index: int, at: int, prompt: Prompt) -> str:
        signature = part.get("thoughtSignature")
        if signature is not None and not self._is_signature(signature):
            raise WireError(400, "Thought signature is not valid.")
        if "text" in part:
            text = part["text"]
            if not isinstance(text, str):
                raise WireError(400, f"Invalid value at 'contents[{index}].parts[{at}].text' (TYPE_STRING)")
            prompt.add(text)
            return "" if part.get("thought") else text
        if "functionCall" in part:
            call = part["functionCall"]
            prompt.add(f"{call['name']}{json.dumps(call.get('args') or {})}")
            return ""
        if "functionResponse" in part:
            answer = part["functionResponse"]
            text = json.dumps(answer["response"], ensure_ascii=False)
            prompt.add(f"{answer['name']}{text}")
            return text
        for name in _HOSTED:
            if name in part:
                prompt.add(json.dumps(part[name]))
                return ""
        for name in ("inlineData", "fileData"):
            if name in part:
                kind = str(camel(part[name]).get("mimeType") or "")
                prompt.extra_tokens += IMAGE_TOKENS if kind.startswith("image/") else DOCUMENT_TOKENS
                prompt.add(f"[{kind}]")
                return ""
        where = f"GenerateContentRequest.contents[{index}].parts[{at}].data"
        raise WireError(400, f"* {where}: required oneof field 'data' must have one initialized field\n")

    def _is_signature(self, signature: Any) -> bool:
        return signature in _UNSIGNED or signature in _ENCODED or is_sealed(signature, self.seed)


def camel(given: Mapping[str, Any] | None) -> dict[str, Any]:
    """The names of one object as protobuf writes them in JSON; it reads both, and the SDK mixes them."""
    return {_UNDERSCORE.sub(lambda found: found[1].upper(), name): value for name, value in (given or {}).items()}


def _known(given: Mapping[str, Any], names: frozenset[str], where: str) -> None:
    for name in given:
        if name not in names:
            message = f'Invalid JSON payload received. Unknown name "{name}"{where}: Cannot find field.'
            raise WireError(400, message)


def _asks(turn: Mapping[str, Any]) -> bool:
    """Whether a turn is the user's own, with no answers of functions."""
    parts = [camel(part) for part in turn.get("parts") or []]
    return turn.get("role", "user") == "user" and not any("functionResponse" in part for part in parts)


def _require_signed(parts: list[Any], index: int) -> None:
    """A model that thinks wants the first call of each step back with its signature."""
    for at, part in enumerate(parts):
        if "functionCall" in part:
            if "thoughtSignature" not in part:
                message = (
                    "Function call is missing a thought_signature in functionCall parts. This is required for tools to "
                    "work correctly, and missing thought_signature may lead to degraded model performance. Additional "
                    f"data, function call `default_api:{part['functionCall']['name']}` , position {index + at + 1}. "
                    "Please refer to https://ai.google.dev/gemini-api/docs/thought-signatures for more details."
                )
                raise WireError(400, message)
            return


def _instruction(content: Mapping[str, Any] | None, prompt: Prompt) -> str:
    if content is None:
        return ""
    found = [part["text"] for part in content["parts"]]
    for text in found:
        prompt.add(text)
    return "\n".join(found)


def _tools(given: list[Any], prompt: Prompt) -> tuple[AskedTool, ...]:
    tools = []
    for tool in given:  # tools that are no functions come and go: those are let through, and never called
        for function in map(camel, camel(tool).get("functionDeclarations") or ()):
            schema = function.get("parametersJsonSchema")
            if schema is None:
                schema = json_schema(function.get("parameters") or {})
            tools.append(AskedTool(name=function["name"], schema=schema, description=function.get("description") or ""))
            prompt.add(json.dumps(function))
    return tuple(tools)


def _check_mixed(tools: list[Any], config: Mapping[str, Any]) -> None:
    """Functions stand beside the provider's own tools only where it may tell what those did."""
    functions = {"functionDeclarations" in camel(tool) for tool in tools}
    if functions != {True, False}:
        return
    if not config.get("includeServerSideToolInvocations"):
        message = "Please enable tool_config.include_server_side_tool_invocations to use Built-in tools with Function"
        raise WireError(400, f"{message} calling.")
    if str(camel(config.get("functionCallingConfig")).get("mode")).upper() == "AUTO":
        raise WireError(400, "Function calling mode AUTO is not supported with server side tool invocations.")


def _forced(config: Mapping[str, Any], tools: tuple[AskedTool, ...]) -> AskedTool | None:
    calling = camel(camel(config).get("functionCallingConfig"))
    allowed = calling.get("allowedFunctionNames") or []
    mode = str(calling.get("mode", "AUTO")).upper()
    if mode not in ("MODE_UNSPECIFIED", "AUTO", "ANY", "NONE", "VALIDATED"):
        raise WireError(400, f"Invalid value at 'tool_config.function_calling_config.mode': \"{mode}\"")
    if allowed and mode not in ("ANY", "VALIDATED"):
        raise WireError(400, "Allowed function names can only be set when the calling mode is ANY.")
    if mode != "ANY":
        return None
    if not tools:
        raise WireError(400, "Function calling config is set without function_declarations.")
    for tool in tools:
        if not allowed or tool.name in allowed:
            return tool
    raise WireError(400, "allowed_function_names must be a subset of the function declarations.")


def _thinking(config: Mapping[str, Any]) -> tuple[int, bool]:
    """The thinking budget and whether thoughts are shown. None is asked for: none is given."""
    thinking = camel(config.get("thinkingConfig"))
    budget = thinking.get("thinkingBudget")
    if budget is not None and not isinstance(budget, int):
        raise WireError(400, "Invalid value at 'generation_config.thinking_config.thinking_budget' (TYPE_INT32)")
    if budget is not None and thinking.get("thinkingLevel") is not None:
        raise WireError(400, "You can only set only one of thinking budget and thinking level.")
    tokens = (1 if budget < 0 else budget) if budget is not None else int(bool(thinking))
    return tokens, bool(thinking.get("includeThoughts"))


def _format(config: Mapping[str, Any]) -> tuple[Mapping[str, Any] | None, bool]:
    kind = config.get("responseMimeType") or "text/plain"
    given = config.get("responseJsonSchema", config.get("_responseJsonSchema"))
    own = config.get("responseSchema")
    if given is not None and own is not None:
        raise WireError(400, "Only one of response_schema and response_json_schema may be set.")
    if (given is not None or own is not None) and kind != "application/json":
        raise WireError(400, "Response schema is only supported with response mime type application/json.")
    if given is not None:
        return given, False
    return (json_schema(own), False) if own is not None else (None, kind == "application/json")


def _limit(config: Mapping[str, Any]) -> int | None:
    limit = config.get("maxOutputTokens")
    if limit is None:
        return None
    if not isinstance(limit, int) or isinstance(limit, bool):
        raise WireError(400, "Invalid value at 'generation_config.max_output_tokens' (TYPE_INT32)")
    if limit < 1:
        raise WireError(400, "max_output_tokens must be positive.")
    return limit
