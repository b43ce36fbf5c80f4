"""One run of the demo: Interlock first, then the usual way on a fresh provider with the same limits."""

from __future__ import annotations

import importlib.util
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from interlock.catalog import Catalog
from interlock.clients.simulator import PublishedLimits, SimulatedProvider
from interlock.embeddings.purpose import EmbeddingPurpose
from interlock.errors import ConfigurationError, code_of

from ..database import DatabaseProvider
from ..runtime import Runtime
from ..settings import RuntimeSettings
from . import progress
from .baseline import WORKERS, run_the_usual_way
from .corpus import Entry, read_corpus
from .figures import DemoReport, Side, goodput_after_burst
from .library import ConnectionMeter, Found, open_library, search
from .pipeline import LIBRARY, catalogue_all
from .provider import LIMITS, MODEL, catalog_text, served, simulated_provider
from .work import AREA, DEPRECATED, MAX_OUTPUT_TOKENS, QUESTION

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncEngine

    from ..statistics import RuntimeStatistics

CONNECTIONS = 4
#: What `interlock[demo]` brings, by the modules that are imported.
NEEDED = ("anthropic", "uvicorn", "wordllama", "sparrow_decider")


@dataclass(frozen=True, kw_only=True)
class DemoOptions:
    """`catalog` None is the simulated provider. `baseline` None runs the usual way wherever it can be measured."""

    entries: int = 320
    catalog: Path | None = None
    baseline: bool | None = None
    keep: Path | None = None
    limits: PublishedLimits = LIMITS
    workers: int = WORKERS

    @property
    def simulated(self) -> bool:
        return self.catalog is None


@dataclass
class _Ended:
    """How the entries went so far."""

    done: int = 0
    errors: Counter[str] = field(default_factory=Counter)
    first: BaseException | None = None

    def __call__(self, error: BaseException | None) -> None:
        if error is None:
            self.done += 1
            return
        self.first = self.first or error
        self.errors[code_of(error)] += 1

    @property
    def failed(self) -> int:
        return self.errors.total()


async def run_demo(options: DemoOptions, console: Console) -> DemoReport:
    """All of it. Raises the first failure where no entry at all could be done."""
    if options.baseline and not options.simulated:
        raise ConfigurationError("the usual way is measured on the simulated provider only: leave --baseline out")
    missing = [module for module in NEEDED if importlib.util.find_spec(module) is None]
    if options.simulated and missing:
        raise ConfigurationError(f"the demo needs {', '.join(missing)}: pip install 'interlock[demo]'")
    catalog = None if options.catalog is None else Catalog.load(options.catalog)  # before anything is said
    with _folder(options.keep) as folder:
        corpus = read_corpus(options.entries)  # takes seconds: after whatever else can be wrong
        if catalog is not None and options.catalog is not None:
            _say_real(console, corpus, options.catalog)
            return await _interlock(corpus, catalog, folder, console)
        _say_simulated(console, corpus, options.limits)
        with simulated_provider(options.limits).in_thread() as provider:
            catalog = Catalog.load(catalog_text(provider.base_url, options.limits), file="the demo's catalog")
            report = await _interlock(corpus, catalog, folder, console, provider, options.limits)
        if options.baseline is False:
            return report
        with simulated_provider(options.limits).in_thread() as provider:
            return report.beside(await _usual(corpus, provider, folder, console, options))


async def _interlock(
    corpus: tuple[Entry, ...],
    catalog: Catalog,
    folder: Path,
    console: Console,
    provider: SimulatedProvider | None = None,
    limits: PublishedLimits = LIMITS,
) -> DemoReport:
    engine = await open_library(folder / "library.db", connections=CONNECTIONS)
    meter = ConnectionMeter(engine)
    settings = RuntimeSettings(
        catalog=catalog,
        store=f"sqlite:///{folder / 'interlock.db'}",
        databases=(DatabaseProvider(LIBRARY, engine, max_concurrent=CONNECTIONS),),
    )
    ended = _Ended()
    try:
        async with Runtime(settings) as runtime:
            await _warm(runtime)
            if provider is not None:
                provider.clear()  # its log begins with the work
            begun = time.perf_counter()

            def words() -> str:
                return _words(runtime.statistics(), ended.done, time.perf_counter() - begun)

            async with progress.watched(console, "Interlock", len(corpus), lambda: ended.done + ended.failed, words):
                await runtime.run(catalogue_all(corpus, ended))
            wall_s = time.perf_counter() - begun
            if ended.first is not None and not ended.done:
                raise ended.first
            statistics, holds, work_s = runtime.statistics(), tuple(meter.holds), meter.work_s
            found = await _search(runtime, engine)
    finally:
        await engine.dispose()
    currency, cost = next(iter(statistics.cost.items()), ("USD", Decimal(0)))
    side = Side(
        done=ended.done,
        failed=ended.failed,
        requests=provider.count if provider is not None else statistics.requests,
        rate_limited=statistics.rate_limited,
        goodput=goodput_after_burst(provider.requests, served(limits)) if provider is not None else None,
        wall_s=wall_s,
        db_connection_s=sum(until - since for since, until in holds),
        db_work_s=work_s,
        log=provider.requests if provider is not None else (),
        holds=holds,
    )
    return DemoReport(interlock=side, cost=cost, currency=currency, search=found, errors=dict(ended.errors))


async def _warm(runtime: Runtime) -> None:
    """One call of each model before anything is measured: whoever came first would load SDK and models for both."""
    await runtime.llm(max_output_tokens=MAX_OUTPUT_TOKENS).single_response(QUESTION)
    await runtime.embeddings().embed(QUESTION, EmbeddingPurpose.QUERY)
    await runtime.decisions().decide(QUESTION, {"area": AREA, "deprecated": DEPRECATED})


async def _search(runtime: Runtime, engine: AsyncEngine) -> tuple[Found, ...]:
    question = await runtime.embeddings().embed(QUESTION, EmbeddingPurpose.QUERY)
    async with engine.connect() as connection:
        return await search(connection, question.vector)


async def _usual(
    corpus: tuple[Entry, ...], provider: SimulatedProvider, folder: Path, console: Console, options: DemoOptions
) -> Side:
    done, begun = Counter[str](), time.perf_counter()

    def words() -> str:
        rate = done.total() / (time.perf_counter() - begun)
        return f"{rate:.1f}/s  {provider.refused} refused with a 429"

    async with progress.watched(console, "the usual way", len(corpus), done.total, words):
        return await run_the_usual_way(
            corpus,
            provider,
            folder,
            model=MODEL,
            served=served(options.limits),
            workers=options.workers,
            finished=lambda: done.update(("done",)),
        )


def _words(statistics: RuntimeStatistics, done: int, elapsed_s: float) -> str:
    usage = statistics.usage
    cost = ", ".join(f"{amount:.3f} {currency}" for currency, amount in statistics.cost.items() if amount) or "0"
    return progress.figures(
        rate_per_s=done / elapsed_s,
        tokens=(usage.total_input_tokens or 0) + (usage.output_tokens or 0),
        cost=cost,
        waiting=statistics.admission.waiting,
        oldest_wait_s=statistics.admission.oldest_wait_s,
    )


def _say_simulated(console: Console, corpus: tuple[Entry, ...], limits: PublishedLimits) -> None:
    _say_input(console, corpus)
    console.print(
        "Chat is served by a [bold]simulated provider[/bold] on this machine: no key is needed. It publishes "
        f"{limits.rpm:,.0f} requests, {limits.input_tpm:,.0f} input tokens and {limits.output_tpm:,.0f} output tokens "
        f"a minute, of which {limits.burst_s:.0f} s may be taken at once, and refuses more with a 429. Decisions "
        "(sparrow) and embeddings (wordllama) run locally.\n"
    )


def _say_real(console: Console, corpus: tuple[Entry, ...], catalog: Path) -> None:
    _say_input(console, corpus)
    console.print(f"Chat is served by the providers of {catalog}, with the keys of this environment.\n")


def _say_input(console: Console, corpus: tuple[Entry, ...]) -> None:
    modules = len({entry.module for entry in corpus})
    console.print(
        f"Input: {len(corpus)} documentation strings from {modules} modules of Python's standard library. For each: a "
        "decision, a structured answer and an embedding, then one transaction that stores all of it."
    )


@contextmanager
def _folder(keep: Path | None) -> Iterator[Path]:
    if keep is None:
        with tempfile.TemporaryDirectory(prefix="interlock-demo-") as name:
            yield Path(name)
        return
    try:
        keep.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=keep):
            pass
    except OSError as error:
        raise ConfigurationError(f"{keep} cannot be made or written: {error.strerror or error}") from None
    if any(keep.glob("*.db")):
        raise ConfigurationError(f"{keep} holds databases already: name an empty folder")
    yield keep
