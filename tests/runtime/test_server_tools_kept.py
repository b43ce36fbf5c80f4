"""What a provider's own tools did, over the end of a process: the journal gives it back and it goes on from there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from interlock import Conversation, LLMCall, PipelineContext, Runtime, RuntimeSettings, ServerToolBlock, pipeline
from interlock.catalog import Catalog
from interlock.clients.simulator import SimulatedProvider, Step
from interlock.credentials import Chain, EnvironmentStore

CATALOG = """
providers: {{anthropic-direct: {{credential: anthropic-api-key, base_url: "{url}"}}}}
models:
  - {{id: small, grade: SMALL, provider: anthropic-direct, wire_model_id: claude-x, context_window: 200000,
      max_output_tokens: 8000, limits: {{rpm: 60000, input_tpm: 6000000, output_tpm: 6000000}},
      prices: {{input: 1, output: 5}}}}
"""
SEARCH = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "tea, \u2028 grün"}}
FOUND = {
    "type": "web_search_tool_result",
    "tool_use_id": "srvtoolu_1",
    "content": [{"type": "web_search_result", "url": "https://tea.test", "title": "!", "encrypted_content": "Eo8="}],
}
TOOLS = {"tools": [{"type": "web_search_20250305", "name": "web_search"}]}


class LeftError(Exception):
    """The process ends here."""


LEAVES: list[Exception] = []  # the next run's end; no argument, which a run must not change


@pipeline
async def asked_twice(ctx: PipelineContext) -> str:
    asked = Conversation.of("Is tea green?")
    if ctx.run_id == "streamed":
        async with ctx.stream(LLMCall(asked, provider_options=TOOLS)) as pieces:
            assert "".join([piece.text async for piece in pieces]) == "Green."
        first: Any = pieces.response
    else:
        first = await ctx.run(LLMCall(asked, provider_options=TOOLS))
    if LEAVES:
        raise LEAVES.pop()
    assert [dict(block.payload) for block in first.blocks if isinstance(block, ServerToolBlock)] == [SEARCH, FOUND]
    second = await ctx.run(LLMCall(asked.assistant(first.blocks).user("Sure?"), provider_options=TOOLS))
    return str(second.text)


@pytest.mark.parametrize("run_id", ["whole", "streamed"])
async def test_it_is_read_back_and_sent_on_unchanged(tmp_path: Path, run_id: str) -> None:
    async with SimulatedProvider() as provider:
        settings = RuntimeSettings(
            catalog=Catalog.load(CATALOG.format(url=provider.anthropic_url)),
            store=f"sqlite:///{tmp_path}/interlock.db",
            credentials=Chain(EnvironmentStore({"ANTHROPIC_API_KEY": "sk-ant-secret-0001-abcd"})),
        )
        provider.script(Step.answer("Green.", server_tools=(SEARCH, FOUND)), Step.answer("Sure."))
        LEAVES.append(LeftError())
        async with Runtime(settings) as runtime:
            with pytest.raises(LeftError):
                await runtime.run(asked_twice(), run_id=run_id)
        assert provider.count == 1
        async with Runtime(settings) as runtime:
            assert await runtime.resume(run_id) == "Sure."
        assert provider.count == 2, "the search was paid for once"
        said = provider.requests[-1].body["messages"][1]["content"]
        assert said == [SEARCH, FOUND, {"type": "text", "text": "Green."}]
        assert provider.requests[-1].body["tools"] == TOOLS["tools"]
