"""The demo, planned instead of run: what `interlock plan` says of it, from the record of a few entries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sqlalchemy.ext.asyncio import create_async_engine

from interlock.catalog import Catalog
from interlock.clients.simulator import PublishedLimits

from ..database import DatabaseProvider
from ..plan.forecast import Forecast, forecast
from ..plan.rehearsal import rehearse
from ..plan.sizes import Sizes
from ..plan.workload import Workload
from ..settings import RuntimeSettings
from ..store.rows import CallRow
from .corpus import read_corpus
from .main import CONNECTIONS
from .pipeline import LIBRARY, UNDER_WAY, catalogue
from .provider import LIMITS, catalog_text


def forecast_of_the_demo(
    entries: int, recorded: Sequence[CallRow], *, limits: PublishedLimits = LIMITS, runs: int = 20
) -> Forecast:
    """What the demo on so many entries would take. `recorded` are calls of an earlier run of it, on fewer."""
    catalog = Catalog.load(catalog_text("http://127.0.0.1:9", limits), file="the demo's catalog")
    engine = create_async_engine("sqlite+aiosqlite:///library.db")  # never opened
    settings = RuntimeSettings(
        catalog=catalog, store=None, databases=(DatabaseProvider(LIBRARY, engine, max_concurrent=CONNECTIONS),)
    )
    sizes = Sizes.of(recorded)
    corpus = read_corpus(entries)
    rehearsed = rehearse(catalogue, ({"entry": entry} for entry in corpus), settings, catalog, sizes)
    workload = Workload(
        lines=rehearsed.lines,
        counts=[1] * len(rehearsed.lines),
        concurrency=UNDER_WAY,
        gates={f"db:{LIBRARY}": CONNECTIONS},
        read=len(rehearsed.lines),
        notes=rehearsed.notes,
    )
    return forecast(workload, catalog, replace(sizes, pairs=rehearsed.pairs), runs=runs)
