"""The whole way: runtime, real SDKs, real HTTP on loopback, the simulated provider, a store on disk."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from interlock.catalog import Catalog, Grade
from interlock.clients.response import PieceKind
from interlock.clients.simulator import PublishedLimits, SimulatedProvider, Step
from interlock.credentials import Chain, EnvironmentStore
from interlock.decisions import Choice, Noul
from interlock.errors import CredentialError, ModelResolutionError
from interlock.runtime import (
    DecisionCall,
    EmbeddingCall,
    LLMCall,
    PipelineContext,
    Runtime,
    RuntimeSettings,
    pipeline,
)
from interlock.runtime.store.reads import calls_in

CATALOG = """
providers:
  anthropic-direct: {{credential: anthropic-api-key, base_url: "{anthropic}"}}
  openai-chat-completions: {{credential: openai-api-key, base_url: "{openai}"}}
  wordllama: {{}}
  sparrow: {{}}
models:
  - {{id: small, grade: SMALL, provider: anthropic-direct, wire_model_id: claude-x, context_window: 200000,
      max_output_tokens: 8000, structured: tool, limits: {{rpm: 60000, input_tpm: 6000000, output_tpm: 6000000}},
      prices: {{input: 1, output: 5}}}}
  - {{id: medium, grade: MEDIUM, provider: openai-chat-completions, wire_model_id: gpt-x, context_window: 200000,
      max_output_tokens: 8000, structured: native, limits: {{rpm: 60000, tpm: 60000000}},
      prices: {{input: 1, output: 5}}}}
  - {{id: wordllama, kind: embeddings, provider: wordllama, wire_model_id: l2_supercat_256, dimensions: 256,
      prices: {{input: 0}}}}
  - {{id: sparrow, kind: decision, provider: sparrow, wire_model_id: sparrow-nano-general-v1.1, prices: {{input: 0}}}}
pins: {{embeddings: wordllama, decision: sparrow}}
"""
KEYS = {"ANTHROPIC_API_KEY": "sk-ant-secret-0001-abcd", "OPENAI_API_KEY": "sk-secret-0002-efgh"}


class Triage(BaseModel):
    summary: str
    keywords: list[str]


@pytest.fixture
async def provider() -> AsyncIterator[SimulatedProvider]:
    async with SimulatedProvider(limits=PublishedLimits(rpm=60_000, tpm=60_000_000)) as started:
        yield started


@pytest.fixture
def settings(provider: SimulatedProvider, tmp_path: Path) -> RuntimeSettings:
    text = CATALOG.format(anthropic=provider.anthropic_url, openai=provider.openai_url)
    return RuntimeSettings(
        catalog=Catalog.load(text),
        store=f"sqlite:///{tmp_path}/interlock.db",
        credentials=Chain(EnvironmentStore(KEYS)),
        keep_text=True,
    )


@pipeline
async def triage(ctx: PipelineContext, text: str) -> Triage:
    decision, draft, vector = await ctx.gather(
        DecisionCall(
            {"ticket": text}, {"team": Choice.of("Which team?", "billing", "sales"), "urgent": Noul.of("Urgent?")}
        ),
        LLMCall(text, system="Summarise.", max_output_tokens=400, response_model=Triage),
        EmbeddingCall(text),
    )
    assert decision.choice("team").choice in ("billing", "sales")
    assert vector.vector.shape == (1024,)
    return draft


@pytest.mark.parametrize("grade", [Grade.SMALL, Grade.MEDIUM])
async def test_one_call_through_each_sdk(provider: SimulatedProvider, settings: RuntimeSettings, grade: Grade) -> None:
    async with Runtime(settings) as runtime:
        response = await runtime.llm(grade, max_output_tokens=300).single_response("Interlock reserves. Then it sends.")
    assert response.text
    assert provider.count == 1
    (row,) = calls_in(str(settings.store))
    assert (row.record.outcome, row.record.text) == ("ok", response.text)
    assert row.record.usage == response.usage
    assert row.record.cost == response.cost
    assert row.record.request_id == response.request_id


async def test_a_pipeline_of_three_kinds_of_calls(provider: SimulatedProvider, settings: RuntimeSettings) -> None:
    async with Runtime(settings) as runtime:
        draft = await runtime.run(triage("I was charged twice for the same month."), run_id="ticket-42")
        (run,) = await runtime.runs()
    assert isinstance(draft, Triage)
    rows = {row.step_id: row for row in calls_in(str(settings.store), run_id="ticket-42")}
    assert {step: row.record.model for step, row in rows.items()} == {
        "0/0": "sparrow",
        "0/1": "small",
        "0/2": "wordllama",
    }
    assert (run.run_id, run.pipeline, run.status) == ("ticket-42", "triage", "succeeded")
    assert {row.workflow for row in rows.values()} == {"triage"}
    assert provider.count == 1


async def test_faults_on_the_wire_are_ridden_out(provider: SimulatedProvider, settings: RuntimeSettings) -> None:
    provider.script(Step.rate_limited(retry_after_s=0.05), Step.server_error())
    async with Runtime(settings) as runtime:
        response = await runtime.run(LLMCall("Interlock reserves before it sends."))
        statistics = runtime.statistics()
    assert response.text
    assert [request.status for request in provider.requests] == [429, 500, 200]
    assert [row.record.outcome for row in calls_in(str(settings.store))] == ["llm_rate_limited", "llm_transient", "ok"]
    assert (statistics.requests, statistics.rate_limited, statistics.reruns) == (3, 1, 2)


async def test_a_stream_is_read_in_pieces(provider: SimulatedProvider, settings: RuntimeSettings) -> None:
    async with Runtime(settings) as runtime, runtime.llm(Grade.SMALL).stream_response("One. Two. Three.") as pieces:
        got = [piece async for piece in pieces]
    assert got[-1].kind is PieceKind.RESPONSE
    assert "".join(piece.text for piece in got) == pieces.response.text != ""
    (row,) = calls_in(str(settings.store))
    assert row.record.first_piece_s is not None


async def test_b17_a_stream_that_is_left_is_settled_and_recorded_once(
    provider: SimulatedProvider, settings: RuntimeSettings
) -> None:
    provider.always(Step.slow(0.2))
    async with Runtime(settings) as runtime:
        async with runtime.llm(Grade.SMALL).stream_response("One. Two. Three. Four. Five.") as pieces:
            async for piece in pieces:
                assert piece.text
                break
        (row,) = await runtime.calls()
        assert pieces.handle.state == "cancelled"
    assert row.record.outcome == "cancelled"
    assert row.record.usage.estimated
    assert row.record.usage.input_tokens
    assert row.record.cost


async def test_a_missing_credential_is_named_before_anything_is_sent(
    provider: SimulatedProvider, settings: RuntimeSettings, tmp_path: Path
) -> None:
    from dataclasses import replace

    async with Runtime(replace(settings, credentials=Chain(EnvironmentStore({})))) as runtime:
        with pytest.raises((ModelResolutionError, CredentialError), match="ANTHROPIC_API_KEY"):
            await runtime.run(LLMCall("x"))
    assert provider.count == 0


async def test_no_secret_reaches_the_store(provider: SimulatedProvider, settings: RuntimeSettings) -> None:
    body = '{"type": "error", "error": {"type": "invalid_request_error", "message": "bad key sk-ant-secret-0001-abcd"}}'
    provider.script(Step.status(400, body))
    async with Runtime(settings) as runtime:
        with pytest.raises(Exception, match="redacted") as caught:
            await runtime.run(LLMCall("x"), run_id="r")
    assert "secret-0001" not in repr(caught.value)
    files: list[Any] = list(Path(str(settings.store).removeprefix("sqlite:///")).parent.glob("interlock.db*"))
    assert files
    assert all(b"secret-0001" not in file.read_bytes() for file in files)
