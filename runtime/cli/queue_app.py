"""The commands `interlock submit` and `interlock worker`: names, options, help."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .failing import plain_errors
from .options import STORE, Catalog, Configure, Pipeline, Verbose

Store = Annotated[str, typer.Option("--store", help="sqlite:///interlock.db, or postgresql://user@host/database.")]


def submit(
    pipeline: Pipeline,
    input: Annotated[Path, typer.Option("--input", help="One JSON value a line; each line is one run.")],
    name: Annotated[
        str | None,
        typer.Option("--name", help="Runs are named NAME-<line's id>, and each is put there once. Default: the file."),
    ] = None,
    priority: Annotated[int, typer.Option("--priority", help="Higher is claimed first.")] = 0,
    max_cost: Annotated[
        str | None, typer.Option("--max-cost", help='The most each of the runs may spend: "0.50" (USD) or "0.50 EUR".')
    ] = None,
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Leave bad lines out and submit the others.")] = False,
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="At most this many lines.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the ids of the runs as a JSON array.")] = False,
    store: Store = STORE,
) -> None:
    """Put a run of a pipeline into the queue for each line of a file; `interlock worker` runs them."""
    with plain_errors():
        from .queue import SubmitOptions, submit_file

        submit_file(
            SubmitOptions(
                pipeline=pipeline,
                input=input,
                name=name,
                priority=priority,
                max_cost=max_cost,
                skip_bad=skip_bad,
                limit=limit,
                as_json=as_json,
                store=store,
            )
        )


def worker(
    modules: Annotated[
        list[str] | None,
        typer.Argument(metavar="[MODULE ...]", help="Files or modules with the pipelines, imported at the start."),
    ] = None,
    concurrency: Annotated[int, typer.Option("--concurrency", min=1, help="Runs under way at a time.")] = 500,
    drain_s: Annotated[
        float, typer.Option("--drain-s", min=0, help="Seconds runs have to end after SIGTERM or Ctrl-C.")
    ] = 25.0,
    until_empty: Annotated[bool, typer.Option("--until-empty", help="Stop when the queue is empty.")] = False,
    ledger: Annotated[
        str | None,
        typer.Option("--ledger", help='Where workers share their limits. Default: the store; "none": each its own.'),
    ] = None,
    max_cost: Annotated[
        str | None, typer.Option("--max-cost", help='The most this worker may spend: "5" (USD) or "5 EUR".')
    ] = None,
    catalog: Catalog = None,
    configure: Configure = None,
    store: Store = STORE,
    verbose: Verbose = False,
) -> None:
    """Claim runs from the queue and see them through, as one of any number of workers."""
    with plain_errors():
        from .queue import WorkerOptions, work

        code = work(
            WorkerOptions(
                modules=tuple(modules or ()),
                concurrency=concurrency,
                drain_s=drain_s,
                until_empty=until_empty,
                ledger=ledger,
                max_cost=max_cost,
                catalog=catalog,
                configure=configure,
                store=store,
                verbose=verbose,
            )
        )
    raise typer.Exit(code)
