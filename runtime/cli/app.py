"""The commands of `interlock`: names, options, help. What they do stands in the modules beside this one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from . import plan_app, queue_app
from .failing import OneSentence, plain_errors
from .options import STORE, Catalog, Configure, MaxCost, Pipeline, Records, Verbose
from .runs_app import runs, stores

app = typer.Typer(
    name="interlock",
    cls=OneSentence,
    help="Reserve model calls before sending them: run pipelines, look at what they did.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
catalogs = typer.Typer(help="Check and show the catalog of models.", no_args_is_help=True)
app.add_typer(catalogs, name="catalog")
decisions = typer.Typer(help="Measure decision models on examples whose answers are known.", no_args_is_help=True)
app.add_typer(decisions, name="decisions")
app.add_typer(runs, name="runs")
app.add_typer(stores, name="store")
app.command()(queue_app.submit)
app.command()(queue_app.worker)


def _say_version(wanted: bool) -> None:
    if wanted:
        from interlock import __version__

        typer.echo(f"interlock {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version.", callback=_say_version, is_eager=True)
    ] = False,
) -> None:
    """Reserve model calls before sending them: run pipelines, look at what they did."""


@app.command()
def demo(
    as_json: Annotated[bool, typer.Option("--json", help="Print the figures as JSON and nothing else.")] = False,
    catalog: Annotated[
        Path | None,
        typer.Option("--catalog", help="Run on the real providers of this catalog, with keys from the environment."),
    ] = None,
    entries: Annotated[int, typer.Option("--entries", min=1, help="How many documentation strings to work on.")] = 320,
    baseline: Annotated[
        bool | None,
        typer.Option(
            "--baseline/--no-baseline", help="Run the usual way too. Default: only on the simulated provider."
        ),
    ] = None,
    keep: Annotated[
        Path | None, typer.Option("--keep", help="Keep the library and the record of calls in this folder.")
    ] = None,
) -> None:
    """Run the main job on Python's own documentation, beside the usual way. No key is needed."""
    with plain_errors():
        from .demo import show_demo

        show_demo(as_json=as_json, catalog=catalog, entries=entries, baseline=baseline, keep=keep)


@app.command()
def run(
    pipeline: Pipeline,
    input: Annotated[Path, typer.Option("--input", help="One JSON value a line; each line is one run.")],
    output: Annotated[Path, typer.Option("--output", help="One result a line, in the input's order.")],
    resume: Annotated[bool, typer.Option("--resume", help="Go on: run only the lines without a good result.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the results that are there.")] = False,
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Report bad input lines and run the others.")] = False,
    max_cost: MaxCost = None,
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="Run at most this many lines.")] = None,
    concurrency: Annotated[int, typer.Option("--concurrency", min=1, help="Lines under way at a time.")] = 64,
    catalog: Catalog = None,
    store: Records = STORE,
    ledger: Annotated[
        str | None,
        typer.Option("--ledger", help='Share the limits with other processes: "store", or the URL of a ledger.'),
    ] = None,
    configure: Configure = None,
    verbose: Verbose = False,
) -> None:
    """Run a pipeline once for each line of a file."""
    with plain_errors():
        from .running import RunOptions, run_file

        options = RunOptions(
            pipeline=pipeline,
            input=input,
            output=output,
            resume=resume,
            overwrite=overwrite,
            skip_bad=skip_bad,
            max_cost=max_cost,
            limit=limit,
            concurrency=concurrency,
            catalog=catalog,
            store=store,
            ledger=ledger,
            configure=configure,
            verbose=verbose,
        )
        code = run_file(options)
    raise typer.Exit(code)


app.command()(plan_app.plan)


@app.command()
def embed(
    store: Annotated[str, typer.Option("--store", help="sqlite:///docs.db, or postgresql://user@host/database.")],
    input: Annotated[
        Path | None, typer.Option("--input", help="One JSON object a line; each line is one document.")
    ] = None,
    field: Annotated[
        str, typer.Option("--field", help="The member with the text; the others are kept with it.")
    ] = "text",
    id_field: Annotated[
        str | None, typer.Option("--id-field", help='The member with the id. Default: "id" where a line has it.')
    ] = None,
    collection: Annotated[str, typer.Option("--collection", help="A store may hold several.")] = "documents",
    model: Annotated[str | None, typer.Option("--model", help="An entry of the catalog. Default: its pin.")] = None,
    re_embed: Annotated[
        bool, typer.Option("--re-embed", help="Embed what is stored again, with this model; then the --input, if any.")
    ] = False,
    truncate: Annotated[bool, typer.Option("--truncate", help="Cut texts that are too long for the model.")] = False,
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Leave bad lines out and embed the others.")] = False,
    max_cost: MaxCost = None,
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="Look at no more than so many lines.")] = None,
    catalog: Catalog = None,
    records: Annotated[str, typer.Option("--records", help="Where calls are recorded.")] = STORE,
    verbose: Verbose = False,
) -> None:
    """Embed the lines of a file into a store that `interlock search` searches. What is stored already is skipped."""
    with plain_errors():
        from .embed import EmbedOptions, embed_file

        options = EmbedOptions(
            store=store,
            input=input,
            field=field,
            id_field=id_field,
            collection=collection,
            model=model,
            re_embed=re_embed,
            truncate=truncate,
            skip_bad=skip_bad,
            max_cost=max_cost,
            limit=limit,
            catalog=catalog,
            records=records,
            verbose=verbose,
        )
        code = embed_file(options)
    raise typer.Exit(code)


@app.command()
def search(
    question: Annotated[str, typer.Argument(metavar="QUESTION", help="What to look for, in plain words.")],
    store: Annotated[str, typer.Option("--store", help="sqlite:///docs.db, or postgresql://user@host/database.")],
    collection: Annotated[str, typer.Option("--collection", help="Which one of the store.")] = "documents",
    k: Annotated[int, typer.Option("-k", min=1, help="How many documents.")] = 10,
    as_json: Annotated[bool, typer.Option("--json", help="Print them as a JSON array, whole and with fields.")] = False,
    catalog: Catalog = None,
    records: Annotated[str, typer.Option("--records", help="Where calls are recorded.")] = STORE,
) -> None:
    """Find the stored documents that are nearest to a question, by the model that embedded them."""
    with plain_errors():
        from .search import SearchOptions, show_search

        show_search(
            SearchOptions(
                question=question,
                store=store,
                collection=collection,
                k=k,
                as_json=as_json,
                catalog=catalog,
                records=records,
            )
        )


@app.command()
def calls(
    last: Annotated[str | None, typer.Option("--last", help="Only the last 30s, 15m, 1h, 2d ...")] = None,
    run_id: Annotated[str | None, typer.Option("--run", help="Only the calls of this run.")] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="At most this many, the latest.")] = 1_000,
    as_json: Annotated[bool, typer.Option("--json", help="Print them as a JSON array.")] = False,
    store: Records = STORE,
) -> None:
    """Show every recorded call: model, tokens, cost, wait, attempts, outcome."""
    with plain_errors():
        from .calls import show_calls

        show_calls(store=store, last=last, run=run_id, limit=limit, as_json=as_json)


@catalogs.command("check")
def check_catalog(
    file: Annotated[
        Path | None, typer.Argument(metavar="[FILE]", help="The catalog file. Default: the one that ships.")
    ] = None,
    credentials: Annotated[
        bool, typer.Option("--credentials", help="Look at each provider's credential, too.")
    ] = False,
    ask: Annotated[
        bool, typer.Option("--ask/--no-ask", help="With --credentials: ask each provider whether it accepts it.")
    ] = True,
) -> None:
    """Load a catalog file strictly: exit 0 and a summary, or 2 and what is wrong where.

    With --credentials exit 1 where of some pin no model can be called.
    """
    with plain_errors():
        from .catalog import check, load_catalog

        typer.echo(check(file))
        if not credentials:
            return
        from .credentials import check_credentials

        code = check_credentials(load_catalog(file), ask=ask)
    raise typer.Exit(code)


@catalogs.command("discover")
def discover_models(
    file: Annotated[
        Path | None, typer.Argument(metavar="[FILE]", help="The catalog file. Default: the one that ships.")
    ] = None,
    write: Annotated[
        Path | None, typer.Option("--write", metavar="FILE", help="Edit this catalog: statuses, and new entries.")
    ] = None,
    provider: Annotated[
        list[str] | None, typer.Option("--provider", metavar="KEY", help="Ask only this one; may be given again.")
    ] = None,
    mark_unreachable: Annotated[
        bool, typer.Option("--mark-unreachable", help="With --write: mark the entries of who gives no list.")
    ] = False,
    every: Annotated[bool, typer.Option("--all", help="Show every new model.")] = False,
) -> None:
    """Ask each provider which models the credentials can call, and compare with the catalog."""
    with plain_errors():
        from .discover import DiscoverOptions, discover

        options = DiscoverOptions(
            file=file, write=write, providers=tuple(provider or ()), mark_unreachable=mark_unreachable, every=every
        )
        code = discover(options)
    raise typer.Exit(code)


@decisions.command("eval")
def evaluate_decisions(
    input: Annotated[
        Path, typer.Option("--input", help="One labelled example a line: state, labels, questions in the first.")
    ],
    output: Annotated[
        Path | None, typer.Option("--output", help="The answers, one a line. Default: INPUT with .answers.jsonl.")
    ] = None,
    questions: Annotated[
        Path | None, typer.Option("--questions", help="A .json or .yaml file of questions, where no line has them.")
    ] = None,
    model: Annotated[str | None, typer.Option("--model", help="An entry of the catalog. Default: its pin.")] = None,
    precision: Annotated[
        float, typer.Option("--precision", help="How often what is acted on must be right: finds the threshold.")
    ] = 0.95,
    fit: Annotated[
        Path | None, typer.Option("--fit", help="Fit a temperature a question and add it to this file.")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Ask only what has no answer yet; then show the figures of all.")
    ] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Ask everything again.")] = False,
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Leave bad lines out and ask the others.")] = False,
    max_cost: MaxCost = None,
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="Ask at most this many lines.")] = None,
    concurrency: Annotated[int, typer.Option("--concurrency", min=1, help="Lines under way at a time.")] = 64,
    catalog: Catalog = None,
    store: Records = STORE,
    configure: Configure = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the figures as JSON and nothing else.")] = False,
    plot: Annotated[Path | None, typer.Option("--plot", help="Draw the reliability diagrams into this PNG.")] = None,
    html: Annotated[Path | None, typer.Option("--html", help="Write them as an HTML page of its own.")] = None,
    verbose: Verbose = False,
) -> None:
    """Ask a decision model what is known already: accuracy, calibration, the threshold for a precision."""
    with plain_errors():
        from .decisions import EvalOptions, eval_file

        options = EvalOptions(
            input=input,
            output=output or input.with_suffix(".answers.jsonl"),
            questions=questions,
            model=model,
            precision=precision,
            fit=fit,
            resume=resume,
            overwrite=overwrite,
            skip_bad=skip_bad,
            max_cost=max_cost,
            limit=limit,
            concurrency=concurrency,
            catalog=catalog,
            store=store,
            configure=configure,
            as_json=as_json,
            plot=plot,
            html=html,
            verbose=verbose,
        )
        code = eval_file(options)
    raise typer.Exit(code)


@catalogs.command("show")
def show_catalog(
    model: Annotated[str | None, typer.Argument(metavar="[ID]", help="One entry. Default: a table of all.")] = None,
    catalog: Catalog = None,
) -> None:
    """Show the models of a catalog, or one entry in full."""
    with plain_errors():
        from .catalog import load_catalog, show_all, show_one

        loaded = load_catalog(catalog)
        if model is not None:
            typer.echo(show_one(loaded, model))
            return
        from .screen import screen

        screen().print(show_all(loaded))
