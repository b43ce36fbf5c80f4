"""Cache marks on every wire that has them: for how long, and on which block."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from interlock.clients.conversation import Conversation, TextBlock, ThinkingBlock
from interlock.clients.options import CallOptions, Tool
from interlock.clients.simulator.replying import sign

from .conftest import WIRES, asked

LOOK = Tool("look", "Look.", {"type": "object", "properties": {}})
#: How each wire says the two lifetimes. The others have no marks.
LIFETIMES = {
    **dict.fromkeys(("anthropic", "invoke", "mantle"), ("cache_control", {"5m": "5m", "1h": "1h"})),
    "converse": ("cachePoint", {"5m": None, "1h": "1h"}),
    "responses": ("prompt_cache_breakpoint", {"5m": "30m", "1h": "12h"}),
}


def marks_in(body: Any, word: str) -> Iterator[Any]:
    """Every mark in a body, in its order."""
    if isinstance(body, dict):
        yield from (value for name, value in body.items() if name == word)
    for each in body.values() if isinstance(body, dict) else body if isinstance(body, list) else ():
        yield from marks_in(each, word)


@pytest.mark.parametrize("name", [wire.id for wire in WIRES if wire.speaks in LIFETIMES])
@pytest.mark.parametrize(
    ("of_entry", "of_call", "holds"), [(None, "1h", "1h"), ("1h", None, "1h"), ("1h", "5m", "5m"), ("5m", "1h", "1h")]
)
async def test_all_marks_have_one_lifetime_and_the_calls_own_comes_first(bench, wires, name, of_entry, of_call, holds):
    word, lifetimes = LIFETIMES[wires[name].speaks]
    client, _ = bench.client(wires[name], caching="marks", cache_ttl=of_entry)
    said = Conversation.of([TextBlock("One.", cache=True), TextBlock("Two.")], system="Be brief.")
    await asked(client, said, streamed=False, options=CallOptions(cache=True, cache_ttl=of_call, tools=(LOOK,)))
    marks = list(marks_in(bench.sent, word))
    assert len(marks) >= 2
    assert {mark.get("ttl") for mark in marks} == {lifetimes[holds]}


@pytest.mark.parametrize("key", ["anthropic-direct", "anthropic-bedrock", "anthropic-bedrock-mantle"])
async def test_no_mark_stands_on_thinking(bench, wires, key):
    """It is refused there. A turn that was paused may end in it."""
    client, _ = bench.client(wires[key], caching="marks")
    thought = ThinkingBlock(text="Hm.", signature=sign("Hm.", 0), signed_by="anthropic")
    turns = Conversation.of("Go.").assistant([TextBlock("First,"), thought])
    call = client._client.prepare(client.binding, turns, CallOptions(cache=True), None, stream=False)
    *_, said = _content(call.body)
    assert [part["type"] for part in said if "cache_control" in part] == ["text"]


def _content(body: bytes) -> list[list[dict[str, Any]]]:
    return [message["content"] for message in json.loads(body)["messages"]]
