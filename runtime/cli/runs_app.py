"""The commands of `interlock runs` and `interlock store`: names, options, help."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from .failing import OneSentence, plain_errors
from .options import STORE, Catalog, Configure

runs = typer.Typer(cls=OneSentence, help="Look at runs, stop them, go on with them.", no_args_is_help=True)
stores = typer.Typer(cls=OneSentence, help="Look after the store itself.", no_args_is_help=True)

Store = Annotated[str, typer.Option("--store", help="Where runs are recorded: sqlite:///... or postgresql://...")]
Run = Annotated[str, typer.Argument(metavar="RUN", help="The run's id, as `interlock runs list` shows it.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")]
Status = Literal["queued", "running", "paused", "interrupted", "succeeded", "failed", "cancelled"]


@runs.command("list")
def list_runs(
    status: Annotated[Status | None, typer.Option("--status", help="Only those.")] = None,
    pipeline: Annotated[str | None, typer.Option("--pipeline", help="Only this pipeline's.")] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="At most this many, the latest.")] = 100,
    as_json: Json = False,
    store: Store = STORE,
) -> None:
    """Every run: how far it is, what it has cost, how it ended."""
    with plain_errors():
        from .runs import show_list

        show_list(store=store, status=status, pipeline=pipeline, limit=limit, as_json=as_json)


@runs.command("show")
def show_run(run: Run, as_json: Json = False, store: Store = STORE) -> None:
    """One run and each of its steps: tries, calls, cost, what is ambiguous."""
    with plain_errors():
        from .runs import show_one

        show_one(store=store, run_id=run, as_json=as_json)


@runs.command("cancel")
def cancel_run(run: Run, store: Store = STORE) -> None:
    """Stop a run, also one of another process: that hears of it within 5 s."""
    with plain_errors():
        from .runs import cancel

        cancel(store=store, run_id=run)


@runs.command("pause")
def pause_run(run: Run, store: Store = STORE) -> None:
    """Let what runs finish, and start nothing of it until it is resumed."""
    with plain_errors():
        from .runs import pause

        pause(store=store, run_id=run)


@runs.command("resume")
def resume_run(
    run: Run,
    pipeline: Annotated[
        str | None,
        typer.Argument(metavar="[MODULE:PIPELINE]", help="Where its pipeline is now. Default: where it was."),
    ] = None,
    from_step: Annotated[
        str | None, typer.Option("--from", metavar="STEP", help="Forget this step and all after it: they run again.")
    ] = None,
    ambiguous: Annotated[
        Literal["resend", "fail"] | None,
        typer.Option(
            "--ambiguous", help="A call of which nobody knows whether it was answered: send it again, or fail."
        ),
    ] = None,
    max_cost: Annotated[
        str | None, typer.Option("--max-cost", help='A new cost cap of the run: "5" (USD) or "5 EUR".')
    ] = None,
    catalog: Catalog = None,
    configure: Configure = None,
    store: Store = STORE,
) -> None:
    """Go on with a run that was paused, cut off or failed, here, and print its result as JSON.

    What it had paid for is read from the journal and not asked again.
    """
    with plain_errors():
        from .runs import ResumeOptions, resume

        code = resume(
            ResumeOptions(
                run_id=run,
                store=store,
                pipeline=pipeline,
                from_step=from_step,
                ambiguous=ambiguous,
                max_cost=max_cost,
                catalog=catalog,
                configure=configure,
            )
        )
    raise typer.Exit(code)


@runs.command("prune")
def prune_runs(
    older_than: Annotated[str, typer.Option("--older-than", help="Those that ended before: 12h, 30d, 8w ...")],
    keep_calls: Annotated[bool, typer.Option("--keep-calls", help="Keep the record of their calls.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say how many.")] = False,
    store: Store = STORE,
) -> None:
    """Forget runs that ended long ago: their steps, their calls, and the calls of no run."""
    with plain_errors():
        from .runs import prune

        prune(store=store, older_than=older_than, keep_calls=keep_calls, dry_run=dry_run)


@stores.command("upgrade")
def upgrade_store(store: Store = STORE) -> None:
    """Bring the store's schema up to this version. Opening it with a Runtime does so too."""
    with plain_errors():
        from .runs import upgrade

        upgrade(store=store)
