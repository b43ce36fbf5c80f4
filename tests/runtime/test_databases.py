"""A job's transaction: begun at its first statement, committed before delivery, rolled back otherwise; never idle."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Column, Integer, MetaData, String, Table, event, func, insert, select
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from interlock.catalog import Grade, Limits, ModelSpec
from interlock.errors import (
    ConfigurationError,
    InterlockError,
    JobCancelledError,
    JobTimeoutError,
    TransactionOpenError,
    TransientUpstreamError,
    UndeclaredResourceError,
)
from interlock.runtime import DatabaseProvider, Job, JobRequirements, JobResources, JobState, Runtime

metadata = MetaData()
notes = Table("notes", metadata, Column("id", Integer, primary_key=True), Column("text", String, unique=True))
SPEC = ModelSpec(Grade.SMALL, max_output_tokens=100)
HANGING: list[str] = []


class Watched:
    """An engine with a pool of one, and what happened on it."""

    def __init__(self, path: Path) -> None:
        self.engine: AsyncEngine = create_async_engine(
            f"sqlite+aiosqlite:///{path}", pool_size=1, max_overflow=0, pool_timeout=5
        )
        self.out = 0
        self.log: list[str] = []
        pool = self.engine.sync_engine.pool
        event.listen(pool, "checkout", lambda *_: self._out(1))
        event.listen(pool, "checkin", lambda *_: self._out(-1))
        event.listen(self.engine.sync_engine, "begin", lambda *_: self.log.append("begin"))
        event.listen(self.engine.sync_engine, "commit", lambda *_: self.log.append("commit"))
        event.listen(self.engine.sync_engine, "rollback", lambda *_: self.log.append("rollback"))

    def _out(self, change: int) -> None:
        self.out += change

    async def texts(self) -> list[str]:
        async with self.engine.connect() as connection:
            return list((await connection.execute(select(notes.c.text).order_by(notes.c.id))).scalars())


@pytest.fixture
async def database(world: Any, tmp_path: Path) -> AsyncIterator[Watched]:
    watched = Watched(tmp_path / "user.db")
    async with watched.engine.begin() as connection:
        await connection.run_sync(metadata.create_all)
    watched.log.clear()
    world.patience = 100
    yield watched
    await watched.engine.dispose()


@pytest.fixture
async def runtime(world: Any, database: Watched) -> AsyncIterator[Runtime]:
    async with world.runtime(databases=(DatabaseProvider("notes", database.engine, max_concurrent=1),)) as opened:
        yield opened
        await world.until(opened._dispatcher.cancel_all())  # type: ignore[union-attr]


@dataclass(frozen=True)
class Note(Job[str]):
    text: str
    order: str = "call, write"
    hold: bool = False
    timeout_s = 1_000.0

    def requirements(self, needs: JobRequirements) -> None:
        needs.require_database("notes", transaction=True, hold_transaction=self.hold)
        needs.require_model(SPEC, input=self.text, calls=2)

    async def run(self, resources: JobResources) -> str:
        answer = ""
        for step in self.order.split(", "):
            if step == "call":
                answer = (await resources.get_llm_client(SPEC).single_response(self.text)).text
            elif step == "write":
                await resources.database("notes").execute(insert(notes).values(text=self.text))
            elif step == "read":
                await resources.database("notes").scalar(select(func.count()).select_from(notes))
            elif step == "hang":
                HANGING.append(self.text)
                await asyncio.get_running_loop().create_future()
            else:
                raise ZeroDivisionError(step)
        return answer


async def test_commit_comes_before_the_result(world: Any, runtime: Runtime, database: Watched) -> None:
    handle = runtime.submit(Note("a"))
    seen: list[list[str]] = []
    handle._execution.on_done(lambda: seen.append(list(database.log)))
    assert await world.until(handle) == "ok"
    assert seen == [["begin", "commit"]]
    assert database.out == 0
    assert await database.texts() == ["a"]


async def test_nothing_is_checked_out_while_the_model_answers(world: Any, runtime: Runtime, database: Watched) -> None:
    handle = runtime.submit(Note("a"))
    await world.run_until(lambda: world.provider.in_flight == 1)
    assert (database.out, database.log) == (0, [])
    assert runtime.statistics().admission.account("db:notes").level == 0, "the permit came with the grant"
    await world.until(handle)
    assert runtime.statistics().admission.account("db:notes").level == 1


async def test_a_failure_rolls_back_and_returns_the_connection(world: Any, runtime: Runtime, database: Watched) -> None:
    with pytest.raises(ZeroDivisionError):
        await world.until(runtime.run(Note("a", order="write, raise")))
    assert database.log == ["begin", "rollback"]
    assert database.out == 0
    assert await database.texts() == []


async def test_a_commit_that_fails_fails_the_job(world: Any, runtime: Runtime, database: Watched) -> None:
    def refuse(*_: Any) -> None:
        raise OSError("the disk is full")

    event.listen(database.engine.sync_engine, "commit", refuse)
    with pytest.raises(OSError, match="disk is full"):
        await world.until(runtime.run(Note("a")))
    event.remove(database.engine.sync_engine, "commit", refuse)
    assert database.out == 0
    assert await database.texts() == []


async def test_a_model_call_in_an_open_transaction_is_refused_unless_held(
    world: Any, runtime: Runtime, database: Watched
) -> None:
    with pytest.raises(TransactionOpenError, match=r"hold_transaction=True"):
        await world.until(runtime.run(Note("a", order="read, call")))
    assert world.provider.count == 0
    assert database.log[-1] == "rollback"
    assert await world.until(runtime.run(Note("b", order="read, call, write", hold=True))) == "ok"
    assert await database.texts() == ["b"]


async def test_a_rerun_writes_once(world: Any, runtime: Runtime, database: Watched, Step: Any) -> None:
    world.provider.script(Step(), Step(error=lambda: TransientUpstreamError("gone")))
    assert await world.until(runtime.run(Note("a", order="call, write, call", hold=True))) == "ok"
    assert database.log == ["begin", "rollback", "begin", "commit"]
    assert await database.texts() == ["a"]


async def test_a_cancelled_job_is_rolled_back_after_its_grace(world: Any, runtime: Runtime, database: Watched) -> None:
    handle = runtime.submit(Note("hangs", order="write, hang"))
    await world.run_until(lambda: "hangs" in HANGING)
    handle.cancel()
    assert handle.state is JobState.STOPPING
    started = world.clock.now()
    with pytest.raises(JobCancelledError):
        await world.until(handle)
    assert world.clock.now() - started == pytest.approx(30.0)
    assert database.log == ["begin", "rollback"]
    assert database.out == 0


async def test_a_job_that_runs_too_long_is_stopped_and_not_tried_again(
    world: Any, runtime: Runtime, database: Watched
) -> None:
    handle = runtime.submit(Note("a", order="call, write, hang"))
    with pytest.raises(JobTimeoutError) as caught:
        await world.until(handle)
    assert caught.value.timeout_s == 1_000
    assert handle.attempt == 1
    assert handle.state is JobState.FAILED
    assert await database.texts() == []


async def test_b29_a_pool_of_one_is_never_held_through_a_call(
    world: Any, runtime: Runtime, database: Watched, Step: Any
) -> None:
    world.provider.always = lambda seen: Step(latency_s=0.3)
    handles = [runtime.submit(Note(f"n{n}", order="call, read, write")) for n in range(3)]
    idle_in_transaction: list[int] = []

    async def look() -> None:
        while not all(handle.done for handle in handles):
            if world.provider.in_flight:
                idle_in_transaction.append(database.out)
            await asyncio.sleep(0)

    looking = asyncio.create_task(look())
    assert [await world.until(handle) for handle in handles] == ["ok"] * 3
    await looking
    assert idle_in_transaction
    assert set(idle_in_transaction) == {0}
    assert sorted(await database.texts()) == ["n0", "n1", "n2"]


async def test_b29_waiting_for_tokens_holds_no_connection_and_no_permit(
    world: Any, database: Watched, entry: Any, Step: Any
) -> None:
    world.entries[:] = [entry(limits=Limits(tpm=250))]
    world.provider.always = lambda seen: Step(usage=(5, 100))
    async with world.runtime(databases=(DatabaseProvider("notes", database.engine, max_concurrent=1),)) as runtime:
        first, second = [runtime.submit(Note(f"n{n}", order="call, write")) for n in range(2)]
        await world.run_until(lambda: first.done)
        assert second.state is JobState.WAITING
        explanation = second.explain()
        assert explanation is not None
        assert explanation.account == "model:fake-small:tokens"
        assert explanation.earliest_s is not None
        assert runtime.statistics().admission.account("db:notes").level == 1
        assert database.out == 0
        started = world.clock.now()
        await world.until(second)
        assert world.clock.now() - started >= explanation.earliest_s


async def test_b29_the_recorder_cannot_deadlock_with_the_users_pool(
    world: Any, database: Watched, tmp_path: Path
) -> None:
    provider = DatabaseProvider("notes", database.engine, max_concurrent=1)
    async with world.runtime(databases=(provider,), store=f"sqlite:///{tmp_path}/user.db") as runtime:
        handles = [runtime.submit(Note(f"n{n}", order="call, read, write")) for n in range(3)]
        for handle in handles:
            await world.until(handle)
        assert len(await runtime.calls()) == 3


async def test_an_undeclared_database_is_refused_by_name(world: Any, runtime: Runtime) -> None:
    @dataclass(frozen=True)
    class Sly(Job[None]):
        async def run(self, resources: JobResources) -> None:
            await resources.database("notes").execute(select(1))

    with pytest.raises(UndeclaredResourceError, match="'notes'"):
        await world.until(runtime.run(Sly()))


async def test_an_unregistered_database_is_refused_before_anything_runs(world: Any, runtime: Runtime) -> None:
    @dataclass(frozen=True)
    class Lost(Job[None]):
        def requirements(self, needs: JobRequirements) -> None:
            needs.require_database("elsewhere")

    with pytest.raises(ConfigurationError, match=r"elsewhere.*known: notes"):
        await world.until(runtime.run(Lost()))


async def test_a_permit_that_only_counts_gives_the_engine(world: Any, runtime: Runtime, database: Watched) -> None:
    @dataclass(frozen=True)
    class Counts(Job[bool]):
        def requirements(self, needs: JobRequirements) -> None:
            needs.require_database("notes", transaction=False)

        async def run(self, resources: JobResources) -> bool:
            session = resources.database("notes")
            with pytest.raises(InterlockError, match="only counts"):
                await session.execute(select(1))
            return session.engine is database.engine

    assert await world.until(runtime.run(Counts()))
    assert database.log == []


async def test_the_session_ends_with_the_run(world: Any, runtime: Runtime) -> None:
    kept: list[Any] = []

    @dataclass(frozen=True)
    class Keeps(Job[None]):
        def requirements(self, needs: JobRequirements) -> None:
            needs.require_database("notes")

        async def run(self, resources: JobResources) -> None:
            kept.append(resources.database("notes"))

    await world.until(runtime.run(Keeps()))
    with pytest.raises(InterlockError, match="over"):
        await kept[0].execute(select(1))


class Base(DeclarativeBase):
    pass


class Row(Base):
    __tablename__ = "notes"
    id: Mapped[int] = mapped_column(primary_key=True)
    text: Mapped[str]


async def test_an_orm_session_shares_the_transaction(world: Any, runtime: Runtime, database: Watched) -> None:
    @dataclass(frozen=True)
    class Orm(Job[None]):
        fail: bool

        def requirements(self, needs: JobRequirements) -> None:
            needs.require_database("notes")

        async def run(self, resources: JobResources) -> None:
            session = await resources.database("notes").session()
            session.add(Row(text="orm"))
            if self.fail:
                await session.flush()
                raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await world.until(runtime.run(Orm(True)))
    assert await database.texts() == []
    await world.until(runtime.run(Orm(False)))
    assert await database.texts() == ["orm"]
    assert database.out == 0
