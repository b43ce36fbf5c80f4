"""`interlock plan`: read what is asked, rehearse it, forecast it, show it. Nothing is sent and no store is written."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from interlock.catalog.pricing import parse_cap
from interlock.errors import ConfigurationError, StoreError

from ..plan.forecast import Forecast, forecast
from ..plan.rehearsal import rehearse
from ..plan.report import as_json, assumed, capped, render
from ..plan.sizes import Assumptions, Sizes
from ..plan.table import read_table
from ..plan.workload import Workload
from ..settings import RuntimeSettings
from .arguments import Arguments
from .catalog import load_catalog
from .configuring import check_currency, checked_cap, configured, dispose
from .lines import Line, check, complain, read_lines
from .places import check_drawing, check_places
from .screen import screen
from .target import load_function, load_pipeline

if TYPE_CHECKING:
    from interlock.catalog import Catalog

#: Recorded calls that are looked at, the latest.
LOOKED_AT = 5_000
#: The word that means: do not look.
NONE = "none"


@dataclass(frozen=True, kw_only=True)
class PlanOptions:
    pipeline: str | None = None
    input: Path | None = None
    calls: Path | None = None
    skip_bad: bool = False
    max_cost: str | None = None
    limit: int | None = None
    concurrency: int | None = None
    catalog: Path | None = None
    store: str = "sqlite:///interlock.db"
    history: str | None = None
    configure: str | None = None
    sample: int = 2_000
    runs: int = 20
    seed: int = 0
    serves: float = 1.0
    run_steps: bool = False
    output_share: float = 0.25
    latency_s: float = 1.0
    tokens_per_s: float = 80.0
    as_json: bool = False
    plot: Path | None = None
    html: Path | None = None
    verbose: bool = False


#: What `interlock run` has under way at a time unless it is told otherwise.
LINES_AT_A_TIME = 64


def show_plan(options: PlanOptions) -> int:
    """The exit code: 0, or 130 after Ctrl-C. Raises for a wrong set-up."""
    if options.verbose:
        logging.basicConfig(format="%(name)s: %(message)s")
        logging.getLogger("interlock").setLevel(logging.DEBUG)
    _check(options)
    try:
        found, extra = _planned(options)
    except KeyboardInterrupt:
        print("Stopped. Nothing was sent, and nothing was written.", file=sys.stderr)
        return 130
    if options.as_json:
        print(json.dumps(as_json(found, extra), indent=1, allow_nan=False))
    else:
        screen().print(render(found, extra))
    for file in _drawn(options, found):
        print(f"Written: {file}", file=sys.stderr)
    return 0


def _check(options: PlanOptions) -> None:
    checked_cap(options.max_cost)
    if (options.calls is None) == (options.pipeline is None):
        raise ConfigurationError("name a pipeline and its --input, or a table with --calls")
    if options.pipeline is not None and options.input is None:
        raise ConfigurationError("a pipeline is planned over its input: --input FILE, one JSON value a line")
    if options.calls is not None and (options.input is not None or options.configure is not None):
        raise ConfigurationError("--calls is planned by itself: leave --input and --configure out")
    check_places(
        {"the input": options.input, "--calls": options.calls, "the catalog": options.catalog},
        {"--plot": options.plot, "--html": options.html},
    )
    check_drawing(plot=options.plot, html=options.html)
    for name, value in (("--output-share", options.output_share), ("--serves", options.serves)):
        if not 0 < value <= 1:
            raise ConfigurationError(f"{name} is a share: above 0, and at most 1")
    if not options.latency_s >= 0 or not options.tokens_per_s > 0:
        raise ConfigurationError("--latency-s is seconds, 0 or more, and --tokens-per-s is above 0")


def _planned(options: PlanOptions) -> tuple[Forecast, tuple[str, ...]]:
    catalog = load_catalog(options.catalog)
    source = options.history or options.store
    sizes = _sizes(options, source)
    with _bar(options) as told:
        if options.calls is not None:
            workload = read_table(options.calls, catalog, concurrency=options.concurrency, limit=options.limit)
        else:
            workload, sizes, catalog = _rehearsed(options, catalog, sizes, told)
        notes = (*assumed(sizes, workload, source), *workload.notes)
        if options.serves != 1:
            notes = (f"for providers that serve {options.serves:.0%} of their rates, once that was found out", *notes)
        found = forecast(
            replace(workload, notes=notes),
            catalog,
            sizes,
            runs=options.runs,
            seed=options.seed,
            begins_at=datetime.now(UTC),
            serves=options.serves,
            progress=lambda done, of: told("simulated runs", done, of),
        )
    extra: tuple[str, ...] = ()
    if options.max_cost is not None:
        words = capped(found, *parse_cap(options.max_cost))
        extra = () if words is None else (words,)
    return found, extra


def _sizes(options: PlanOptions, source: str) -> Sizes:
    assumptions = Assumptions(
        output_share=options.output_share, latency_s=options.latency_s, tokens_per_s=options.tokens_per_s
    )
    if source == NONE:
        return Sizes(assumptions=assumptions)
    from ..store.reads import calls_in

    try:
        return Sizes.of(calls_in(source, limit=LOOKED_AT), assumptions)
    except StoreError:
        if options.history is not None:
            raise
        return Sizes(assumptions=assumptions)  # nothing has been run yet


def _rehearsed(
    options: PlanOptions, catalog: Catalog, sizes: Sizes, told: Callable[[str, int, int], None]
) -> tuple[Workload, Sizes, Catalog]:
    assert options.pipeline is not None
    assert options.input is not None
    pipeline = load_pipeline(options.pipeline)
    configure = None if options.configure is None else load_function(options.configure)
    arguments = Arguments.of(pipeline.function, str(pipeline.name))
    checked = check(options.input, arguments.fill)
    if checked.bad and not options.skip_bad:
        complain(options.input, checked.bad)
    total = checked.good if options.limit is None else min(checked.good, options.limit)
    if not total:
        raise ConfigurationError(f"{options.input} has no lines: nothing is to be planned")
    settings = RuntimeSettings(catalog=catalog, store=None, cost_cap=options.max_cost)
    settings = asyncio.run(configured(settings, configure, options.configure or ""))
    check_currency(settings)
    catalog = (
        settings.catalog if settings.catalog is not None and not isinstance(settings.catalog, str | Path) else catalog
    )
    wanted = min(total, options.sample)
    try:
        rehearsed = rehearse(
            pipeline,
            _arguments(options.input, arguments, checked.bad, total, wanted),
            settings,
            catalog,
            sizes,
            seed=options.seed,
            run_steps=options.run_steps,
            progress=lambda done: told("lines read", done, wanted),
        )
    finally:
        asyncio.run(dispose(settings))
    lines = rehearsed.lines
    problems = tuple(
        f"{count * total / wanted:,.0f} lines would fail where answers are made up: {words}"
        for words, count in sorted(rehearsed.failed.items(), key=lambda item: -item[1])[:5]
    )
    problems += (f"{len(checked.bad):,} bad lines are left out",) if checked.bad else ()
    workload = Workload(
        lines=lines,
        counts=shares(total, len(lines)),
        concurrency=options.concurrency or LINES_AT_A_TIME,
        gates=_gates(settings),
        read=len(lines),
        notes=rehearsed.notes,
        problems=problems,
    )
    return workload, replace(sizes, pairs=rehearsed.pairs), catalog


def shares(total: int, parts: int) -> list[int]:
    """`total` in so many whole parts, as even as they can be."""
    return [total * (place + 1) // parts - total * place // parts for place in range(parts)]


def _arguments(
    path: Path, arguments: Arguments, bad: Mapping[int, str], total: int, wanted: int
) -> Iterator[Mapping[str, Any]]:
    """What the lines say, of `wanted` of the first `total` good lines, evenly apart."""
    place = 0
    for line in read_lines(path):
        if not isinstance(line, Line) or line.number in bad:
            continue
        if place == total:
            return
        if place * wanted // total != (place + 1) * wanted // total:
            yield arguments.fill(line)
        place += 1


def _gates(settings: RuntimeSettings) -> dict[str, int]:
    gates = {f"db:{provider.name}": provider.max_concurrent for provider in settings.databases}
    return gates | {account.name: int(account.capacity) for account in settings.accounts}


def _drawn(options: PlanOptions, found: Forecast) -> Iterator[Path]:
    if options.plot is not None:
        from ..plan.picture import draw

        draw(found, options.plot)
        yield options.plot
    if options.html is not None:
        from ..plan.page import write_page

        write_page(found, options.html)
        yield options.html


@contextmanager
def _bar(options: PlanOptions) -> Iterator[Callable[[str, int, int], None]]:
    """What is on the screen meanwhile: nothing where standard error is no terminal."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(bar_width=24), MofNCompleteColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        tasks: dict[str, Any] = {}

        def told(what: str, done: int, of: int) -> None:
            if what not in tasks:
                tasks[what] = bar.add_task(what, total=of)
            bar.update(tasks[what], completed=done, total=of)

        yield told
