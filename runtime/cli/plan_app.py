"""The command `interlock plan`: names, options, help."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .failing import plain_errors
from .options import STORE, Catalog, Configure

OnePipeline = Annotated[
    str | None, typer.Argument(metavar="[MODULE:PIPELINE]", help="pipelines.py:triage or package.module:triage")
]
Input = Annotated[Path | None, typer.Option("--input", help="One JSON value a line; each line is one run.")]
Table = Annotated[
    Path | None,
    typer.Option("--calls", help="Instead of a pipeline: a .csv or .jsonl table of calls (docs/plan.md)."),
]
SkipBad = Annotated[bool, typer.Option("--skip-bad", help="Leave bad input lines out.")]
RunCost = Annotated[str | None, typer.Option("--max-cost", help='What the run may spend: "5" (USD) or "5 EUR".')]
Limit = Annotated[int | None, typer.Option("--limit", min=1, help="Plan at most this many lines.")]
Concurrency = Annotated[
    int | None,
    typer.Option("--concurrency", min=1, help="Lines under way at a time. Default: 64; of a table: all."),
]
Recorded = Annotated[str, typer.Option("--store", help="Where calls have been recorded.")]
History = Annotated[
    str | None,
    typer.Option("--history", help="Another store to take sizes and times from; none: only the assumptions."),
]
Sample = Annotated[int, typer.Option("--sample", min=1, help="Read at most this many lines, evenly apart.")]
Runs = Annotated[int, typer.Option("--runs", min=1, max=1_000, help="Simulated runs the ranges come from.")]
Seed = Annotated[int, typer.Option("--seed", help="The same seed gives the same forecast.")]
Serves = Annotated[float, typer.Option("--serves", help="Share of the published rates that is really served.")]
RunSteps = Annotated[bool, typer.Option("--run-steps", help="Run the functions given to ctx.step.")]
OutputShare = Annotated[
    float, typer.Option("--output-share", help="Where nothing is recorded: share of its limit an answer uses.")
]
LatencyS = Annotated[float, typer.Option("--latency-s", help="Where nothing is recorded: seconds to the first token.")]
TokensPerS = Annotated[
    float, typer.Option("--tokens-per-s", help="Where nothing is recorded: tokens a second after that.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the forecast as JSON and nothing else.")]
Plot = Annotated[Path | None, typer.Option("--plot", help="Draw the levels over time into this PNG.")]
Html = Annotated[Path | None, typer.Option("--html", help="Write them as an HTML page of its own.")]
Verbose = Annotated[bool, typer.Option("--verbose", help="Log what is skipped and chosen.")]


def plan(
    pipeline: OnePipeline = None,
    input: Input = None,
    table: Table = None,
    skip_bad: SkipBad = False,
    max_cost: RunCost = None,
    limit: Limit = None,
    concurrency: Concurrency = None,
    catalog: Catalog = None,
    store: Recorded = STORE,
    history: History = None,
    configure: Configure = None,
    sample: Sample = 2_000,
    runs: Runs = 20,
    seed: Seed = 0,
    serves: Serves = 1,
    run_steps: RunSteps = False,
    output_share: OutputShare = 0.25,
    latency_s: LatencyS = 1.0,
    tokens_per_s: TokensPerS = 80.0,
    as_json: AsJson = False,
    plot: Plot = None,
    html: Html = None,
    verbose: Verbose = False,
) -> None:
    """Forecast hours, money and the bottleneck before anything is sent."""
    with plain_errors():
        from .plan import PlanOptions, show_plan

        options = PlanOptions(
            pipeline=pipeline,
            input=input,
            calls=table,
            skip_bad=skip_bad,
            max_cost=max_cost,
            limit=limit,
            concurrency=concurrency,
            catalog=catalog,
            store=store,
            history=history,
            configure=configure,
            sample=sample,
            runs=runs,
            seed=seed,
            serves=serves,
            run_steps=run_steps,
            output_share=output_share,
            latency_s=latency_s,
            tokens_per_s=tokens_per_s,
            as_json=as_json,
            plot=plot,
            html=html,
            verbose=verbose,
        )
        code = show_plan(options)
    raise typer.Exit(code)
