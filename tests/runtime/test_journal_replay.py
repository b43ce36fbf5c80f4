"""A run is cut off at every point there is and goes on: what was paid for stays paid, what was lost is on record."""

from __future__ import annotations

import copy
from collections import Counter
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from interlock.catalog import ModelSpec
from interlock.catalog.words import Grade
from interlock.runtime import Job, LLMCall, PipelineContext, pipeline
from interlock.runtime.journal.memory import MemoryJournal
from interlock.runtime.journal.protocol import StepStatus


def ask(text: str, **settings: Any) -> LLMCall[Any]:
    return LLMCall(text, max_output_tokens=settings.pop("max_output_tokens", 200), **settings)


@dataclass(frozen=True)
class TwoCalls(Job[str]):
    """A job of one's own that asks twice and makes one text of it."""

    text: str
    SPEC: ClassVar = ModelSpec(Grade.SMALL, max_output_tokens=100)

    def requirements(self, needs: Any) -> None:
        needs.require_model(self.SPEC, input=self.text, calls=2)

    async def run(self, resources: Any) -> str:
        client = resources.get_llm_client(self.SPEC)
        first = await client.single_response(f"{self.text} first")
        return f"{first.text}+{(await client.single_response(f'{self.text} second')).text}"


@pipeline
async def inner(ctx: PipelineContext, name: str) -> str:
    one = await ctx.run(ask(f"{name} one"))
    two = await ctx.run(ask(f"{name} two"))
    return f"{one.text}|{two.text}"


@pipeline(version="1")
async def everything(ctx: PipelineContext) -> dict[str, Any]:
    first = await ctx.run(ask("first"))
    noted = (ctx.now(), ctx.uuid(), ctx.random())
    pair = await ctx.gather(ask("left"), TwoCalls("right"))
    nested = await ctx.run(inner("nested"), key="nested")
    mapped = await ctx.map(["a", "b", "c"], lambda item: ask(f"item {item}"), key=str, limit=2)
    async with ctx.stream(ask("streamed")) as pieces:
        texts = [piece.text async for piece in pieces if piece.response is None]
    worked = await ctx.step(square, np.arange(3, dtype=np.float32))
    return {
        "first": first.text,
        "noted": noted,
        "pair": (pair[0].text, pair[1]),
        "nested": nested,
        "mapped": [response.text for response in mapped],
        "streamed": "".join(texts),
        "worked": worked.tolist(),
    }


#: How many requests each step makes.
CALLS = {"0": 1, "4/0": 1, "4/1": 2, "k:nested/0": 1, "k:nested/1": 1, "5/k:a": 1, "5/k:b": 1, "5/k:c": 1, "6": 1}


async def square(values: Any) -> Any:
    return values**2


class Photographed(MemoryJournal):
    """Keeps what is committed before and after every write, as a crash there would leave it."""

    def __init__(self) -> None:
        super().__init__()
        self.photographs: list[MemoryJournal] = []

    def photograph(self) -> None:
        left = MemoryJournal()
        left._runs, left.book = copy.deepcopy((self._runs, self.book))
        left.lapse()
        self.photographs.append(left)


def _photographing(name: str) -> Any:
    def write(self: Photographed, *args: Any, **kwargs: Any) -> Any:
        self.photograph()
        answer = getattr(MemoryJournal, name)(self, *args, **kwargs)
        self.photograph()
        return answer

    return write


for _name in ("create", "intend", "conclude", "keep_calls", "end"):
    setattr(Photographed, _name, _photographing(_name))


def echo(world: Any, **known: Any) -> None:
    """The provider answers what it was asked last, so a result tells which answers it is made of."""
    world.provider.always = lambda seen: world.step(text=f"<{said(seen)}>", **known)


def said(seen: Any) -> str:
    return str(seen.body["turns"][-1][1][0])


async def finish(world: Any, journal: Any, job: Any, **settings: Any) -> Any:
    async with world.runtime(journal=journal) as runtime:
        return await world.until(runtime.run(job, run_id="r", **settings))


async def test_b36_a_run_cut_off_at_any_commit_goes_on_and_pays_twice_only_what_was_lost(world: Any) -> None:
    echo(world)
    journal = Photographed()
    whole = await finish(world, journal, everything())
    assert world.provider.count == sum(CALLS.values())
    reasons: Counter[str] = Counter()
    for number, left in enumerate(journal.photographs):
        before = await left.read("r")
        steps = dict(before.steps) if before is not None else {}
        world.provider.seen.clear()
        result = await finish(world, left, everything())
        after = await left.read("r")
        assert after is not None
        if "1" in steps:
            assert result["noted"][0] == whole["noted"][0], number
        assert {**result, "noted": None} == {**whole, "noted": None}, number
        assert {step.status for step in after.steps.values()} == {StepStatus.SUCCEEDED}, number
        # What is sent in this life is what had no outcome, and nothing else.
        lacking = {id for id in CALLS if id not in steps or steps[id].status is not StepStatus.SUCCEEDED}
        nested_is_done = "k:nested" in steps
        lacking -= {id for id in CALLS if nested_is_done and id.startswith("k:nested/")}
        assert world.provider.count == sum(CALLS[id] for id in lacking), number
        # Whatever had an intent says why it ran again, and what nobody knows of is on record with its estimate.
        begun = {id: step for id, step in steps.items() if step.status is StepStatus.BEGUN}
        for id, step in begun.items():
            assert after.steps[id].again == ("paid" if step.known_calls else "ambiguous"), number
            reasons[after.steps[id].again] += 1
        unknown = [row for row in await left.book.read_calls() if row.record.outcome == "unknown"]
        expected = {id for id, step in begun.items() if not step.known_calls and step.requests is not None}
        assert {row.step_id for row in unknown} == expected, number
        assert all(row.record.cost and row.record.usage.estimated for row in unknown), number
        world.provider.seen.clear()
        assert await finish(world, left, everything()) == result, number
        assert not world.provider.seen, number
    assert reasons["ambiguous"] > 20
    # An answer and its outcome are one commit: only the job of two calls can know of one and not have ended.
    assert reasons["paid"] == 2
