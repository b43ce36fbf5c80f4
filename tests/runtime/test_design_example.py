"""The example that opens the design, as it stands there: what a user writes runs on a simulated provider.

Added between the marks is only what the example leaves out: the columns of `insert(...)` and the database itself.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from numpy.typing import NDArray
from pydantic import BaseModel
from sqlalchemy import Column, Integer, LargeBinary, MetaData, String, Table, insert, select
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from interlock import (
    Choice,
    Conversation,
    DatabaseProvider,
    DecisionCall,
    EmbeddingCall,
    Grade,
    Job,
    JobRequirements,
    JobResources,
    LLMCall,
    ModelSpec,
    Noul,
    PipelineContext,
    Runtime,
    RuntimeSettings,
    pipeline,
)
from interlock.runtime.store.reads import calls_in

CATALOG = """
providers: {simulated: {}, wordllama: {}, sparrow: {}}
models:
  - {id: simulated-small, grade: SMALL, provider: simulated, wire_model_id: small, context_window: 200000,
      max_output_tokens: 8000, structured: tool, limits: {rpm: 6000, tpm: 6000000}, prices: {input: 1, output: 5}}
  - {id: wordllama, kind: embeddings, provider: wordllama, wire_model_id: l2_supercat_256, dimensions: 256,
      prices: {input: 0}}
  - {id: sparrow, kind: decision, provider: sparrow, wire_model_id: sparrow-nano-general-v1.1, prices: {input: 0}}
pins: {embeddings: wordllama, decision: sparrow}
"""

tickets = Table(
    "tickets",
    MetaData(),
    Column("id", Integer, primary_key=True),
    Column("team", String),
    Column("draft", String),
    Column("reply", String),
    Column("vector", LargeBinary),
)


@dataclass(frozen=True)
class Ticket:
    text: str


# The design, section 1.


class Triage(BaseModel):
    summary: str
    product: str


@pipeline
async def triage(ctx: PipelineContext, ticket: Ticket) -> Triage:
    decision, draft, vector = await ctx.gather(
        DecisionCall({"ticket": ticket.text}, {
            "department": Choice.of("Which team should handle this?", "billing", "technical", "sales"),
            "is_urgent": Noul.of("Does this convey urgency?")}),
        LLMCall(ticket.text, system="Summarise the ticket.", model=Grade.SMALL, max_output_tokens=400,
                response_model=Triage),
        EmbeddingCall(ticket.text))  # fmt: skip
    await ctx.run(SaveTicket(ticket, decision.choice("department").choice, draft, vector.vector))
    return draft


@dataclass(frozen=True)
class SaveTicket(Job[None]):
    ticket: Ticket
    team: str
    draft: Triage
    vector: NDArray[np.float32]
    REPLY: ClassVar = ModelSpec(Grade.SMALL, max_output_tokens=200)

    def requirements(self, needs: JobRequirements) -> None:
        needs.require_database("tickets", transaction=True)
        needs.require_model(self.REPLY, input=self.draft.summary)

    async def run(self, resources: JobResources) -> None:
        client = resources.get_llm_client(self.REPLY)
        reply = await client.single_response(Conversation.of(self.draft.summary))
        await resources.database("tickets").execute(insert(tickets).values(
            team=self.team, draft=self.draft.model_dump_json(), reply=reply.text,
            vector=self.vector.tobytes()))  # fmt: skip


async def use(databases: tuple[DatabaseProvider, ...], ticket: Ticket) -> tuple[Triage, str]:
    async with Runtime(
        RuntimeSettings(catalog="catalog.yaml", store="sqlite:///interlock.db", databases=databases)
    ) as runtime:
        draft = await runtime.run(triage(ticket), run_id="ticket-42", cost_cap="0.50")
        reply = await runtime.llm(Grade.SMALL).single_response("Say hello.")
        return draft, reply.text


# End of it.


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "catalog.yaml").write_text(CATALOG, encoding="utf-8")
    return tmp_path


@pytest.fixture
async def engine(folder: Path) -> AsyncIterator[AsyncEngine]:
    opened = create_async_engine("sqlite+aiosqlite:///tickets.db")
    async with opened.begin() as connection:
        await connection.run_sync(tickets.metadata.create_all)
    yield opened
    await opened.dispose()


async def test_the_designs_example_runs_as_it_stands(engine: AsyncEngine) -> None:
    draft, reply = await use((DatabaseProvider("tickets", engine),), Ticket("The invoice of May was charged twice."))
    assert draft.summary
    assert draft.product
    assert reply
    async with engine.connect() as connection:
        (row,) = (await connection.execute(select(tickets))).all()
    assert row.team in ("billing", "technical", "sales")
    assert json.loads(row.draft) == draft.model_dump()
    assert np.linalg.norm(np.frombuffer(row.vector, np.float32)) == pytest.approx(1.0)
    run, alone = calls_in("sqlite:///interlock.db", run_id="ticket-42"), calls_in("sqlite:///interlock.db")[-1]
    assert [(row.step_id, row.job, row.record.model) for row in sorted(run, key=lambda row: str(row.step_id))] == [
        ("0/0", "DecisionCall", "sparrow"),
        ("0/1", "LLMCall", "simulated-small"),
        ("0/2", "EmbeddingCall", "wordllama"),
        ("1", "SaveTicket", "simulated-small"),
    ]
    assert all(row.record.outcome == "ok" and not row.record.undeclared for row in [*run, alone])
    assert (alone.run_id, alone.record.model) == (None, "simulated-small")


@pytest.mark.usefixtures("folder")
async def test_the_missions_own_spellings_do_the_same() -> None:
    got: list[object] = []

    @dataclass(frozen=True)
    class Spelt(Job[str]):
        REPLY: ClassVar = ModelSpec(Grade.SMALL, max_output_tokens=200)

        def requirements(self, needs: JobRequirements) -> None:
            needs.requireModel(self.REPLY, input="Say hello.", calls=2)
            needs.requireEmbeddings(input="text")
            needs.requireDecision(input="text")

        async def run(self, resources: JobResources) -> str:
            client = resources.getLLMClient(self.REPLY)
            got.append(resources.getEmbeddingsClient().getUpstreamRetries())
            got.append(resources.getDecisionClient().getUpstreamRetries())
            got.append(client.getUpstreamRetries())
            async with client.streamResponse("Say hello.") as pieces:
                streamed = await pieces.finish()
            got.append(streamed.text)
            return (await client.singleResponse("Say hello.")).text

    async with Runtime(RuntimeSettings(catalog="catalog.yaml", store=None)) as runtime:
        text = await runtime.run(Spelt())
        assert got == [3, 3, 3, text]
        assert (await runtime.llm().singleResponse("Say hello.")).text == text
        assert Spelt().getUpstreamRetries() == 3
