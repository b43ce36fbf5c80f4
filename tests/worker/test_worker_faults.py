"""What goes wrong around a worker: none of its runs is lost, and none is run by two."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from worker import queued_work as work
from worker.test_worker import ask, run_until_empty, settings, status, true_within, until, working

from interlock import Runtime
from interlock.errors import LeaseLostError, ReplayMismatchError
from interlock.runtime.journal.protocol import RunEnd, RunStatus
from interlock.runtime.store import owners
from interlock.runtime.worker import Worker, WorkerSettings, worker as module


@pytest.fixture(params=["file", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "file":
        return f"sqlite:///{tmp_path}/s.db"
    url: str = request.getfixturevalue("postgres").fresh()
    return url


@pytest.fixture
def file(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/s.db"


# The worker stops.


async def test_a_worker_that_is_cancelled_hands_its_runs_back(file: str) -> None:
    async with Runtime(settings(file)) as runtime:
        run_id = await runtime.enqueue(work.waits(60.0))
        serving = asyncio.create_task(Worker(runtime).serve())
        await until(runtime, run_id, "running")
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)
        assert await status(runtime, run_id) == "queued"


async def test_a_claim_that_comes_too_late_is_put_back(file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with Runtime(settings(file)) as runtime:
        run_id = await runtime.enqueue(work.double(1))
        worker = Worker(runtime)
        claimed, go_on = asyncio.Event(), asyncio.Event()
        claim = worker._queue.claim

        async def slow(*arguments: Any) -> Any:
            runs = await claim(*arguments)
            claimed.set()
            await go_on.wait()
            return runs

        monkeypatch.setattr(worker._queue, "claim", slow)
        serving = asyncio.create_task(worker.serve())
        await claimed.wait()
        assert await status(runtime, run_id) == "running"
        worker.stop()  # as on SIGTERM while the store is away: it is not waited for
        await serving
        go_on.set()
        assert await until(runtime, run_id, "queued") == "queued"


async def test_a_run_that_heeds_nothing_does_not_keep_the_worker(file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "HAND_BACK_S", 0.1)
    async with Runtime(settings(file)) as runtime:
        run_id = await runtime.enqueue(work.deaf(1.5))
        worker = Worker(runtime, WorkerSettings(drain_s=0.1))
        serving = asyncio.create_task(worker.serve())
        await until(runtime, run_id, "running")
        await true_within(lambda: worker.under_way == 1)
        await asyncio.sleep(0.05)  # it has come to its first await
        worker.stop()
        await serving
        assert worker.stuck == (run_id,)


async def test_a_run_that_somebody_cancels_while_the_worker_drains_is_not_handed_back(file: str) -> None:
    async with Runtime(settings(file)) as runtime:
        run_id = await runtime.enqueue(work.waits(60.0))
        async with working(runtime, drain_s=0.1) as worker:
            await until(runtime, run_id, "running")
            await true_within(lambda: worker.under_way == 1)
            worker._running[run_id].cancel("somebody asked for it")
        assert await status(runtime, run_id) == "cancelled"


async def test_a_lost_ledger_is_no_outcome_of_a_run(file: str) -> None:
    async with Runtime(settings(file)) as runtime:
        run_id = await runtime.enqueue(work.waits(60.0))
        worker = Worker(runtime)
        serving = asyncio.create_task(worker.serve())
        await until(runtime, run_id, "running")
        await true_within(lambda: worker.under_way == 1)
        runtime._lose(LeaseLostError("given up"))
        with pytest.raises(LeaseLostError):
            await serving
        assert await status(runtime, run_id) == "queued"
        assert worker.failed == 0


async def test_what_hears_of_an_end_and_fails_keeps_nobody_waiting(file: str) -> None:
    def fails(*_: Any) -> None:
        raise ValueError("no good")

    async with Runtime(settings(file)) as runtime:
        for n in range(3):
            await runtime.enqueue(work.double(n))
        worker = Worker(runtime, WorkerSettings(until_empty=True, concurrency=1, ended=fails))
        worker._waker.wait = lambda _: worker._waker.woken.wait()  # type: ignore[method-assign,assignment]
        await asyncio.wait_for(worker.serve(), 20)
        assert worker.done == 3


# What a worker lacks.


async def test_a_module_that_does_not_load_harms_no_other_run(
    store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "comes_and_goes.py"
    path.write_text("from interlock import pipeline\n\n@pipeline\nasync def go(ctx) -> int:\n    return 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    import comes_and_goes  # type: ignore[import-not-found]

    async with Runtime(settings(store)) as runtime:
        bad = [await runtime.enqueue(comes_and_goes.go(), priority=5) for _ in range(3)]
        good = await runtime.enqueue(work.double(1))
        monkeypatch.delitem(sys.modules, "comes_and_goes")
        path.write_text("raise RuntimeError('not today')\n")
        worker = await run_until_empty(runtime)
        assert await status(runtime, good) == "succeeded"
        assert sum("not today" in record.message for record in caplog.records) == 1
        assert {await status(runtime, run_id) for run_id in bad} == {"queued"}
        # Another worker, which has it, gets them at once.
        monkeypatch.setitem(sys.modules, "comes_and_goes", comes_and_goes)
        assert (await run_until_empty(runtime)).done == 3
        assert worker.claimed == 1


async def test_a_run_begun_with_another_version_is_left_to_those_who_have_it(
    file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Runtime(settings(file)) as runtime:
        begun = await runtime.enqueue(work.waits(0.3))
        async with working(runtime, drain_s=0):
            await until(runtime, begun, "running")
            await true_within(lambda: any(step for step in runtime._open().live))
            await asyncio.sleep(0.1)
        fresh = await runtime.enqueue(work.waits(0.0))
        with monkeypatch.context() as newer:
            newer.setattr(work.waits, "version", "2")
            assert (await run_until_empty(runtime)).done == 1
            assert await status(runtime, begun) == "queued"
            (row,) = await runtime.runs(run_id=fresh)
            assert (row.status, row.version) == ("succeeded", "2")  # nobody had begun it
        assert (await run_until_empty(runtime)).done == 1
        assert await status(runtime, begun) == "succeeded"


async def test_arguments_that_cannot_be_read_any_more_harm_no_other_run(
    file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Runtime(settings(file)) as runtime:
        bad = await runtime.enqueue(work.notes(work.Note("Ann")), priority=5)
        good = await runtime.enqueue(work.double(1))
        monkeypatch.delattr(work, "Note")
        await run_until_empty(runtime)
        assert [await status(runtime, each) for each in (bad, good)] == ["queued", "succeeded"]
        (row,) = await runtime.runs(run_id=bad)
        assert "Note" in (row.error or "")


# What others left behind.


async def test_a_cancel_that_its_worker_did_not_live_to_hear_of_still_counts(store: str) -> None:
    async with Runtime(settings(store)) as living:
        dying = Runtime(settings(store))
        await dying.__aenter__()
        run_id = await dying.enqueue(work.double(1))
        await dying._queue()[0].claim(1, dying._now())
        await ask(living, run_id, "cancel_requested_at")
        await dying.__aexit__(None, None, None)
        async with working(living):
            assert await until(living, run_id, "succeeded", "cancelled") == "cancelled"


async def test_a_run_that_a_program_has_begun_itself_is_nobody_elses(store: str) -> None:
    async with Runtime(settings(store)) as living:
        script = Runtime(settings(store))
        await script.__aenter__()
        handle = script.submit(work.waits(60.0), run_id="mine")
        await true_within(lambda: handle._execution.run.journal.open_for_writing)  # type: ignore[union-attr]
        assert await living._queue()[0].rescue() == 0
        # The script dies: what it still writes is not kept.
        book: Any = script._open().book
        await asyncio.to_thread(book._lease.stop)
        assert await living._queue()[0].rescue() == 0
        assert await status(living, "mine") == "running"
        handle._execution.stop_hard()
        await script.__aexit__(None, None, None)
        assert (await run_until_empty(living)).claimed == 0


async def test_a_cancel_is_told_again_until_it_is_heard(file: str) -> None:
    async with Runtime(settings(file, lease_s=1)) as runtime, working(runtime) as worker:
        run_id = await runtime.enqueue(work.waits(60.0))
        await until(runtime, run_id, "running")
        await true_within(lambda: worker.under_way == 1)
        handle = runtime._active_runs[run_id]
        runtime._active_runs[run_id] = None  # as in the moment between its claim and its beginning
        await ask(runtime, run_id, "cancel_requested_at")
        book: Any = runtime._open().book
        await true_within(lambda: run_id in book._lease._wanted)
        await asyncio.sleep(0.05)
        runtime._active_runs[run_id] = handle
        assert await until(runtime, run_id, "cancelled") == "cancelled"


# Putting runs there.


async def test_all_are_put_there_or_none(store: str) -> None:
    async with Runtime(settings(store)) as runtime:
        await runtime.enqueue(work.double(1), run_id="taken")
        with pytest.raises(ReplayMismatchError, match="taken"):
            await runtime.enqueue_all([(work.double(9), "new"), (work.double(2), "taken")])
        with pytest.raises(ReplayMismatchError, match="twice"):
            await runtime.enqueue_all([(work.double(9), "twice"), (work.double(8), "twice")])
        assert [row.run_id for row in await runtime.runs()] == ["taken"]
        assert await runtime.enqueue_all([(work.double(1), "taken"), (work.double(9), "new")]) == {
            "taken": False,
            "new": True,
        }


async def test_of_two_who_put_one_id_there_at_once_the_other_hears_of_it(store: str) -> None:
    async with Runtime(settings(store)) as one, Runtime(settings(store)) as two:
        for number in range(10):
            name = f"n{number}"
            told = await asyncio.gather(
                one.enqueue(work.double(1), run_id=name),
                two.enqueue(work.double(2), run_id=name),
                return_exceptions=True,
            )
            assert sorted(type(each).__name__ for each in told) == ["ReplayMismatchError", "str"]


# The command.


def worker_process(store: str, *more: str) -> subprocess.Popen[str]:
    here = str(Path(__file__).parent.parent)
    path = os.pathsep.join(filter(None, [here, os.environ.get("PYTHONPATH", "")]))
    command = [str(Path(sys.executable).with_name("interlock")), "worker", "--store", store, "--ledger", "none", *more]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": path})


async def test_ctrl_c_twice_is_a_kill_and_cancels_nothing(file: str) -> None:
    async with Runtime(settings(file)) as runtime:
        run_id = await runtime.enqueue(work.waits(60.0))
        child = worker_process(file)
        assert child.stderr is not None
        assert "Working on" in await asyncio.to_thread(child.stderr.readline)
        await until(runtime, run_id, "running")
        child.send_signal(signal.SIGINT)
        assert "Draining" in await asyncio.to_thread(child.stderr.readline)
        child.send_signal(signal.SIGINT)
        await asyncio.to_thread(child.communicate)
        assert child.returncode == -signal.SIGINT
        assert await status(runtime, run_id) == "running"
        assert await runtime._queue()[0].rescue() == 1  # its process is gone: nobody waits for its lease to pass
        assert await status(runtime, run_id) == "queued"


async def test_sigterm_ends_the_process_whatever_its_runs_do(file: str) -> None:
    async with Runtime(settings(file)) as runtime:
        run_id = await runtime.enqueue(work.deaf(600.0))
        child = worker_process(file, "--drain-s", "0")
        await until(runtime, run_id, "running")
        child.terminate()
        _, said = await asyncio.to_thread(child.communicate)
        assert child.returncode == 1
        assert "1 runs do not stop" in said
        assert await runtime._queue()[0].rescue() == 1


async def test_who_was_given_up_claims_nothing_and_puts_nothing_back_that_is_anothers_by_now(store: str) -> None:
    async with Runtime(settings(store)) as one, Runtime(settings(store)) as two:
        await one.enqueue_all([(work.double(number), str(number)) for number in range(2)])
        (former, _), (now, _) = one._queue(), two._queue()
        (run,) = await former.claim(1, one._now())
        await now._writer.run(lambda connection: owners.leave(connection, former.owner))
        assert await now.rescue() == 1
        (taken,) = await now.claim(1, two._now())
        assert taken.head.run_id == run.head.run_id
        with pytest.raises(LeaseLostError):
            await former.claim(1, one._now())
        await former.put_back([run.head.run_id])
        assert await status(two, run.head.run_id) == "running"
        assert await status(two, "1") == "queued"
        assert taken.claim is not None
        await now._journal.end(taken.claim, RunEnd(status=RunStatus.SUCCEEDED, ended_at=two._now()))
        await now.put_back([run.head.run_id])  # it came too late: it has ended
        assert await status(two, run.head.run_id) == "succeeded"
