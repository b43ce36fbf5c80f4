"""A cancel at every single turn of the event loop leaks nothing, however it comes."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from simulation.clients import registered
from simulation.jobs import Save
from simulation.upstream import Manners
from simulation.world import SHAPES, Plan, Simulation, TurningLoop

from interlock.catalog import Limits
from interlock.runtime import LLMCall, PipelineContext, Runtime, pipeline

QUIET = Plan(
    seed=0,
    faithful=True,
    manners=Manners(odd=False),
    limits=Limits(**SHAPES[0], burst_s=60),  # type: ignore[arg-type]
    shared_pool=True,
    callers=0,
    cancels=0,
    edits=0,
    close_after_s=None,
    cost_cap="100",
)


@pipeline
async def everything(ctx: PipelineContext) -> str:
    await ctx.gather(Save("a"), LLMCall("b"))
    async with ctx.stream(LLMCall("c")) as pieces:
        async for piece in pieces:
            assert piece
    return await ctx.run(Save("d"))


class CancelledRun(Simulation):
    """Runs `everything` and cancels it `how` after so many turns."""

    def __init__(self, loop: TurningLoop, turns: int, how: str) -> None:
        super().__init__(QUIET, loop)
        self.turns, self.how, self.over = turns, how, False
        self.engine.fail = lambda: False

    async def _live(self, runtime: Runtime) -> None:
        handle = runtime.submit(everything())
        self._follow(handle)
        waits = asyncio.ensure_future(runtime.run(everything()) if self.how == "task" else _wait(handle))
        if self.how == "task":
            handle.cancel()

        def strike() -> None:
            if self.how == "task":
                waits.cancel()
            elif self.how == "handle":
                handle.cancel()
            else:
                for execution in list(runtime._dispatcher.live):  # type: ignore[union-attr]
                    execution.stop_hard()

        self.loop.at_turn[self.loop.turns + self.turns] = strike
        await asyncio.wait((waits,))
        self.over = bool(self.loop.at_turn)
        self.loop.at_turn.clear()
        if not waits.cancelled():
            waits.exception()


async def _wait(handle: Any) -> Any:
    return await handle


@pytest.mark.parametrize("how", ["task", "handle", "hard"])
def test_b06_cancel_at_every_turn_of_the_loop_leaks_nothing(how: str) -> None:
    turns, over = 0, False
    while not over:
        turns += 1
        with registered(), asyncio.Runner(loop_factory=TurningLoop) as runner:
            loop: Any = runner.get_loop()
            run = CancelledRun(loop, turns, how)
            runner.run(run.run())
        over = run.over
        assert turns < 2_000
    assert turns > 30, "it has many turns"
