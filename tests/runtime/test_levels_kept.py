"""Levels outlive their process: a program that is killed and started again does not burst twice."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from interlock.admission import Admission, CallCharge, Demand, ManualClock, PoolMemory
from interlock.catalog.entry import Accounting, Limits
from interlock.clients.simulator import PublishedLimits, SimulatedProvider
from interlock.runtime.levels import LevelKeeper
from interlock.runtime.store.levels import FORGOTTEN_AFTER
from interlock.runtime.store.opening import open_book
from interlock.runtime.store.sql_book import SqlBook

START = datetime(2026, 11, 30, 10, tzinfo=UTC)

PROGRAM = """
import asyncio, sys
from interlock import LLMCall, Runtime, RuntimeSettings
from interlock.catalog import Catalog
CATALOG = '''
providers: {simulated: {base_url: "%s"}}
models: [{id: small, grade: SMALL, provider: simulated, wire_model_id: small, context_window: 9000,
          max_output_tokens: 800, limits: {rpm: 12, burst_s: 300, max_concurrent: 4}, prices: {input: 1, output: 5}}]
'''
async def main():
    settings = RuntimeSettings(catalog=Catalog.load(CATALOG % sys.argv[1]), store="sqlite:///kept.db")
    async with Runtime(settings) as runtime:
        handles = [runtime.submit(LLMCall("Say hello.")) for _ in range(int(sys.argv[2]))]
        for handle in handles:
            await handle
asyncio.run(main())
"""


def start(provider: SimulatedProvider, folder: Path, jobs: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", PROGRAM, provider.base_url, str(jobs)], cwd=folder)


def until(provider: SimulatedProvider, count: int, program: subprocess.Popen[bytes]) -> None:
    for _ in range(6_000):
        if provider.count >= count:
            return
        assert program.poll() is None, "it ended early"
        time.sleep(0.01)
    raise AssertionError(f"only {provider.count} requests came")


def test_b60_a_program_killed_at_half_and_started_again_is_refused_nothing(tmp_path: Path) -> None:
    """One that had forgotten would send sixty at once, where some twenty are left."""
    limits = PublishedLimits(rpm=12, burst_s=300)
    with SimulatedProvider(limits=limits, headers=False, latency_s=0.1).in_thread() as provider:
        program = start(provider, tmp_path, 400)
        until(provider, 30, program)
        os.kill(program.pid, signal.SIGKILL)
        program.wait()
        before = provider.count
        assert before < 55, "it was killed too late to tell"
        program = start(provider, tmp_path, 400)
        until(provider, before + 1, program)
        for _ in range(100):  # what it can send at once is sent by then; one that had forgotten is refused sooner
            time.sleep(0.05 if provider.refused == 0 else 0)
        os.kill(program.pid, signal.SIGKILL)
        program.wait()
        assert provider.refused == 0
        assert provider.count > before
    with closing(sqlite3.connect(tmp_path / "kept.db")) as kept, kept:
        rows = kept.execute("SELECT pool, closed FROM levels").fetchall()
    assert rows == [("model:small", 0)], "one row, however often it started"


class Kept:
    """A process of its own, on virtual time: an admission, its keeper, and the store they share."""

    def __init__(self, book: SqlBook, at: datetime, owner: str, clock: ManualClock | None = None) -> None:
        self.clock = clock or ManualClock()
        began = self.clock.now()
        self.wall = lambda: at + timedelta(seconds=self.clock.now() - began)
        self.admission = Admission(self.clock, wall=self.wall, jitter=lambda: 0.0, transit_s=0.0)
        self.keeper = LevelKeeper(
            self.admission, book, clock=self.clock, wall=self.wall, owner=owner, keeps=lambda name: name != "private"
        )
        self.book = book

    async def use(self, tokens: int, name: str = "p") -> None:
        pool = self.admission.pool(name, Limits(tpm=600))
        call = CallCharge(key="k", pool=pool, accounting=Accounting(), input_tokens=tokens, output_tokens=0)
        demand = Demand(calls=(call,))
        reservation = await self.admission.admit(demand)
        reservation.permit("k", input_tokens=tokens, output_tokens=0).sent()
        self.keeper.moved(demand)

    def level(self, name: str = "p") -> float:
        self.admission.pool(name, Limits(tpm=600))
        return self.admission.statistics().account(f"{name}:tokens").level


@pytest.fixture
async def book(tmp_path: Path):
    book = open_book(f"sqlite:///{tmp_path / 'kept.db'}")
    yield book
    await book.close()


async def test_it_writes_at_once_when_something_moves_and_when_a_level_drops_by_a_tenth(book: SqlBook) -> None:
    one = Kept(book, START, "one")
    await one.use(100)
    assert (await book.read_levels())["p"][0].memory.lacks["tokens"][0] == pytest.approx(100)
    await one.use(30)
    assert (await book.read_levels())["p"][0].memory.lacks["tokens"][0] == pytest.approx(100), "within a second"
    await one.use(70)
    assert (await book.read_levels())["p"][0].memory.lacks["tokens"][0] == pytest.approx(200)
    await one.use(10)
    one.clock.run_due(1.0)
    assert (await book.read_levels())["p"][0].memory.lacks["tokens"][0] == pytest.approx(200, abs=0.1)
    groups = book.groups
    one.clock.run_due(3_600)
    assert one.clock.next_instant is None, "nothing runs while nothing moves"
    assert book.groups == groups


async def test_two_processes_on_one_file_do_not_undo_each_other(book: SqlBook) -> None:
    one, two = Kept(book, START, "one"), Kept(book, START, "two")
    await one.use(400)
    for _ in range(3):
        await two.use(10)
        two.clock.run_due(1.0)
    three = Kept(book, START + timedelta(seconds=3), "three")
    await three.keeper.open()
    assert three.level() <= 600 - 400 + 30


async def test_what_was_closed_is_believed_to_the_token_and_a_private_pool_is_not_kept(book: SqlBook) -> None:
    one = Kept(book, START, "one")
    await one.use(400)
    await one.use(300, "private")
    await one.keeper.close()
    two = Kept(book, START + timedelta(seconds=5), "two")
    await two.keeper.open()
    assert two.level() == pytest.approx(250)
    assert two.level("private") == 600


async def test_a_clock_that_went_back_refills_nothing(book: SqlBook) -> None:
    one = Kept(book, START, "one")
    await one.use(400)
    await one.keeper.close()
    two = Kept(book, START - timedelta(hours=2), "two")
    await two.keeper.open()
    assert two.level() == pytest.approx(200)


async def test_a_program_that_starts_often_keeps_one_row_and_forgets_what_nobody_uses(book: SqlBook) -> None:
    for n in range(20):
        process = Kept(book, START + timedelta(minutes=n), f"owner {n}")
        await process.keeper.open()
        await process.use(10)
        await process.keeper.close()
    assert list(await book.read_levels()) == ["p"]
    later = Kept(book, START + FORGOTTEN_AFTER + timedelta(days=1), "later")
    await later.use(10, "another")
    await later.keeper.close()
    assert list(await book.read_levels()) == ["another"]


async def test_a_row_that_cannot_be_read_says_nothing(book: SqlBook) -> None:
    book.write_levels("one", {"p": PoolMemory(lacks={"tokens": (5.0, 1.0)})}, START, False)
    await book.read_levels()
    from interlock.runtime.store.schema import levels

    await book._writer.run(lambda connection: connection.execute(levels.update().values(memory={"lacks": [1]})))
    two = Kept(book, START, "two")
    await two.keeper.open()
    assert two.level() == 600
