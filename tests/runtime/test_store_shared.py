"""One store and several processes or threads of work: locks, forks, and those who stop waiting."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from interlock.catalog import Grade, ModelSpec
from interlock.errors import StoreError
from interlock.runtime import Job, JobRequirements, JobResources, LLMCall, Runtime
from interlock.runtime.store.reads import calls_in

SPEC = ModelSpec(Grade.SMALL, max_output_tokens=100)

SETTINGS = """
import asyncio, os, sys
from interlock import LLMCall, Runtime, RuntimeSettings
from interlock.catalog import Catalog
CATALOG = '''
providers: {simulated: {base_url: "%s"}}
models: [{id: small, grade: SMALL, provider: simulated, wire_model_id: small, context_window: 9000,
          max_output_tokens: 800, limits: {rpm: 60000}, prices: {input: 1, output: 5}}]
'''
def settings(url):
    return RuntimeSettings(catalog=Catalog.load(CATALOG % url), store="sqlite:///shared.db")
"""
WRITERS = """
import interlock.clients.providers.simulated  # once for all of them

async def write():
    async with Runtime(settings(sys.argv[1])) as runtime:
        for _ in range(25):
            await runtime.run(LLMCall("Say hello."))

children = []
for _ in range(4):
    pid = os.fork()
    if not pid:
        asyncio.run(write())
        os._exit(0)
    children.append(pid)
sys.exit(any(os.waitpid(pid, 0)[1] for pid in children))
"""
FORKER = """
from interlock import InterlockError

def child(runtime, told):
    async def work():
        try:
            await runtime.run(LLMCall("x"))
        except InterlockError as error:
            os.write(told, f"{error}\\n".encode())
        async with Runtime(settings(sys.argv[1])) as mine:
            await mine.run(LLMCall("Say hello."))
    asyncio.run(work())
    os._exit(0)

async def main():
    async with Runtime(settings(sys.argv[1])) as runtime:
        await runtime.run(LLMCall("Say hello."))
        heard, told = os.pipe()
        children = []
        for _ in range(4):
            pid = os.fork()
            if not pid:
                try:
                    child(runtime, told)
                finally:
                    os._exit(1)
            children.append(pid)
        os.close(told)
        ends = [os.waitpid(pid, 0)[1] for pid in children]
        print(ends, os.read(heard, 10_000).decode().count("open on another event loop"))
        await runtime.run(LLMCall("Say hello."))
asyncio.run(main())
"""


@asynccontextmanager
async def simulated() -> AsyncIterator[str]:
    from interlock.clients.simulator import SimulatedProvider

    async with SimulatedProvider() as provider:
        yield provider.anthropic_url


async def script(body: str, url: str, folder: Path) -> str:
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", SETTINGS + body, url]
    done = await asyncio.to_thread(
        subprocess.run, command, cwd=folder, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr[-2_000:]
    return done.stdout


async def test_b27_processes_that_write_at_once_meet_no_lock_error_and_lose_no_row(tmp_path: Path) -> None:
    async with simulated() as url:
        await script(WRITERS, url, tmp_path)
    rows = calls_in(f"sqlite:///{tmp_path}/shared.db")
    assert [row.record.outcome for row in rows] == ["ok"] * 100
    assert len({row.job_id for row in rows}) == 100


async def test_b27_a_reader_that_has_begun_does_not_stop_the_writer(world: Any, tmp_path: Path) -> None:
    async with world.runtime(store=f"sqlite:///{tmp_path}/s.db") as runtime:
        reader = sqlite3.connect(tmp_path / "s.db", isolation_level=None)
        reader.execute("BEGIN")
        assert reader.execute("SELECT count(*) FROM calls").fetchone() == (0,)
        assert (await world.until(runtime.run(LLMCall("x")))).text == "ok"
        assert reader.execute("SELECT count(*) FROM calls").fetchone() == (0,), "a snapshot"
        reader.close()
        assert len(await runtime.calls()) == 1


@pytest.mark.skipif(not hasattr(__import__("os"), "fork"), reason="there is no fork here")
async def test_b77_a_forked_child_is_told_and_opens_a_runtime_of_its_own(tmp_path: Path) -> None:
    async with simulated() as url:
        assert (await script(FORKER, url, tmp_path)).strip() == "[0, 0, 0, 0] 4"
    rows = calls_in(f"sqlite:///{tmp_path}/shared.db")
    assert [row.record.outcome for row in rows] == ["ok"] * 6
    assert len({row.job_id for row in rows}) == 6


@dataclass(frozen=True)
class Careless(Job[str]):
    """Has its answer and does not care for its record."""

    patience_s: float | None

    def requirements(self, needs: JobRequirements) -> None:
        needs.require_model(SPEC, input=10)

    async def run(self, resources: JobResources) -> str:
        try:
            await asyncio.wait_for(resources.get_llm_client(SPEC).single_response("x"), self.patience_s)
        except (TimeoutError, StoreError):
            return "went on"
        return "waited"


async def test_who_stops_waiting_for_the_commit_leaves_the_row_and_the_job_ends_after_it(
    world: Any, tmp_path: Path
) -> None:
    async with world.runtime(store=f"sqlite:///{tmp_path}/s.db") as runtime:
        assert isinstance(runtime, Runtime)
        lock = sqlite3.connect(tmp_path / "s.db", isolation_level=None)
        lock.execute("BEGIN IMMEDIATE")
        handle = runtime.submit(Careless(patience_s=0.1))
        await world.run_until(lambda: world.provider.count == 1 and world.provider.in_flight == 0)
        for _ in range(150):
            await asyncio.sleep(0.001)
        assert not handle.done, "delivered only once its record is committed"
        lock.execute("COMMIT")
        lock.close()
        assert await handle == "went on"
        assert [row.record.outcome for row in await runtime.calls()] == ["ok"]


async def test_a_record_that_was_lost_fails_the_job_that_ignored_it(world: Any, tmp_path: Path) -> None:
    async with world.runtime(store=f"sqlite:///{tmp_path}/s.db") as runtime:
        with closing(sqlite3.connect(tmp_path / "s.db")) as connection, connection:
            connection.execute("DROP TABLE calls")
        connection.close()
        with pytest.raises(StoreError, match="no such table"):
            await world.until(runtime.run(Careless(patience_s=None)))
