"""`interlock submit` puts runs into the queue, `interlock worker` claims them."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import shlex
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from interlock.errors import ConfigurationError, LeaseLostError

from ..pipeline_job import PipelineJob
from ..runtime import Runtime
from ..settings import RuntimeSettings
from ..store.place import Place
from ..store.queue import Left
from ..worker import Worker, WorkerSettings
from .arguments import Arguments
from .catalog import load_catalog
from .configuring import checked_cap, configured, dispose
from .lines import Line, check, complain, read_lines
from .target import load_function, load_module, load_pipeline
from .telling import told

#: Runs put there with one transaction.
AT_ONCE = 1_000
#: Seconds between two lines about how it goes.
TELL_EVERY_S = 10.0
#: The exit code of `interlock worker --until-empty` where runs stay in the queue, and of one that spent what it may.
RUNS_LEFT = 3


@dataclass(frozen=True, kw_only=True)
class SubmitOptions:
    pipeline: str
    input: Path
    name: str | None = None
    priority: int = 0
    max_cost: str | None = None
    skip_bad: bool = False
    limit: int | None = None
    as_json: bool = False
    store: str = "sqlite:///interlock.db"


def submit_file(options: SubmitOptions) -> None:
    """Each line once, however often the command is run: a run's name is made of the line's id."""
    checked_cap(options.max_cost)
    pipeline = load_pipeline(options.pipeline)
    arguments = Arguments.of(pipeline.function, str(pipeline.name))
    checked = check(options.input, arguments.fill)
    if checked.bad and not options.skip_bad:
        complain(options.input, checked.bad)
    name = options.name or options.input.stem
    lines = [line for line in read_lines(options.input) if isinstance(line, Line) and line.number not in checked.bad][
        : options.limit
    ]
    jobs: list[tuple[PipelineJob[object], str]] = [
        (pipeline(**arguments.fill(line)), f"{name}-{line.id}") for line in lines
    ]
    put = asyncio.run(_put(options, jobs))
    if options.as_json:
        print(json.dumps(list(put)))
        return
    before = len(put) - sum(put.values())
    there = f" ({before:,} of them since before)" if before else ""
    left = f", {len(checked.bad)} bad lines left out" if checked.bad else ""
    print(f"{len(put):,} runs of {pipeline.name} are in the queue of {Place.of(options.store).name}{there}{left}.")
    if put:
        shown = Place.of(options.store).name
        command = shlex.join(["interlock", "worker", *_needed(options.pipeline), "--store", shown])
        whole = "" if shown == options.store else " Its --store is shown without password and options."
        print(f"The first is {next(iter(put))}. `{command}` runs them.{whole}")


def _needed(target: str) -> tuple[str, ...]:
    """What a worker in this folder must be told: a file of another folder, which it would not find by its name."""
    file = Path(target.rpartition(":")[0])
    return (str(file),) if file.suffix == ".py" and file.absolute().parent != Path.cwd() else ()


async def _put(options: SubmitOptions, jobs: list[tuple[PipelineJob[object], str]]) -> dict[str, bool]:
    put: dict[str, bool] = {}
    async with Runtime(RuntimeSettings(store=options.store)) as runtime:
        for start in range(0, len(jobs), AT_ONCE):
            some = jobs[start : start + AT_ONCE]
            put |= await runtime.enqueue_all(some, cost_cap=options.max_cost, priority=options.priority)
    return put


@dataclass(frozen=True, kw_only=True)
class WorkerOptions:
    modules: tuple[str, ...] = ()
    concurrency: int = 500
    drain_s: float = 25.0
    until_empty: bool = False
    ledger: str | None = None
    max_cost: str | None = None
    catalog: Path | None = None
    configure: str | None = None
    store: str = "sqlite:///interlock.db"
    verbose: bool = False


def work(options: WorkerOptions) -> int:
    """The exit code: 0 where it ended as it was asked to, 1 where this process was given up by the others, 3 where it
    was to empty the queue and has not, or stopped at its cost cap."""
    logging.basicConfig(format="%(name)s: %(message)s")
    logging.getLogger("interlock").setLevel(logging.DEBUG if options.verbose else logging.WARNING)
    checked_cap(options.max_cost)
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    for module in options.modules:
        load_module(module)
    ledger = None if options.ledger == "none" else options.ledger or "store"
    settings = RuntimeSettings(
        catalog=load_catalog(options.catalog), store=options.store, ledger=ledger, cost_cap=options.max_cost
    )
    try:
        return asyncio.run(_serve(options, settings))
    except LeaseLostError as error:
        print(f"interlock: {error}", file=sys.stderr)
        return 1


async def _serve(options: WorkerOptions, settings: RuntimeSettings) -> int:
    configure = None if options.configure is None else load_function(options.configure)
    settings = await configured(settings, configure, options.configure or "")
    if settings.store is None:
        raise ConfigurationError("a worker needs a store: the configured settings have none")
    try:
        async with Runtime(settings) as runtime:
            worker = Worker(
                runtime,
                WorkerSettings(
                    concurrency=options.concurrency, drain_s=options.drain_s, until_empty=options.until_empty
                ),
            )
            print(f"Working on {Place.of(settings.store).name}; Ctrl-C or SIGTERM drains.", file=sys.stderr)
            telling = asyncio.create_task(_tell(worker))
            try:
                with _heard(worker):
                    await worker.serve()
            finally:
                telling.cancel()
                if worker.stuck:
                    _end_at_once(worker)
            print(_figures(worker, runtime), file=sys.stderr)
            if worker.failed:
                look = _look("failed", settings.store)
                print(f"`{look}` names what failed, `interlock runs show` says why.", file=sys.stderr)
            if worker.capped is not None:
                print(f"Stopped at the cost cap: {told(worker.capped)}. Others may go on.", file=sys.stderr)
            for sentence in _of_what_is_left(worker.left or Left(), settings.store):
                print(sentence, file=sys.stderr)
    finally:
        await dispose(settings)
    return RUNS_LEFT if worker.capped is not None or (worker.left is not None and worker.left.queued) else 0


def _of_what_is_left(left: Left, store: str) -> Iterator[str]:
    if left.queued:
        yield (
            f"{_runs(left.queued)} left in the queue, which this worker cannot begin:"
            f" `{_look('queued', store)}` says why."
        )
    if left.paused:
        yield f"{_runs(left.paused)} paused: `interlock runs resume` goes on with one."
    if left.under_way:
        yield f"{_runs(left.under_way)} under way in other processes."


def _runs(count: int) -> str:
    return "1 run is" if count == 1 else f"{count:,} runs are"


def _look(status: str, store: str) -> str:
    return shlex.join(["interlock", "runs", "list", "--status", status, "--store", Place.of(store).name])


def _end_at_once(worker: Worker) -> None:
    """To leave in good order would be to wait for them. As after a kill, others have them once this process is gone."""
    print(f"{len(worker.stuck):,} runs do not stop: they are left to other workers.", file=sys.stderr, flush=True)
    sys.stdout.flush()
    os._exit(1)


@contextmanager
def _heard(worker: Worker) -> Iterator[None]:
    """The first signal drains. The second ends the process on the spot, whichever it is: an orderly end, as Python has
    it for Ctrl-C, would cancel the runs instead of leaving them to others."""
    loop = asyncio.get_running_loop()
    asked = (signal.SIGINT, signal.SIGTERM)
    before = [signal.getsignal(each) for each in asked]

    def unheard() -> None:
        for each, handler in zip(asked, before, strict=True):
            loop.remove_signal_handler(each)
            signal.signal(each, handler)

    def hear() -> None:
        for each in asked:
            loop.remove_signal_handler(each)
            signal.signal(each, signal.SIG_DFL)
        print("Draining: nothing more is claimed. Again to stop at once.", file=sys.stderr)
        worker.stop()

    for each in asked:
        loop.add_signal_handler(each, hear)
    try:
        yield
    finally:
        unheard()


async def _tell(worker: Worker) -> None:
    """Now and then, how it goes; nothing while nothing happens."""
    before, since = 0, time.monotonic()
    while True:
        await asyncio.sleep(TELL_EVERY_S)
        ended, now = worker.done + worker.failed, time.monotonic()
        if ended != before or worker.under_way:
            rate = (ended - before) / (now - since)
            print(f"{ended:,} runs ended ({rate:,.1f}/s), {worker.under_way} under way", file=sys.stderr)
        before, since = ended, now


def _figures(worker: Worker, runtime: Runtime) -> str:
    cost = ", ".join(f"{amount:.4f} {currency}" for currency, amount in runtime.statistics().cost.items())
    return f"{worker.done:,} runs succeeded, {worker.failed:,} failed{f', cost {cost}' if cost else ''}."
