"""Arguments and names that cannot be what they are given for: refused by name, and nothing is kept of the attempt."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from pydantic import BaseModel

from interlock.clients.conversation import Conversation, ToolUseBlock
from interlock.clients.measure import raw_input_tokens
from interlock.clients.options import CallOptions, Tool
from interlock.errors import ConfigurationError, UnencodableError
from interlock.runtime import Job, JobRequirements, LLMCall, PipelineContext, Runtime, pipeline
from interlock.runtime.journal.memory import MemoryJournal


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


def holding_itself() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


class Unreadable(dict[str, int]):
    def items(self) -> Any:
        raise ZeroDivisionError("mine")


class Part(BaseModel):
    number: int


@pipeline
async def given(ctx: PipelineContext, value: object = None) -> int:
    return 1


@pipeline
async def keyed(ctx: PipelineContext, key: Any) -> str:
    return (await ctx.run(LLMCall("x", max_output_tokens=20), key=key)).text


@pipeline
async def branched(ctx: PipelineContext, name: Any) -> str:
    return (await ctx.branch(name).run(LLMCall("x", max_output_tokens=20))).text


@pipeline
async def mapped(ctx: PipelineContext, key: Any) -> int:
    return len(await ctx.map(["x"], lambda text: LLMCall(text, max_output_tokens=20), key=lambda text: key))


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda: nested(100_000), UnencodableError),
        (holding_itself, UnencodableError),
        (lambda: 10**5_000, UnencodableError),
        (Unreadable, ZeroDivisionError),
    ],
    ids=["deep", "cyclic", "digits", "raises"],
)
async def test_a_call_that_cannot_be_told_from_others_does_not_keep_its_runs_id(
    world: Any, make: Callable[[], Any], error: type[Exception]
) -> None:
    async with world.runtime(journal=MemoryJournal()) as runtime:
        for _ in range(2):  # the second time it is refused for the same, not for being under way
            with pytest.raises(error):
                await world.until(runtime.run(given(make()), run_id="one"))
        assert await world.until(runtime.run(given(3), run_id="one")) == 1


async def test_an_argument_with_a_field_that_was_never_set_runs_and_cannot_be_enqueued(world: Any) -> None:
    async with world.runtime(journal=MemoryJournal()) as runtime:
        assert await world.until(runtime.run(given(Part.model_construct()), run_id="one")) == 1


@dataclass(frozen=True)
class Interrupted(Job[int]):
    def requirements(self, needs: JobRequirements) -> None:
        raise KeyboardInterrupt


async def test_ctrl_c_while_a_job_declares_leaves_neither_its_run_nor_its_cap(runtime: Runtime) -> None:
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            runtime.submit(Interrupted(), run_id="one", cost_cap="1")
    assert runtime._dispatcher is not None
    assert not runtime._dispatcher.spending.statistics()


@pytest.mark.parametrize("key", [5, ("a",), b"k"])
@pytest.mark.parametrize("made", [keyed, branched, mapped])
async def test_a_key_is_text(world: Any, runtime: Runtime, made: Any, key: object) -> None:
    with pytest.raises(TypeError, match="is text, not"):
        await world.until(runtime.run(made(key)))
    assert world.provider.count == 0


@pytest.mark.parametrize(("run_id", "error"), [(5, TypeError), (b"id", TypeError), ("x" * 501, ConfigurationError)])
async def test_an_id_is_a_text_that_fits(world: Any, runtime: Runtime, run_id: Any, error: type[Exception]) -> None:
    for job in (given(1), LLMCall("x", max_output_tokens=20)):
        with pytest.raises(error, match="a run's id"):
            await runtime.run(job, run_id=run_id)
    for look in (runtime.calls, runtime.runs):
        with pytest.raises(error, match="a run's id"):
            await look(run_id=run_id)
    assert world.provider.count == 0


async def test_a_cap_may_be_a_number(world: Any, tmp_path: Any) -> None:
    cap: Any = 5
    async with world.runtime(store=f"sqlite:///{tmp_path}/store.db") as runtime:
        assert await world.until(runtime.run(keyed("k"), cost_cap=cap)) == "ok"
        assert [run.cost_cap for run in await runtime.runs()] == ["5"]


async def test_a_wait_that_no_clock_holds_is_refused(world: Any, runtime: Runtime) -> None:
    with pytest.raises(ConfigurationError, match="max_wait_s"):
        await world.until(runtime.run(LLMCall("x", max_output_tokens=20, max_wait_s=10**400)))


class Mute:
    def __repr__(self) -> str:
        raise ZeroDivisionError("mine")


def deep_object() -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(100_000):
        value = {"a": value}
    return value


@pytest.mark.parametrize("make", [deep_object, lambda: {"a": Mute()}], ids=["deep", "mute"])
def test_the_size_of_a_call_is_estimated_whatever_is_in_it(make: Callable[[], dict[str, Any]]) -> None:
    """What cannot be written is refused where it is encoded, by name."""
    assert raw_input_tokens("x", options=CallOptions(tools=(Tool("t", "", make()),))) > 0
    used = ToolUseBlock(id="1", name="t", input=make())
    assert raw_input_tokens(Conversation.of("x").assistant([used])) > 0
