"""Every chat entry of the catalog that ships can be asked by the class of its provider."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import BaseModel

from interlock.catalog import Catalog
from interlock.catalog.spec import ModelBinding, ModelSpec
from interlock.catalog.words import Depth, Kind
from interlock.clients.conversation import Conversation, DocumentBlock, ImageBlock, TextBlock
from interlock.clients.environment import ClientEnvironment
from interlock.clients.options import CallOptions, Tool
from interlock.clients.registry import provider_class
from interlock.credentials import Chain, EnvironmentStore, Redactor

CATALOG = Catalog.default()
ENTRIES = [
    entry for entry in CATALOG.entries.values() if entry.kind is Kind.CHAT and entry.provider in ("openai", "gemini")
]


class Review(BaseModel):
    title: str


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.id)
@pytest.mark.parametrize("depth", Depth)
def test_it_can_be_asked(entry: Any, depth: Depth):
    environment = ClientEnvironment(
        settings=CATALOG.provider(entry.provider), credentials=Chain(EnvironmentStore({})), redactor=Redactor()
    )
    client = provider_class(entry.provider)(entry, environment)
    thinking = 0 if depth is Depth.IMMEDIATE else 2_048
    binding = ModelBinding(spec=ModelSpec(entry.id, depth=depth), entry=entry, input_tokens=50, output_tokens=4_096,
                           thinking_tokens=thinking)  # fmt: skip
    conversation = Conversation.of([TextBlock("Look."), ImageBlock(data=b"png"), DocumentBlock(data=b"%PDF")])
    call = client.prepare(binding, conversation, CallOptions(tools=(Tool("look"),)), Review, stream=True)
    wire = json.loads(call.body)
    limit = wire.get("max_output_tokens") or wire["generationConfig"]["maxOutputTokens"]
    assert limit == 4_096
    native = wire["text"]["format"]["schema"] if "text" in wire else wire["generationConfig"]["responseJsonSchema"]
    assert native["required"] == ["title"]
    wire.pop("prompt_cache_key", None)
    assert json.dumps(wire).count("cache") == 0, "these providers cache by themselves: no mark is sent"
