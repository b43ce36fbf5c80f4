"""What the type checkers must infer. Read by test_types.py, never run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import reveal_type

from pydantic import BaseModel

from interlock.catalog import Grade, ModelSpec
from interlock.clients.options import Tool
from interlock.decisions import Choice
from interlock.runtime import (
    BlockingResources,
    DecisionCall,
    EmbeddingCall,
    Job,
    JobRequirements,
    JobResources,
    LLMCall,
    PipelineContext,
    Runtime,
    pipeline,
    run,
)


class Triage(BaseModel):
    summary: str


@dataclass(frozen=True)
class Count(Job[int]):
    text: str
    timeout_s = 30.0
    SPEC = ModelSpec(Grade.SMALL, max_output_tokens=10)

    def requirements(self, needs: JobRequirements) -> None:
        reveal_type(needs.require_model(self.SPEC, input=self.text))  # E: ModelBinding

    async def run(self, resources: JobResources) -> int:
        response = await resources.get_llm_client(self.SPEC).single_response(self.text)
        reveal_type(response)  # E: LLMResponse
        return len(response.text)


@dataclass(frozen=True)
class Blocking(Job[str]):
    def run(self, resources: BlockingResources) -> str:
        return resources.get_llm_client().single_response("x").text


async def fetched(number: int) -> str:
    return str(number)


@pipeline
async def triage(ctx: PipelineContext, ticket: str, *, loud: bool = False) -> Triage:
    draft = await ctx.run(LLMCall(ticket, model=Grade.SMALL, response_model=Triage))
    reveal_type(draft)  # E: Triage
    reveal_type(await ctx.run(LLMCall(ticket, tools=[Tool("t")])))  # E: LLMResponse
    reveal_type(await ctx.run(Count(ticket)))  # E: int
    reveal_type(await ctx.run(Blocking()))  # E: str
    pair = await ctx.gather(LLMCall(ticket, response_model=Triage), Count(ticket))
    reveal_type(pair)  # E: tuple[Triage, int]
    three = await ctx.gather(
        DecisionCall({"ticket": ticket}, {"team": Choice.of("Which?", "a", "b")}),
        LLMCall(ticket, system="Summarise.", max_output_tokens=400, response_model=Triage),
        EmbeddingCall(ticket),
    )
    reveal_type(three)  # E: tuple[DecisionResponse, Triage, EmbeddingsResponse]
    reveal_type(await ctx.gather(*[Count(ticket), Count("b")]))  # E: tuple[int, ...]
    reveal_type(await ctx.map([ticket], Count))  # E: list[int]
    reveal_type(await ctx.map([ticket], triage))  # E: list[Triage]
    async for value in ctx.map([ticket], lambda text: Count(text)):
        reveal_type(value)  # E: int
    async for outcome in ctx.map([ticket], triage).outcomes():
        reveal_type(outcome.result)  # E: Triage
    async with ctx.stream(LLMCall(ticket)) as pieces:
        async for piece in pieces:
            reveal_type(piece)  # E: Piece
        reveal_type(pieces.response)  # E: LLMResponse
    reveal_type(await ctx.step(len, "abc"))  # E: int
    reveal_type(await ctx.step(fetched, 3))  # E: str
    return draft


@pipeline(version="2")
async def outer(ctx: PipelineContext) -> list[Triage]:
    reveal_type(await ctx.run(triage("x", loud=True)))  # E: Triage
    return [await ctx.run(triage("x"))]


async def main() -> None:
    async with Runtime() as runtime:
        reveal_type(await runtime.run(triage("x"), run_id="r", cost_cap="0.50"))  # E: Triage
        reveal_type(await runtime.run(outer()))  # E: list[Triage]
        handle = runtime.submit(LLMCall("x", response_model=Triage))
        reveal_type(await handle)  # E: Triage
        reveal_type(await runtime.llm(Grade.SMALL).single_response("Say hello."))  # E: LLMResponse
        reveal_type(await runtime.embeddings().embed("x"))  # E: EmbeddingsResponse


reveal_type(run(triage("x")))  # E: Triage
triage(3)  # error: arg-type
LLMCall("x", temprature=1.0)  # error: call-overload
