"""The user's COMMIT and the journal: exactly once where the database tells, at least once where it does not."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from journal.kept import Kept
from sqlalchemy import Column, MetaData, Table, Text, event, insert, select
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from interlock.errors import ConfigurationError, LeaseLostError, UnencodableError
from interlock.runtime import DatabaseProvider, Job, PipelineContext, pipeline
from interlock.runtime.journal.memory import MemoryJournal

notes = Table("notes", MetaData(), Column("step", Text), Column("text", Text))


@dataclass(frozen=True)
class Write(Job[Any]):
    text: str
    databases: tuple[str, ...] = ("one",)
    gives: Any = None

    def requirements(self, needs: Any) -> None:
        for name in self.databases:
            needs.require_database(name)

    async def run(self, resources: Any) -> Any:
        for name in self.databases:
            values = {"step": resources.step_id, "text": f"{self.text} {resources.attempt}"}
            await resources.database(name).execute(insert(notes), values)
        return self.gives or f"{self.text} {resources.attempt}"


@dataclass
class Databases:
    engines: dict[str, AsyncEngine]

    def providers(self, *, outcomes: bool) -> tuple[DatabaseProvider, ...]:
        return tuple(DatabaseProvider(name, engine, outcomes=outcomes) for name, engine in self.engines.items())

    async def texts(self, name: str = "one") -> list[str]:
        async with self.engines[name].connect() as connection:
            return list((await connection.execute(select(notes.c.text))).scalars())


@pytest.fixture
async def databases(tmp_path: Path) -> AsyncIterator[Databases]:
    engines = {name: create_async_engine(f"sqlite+aiosqlite:///{tmp_path}/{name}.db") for name in ("one", "two")}
    for engine in engines.values():
        async with engine.begin() as connection:
            await connection.run_sync(notes.create)
    yield Databases(engines)
    for engine in engines.values():
        await engine.dispose()


async def run(world: Any, journal: MemoryJournal, providers: Any, job: Any) -> Any:
    async with world.runtime(journal=journal, databases=providers) as runtime:
        return await world.until(runtime.run(job, run_id="r"))


def at_commit(engine: AsyncEngine, do: Any) -> None:
    """Call `do` when the user's transaction of a job is about to be committed."""
    event.listen(engine.sync_engine, "commit", lambda _connection: do())


@pipeline
async def once(ctx: PipelineContext) -> Any:
    return await ctx.run(Write("a"))


@pytest.mark.parametrize(("outcomes", "written"), [(True, ["a 1"]), (False, ["a 1", "a 2"])])
async def test_what_was_committed_is_not_done_again_where_the_database_tells(
    world: Any, databases: Databases, outcomes: bool, written: list[str]
) -> None:
    journal = Kept()
    providers = databases.providers(outcomes=outcomes)
    crashes: list[Kept] = []
    async with world.runtime(journal=journal, databases=providers) as runtime:
        at_commit(databases.engines["one"], lambda: crashes.append(journal.left()))
        assert await world.until(runtime.run(once(), run_id="r")) == "a 1"
    (left,) = crashes  # the journal as it is when the user's COMMIT has come through and the process ends right then
    assert await run(world, left, providers, once()) == written[-1]
    assert await databases.texts() == written
    step = left._runs["r"].steps["0"]
    assert (step.copied, step.again) == ((True, "") if outcomes else (False, "ambiguous"))


async def test_what_could_do_nothing_but_commit_and_has_not_runs_again_and_is_not_ambiguous(
    world: Any, databases: Databases
) -> None:
    journal, providers = Kept(), databases.providers(outcomes=True)
    crashes: list[Kept] = []
    engine = databases.engines["one"]

    def begun(_connection: Any) -> None:
        if "r" in journal._runs:
            crashes.append(journal.left())
            raise RuntimeError("the process ends right then")

    async with world.runtime(journal=journal, databases=providers) as runtime:
        event.listen(engine.sync_engine, "begin", begun)
        with pytest.raises(RuntimeError, match="right then"):
            await world.until(runtime.run(once(), run_id="r"))
        event.remove(engine.sync_engine, "begin", begun)
    left = crashes[0]
    async with world.runtime(journal=left, databases=providers) as runtime:
        assert await world.until(runtime.run(once(), run_id="r", ambiguous="fail")) == "a 2"
        assert dict(runtime.statistics().again) == {"uncommitted": 1}
    assert await databases.texts() == ["a 2"]


async def test_a_step_that_is_to_run_again_commits_again_also_in_a_run_that_succeeded(
    world: Any, databases: Databases
) -> None:
    journal, providers = Kept(), databases.providers(outcomes=True)

    @pipeline
    async def two(ctx: PipelineContext) -> list[str]:
        return [await ctx.run(Write("a")), await ctx.run(Write("b"))]

    assert await run(world, journal, providers, two()) == ["a 1", "b 1"]
    async with world.runtime(journal=journal, databases=providers) as runtime:
        assert await world.until(runtime.resume("r", two(), from_step="1")) == ["a 1", "b 1"]
        assert runtime.statistics().replayed == 1
    assert await databases.texts() == ["a 1", "b 1", "b 1"]
    assert await run(world, journal, providers, two()) == ["a 1", "b 1"], "it has succeeded again"


async def test_a_step_that_wrote_to_two_databases_is_done_when_both_have_it(world: Any, databases: Databases) -> None:
    @pipeline
    async def both(ctx: PipelineContext) -> Any:
        return await ctx.run(Write("a", ("one", "two")))

    journal = Kept()
    providers = databases.providers(outcomes=True)
    crashes: list[Kept] = []
    failing = [True]

    def fail() -> None:
        crashes.append(journal.left())
        if failing[0]:
            raise OSError("the second database is gone")

    async with world.runtime(journal=journal, databases=providers) as runtime:
        at_commit(databases.engines["two"], fail)
        with pytest.raises(OSError, match="gone"):
            await world.until(runtime.run(both(), run_id="r"))
    assert (await databases.texts("one"), await databases.texts("two")) == (["a 1"], [])
    failing[0] = False
    assert await run(world, crashes[0], providers, both()) == "a 2"
    assert (await databases.texts("one"), await databases.texts("two")) == (["a 1"], ["a 2"]), "each has it once"


async def test_a_process_that_lost_its_lease_does_not_commit(world: Any, databases: Databases) -> None:
    journal = Kept()
    committed: list[str] = []

    @dataclass(frozen=True)
    class Slow(Write):
        async def run(self, resources: Any) -> Any:
            result = await super().run(resources)
            journal.lapse()  # as if the process had been frozen here, and its runs been given to another
            return result

    @pipeline
    async def slow(ctx: PipelineContext) -> Any:
        return await ctx.run(Slow("a"))

    async with world.runtime(journal=journal, databases=databases.providers(outcomes=True)) as runtime:
        at_commit(databases.engines["one"], lambda: committed.append("commit"))
        with pytest.raises(LeaseLostError):
            await world.until(runtime.run(slow(), run_id="r"))
    assert not committed
    assert await databases.texts() == []


async def test_a_result_that_cannot_be_written_is_said_before_anything_is_committed(
    world: Any, databases: Databases
) -> None:
    @pipeline
    async def odd(ctx: PipelineContext) -> Any:
        return await ctx.run(Write("a", gives=asyncio.Lock()))

    with pytest.raises(UnencodableError, match=r"the result of step '0' \(Write\) is of type asyncio.*Lock"):
        await run(world, Kept(), databases.providers(outcomes=False), odd())
    assert await databases.texts() == []


async def test_at_registration_it_is_said_what_a_database_promises(
    world: Any, databases: Databases, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    with caplog.at_level(logging.INFO, "interlock.runtime"):
        async with world.runtime(journal=Kept(), databases=databases.providers(outcomes=False)):
            pass
    assert "'one' is registered without outcomes=True" in caplog.text
    assert "at least once" in caplog.text
    nowhere = create_async_engine(f"sqlite+aiosqlite:///{tmp_path}/no/such/folder.db")
    with pytest.raises(ConfigurationError, match="interlock_outcome cannot be made in database 'three'"):
        await world.runtime(journal=Kept(), databases=(DatabaseProvider("three", nowhere, outcomes=True),)).__aenter__()
    await nowhere.dispose()
