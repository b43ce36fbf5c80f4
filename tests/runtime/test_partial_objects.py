"""A typed answer is seen growing through a pipeline's stream, a bare Runtime's and a thread's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from pydantic import BaseModel

from interlock.catalog import Grade
from interlock.runtime import Job, JobRequirements, LLMCall, PipelineContext, Runtime, pipeline

PIECES = ['{"title": "A', ' b"', ', "stars": 4}']
STATES = [{"title": "A"}, {"title": "A b"}, {"title": "A b", "stars": 4}]


class Review(BaseModel):
    title: str
    stars: int


@pipeline
async def watching(ctx: PipelineContext) -> tuple[list[Any], Any]:
    async with ctx.stream(LLMCall("x", response_model=Review)) as pieces:
        seen = [pieces.partial_object async for piece in pieces if piece.response is None]
    return seen, pieces.response.parsed


async def read_bare(runtime: Runtime) -> tuple[list[Any], Any]:
    async with runtime.llm(Grade.SMALL).stream_response("x", response_model=Review) as pieces:
        seen = [pieces.partial_object async for piece in pieces if piece.response is None]
    return seen, pieces.response.parsed


@dataclass(frozen=True)
class Reads(Job[tuple[list[Any], Any]]):
    def requirements(self, needs: JobRequirements) -> None:
        needs.require_model(Grade.SMALL, max_output_tokens=100)


class ReadsInTask(Reads):
    async def run(self, resources: Any) -> tuple[list[Any], Any]:
        async with resources.get_llm_client(Grade.SMALL).stream_response("x", response_model=Review) as pieces:
            seen = [pieces.partial_object async for piece in pieces if piece.response is None]
        return seen, pieces.response.parsed


class ReadsInThread(Reads):
    def run(self, resources: Any) -> tuple[list[Any], Any]:
        with resources.get_llm_client(Grade.SMALL).stream_response("x", response_model=Review) as pieces:
            seen = [pieces.partial_object for piece in pieces if piece.response is None]
        return seen, pieces.response.parsed


@pytest.mark.parametrize("how", ["pipeline", "bare", "task", "thread"])
async def test_it_is_seen_growing(world: Any, runtime: Runtime, Step: Any, how: str) -> None:
    world.provider.script(Step(pieces=PIECES))
    reads: Any = {
        "pipeline": lambda: runtime.run(watching()),
        "bare": lambda: read_bare(runtime),
        "task": lambda: runtime.run(ReadsInTask()),
        "thread": lambda: runtime.run(ReadsInThread()),
    }[how]()
    seen, parsed = await world.until(reads)
    assert seen == STATES
    assert parsed == Review(title="A b", stars=4)
