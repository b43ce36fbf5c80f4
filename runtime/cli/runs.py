"""`interlock runs`: what became of runs, and what is wanted of them. Reads SQLite and Postgres alike."""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from interlock.errors import ConfigurationError, InterlockError

from ..printable import cell
from ..store import run_changes as changes
from ..store.opening import read_store, upgrade_store
from ..store.place import Place
from ..store.run_reads import RunView, Spent, StepView, list_runs, show_run
from .calls import latest, parse_period
from .failing import sentence
from .screen import screen

if TYPE_CHECKING:
    from rich.table import Table

    from ..pipeline_job import PipelineJob

#: How a status is drawn.
_STYLES = {"failed": "red", "interrupted": "red", "cancelled": "yellow", "paused": "yellow", "running": "cyan"}


# Looking.


def show_list(*, store: str, status: str | None, pipeline: str | None, limit: int, as_json: bool) -> None:
    found = read_store(store, lambda c: list_runs(c, status=status, pipeline=pipeline, limit=limit + 1))
    found = latest(found, limit, "runs")
    if as_json:
        print(json.dumps([run_object(run) for run in found], indent=1))
        return
    console = screen()
    if not found:
        console.print(cell(f"No runs in {Place.of(store).name}" + (f" that are {status}." if status else ".")))
        return
    console.print(runs_table(found))


def show_one(*, store: str, run_id: str, as_json: bool) -> None:
    found = read_store(store, lambda c: show_run(c, run_id))
    if found is None:
        raise ConfigurationError(f"there is no run {run_id!r} in the store: `interlock runs list` names them")
    run, steps = found
    if as_json:
        print(json.dumps({**run_object(run), "step_list": [step_object(step) for step in steps]}, indent=1))
        return
    console = screen()
    console.print(cell(f"{run.run_id}: {run.pipeline}{run.version and f' (version {run.version})'}, {run.status}"))
    for line in facts(run):
        console.print(cell(f"  {line}"))
    if steps:
        console.print(steps_table(steps))


def facts(run: RunView) -> list[str]:
    """What there is to say of a run beside its steps."""
    lines = [f"{run.done} of {run.steps} steps done" + (f", {run.failed} of them failed" if run.failed else "")]
    lines.append(f"cost {money(run.spent)}" + (f" of at most {run.cost_cap}" if run.cost_cap else ""))
    if run.started_at is not None:
        took = (run.ended_at or datetime.now(UTC)) - run.started_at
        ended = "" if run.ended_at is None else f", ended {_time(run.ended_at)}"
        lines.append(f"started {_time(run.started_at)}{ended}, {took.total_seconds():.1f} s")
    if run.attempt > 1:
        lines.append(f"taken up {run.attempt} times")
    if run.host is not None and run.status in ("running", "paused"):
        lines.append(f"in process {run.pid} on {run.host}")
    if run.cancel_requested_at is not None and run.ended_at is None:
        lines.append("asked to be cancelled")
    if run.status == "interrupted":
        lines.append(f"its process is gone: interlock runs resume {run.run_id}")
    if run.ambiguous:
        lines.append(
            f"{run.ambiguous} steps were begun and not heard of again: what they sent, if anything, is unknown"
        )
    if run.spent.unknown:
        lines.append(f"{run.spent.unknown} calls are of unknown outcome: the provider may bill them")
    if run.error is not None or run.error_code is not None:
        lines.append(f"{run.error_code or 'error'}: {run.error or ''}")
    return lines


def runs_table(found: list[RunView]) -> Table:
    from rich.table import Table

    shown = Table(box=None, pad_edge=False)
    shown.add_column("run", overflow="fold", min_width=12)
    shown.add_column("pipeline", overflow="ellipsis", no_wrap=True, min_width=8)
    shown.add_column("status", no_wrap=True)
    for name in ("steps", "calls", "cost"):
        shown.add_column(name, justify="right", no_wrap=True)
    shown.add_column("created (UTC)", no_wrap=True)
    shown.add_column("took", justify="right", no_wrap=True)
    shown.add_column("error", overflow="ellipsis", no_wrap=True)
    for run in found:
        shown.add_row(
            cell(run.run_id),
            cell(run.pipeline),
            cell(run.status),
            f"{run.done}/{run.steps}",
            str(run.spent.calls),
            money(run.spent),
            "" if run.created_at is None else _time(run.created_at),
            ""
            if run.ended_at is None or run.started_at is None
            else f"{(run.ended_at - run.started_at).total_seconds():.1f}s",
            cell(run.error_code or ("ambiguous" if run.ambiguous else "")),
            style=_STYLES.get(run.status),
        )
    return shown


def steps_table(steps: list[StepView]) -> Table:
    from rich.table import Table

    shown = Table(box=None, pad_edge=False)
    shown.add_column("step", overflow="fold", min_width=6)
    shown.add_column("job", overflow="ellipsis", no_wrap=True, min_width=8)
    shown.add_column("status", no_wrap=True)
    for name in ("tries", "calls", "cost", "took"):
        shown.add_column(name, justify="right", no_wrap=True)
    shown.add_column("note", overflow="fold")
    for step in steps:
        took = None if step.begun_at is None or step.ended_at is None else step.ended_at - step.begun_at
        shown.add_row(
            cell(step.step_id),
            cell(step.job),
            cell(step.status),
            str(step.tries),
            str(step.spent.calls),
            money(step.spent) if step.spent.calls else "",
            "" if took is None else f"{took.total_seconds():.1f}s",
            cell(note(step)),
            style=_STYLES.get(step.status),
        )
    return shown


def note(step: StepView) -> str:
    """What is odd about a step."""
    words = ["ambiguous"] if step.ambiguous else []
    words += [f"run again: {step.again}"] if step.again else []
    words += [f"{step.spent.unknown} calls of unknown outcome"] if step.spent.unknown else []
    words += [step.error_code] if step.error_code else []
    return "; ".join(words)


def money(spent: Spent) -> str:
    """`0.0123 USD`, with a `+?` where some call's cost is not known."""
    amounts = [f"{amount:.4f} {currency}" for currency, amount in sorted(spent.costs.items())]
    return (" + ".join(amounts) or "0") + (" + ?" if spent.unpriced else "")


def run_object(run: RunView) -> dict[str, Any]:
    """One run as plain JSON. What is unknown is null."""
    return {
        "run": run.run_id,
        "pipeline": run.pipeline,
        "version": run.version,
        "status": run.status,
        "created_at": _iso(run.created_at),
        "started_at": _iso(run.started_at),
        "ended_at": _iso(run.ended_at),
        "attempt": run.attempt,
        "steps": run.steps,
        "done": run.done,
        "failed": run.failed,
        "ambiguous": run.ambiguous,
        **_spent_object(run.spent),
        "cost_cap": run.cost_cap,
        "error_code": run.error_code,
        "error": run.error,
        "host": run.host,
        "pid": run.pid,
        "cancel_requested_at": _iso(run.cancel_requested_at),
    }


def step_object(step: StepView) -> dict[str, Any]:
    return {
        "step": step.step_id,
        "job": step.job,
        "status": step.status,
        "tries": step.tries,
        "again": step.again,
        "ambiguous": step.ambiguous,
        "error_code": step.error_code,
        "begun_at": _iso(step.begun_at),
        "ended_at": _iso(step.ended_at),
        **_spent_object(step.spent),
    }


def _spent_object(spent: Spent) -> dict[str, Any]:
    return {
        "calls": spent.calls,
        "cost": {currency: str(amount) for currency, amount in sorted(spent.costs.items())},
        "calls_of_unknown_cost": spent.unpriced,
        "calls_of_unknown_outcome": spent.unknown,
    }


def _time(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%m-%d %H:%M:%S")


def _iso(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat()


# Changing.


def cancel(*, store: str, run_id: str) -> None:
    now = datetime.now(UTC)
    if read_store(store, lambda c: changes.cancel_run(c, run_id, now), writes=True):
        print(f"Run {run_id} is cancelled.")
    else:
        print(f"Run {run_id} is asked to stop: its process hears of it within 5 s.")


def pause(*, store: str, run_id: str) -> None:
    now = datetime.now(UTC)
    read_store(store, lambda c: changes.pause_run(c, run_id, now), writes=True)
    print(f"Run {run_id} is paused: what runs is finished, nothing starts until `interlock runs resume {run_id}`.")


@dataclass(frozen=True, kw_only=True)
class ResumeOptions:
    run_id: str
    store: str
    pipeline: str | None = None
    from_step: str | None = None
    ambiguous: Literal["resend", "fail"] | None = None
    max_cost: str | None = None
    catalog: Path | None = None
    configure: str | None = None


def resume(options: ResumeOptions) -> int:
    """Let a paused run go on where it is, or take up one that was cut off or failed, here, to its end.

    The exit code: 1 where the pipeline fails by an error of its own.
    """
    if read_store(options.store, lambda c: changes.unpause_run(c, options.run_id), writes=True):
        print(f"Run {options.run_id} goes on.")
        return 0
    try:
        result = asyncio.run(_resumed(options))
    except InterlockError:
        raise
    except Exception as error:
        print(f"interlock: run {options.run_id} failed: {type(error).__name__}: {sentence(error)}", file=sys.stderr)
        return 1
    print(json.dumps(result, indent=1))
    return 0


async def _resumed(options: ResumeOptions) -> Any:
    from ..runtime import Runtime
    from ..settings import RuntimeSettings
    from .catalog import load_catalog
    from .configuring import checked_cap, configured, dispose
    from .running import plain
    from .target import load_function

    here = str(Path.cwd())
    if here not in sys.path:  # the pipeline is found as `interlock run` found it
        sys.path.insert(0, here)
    checked_cap(options.max_cost)
    configure = None if options.configure is None else load_function(options.configure)
    job = None if options.pipeline is None else _job(options)
    settings = RuntimeSettings(catalog=load_catalog(options.catalog), store=options.store)
    settings = await configured(settings, configure, options.configure or "")
    try:
        async with Runtime(settings) as runtime:
            return plain(
                await runtime.resume(
                    options.run_id,
                    job,
                    from_step=options.from_step,
                    ambiguous=options.ambiguous,
                    cost_cap=options.max_cost,
                )
            )
    finally:
        await dispose(settings)


def _job(options: ResumeOptions) -> PipelineJob[Any]:
    """The pipeline that was named, called with what the run was begun with."""
    from ..journal.calling import pipeline_of
    from ..store.journal_sql import read_recorded
    from .target import load_pipeline

    assert options.pipeline is not None
    pipeline = load_pipeline(options.pipeline)
    found = read_store(options.store, lambda c: read_recorded(c, options.run_id))
    assert found is not None  # it was there to be let go on
    return pipeline_of(found.head, pipeline)


def prune(*, store: str, older_than: str, keep_calls: bool, dry_run: bool) -> None:
    before = datetime.now(UTC) - parse_period(older_than)
    if dry_run:
        found = read_store(store, lambda c: changes.countable(c, before, keep_calls=keep_calls))
        print(f"Would forget {_told(found)}.")
        return
    total = changes.Pruned()
    while some := _pruned(store, before, keep_calls):
        total = total.plus(some)
    print(f"Forgot {_told(total)}.")


def _pruned(store: str, before: datetime, keep_calls: bool) -> changes.Pruned | None:
    """A portion, in a transaction of its own; None where nothing is left."""
    some = read_store(store, lambda c: changes.prune(c, before, keep_calls=keep_calls), writes=True)
    if not some.runs and not keep_calls:
        some = read_store(store, lambda c: changes.prune_calls(c, before), writes=True)
    return some if some != changes.Pruned() else None


def _told(pruned: changes.Pruned) -> str:
    return f"{pruned.runs} runs, {pruned.steps} steps and {pruned.calls} calls"


def upgrade(*, store: str) -> None:
    before, now = upgrade_store(store)
    if before == now:
        print(f"The store is up to date (schema {now}).")
    else:
        print(f"The store was brought up to schema {now}." if before else f"The store was made (schema {now}).")
