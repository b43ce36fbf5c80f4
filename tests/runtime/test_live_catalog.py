"""An edit of the catalog's file reaches a running process, however it is written; a wrong one changes nothing."""

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from interlock.catalog import Catalog
from interlock.clients.simulator import PublishedLimits, SimulatedProvider
from interlock.runtime.edited import LOOK_EVERY_S, SETTLED_S, EditedCatalog

TEXT = "models:\n  - {id: m, grade: SMALL, provider: simulated, wire_model_id: w, limits: {rpm: %s}}\n"


class Watched:
    """A real file, and looks at it on a clock of its own."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "catalog.yaml"
        self.ticks = 0
        self.write(TEXT % 10)
        self.edited = EditedCatalog(Catalog.load(self.path))

    def write(self, text: str) -> None:
        self.path.write_text(text)
        self.ticks += 1
        os.utime(self.path, (self.ticks, self.ticks))

    def look(self) -> float | None:
        """The new rpm, or None where nothing changed."""
        fresh, self.again_s = self.edited.look()
        return None if fresh is None else fresh.entry("m").limits.rpm


@pytest.fixture
def watched(tmp_path: Path) -> Watched:
    return Watched(tmp_path)


def test_an_edit_counts_once_the_file_has_looked_the_same_twice(watched: Watched) -> None:
    assert watched.look() is None
    assert watched.again_s == LOOK_EVERY_S
    watched.write(TEXT % 20)
    assert watched.look() is None
    assert watched.again_s == SETTLED_S
    assert watched.look() == 20
    assert watched.look() is None


def test_a_file_put_in_the_place_of_another_is_seen_though_time_and_size_are_the_same(watched: Watched) -> None:
    beside = watched.path.with_suffix(".new")
    beside.write_text(TEXT % 99)
    os.utime(beside, (watched.ticks, watched.ticks))
    beside.replace(watched.path)
    assert (watched.look(), watched.look()) == (None, 99)


def test_a_file_half_written_is_no_complaint(watched: Watched, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        for part in ("", "models:\n  - {id: m, gra", "models:\n", TEXT % 30):
            watched.write(part)
            assert watched.look() is None
        assert watched.look() == 30
    assert not caplog.records


def test_a_wrong_edit_changes_nothing_and_is_said_once_with_its_place(
    watched: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    watched.write("models:\n  - {id: m, grade: SMALL, provider: simulated, wire_model_id: w, limits: {rpn: 5}}\n")
    for _ in range(10):
        assert watched.look() is None
    (said,) = [record.getMessage() for record in caplog.records]
    assert f"{watched.path}:2" in said
    assert "models[0].limits.rpn" in said
    assert watched.edited.catalog.entry("m").limits.rpm == 10
    watched.write(TEXT % 40)
    assert (watched.look(), watched.look()) == (None, 40)


def test_a_file_that_is_gone_is_said_once_and_read_when_it_is_back(
    watched: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    watched.path.unlink()
    for _ in range(5):
        assert watched.look() is None
    assert [record.getMessage().endswith("there is no such file") for record in caplog.records] == [True]
    watched.write(TEXT % 50)
    assert (watched.look(), watched.look()) == (None, 50)


def test_an_edit_taken_back_before_it_counted_is_none(watched: Watched) -> None:
    watched.write(TEXT % 20)
    watched.look()
    watched.path.write_text(TEXT % 10)
    os.utime(watched.path, (1, 1))
    assert [watched.look() for _ in range(3)] == [None, None, None]


PROGRAM = """
import asyncio, sys
from pathlib import Path
from interlock import LLMCall, Runtime, RuntimeSettings
async def main():
    async with Runtime(RuntimeSettings(catalog="live.yaml", store=None)) as runtime:
        handles = [runtime.submit(LLMCall("Say hello.", max_output_tokens=100)) for _ in range(100)]
        print("waiting", flush=True)
        for handle in handles:
            await handle
        print("done", flush=True)
asyncio.run(main())
"""
LIVE = """providers: {{simulated: {{base_url: "{url}"}}}}
models:
  - {{id: small, grade: SMALL, provider: simulated, wire_model_id: small, context_window: 9000, max_output_tokens: 800,
     limits: {{tpm: {tpm}}}, accounting: {{output: limit}}}}
"""


def test_a_hundred_jobs_that_only_wait_finish_when_the_limit_is_raised(tmp_path: Path) -> None:
    path = tmp_path / "live.yaml"
    with SimulatedProvider(limits=PublishedLimits(rpm=100_000)).in_thread() as provider:
        path.write_text(LIVE.format(url=provider.base_url, tpm=130))
        program = subprocess.Popen(
            [sys.executable, "-c", PROGRAM], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        try:
            assert program.stdout is not None
            assert program.stdout.readline() == "waiting\n"
            time.sleep(0.5)
            assert program.poll() is None
            assert provider.count < 20, "the others wait"
            beside = path.with_suffix(".tmp")
            beside.write_text(LIVE.format(url=provider.base_url, tpm=10_000_000))
            beside.replace(path)
            out, err = program.communicate(timeout=60)  # at the old limit they would take over an hour
            assert (out, program.returncode) == ("done\n", 0), err
            assert provider.count == 100
        finally:
            program.kill()


async def test_a_runtime_looks_while_jobs_wait_and_not_when_there_are_none(tmp_path: Path) -> None:
    from interlock.admission import ManualClock
    from interlock.runtime import LLMCall, Runtime, RuntimeSettings

    path, clock = tmp_path / "live.yaml", ManualClock()
    with SimulatedProvider(limits=PublishedLimits(rpm=100_000)).in_thread() as provider:
        path.write_text(LIVE.format(url=provider.base_url, tpm=130))
        async with Runtime(RuntimeSettings(catalog=path, store=None, clock=clock)) as runtime:
            handles = [runtime.submit(LLMCall("Say hello.", max_output_tokens=100)) for _ in range(50)]
            for _ in range(500):
                await asyncio.sleep(0.01)
                if handles[0].done:
                    break
            assert not handles[-1].done
            path.write_text(LIVE.format(url=provider.base_url, tpm=10_000_000))
            await clock.advance(LOOK_EVERY_S + SETTLED_S)
            for _ in range(1_000):
                await asyncio.sleep(0.01)
                await clock.advance(0.01)
                if all(handle.done for handle in handles):
                    break
            assert all(handle.done for handle in handles), runtime.explain(handles[-1])
            await clock.advance(2 * LOOK_EVERY_S)
            assert runtime._open().desk._timer is None, "nobody waits, so nobody looks"
