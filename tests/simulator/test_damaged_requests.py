"""Whatever is sent is answered as a real provider would: a body of a wrong shape is the caller's 400, never a 500."""

from __future__ import annotations

import copy
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
JUNK: list[Any] = [None, True, -1, 1.5, "", "text", [], ["a"], [None], {}, {"a": 1}, {"type": [1]}]


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    for key in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield (*path, key)
        yield from places(value[key], (*path, key))


def damaged(body: dict[str, Any], path: tuple[Any, ...]) -> Iterator[dict[str, Any]]:
    for junk in [*JUNK, ...]:
        other = copy.deepcopy(body)
        at: Any = other
        for key in path[:-1]:
            at = at[key]
        if junk is ...:
            del at[path[-1]]
        else:
            at[path[-1]] = junk
        yield other


@pytest.mark.parametrize(("path", "body"), [("/v1/messages", ANTHROPIC), ("/v1/chat/completions", OPENAI)])
async def test_a_body_of_a_wrong_shape_is_refused_in_words(path: str, body: dict[str, Any]) -> None:
    provider = SimulatedProvider()
    transport = httpx2.ASGITransport(app=provider.app)
    headers = {"x-api-key": "k", "anthropic-version": "2026-10-21"}
    async with httpx2.AsyncClient(transport=transport, base_url="http://simulated", headers=headers) as client:
        assert (await client.post(path, json=body)).status_code == 200
        statuses = set()
        for place in places(body):
            for other in damaged(body, place):
                response = await client.post(path, json=other)
                statuses.add(response.status_code)
                if response.status_code == 400:
                    assert response.json()["error"]["message"], place
    assert statuses == {200, 400}
