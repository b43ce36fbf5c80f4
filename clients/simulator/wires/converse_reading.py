"""Reading a Converse request: its own rules first, then those of the model behind it, which is taken for a Claude.

The request is translated into an Anthropic one; what that refuses comes back as Bedrock words it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..exchange import Ask
from .anthropic_reading import Reader
from .wire import Target, WireError

_PARAMETERS_TEXT = """
messages system inferenceConfig toolConfig guardrailConfig projectIdentifier additionalModelRequestFields
promptVariables additionalModelResponseFieldPaths requestMetadata performanceConfig serviceTier outputConfig
"""
_PARAMETERS = frozenset(_PARAMETERS_TEXT.split())
_DEFAULT_LIMIT = 4_096  # a model's own, where a request names none
_DOCUMENT_NAME = re.compile(r"[a-zA-Z0-9\s\-()\[\]]{1,200}")
_MODEL_SAYS = "The model returned the following errors: "


@dataclass(frozen=True, slots=True, kw_only=True)
class ConverseReader:
    model: Reader

    def read(self, body: dict[str, Any], target: Target) -> Ask:
        for name in body:
            if name not in _PARAMETERS:
                raise WireError(400, f"Malformed input request: #: extraneous key [{name}] is not permitted")
        translated = _translated(body, target)
        try:
            return self.model.read(translated)
        except WireError as error:
            raise WireError(error.status, _MODEL_SAYS + error.message) from error


def _translated(body: dict[str, Any], target: Target) -> dict[str, Any]:
    config: Mapping[str, Any] = body.get("inferenceConfig") or {}
    tools: Mapping[str, Any] = body.get("toolConfig") or {}
    found: dict[str, Any] = {
        "model": target.model,
        "max_tokens": config.get("maxTokens", _DEFAULT_LIMIT),
        "stream": bool(target.streamed),
        "messages": _messages(body.get("messages") or [], has_tools=bool(tools)),
    }
    if body.get("system"):
        found["system"] = _listed(body["system"], "system")
    if config.get("stopSequences"):
        found["stop_sequences"] = config["stopSequences"]
    for theirs, name in (("temperature", "temperature"), ("topP", "top_p")):
        if theirs in config:
            found[name] = config[theirs]
    if tools:
        found |= _tools(tools)
    form = (body.get("outputConfig") or {}).get("textFormat")
    if form is not None:
        found["output_config"] = {"format": _format(form)}
    return found | dict(body.get("additionalModelRequestFields") or {})


def _messages(messages: list[Any], *, has_tools: bool) -> list[dict[str, Any]]:
    turns: list[dict[str, Any]] = []
    role = ""
    for index, message in enumerate(messages):
        if message["role"] == role:
            raise WireError(
                400,
                "A conversation must alternate between user and assistant roles. Make sure the conversation "
                "alternates between user and assistant roles and try again.",
            )
        if index == 0 and message["role"] == "assistant":
            text = "A conversation must start with a user message. Try again with a conversation that starts with a"
            raise WireError(400, f"{text} user message.")
        role = message["role"]
        content = message["content"]
        if not content:
            raise WireError(
                400,
                f"The content field in the Message object at messages.{index} is empty. Add a "
                "ContentBlock object to the content field and try again.",
            )
        kinds = [_only(block, f"messages.{index}.content")[0] for block in content]
        if not has_tools and {"toolUse", "toolResult"} & set(kinds):
            raise WireError(
                400, "The toolConfig field must be defined when using toolUse and toolResult content blocks."
            )
        if "document" in kinds and "text" not in kinds:
            raise WireError(400, "The content field must include a text block when a document is included.")
        _answered(index, content, messages[index - 1]["content"] if index else [])
        turns.append({"role": role, "content": _listed(content, f"messages.{index}.content")})
    return turns


def _answered(index: int, content: list[Any], before: list[Any]) -> None:
    results = [block["toolResult"]["toolUseId"] for block in content if "toolResult" in block]
    calls = [block["toolUse"]["toolUseId"] for block in before if "toolUse" in block]
    if len(results) > len(calls):
        raise WireError(
            400,
            f"The number of toolResult blocks at messages.{index}.content exceeds the number of toolUse blocks of "
            "previous turn.",
        )
    missing = [call for call in calls if call not in results]
    if missing:
        raise WireError(
            400,
            f"Expected toolResult blocks at messages.{index}.content for the following Ids: {', '.join(missing)}",
        )


def _listed(content: list[Any], where: str) -> list[dict[str, Any]]:
    """Blocks as the model has them; a cache point marks the block before it."""
    blocks: list[dict[str, Any]] = []
    for position, block in enumerate(content):
        kind, value = _only(block, f"{where}.{position}")
        if kind == "cachePoint":
            if not blocks:
                raise WireError(400, f"{where}.{position}: a cachePoint must follow a block.")
            blocks[-1]["cache_control"] = _mark(value)
        else:
            blocks.append(_block(kind, value, f"{where}.{position}"))
    return blocks


def _only(union: Mapping[str, Any], where: str) -> tuple[str, Any]:
    """The one member that a union has. Raises WireError for another number of them."""
    if len(union) != 1:
        raise WireError(400, f"{where}: exactly one member of the union must be set, not {len(union)}.")
    return next(iter(union.items()))


def _mark(point: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "ephemeral", "ttl": point.get("ttl", "5m")}


def _block(kind: str, value: Any, where: str) -> dict[str, Any]:
    if kind == "text":
        return {"type": "text", "text": value}
    if kind in ("image", "document"):
        if kind == "document" and not _DOCUMENT_NAME.fullmatch(value["name"]):
            text = "The document file name can only contain alphanumeric characters, whitespace characters, hyphens,"
            raise WireError(
                400,
                f"{text} parentheses, and square brackets. The name can't contain more than one "
                "consecutive whitespace character.",
            )
        _source(value["source"], where)
        return {"type": kind, "source": value["source"]}
    if kind == "toolUse":
        return {"type": "tool_use", "id": value["toolUseId"], "name": value["name"], "input": value["input"]}
    if kind == "toolResult":
        return {"type": "tool_result", "tool_use_id": value["toolUseId"], "content": _result(value, where)}
    if kind == "reasoningContent":
        if "redactedContent" in value:
            return {"type": "redacted_thinking", "data": value["redactedContent"]}
        text = value["reasoningText"]
        if "signature" not in text:
            raise WireError(400, f"{_MODEL_SAYS}{where}: thinking.signature: Field required")
        return {"type": "thinking", "thinking": text["text"], "signature": text["signature"]}
    if kind == "guardContent":
        return {"type": "text", "text": value["text"]["text"]}
    raise WireError(400, f"{where}: the model doesn't support the {kind} content block.")


def _source(source: Mapping[str, Any], where: str) -> None:
    found = set(source) & {"bytes", "s3Location", "text", "content"}
    if len(found) != 1:
        raise WireError(400, f"{where}.source: exactly one of bytes and s3Location must be set.")


def _result(value: Mapping[str, Any], where: str) -> list[dict[str, Any]]:
    if not value["content"] and value.get("status") == "error":
        raise WireError(400, f"The content field at {where}.toolResult cannot be empty when status value is error.")
    parts = []
    for part in value["content"]:
        kind, found = _only(part, where)
        parts.append({"type": "text", "text": json.dumps(found)} if kind == "json" else _block(kind, found, where))
    return parts


def _tools(config: Mapping[str, Any]) -> dict[str, Any]:
    tools: list[dict[str, Any]] = []
    for tool in config["tools"]:
        if "cachePoint" in tool:
            tools[-1]["cache_control"] = _mark(tool["cachePoint"])
            continue
        spec = tool["toolSpec"]
        found = {"name": spec["name"], "input_schema": spec["inputSchema"]["json"]}
        if spec.get("description"):
            found["description"] = spec["description"]
        tools.append(found)
    choice: Mapping[str, Any] = config.get("toolChoice") or {}
    if not choice:
        return {"tools": tools}
    kind, value = _only(choice, "toolConfig.toolChoice")
    if kind not in ("auto", "any", "tool"):
        raise WireError(400, f"toolConfig.toolChoice: unknown member {kind}, must be one of: auto, any, tool")
    named = {"name": value["name"]} if kind == "tool" else {}
    return {"tools": tools, "tool_choice": {"type": kind, **named}}


def _format(form: Mapping[str, Any]) -> dict[str, Any]:
    if form.get("type") != "json_schema":
        raise WireError(400, "outputConfig.textFormat.type: must be json_schema")
    return {"type": "json_schema", "schema": json.loads(form["structure"]["jsonSchema"]["schema"])}
