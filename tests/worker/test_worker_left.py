"""A worker that is to empty the queue says what it leaves in it, and takes none for empty that it cannot see."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from worker import queued_work as work
from worker.test_worker import CATALOG, ask, run_until_empty, settings, status

from interlock import Runtime
from interlock.clients.simulator import SimulatedProvider
from interlock.errors import LeaseLostError, StoreError
from interlock.runtime.store.queue import Left
from interlock.runtime.worker import Worker, WorkerSettings


async def test_the_command_says_what_is_left_and_ends_with_3(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "only_here.py").write_text(
        "from interlock import pipeline\n\n@pipeline\nasync def go(ctx) -> None: ...\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    import only_here  # type: ignore[import-not-found]

    async with Runtime(settings(f"sqlite:///{tmp_path}/w.db")) as runtime:
        await runtime.enqueue_all([(only_here.go(), None), (only_here.go(), None)])
        (tmp_path / "elsewhere").mkdir()
        done = await asyncio.to_thread(
            subprocess.run,
            [Path(sys.executable).with_name("interlock"), "worker", "--until-empty", "--store", "sqlite:///../w.db"],
            cwd=tmp_path / "elsewhere",
            capture_output=True,
            text=True,
        )
        assert done.returncode == 3
        look = "`interlock runs list --status queued --store sqlite:///../w.db` says why"
        assert re.search(f"^2 runs are left in the queue, .*{re.escape(look)}", done.stderr, re.MULTILINE)
        assert any("only_here" in (row.error or "") for row in await runtime.runs())


async def test_what_is_left_is_counted_by_what_keeps_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with Runtime(settings(f"sqlite:///{tmp_path}/s.db")) as runtime:
        await runtime.enqueue(work.double(1))
        bad = await runtime.enqueue(work.notes(work.Note("Ann")))
        await ask(runtime, await runtime.enqueue(work.double(2)), "pause_requested_at")
        monkeypatch.delattr(work, "Note")
        async with Runtime(settings(f"sqlite:///{tmp_path}/s.db")) as other:
            await runtime.enqueue(work.double(3), priority=9)
            assert len(await other._queue()[0].claim(1, other._now())) == 1
            worker = await run_until_empty(runtime)
            assert (worker.done, worker.left) == (1, Left(queued=1, paused=1, under_way=1))
            assert await status(runtime, bad) == "queued"


async def test_a_store_that_is_away_is_no_empty_queue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with Runtime(settings(f"sqlite:///{tmp_path}/s.db")) as runtime:
        await runtime.enqueue(work.double(1))
        worker = Worker(runtime, WorkerSettings(until_empty=True))
        asks = {name: getattr(worker._queue, name) for name in ("anything", "rescue", "left")}

        def failing_once(name: str) -> Any:
            async def ask_it(*given: Any) -> Any:
                if name in asks and asks[name] is not None:
                    asked, asks[name] = asks[name], None
                    monkeypatch.setattr(worker._queue, name, asked)
                    raise StoreError("the store is away")

            return ask_it

        for name in asks:
            monkeypatch.setattr(worker._queue, name, failing_once(name))
        await worker.serve()
        assert (worker.done, worker.left) == (1, Left())


async def test_what_a_process_had_that_has_just_died_is_not_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Runtime(settings(f"sqlite:///{tmp_path}/s.db")) as runtime:
        run_id = await runtime.enqueue(work.double(1))
        dying = Runtime(settings(f"sqlite:///{tmp_path}/s.db"))
        await dying.__aenter__()
        await dying._queue()[0].claim(1, dying._now())
        worker = Worker(runtime, WorkerSettings(until_empty=True))

        async def never() -> None: ...

        monkeypatch.setattr(worker, "_look_after", never)  # as when it looks a moment too late
        await dying.__aexit__(None, None, None)
        await worker.serve()
        assert (await status(runtime, run_id), worker.left) == ("succeeded", Left())


def priced(folder: Path, url: str) -> dict[str, Any]:
    """A store, and a catalog of which each call costs money."""
    catalog = folder / "catalog.yaml"
    text = CATALOG.format(url=url, rpm=6_000)
    catalog.write_text(text.replace("limits:", "prices: {input: 1, output: 5}, limits:"))
    return {"store": f"sqlite:///{folder}/s.db", "catalog": catalog}


async def test_a_worker_that_has_spent_what_it_may_leaves_the_rest_to_others(tmp_path: Path) -> None:
    with SimulatedProvider().in_thread() as provider:
        place = priced(tmp_path, provider.base_url)
        async with Runtime(settings(**place, cost_cap="0.0000001")) as poor:
            first = await poor.enqueue(work.says("one"), priority=1)
            second = await poor.enqueue(work.says("two"))
            worker = await run_until_empty(poor, concurrency=1)
            assert [await status(poor, each) for each in (first, second)] == ["failed", "queued"]
            assert worker.capped is not None
        async with Runtime(settings(**place)) as rich:
            assert (await run_until_empty(rich)).done == 1


async def test_what_is_under_way_when_a_worker_has_spent_what_it_may_goes_back_and_on_elsewhere(tmp_path: Path) -> None:
    with SimulatedProvider().in_thread() as provider:
        place = priced(tmp_path, provider.base_url)
        async with Runtime(settings(**place, cost_cap="0.0004")) as poor:
            ids = [await poor.enqueue(work.thinks_and_says(str(number))) for number in range(4)]
            worker = await run_until_empty(poor, concurrency=4)
            assert (worker.failed, worker.capped is not None) == (0, True)
            ends = {each: await status(poor, each) for each in ids}
            back = [each for each in ids if ends[each] == "queued"]
            assert set(ends.values()) <= {"queued", "succeeded"}
            assert any(row.run_id in back and row.record.outcome == "ok" for row in await poor.calls())
        async with Runtime(settings(**place)) as stopping:  # a life that ends before it has asked again
            queue, _ = stopping._queue()
            for run in await queue.claim(4, stopping._now()):
                handle = stopping._take_up(work.thinks_and_says(run.head.run_id[-1]), run)
                handle._execution.stop_for(LeaseLostError("its worker is stopping"))
                await handle._execution.settled()
        async with Runtime(settings(**place)) as rich:
            assert (await run_until_empty(rich)).done == len(back)
            assert {await status(rich, each) for each in ids} == {"succeeded"}
            answered = [(row.run_id, row.step_id) for row in await rich.calls() if row.record.outcome == "ok"]
        assert len(answered) == len(set(answered)) == 12  # what was answered and paid for is not paid again
