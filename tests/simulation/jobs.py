"""What the callers of a simulated run ask for: single calls, jobs of their own, pipelines within pipelines."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from pydantic import BaseModel

from interlock.catalog import Grade, ModelSpec
from interlock.decisions.questions import Noul
from interlock.runtime import (
    DecisionCall,
    EmbeddingCall,
    Job,
    JobRequirements,
    JobResources,
    LLMCall,
    PipelineContext,
    pipeline,
)

SMALL = ModelSpec(Grade.SMALL, max_output_tokens=150)
MEDIUM = ModelSpec(Grade.MEDIUM, max_output_tokens=600)


class Shape(BaseModel):
    n: int


@dataclass(frozen=True)
class Save(Job[str]):
    """A model call, then a row."""

    name: str
    timeout_s = 40.0

    def requirements(self, needs: JobRequirements) -> None:
        needs.require_database("db")
        needs.require("gpu")
        needs.require_model(SMALL, input=self.name)

    async def run(self, resources: JobResources) -> str:
        answer = await resources.get_llm_client(SMALL).single_response(self.name)
        await resources.database("db").execute(self.name)  # type: ignore[arg-type]
        return answer.text


@dataclass(frozen=True)
class Several(Job[int]):
    """Two models at once; of the first it declared `declared` calls and makes `made`, after thinking for a while."""

    name: str
    declared: int
    made: int
    thinks_s: float
    raises: bool = False

    def requirements(self, needs: JobRequirements) -> None:
        needs.require_model(SMALL, input=f"{self.name} 0", calls=self.declared)
        needs.require_model(MEDIUM, input=self.name)

    async def run(self, resources: JobResources) -> int:
        await asyncio.sleep(self.thinks_s)
        small = resources.get_llm_client(SMALL)
        first, *_ = await asyncio.gather(*[small.single_response(f"{self.name} {i}") for i in range(self.made)])
        async with resources.get_llm_client(MEDIUM).stream_response(self.name) as pieces:
            async for piece in pieces:
                if self.raises and piece.text:
                    raise KeyError(self.name)
        return len(first.text)


@dataclass(frozen=True)
class Write(Job[None]):
    """No model: only the database."""

    name: str

    def requirements(self, needs: JobRequirements) -> None:
        needs.require_database("db")

    async def run(self, resources: JobResources) -> None:
        await resources.database("db").execute(self.name)  # type: ignore[arg-type]
        await asyncio.sleep(0.5)


@dataclass(frozen=True)
class TooLarge(Job[None]):
    """It can never be admitted where there is a limit on tokens."""

    def requirements(self, needs: JobRequirements) -> None:
        needs.require_model(SMALL, input=90_000, calls=50)

    async def run(self, resources: JobResources) -> None: ...


@pipeline
async def inner(ctx: PipelineContext, name: str) -> int:
    vectors, verdict = await ctx.gather(
        EmbeddingCall([name, f"{name} again", "and more"]), DecisionCall(name, {"urgent": Noul.of("Is it urgent?")})
    )
    return len(vectors.vectors) + int(verdict.noul("urgent").noul)


@pipeline
async def outer(ctx: PipelineContext, name: str) -> int:
    draft, plain = await ctx.gather(LLMCall(name, response_model=Shape, max_output_tokens=200), LLMCall(name))
    first = ctx.submit(Write(f"{name} first"))
    await ctx.submit(Save(name), after=[first], tolerate_failures=True)
    async with ctx.stream(LLMCall(name, max_output_tokens=300)) as pieces:
        text = "".join([piece.text async for piece in pieces])
    mapped = await ctx.map(range(3), lambda n: LLMCall(f"{name}.{n}", max_wait_s=200), limit=2)
    return draft.n + len(plain.text) + len(text) + len(mapped) + await ctx.run(inner(name))
