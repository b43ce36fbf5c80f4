"""Runs are put into the store's queue and claimed by workers, on SQLite and on Postgres."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from worker import queued_work as work

from interlock import Runtime, RuntimeSettings, pipeline
from interlock.clients.simulator import SeenRequest, SimulatedProvider
from interlock.errors import ConfigurationError, ReplayMismatchError
from interlock.runtime.store.opening import read_store
from interlock.runtime.store.queue import _free
from interlock.runtime.store.schema import runs, steps
from interlock.runtime.worker import Worker, WorkerSettings, waking

CATALOG = """\
providers:
  simulated: {{base_url: "{url}"}}
models:
  - {{id: small, grade: SMALL, provider: simulated, wire_model_id: small, context_window: 200000,
     max_output_tokens: 4096, limits: {{rpm: {rpm}, burst_s: 60}}}}
pins: {{SMALL: [small]}}
"""


@pytest.fixture(params=["file", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "file":
        return f"sqlite:///{tmp_path}/s.db"
    url: str = request.getfixturevalue("postgres").fresh()
    return url


def settings(store: str, **more: Any) -> RuntimeSettings:
    return RuntimeSettings(store=store, grace_max_s=0.5, **more)


async def run_until_empty(runtime: Runtime, **more: Any) -> Worker:
    worker = Worker(runtime, WorkerSettings(until_empty=True, **more))
    await worker.serve()
    return worker


@asynccontextmanager
async def working(runtime: Runtime, **more: Any) -> AsyncIterator[Worker]:
    worker = Worker(runtime, WorkerSettings(**more))
    serving = asyncio.create_task(worker.serve())
    try:
        yield worker
    finally:
        worker.stop()
        await serving


async def status(runtime: Runtime, run_id: str) -> str:
    (row,) = await runtime.runs(run_id=run_id)
    return str(row.status)


async def true_within(holds: Callable[[], bool], seconds: float = 20) -> None:
    end = asyncio.get_running_loop().time() + seconds
    while not holds():
        assert asyncio.get_running_loop().time() < end, "it did not come to that"
        await asyncio.sleep(0.02)


async def until(runtime: Runtime, run_id: str, *wanted: str) -> str:
    for _ in range(400):
        if (now := await status(runtime, run_id)) in wanted:
            return now
        await asyncio.sleep(0.05)
    raise AssertionError(f"run {run_id} is {now}, not {' or '.join(wanted)}")


async def test_what_is_put_there_is_run_and_its_result_is_kept(store: str) -> None:
    async with Runtime(settings(store)) as runtime:
        ids = [await runtime.enqueue(work.double(number)) for number in range(5)]
        ids.append(await runtime.enqueue(work.read(work.Letter("Ann", pages=3))))
        worker = await run_until_empty(runtime)
        assert (worker.claimed, worker.done, worker.failed) == (6, 6, 0)
        assert [await runtime.resume(run_id) for run_id in ids] == [0, 2, 4, 6, 8, "Ann: 3"]


async def test_a_run_put_there_twice_is_one_run(store: str) -> None:
    async with Runtime(settings(store)) as runtime:
        assert await runtime.enqueue(work.double(4), run_id="four") == "four"
        assert await runtime.enqueue(work.double(4), run_id="four") == "four"
        with pytest.raises(ReplayMismatchError, match="four"):
            await runtime.enqueue(work.double(5), run_id="four")
        worker = await run_until_empty(runtime)
        assert worker.claimed == 1
        assert await runtime.enqueue(work.double(4), run_id="four") == "four"  # it has ended: nothing is put there
        assert (await run_until_empty(runtime)).claimed == 0


async def test_a_pipeline_puts_runs_there_that_outlive_it_each_once(store: str) -> None:
    async with Runtime(settings(store)) as runtime:
        put = await runtime.run(work.leaves(4), run_id="r")
        assert put == ["r/0", "named"]
        assert {row.run_id for row in await runtime.runs() if row.status == "queued"} == set(put)
        worker = await run_until_empty(runtime)
        assert worker.done == 2
        assert await runtime.resume("r", from_step="0") == put  # the steps run again, the runs do not
        assert runtime.statistics().replayed == 0
        assert (await run_until_empty(runtime)).claimed == 0
        assert [await runtime.resume(run_id) for run_id in put] == [8, 10]


async def test_b21_what_was_being_put_there_when_its_pipeline_was_cut_off_is_not_ambiguous(store: str) -> None:
    async with Runtime(settings(store)) as runtime:
        put = await runtime.run(work.leaves(4), run_id="r")
    cut_off = steps.update().where(steps.c.run_id == "r", steps.c.step_id == "0").values(status="begun", value=None)
    read_store(store, lambda connection: connection.execute(cut_off), writes=True)
    read_store(store, lambda connection: connection.execute(runs.update().values(status="running")), writes=True)
    async with Runtime(settings(store, ambiguous="fail")) as runtime:
        assert await runtime.run(work.leaves(4), run_id="r") == put
        assert dict(runtime.statistics().again) == {"uncommitted": 1}


async def test_a_pipeline_without_a_store_has_no_queue() -> None:
    async with Runtime(RuntimeSettings(store=None)) as runtime:
        with pytest.raises(ConfigurationError, match="store"):
            await runtime.run(work.leaves(1))


async def test_what_no_other_process_could_call_is_refused_at_once(store: str) -> None:
    @pipeline
    async def inside(ctx: Any) -> None: ...

    async with Runtime(settings(store)) as runtime:
        with pytest.raises(ConfigurationError, match="top of a module"):
            await runtime.enqueue(inside())
        with pytest.raises(ConfigurationError, match="not data"):
            await runtime.enqueue(work.double(object()))  # type: ignore[arg-type]
        with pytest.raises(ConfigurationError, match="printable"):
            await runtime.enqueue(work.double(1), run_id="a\nb")
        assert await runtime.runs() == []


async def test_without_a_store_there_is_no_queue() -> None:
    async with Runtime(RuntimeSettings(store=None)) as runtime:
        with pytest.raises(ConfigurationError, match="store"):
            await runtime.enqueue(work.double(1))


async def test_a_run_that_fails_is_failed_and_the_others_go_on(store: str) -> None:
    async with Runtime(settings(store)) as runtime:
        bad = await runtime.enqueue(work.fails())
        good = await runtime.enqueue(work.double(1))
        worker = await run_until_empty(runtime)
        assert (worker.done, worker.failed) == (1, 1)
        assert await status(runtime, bad) == "failed"
        assert await status(runtime, good) == "succeeded"


async def test_each_run_is_claimed_once_by_however_many_workers(store: str) -> None:
    async with Runtime(settings(store)) as one, Runtime(settings(store)) as two:
        ids = list(await one.enqueue_all([(work.double(number), None) for number in range(60)]))
        workers = await asyncio.gather(*[run_until_empty(r, concurrency=7) for r in (one, two)])
        assert sum(worker.claimed for worker in workers) == len(ids)
        assert {await status(one, run_id) for run_id in ids} == {"succeeded"}


async def test_what_another_worker_is_about_to_claim_is_left_to_it_and_not_waited_for(postgres: Any) -> None:
    import asyncpg

    url = postgres.fresh()
    async with Runtime(settings(url)) as runtime:
        for number in range(3):
            await runtime.enqueue(work.double(number), run_id=str(number), priority=-number)
        other = await asyncpg.connect(url.replace("+asyncpg", ""))
        async with other.transaction():
            await other.execute("select from runs where run_id = '0' for update")
            queue, _ = runtime._queue()
            async with asyncio.timeout(30):
                claimed = await queue.claim(2, runtime._now())
        await other.close()
        assert [run.head.run_id for run in claimed] == ["1", "2"]


async def test_the_higher_priority_is_claimed_first(store: str) -> None:
    order: list[str] = []
    async with Runtime(settings(store)) as runtime:
        for name, priority in [("low", 0), ("high", 9), ("middle", 5)]:
            await runtime.enqueue(work.double(1), run_id=name, priority=priority)
        await run_until_empty(runtime, concurrency=1, ended=lambda run_id, _: order.append(run_id))
    assert order == ["high", "middle", "low"]


async def test_a_worker_is_woken_by_what_another_process_puts_there(
    store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waking, "TOLD_EVERY_S", 3_600.0)  # whoever is told does not look
    waits: list[float] = []
    wait = waking.Waker.wait

    async def noted(waker: waking.Waker, longest_s: float) -> None:
        waits.append(longest_s)
        await wait(waker, longest_s)

    monkeypatch.setattr(waking.Waker, "wait", noted)
    async with Runtime(settings(store)) as there, Runtime(settings(store)) as here, working(there) as worker:
        if store.startswith("postgresql"):
            await true_within(lambda: waits[-1:] == [3_600.0] and not worker._waker.woken.is_set())
        run_id = await here.enqueue(work.double(21))
        assert await until(here, run_id, "succeeded") == "succeeded"


async def test_a_worker_that_is_stopped_hands_back_what_has_not_ended(store: str) -> None:
    async with Runtime(settings(store)) as runtime:
        run_id = await runtime.enqueue(work.waits(60.0))
        async with working(runtime, drain_s=0.1):
            await until(runtime, run_id, "running")
        assert await status(runtime, run_id) == "queued"


async def test_what_ends_while_a_stopped_worker_drains_is_done_and_nothing_more_is_claimed(store: str) -> None:
    async with Runtime(settings(store)) as runtime:
        ids = [await runtime.enqueue(work.waits(0.5), priority=-number) for number in range(2)]
        async with working(runtime, concurrency=1) as worker:
            await true_within(lambda: worker.under_way == 1)
            worker.stop()
        assert (worker.done, worker.claimed) == (1, 1)
        assert [await status(runtime, each) for each in ids] == ["succeeded", "queued"]


async def test_what_a_dead_worker_had_is_claimed_by_another(store: str) -> None:
    async with Runtime(settings(store)) as living:
        dying = Runtime(settings(store))
        await dying.__aenter__()
        run_id = await dying.enqueue(work.waits(0.0))
        (claimed,) = await dying._queue()[0].claim(1, dying._now())
        assert claimed.head.run_id == run_id
        await dying.__aexit__(None, None, None)  # it has claimed, and ends without having begun
        async with working(living):
            assert await until(living, run_id, "succeeded") == "succeeded"


async def test_a_run_under_way_is_cancelled_from_another_process(store: str) -> None:
    async with Runtime(settings(store, lease_s=3)) as there, Runtime(settings(store)) as here, working(there):
        run_id = await here.enqueue(work.waits(60.0))
        await until(here, run_id, "running")
        await ask(here, run_id, "cancel_requested_at")
        assert await until(here, run_id, "cancelled", "failed") == "cancelled"


async def test_a_paused_run_starts_nothing_until_it_goes_on(store: str, tmp_path: Path) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def answer(request: SeenRequest) -> str:
        begun.set()
        assert go_on.wait(20)
        return "hello"

    with SimulatedProvider(answer=answer).in_thread() as provider:
        catalog = tmp_path / "catalog.yaml"
        catalog.write_text(CATALOG.format(url=provider.base_url, rpm=6_000))
        async with Runtime(settings(store, catalog=catalog, lease_s=3)) as runtime, working(runtime) as worker:
            run_id = await runtime.enqueue(work.says("hello"))
            assert await asyncio.to_thread(begun.wait, 20)
            await ask(runtime, run_id, "pause_requested_at")
            await true_within(lambda: worker._running[run_id]._execution.run.pausing.paused)
            go_on.set()  # the first call ends, and the second is not begun
            await true_within(lambda: any(job.state == "paused" for job in runtime._open().live))
            assert provider.count == 1
            await ask(runtime, run_id, "pause_requested_at", None)
            assert await until(runtime, run_id, "succeeded") == "succeeded"
            assert provider.count == 2


async def test_hundreds_wait_for_tokens_at_once_and_hold_nothing(store: str, tmp_path: Path) -> None:
    with SimulatedProvider(latency_s=0.02).in_thread() as provider:
        catalog = tmp_path / "catalog.yaml"
        catalog.write_text(CATALOG.format(url=provider.base_url, rpm=3_000))
        async with Runtime(settings(store, catalog=catalog)) as runtime:
            await runtime.enqueue_all([(work.says(f"hello {number}"), None) for number in range(150)])
            worker = await run_until_empty(runtime)
            assert worker.done == 150
            assert provider.count == 300


NOW: Any = object()


async def ask(runtime: Runtime, run_id: str, column: str, at: Any = NOW) -> None:
    """As `interlock runs cancel` and `pause` do."""
    from interlock.runtime.store.schema import runs

    book: Any = runtime._open().book
    await book._writer.run(
        lambda connection: connection.execute(
            runs.update().where(runs.c.run_id == run_id).values({column: runtime._now() if at is NOW else at})
        )
    )


async def test_a_claim_reads_what_it_takes_however_many_wait_behind(store: str) -> None:
    async with Runtime(settings(store)) as runtime:
        await runtime.enqueue_all([(work.double(number), None) for number in range(300)])
        queue: Any = runtime._queue()[0]
        free = _free(runtime._now(), ()).limit(5)

        def plan(connection: Any) -> str:
            asked = str(free.compile(dialect=connection.dialect, compile_kwargs={"literal_binds": True}))
            if queue.dialect == "sqlite":
                found = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {asked}")
                return "\n".join(row.detail for row in found)
            connection.exec_driver_sql("ANALYZE runs")
            connection.exec_driver_sql("SET LOCAL enable_seqscan = off")  # of so few rows it would read all
            return "\n".join(row[0] for row in connection.exec_driver_sql(f"EXPLAIN {asked}"))

        said = await queue._writer.run(plan)
        assert "runs_to_claim" in said
        assert "Sort" not in said
        assert "B-TREE" not in said
