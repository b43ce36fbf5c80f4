"""Pipelines that other processes can find by their names: `tests/` is on the path."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from interlock import Grade, LLMCall, PipelineContext, pipeline


@dataclass(frozen=True)
class Letter:
    name: str
    pages: int = 1


@dataclass(frozen=True)
class Note:
    text: str


@pipeline
async def double(ctx: PipelineContext, number: int) -> int:
    return 2 * number


@pipeline
async def read(ctx: PipelineContext, letter: Letter) -> str:
    return f"{letter.name}: {letter.pages}"


@pipeline
async def leaves(ctx: PipelineContext, number: int) -> list[str]:
    first = await ctx.enqueue(double(number))
    return [first, await ctx.enqueue(double(number + 1), run_id="named", priority=3)]


@pipeline
async def fails(ctx: PipelineContext) -> None:
    raise ValueError("no good")


@pipeline
async def waits(ctx: PipelineContext, seconds: float) -> str:
    await ctx.step(asyncio.sleep, seconds)
    return "waited"


@pipeline
async def says(ctx: PipelineContext, text: str) -> str:
    first = await ctx.run(LLMCall(f"Say {text}", model=Grade.SMALL, max_output_tokens=64))
    second = await ctx.run(LLMCall(f"Say it again: {text}", model=Grade.SMALL, max_output_tokens=64))
    return f"{first.text}|{second.text}"


@pipeline
async def thinks_and_says(ctx: PipelineContext, text: str) -> str:
    await ctx.run(LLMCall(f"Think of {text}", model=Grade.SMALL, max_output_tokens=64))
    one, other = await ctx.gather(
        LLMCall(f"Say {text}", model=Grade.SMALL, max_output_tokens=64),
        LLMCall(f"Say it again: {text}", model=Grade.SMALL, max_output_tokens=64),
    )
    return f"{one.text}|{other.text}"


@pipeline
async def deaf(ctx: PipelineContext, seconds: float) -> str:
    """It heeds no cancel for so long."""
    loop = asyncio.get_running_loop()
    until = loop.time() + seconds
    while loop.time() < until:
        try:
            await asyncio.sleep(until - loop.time())
        except asyncio.CancelledError:
            continue
    return "done all the same"


@pipeline
async def notes(ctx: PipelineContext, note: Note) -> str:
    return note.text
