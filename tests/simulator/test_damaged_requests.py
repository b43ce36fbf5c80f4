"""Whatever is sent is answered as a real provider would: a body of a wrong shape is the caller's 400, never a 500."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from interlock.clients.simulator import SimulatedProvider

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": False}
ANTHROPIC: dict[str, Any] = {
    "model": "m",
    "max_tokens": 50,
    "system": [{"type": "text", "text": "Be short.", "cache_control": {"type": "ephemeral"}}],
    "messages": [
        {"role": "user", "content": [{"type": "text", "text": "A question about 3 parcels."}]},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "route", "input": {"a": 1}}]},
        {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "ok"}]}],
        },
    ],
    "tools": [{"name": "route", "description": "Routes.", "input_schema": {"type": "object", "properties": {}}}],
    "tool_choice": {"type": "auto"},
    "thinking": {"type": "adaptive"},
    "stop_sequences": ["never"],
    "output_config": {"format": {"type": "json_schema", "schema": SCHEMA}},
}
OPENAI: dict[str, Any] = {
    "model": "m",
    "max_completion_tokens": 50,
    "messages": [
        {"role": "system", "content": "Be short."},
        {"role": "user", "content": [{"type": "text", "text": "A question about 3 parcels."}]},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "t1", "type": "function", "function": {"name": "route", "arguments": "{}"}}],
        },
        {"role": "tool", "tool_call_id": "t1", "content": "ok"},
    ],
    "tools": [{"type": "function", "function": {"name": "route", "parameters": {"type": "object", "properties": {}}}}],
    "tool_choice": "auto",
    "stop": ["never"],
    "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA, "strict": True}},
}
UNSIGNED = "skip_thought_signature_validator"
TOOL: dict[str, Any] = {"type": "object", "properties": {}}
RESPONSES: dict[str, Any] = {
    "model": "m",
    "instructions": "Be short.",
    "max_output_tokens": 50,
    "input": [
        {"role": "user", "content": [{"type": "input_text", "text": "A question about 3 parcels."}]},
        {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "Hm."}]},
        {"type": "function_call", "call_id": "t1", "name": "route", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "t1", "output": "ok"},
    ],
    "tools": [{"type": "function", "name": "route", "parameters": TOOL, "strict": False}],
    "tool_choice": {"type": "function", "name": "route"},
    "reasoning": {"effort": "low", "summary": "auto"},
    "text": {"format": {"type": "json_schema", "name": "n", "schema": SCHEMA, "strict": True}},
}
CONVERSE: dict[str, Any] = {
    "system": [{"text": "Be short."}, {"cachePoint": {"type": "default"}}],
    "messages": [
        {"role": "user", "content": [{"text": "A question about 3 parcels."}]},
        {"role": "assistant", "content": [{"toolUse": {"toolUseId": "t1", "name": "route", "input": {"a": 1}}}]},
        {"role": "user", "content": [{"toolResult": {"toolUseId": "t1", "content": [{"text": "ok"}, {"json": {}}]}}]},
    ],
    "toolConfig": {
        "tools": [{"toolSpec": {"name": "route", "description": "Routes.", "inputSchema": {"json": TOOL}}}],
        "toolChoice": {"auto": {}},
    },
    "inferenceConfig": {"maxTokens": 50, "stopSequences": ["never"]},
    "outputConfig": {
        "textFormat": {"type": "json_schema", "structure": {"jsonSchema": {"schema": json.dumps(SCHEMA)}}}
    },
}
GEMINI: dict[str, Any] = {
    "systemInstruction": {"parts": [{"text": "Be short."}]},
    "contents": [
        {"role": "user", "parts": [{"text": "A question about 3 parcels."}]},
        {
            "role": "model",
            "parts": [{"functionCall": {"name": "route", "args": {"a": 1}}, "thoughtSignature": UNSIGNED}],
        },
        {"role": "user", "parts": [{"functionResponse": {"name": "route", "response": {"result": "ok"}}}]},
    ],
    "tools": [
        {"functionDeclarations": [{"name": "route", "description": "Routes.", "parameters": {"type": "OBJECT"}}]}
    ],
    "toolConfig": {"functionCallingConfig": {"mode": "AUTO"}},
    "generationConfig": {
        "maxOutputTokens": 50,
        "stopSequences": ["never"],
        "responseMimeType": "application/json",
        "responseSchema": {"type": "OBJECT", "properties": {"a": {"type": "INTEGER"}}, "required": ["a"]},
        "thinkingConfig": {"includeThoughts": True},
    },
}
INVOKE = {name: value for name, value in ANTHROPIC.items() if name != "model"} | {
    "anthropic_version": "bedrock-2023-05-31"
}
BODIES = {
    "/v1/messages": ANTHROPIC,
    "/v1/chat/completions": OPENAI,
    "/v1/responses": RESPONSES,
    "/model/m/converse": CONVERSE,
    "/model/m/invoke": INVOKE,
    "/v1beta/models/m:generateContent": GEMINI,
}
JUNK: list[Any] = [None, True, -1, 1.5, "", "text", [], ["a"], [None], {}, {"a": 1}, {"type": [1]}]


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    for key in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield (*path, key)
        yield from places(value[key], (*path, key))


def damaged(body: dict[str, Any], path: tuple[Any, ...], turn: int) -> Iterator[dict[str, Any]]:
    """The body without what stands there, and with a third of the junk in its place: all of it over three places."""
    for junk in [*JUNK[turn % 3 :: 3], ...]:
        other = copy.deepcopy(body)
        at: Any = other
        for key in path[:-1]:
            at = at[key]
        if junk is ...:
            del at[path[-1]]
        else:
            at[path[-1]] = junk
        yield other


@pytest.mark.parametrize(("path", "body"), list(BODIES.items()), ids=list(BODIES))
async def test_a_body_of_a_wrong_shape_is_refused_in_words(path: str, body: dict[str, Any]) -> None:
    provider = SimulatedProvider()
    transport = httpx2.ASGITransport(app=provider.app)
    headers = {"x-api-key": "k", "anthropic-version": "2026-10-21"}
    async with httpx2.AsyncClient(transport=transport, base_url="http://simulated", headers=headers) as client:
        assert (await client.post(path, json=body)).status_code == 200
        statuses = set()
        for turn, place in enumerate(places(body)):
            for other in damaged(body, place, turn):
                response = await client.post(path, json=other)
                statuses.add(response.status_code)
                if response.status_code == 400:
                    said = response.json()
                    assert said.get("error", said)["message"], place
    assert statuses == {200, 400}
