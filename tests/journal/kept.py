"""A journal as a crash leaves it, and runs on it, for the tests of the journal's rules."""

from __future__ import annotations

import copy
from typing import Any

from interlock.runtime import LLMCall
from interlock.runtime.journal.memory import MemoryJournal


def ask(text: str, **settings: Any) -> LLMCall[Any]:
    return LLMCall(text, max_output_tokens=settings.pop("max_output_tokens", 200), **settings)


class Kept(MemoryJournal):
    """`left()` is what would be found after a crash now."""

    def left(self) -> Kept:
        other = Kept()
        other._runs, other.book = copy.deepcopy((self._runs, self.book))
        other.lapse()
        return other


async def run_on(world: Any, journal: Any, job: Any, **settings: Any) -> Any:
    async with world.runtime(journal=journal) as runtime:
        return await world.until(runtime.run(job, run_id="r", **settings))


async def resume_on(world: Any, journal: Any, job: Any = None, **settings: Any) -> Any:
    async with world.runtime(journal=journal) as runtime:
        return await world.until(runtime.resume("r", job, **settings))


async def cut_off(world: Any, journal: Kept, job: Any, after: int, **settings: Any) -> Kept:
    """What is left of a run that is killed once its provider has seen `after` requests."""
    async with world.runtime(journal=journal) as runtime:
        handle = runtime.submit(job, run_id="r", **settings)
        await world.run_until(lambda: world.provider.count >= after)
        left = journal.left()
        handle.cancel()
        await world.run_until(lambda: handle.done)
    return left


def steps_of(journal: Kept) -> dict[str, str]:
    return {id: str(step.status) for id, step in journal._runs["r"].steps.items()}
