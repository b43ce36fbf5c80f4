"""What a job leaves under way when its run ends: it ends with it, before its reservation is given back."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import pytest
from sqlalchemy import text

from interlock.catalog import Grade, ModelSpec
from interlock.errors import InterlockError
from interlock.runtime import Job, JobRequirements, JobResources, Runtime

SPEC = ModelSpec(Grade.SMALL, max_output_tokens=100)


@dataclass(frozen=True)
class Does(Job[Any]):
    """Two declared calls, and whatever `what` makes of them."""

    what: Callable[[JobResources], Awaitable[Any]]
    upstream_retries = 0

    def requirements(self, needs: JobRequirements) -> None:
        needs.require_model(SPEC, input=10, calls=2)

    async def run(self, resources: JobResources) -> Any:
        return await self.what(resources)


def levels(runtime: Runtime) -> dict[str, float]:
    return {account.name: account.level for account in runtime.statistics().admission.accounts}


async def test_a_gathers_other_call_ends_with_the_failed_one(world: Any, runtime: Runtime, Step: Any) -> None:
    world.provider.script(Step(latency_s=0, error=ValueError("no")), Step(latency_s=1_000))

    async def both(resources: JobResources) -> Any:
        client = resources.get_llm_client()
        return await asyncio.gather(client.single_response("a"), client.single_response("b"))

    handle = runtime.submit(Does(both), cost_cap="1")
    with pytest.raises(ValueError, match="no"):
        await world.until(handle)
    assert world.provider.in_flight == 0
    assert [row.record.outcome for row in await runtime.calls()][1:] == ["cancelled"]
    assert handle.requests == 2


async def test_a_call_nobody_awaited_ends_with_the_run(world: Any, runtime: Runtime, Step: Any) -> None:
    world.provider.script(Step(latency_s=1_000))
    left: list[asyncio.Task[Any]] = []

    async def forget(resources: JobResources) -> str:
        left.append(asyncio.create_task(resources.get_llm_client().single_response("a")))
        await world.clock.settle()
        assert world.provider.in_flight == 1
        return "done"

    handle = runtime.submit(Does(forget))
    assert await world.until(handle) == "done"
    assert world.provider.in_flight == 0
    assert handle.requests == 1
    with pytest.raises(InterlockError, match="is over"):
        await left[0]


@pytest.mark.parametrize("fails", [False, True])
async def test_a_stream_left_open_is_closed_with_the_run(world: Any, runtime: Runtime, Step: Any, fails: bool) -> None:
    world.provider.script(Step(pieces=["a", "b", "c"]))
    kept: list[Any] = []

    async def leave(resources: JobResources) -> str:
        stream = resources.get_llm_client().stream_response("a")
        kept.append(stream)
        await stream.__aenter__()
        piece = await anext(stream)
        if fails:
            raise ValueError(piece.text)
        return str(piece.text)

    handle = runtime.submit(Does(leave))
    if fails:
        with pytest.raises(ValueError, match="a"):
            await world.until(handle)
    else:
        assert await world.until(handle) == "a"
    assert world.provider.in_flight == 0
    assert handle.requests == 1
    with pytest.raises(InterlockError, match="is over"):
        await anext(kept[0])


async def test_what_was_granted_cannot_be_used_once_the_run_is_over(world: Any, runtime: Runtime) -> None:
    kept: list[Any] = []

    async def keep(resources: JobResources) -> None:
        kept.extend((resources, resources.get_llm_client()))

    await world.until(runtime.run(Does(keep)))
    before = levels(runtime)
    with pytest.raises(InterlockError, match="is over"):
        await kept[1].single_response("late")
    with pytest.raises(InterlockError, match="is over"):
        kept[0].get_llm_client()
    assert world.provider.count == 0
    assert levels(runtime) == before


@dataclass(frozen=True)
class Save(Job[int]):
    def requirements(self, needs: JobRequirements) -> None:
        needs.require_database("notes")

    async def run(self, resources: JobResources) -> int:
        await resources.database("notes").execute(text("INSERT INTO notes VALUES (1)"))
        return 1


async def test_a_connection_that_will_not_go_back_does_not_undo_a_commit(
    world: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sqlalchemy.ext.asyncio import AsyncConnection, create_async_engine

    from interlock.runtime import DatabaseProvider

    engine = create_async_engine(f"sqlite+aiosqlite:///{tmp_path}/notes.db")
    async with engine.begin() as connection:
        await connection.execute(text("CREATE TABLE notes (n INT)"))

    closing = AsyncConnection.close

    async def refuse(connection: AsyncConnection) -> None:
        await closing(connection)
        raise RuntimeError("not taken back")

    async with world.runtime(databases=(DatabaseProvider("notes", engine),)) as runtime:
        with monkeypatch.context() as patched:
            patched.setattr(AsyncConnection, "close", refuse)
            assert await world.until(runtime.run(Save())) == 1
        assert levels(runtime)["db:notes"] == 5
    async with engine.connect() as connection:
        assert (await connection.execute(text("SELECT count(*) FROM notes"))).scalar() == 1
    await engine.dispose()
