"""From settings to what is open: the catalog's desk, the accounts, the store, and the dispatcher over them."""

from __future__ import annotations

import asyncio
import random
from datetime import UTC, datetime
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

from interlock.admission import Admission, Cap, SpendGate, SystemClock
from interlock.catalog import Catalog
from interlock.catalog.pricing import parse_cap
from interlock.credentials import Chain
from interlock.errors import SpendCapExceededError

from .desk import ModelDesk, Surroundings
from .dispatcher import Dispatcher
from .levels import LevelKeeper
from .settings import RuntimeSettings
from .store.book import Book, MemoryBook, Shared
from .uncancelled import uncancelled

if TYPE_CHECKING:
    from interlock.admission.ledger import Ledger

#: The name of the cost cap of a whole Runtime.
DEPLOYMENT = "deployment"


def others_could_pay(error: BaseException | None) -> bool:
    """Whether what stands in the way is what this Runtime has spent by now. A call that is more than its whole cap is
    refused by every Runtime of that cap."""
    if not isinstance(error, SpendCapExceededError) or error.name != DEPLOYMENT:
        return False
    return Decimal(error.ask) <= Decimal(error.cap)


async def opened(settings: RuntimeSettings, credentials: Chain, ledger: Ledger | None) -> Dispatcher:
    """Raises CatalogError, ConfigurationError or StoreError; then nothing of it is left open but the ledger."""
    cap = None if settings.cost_cap is None else parse_cap(settings.cost_cap)
    clock, wall, rng = settings.clock or SystemClock(), settings.wall or _utc_now, random.Random(settings.seed)
    admission = Admission(clock, jitter=rng.random, freeze=settings.freeze, wall=wall, ledger=ledger)
    around = Surroundings(
        credentials=credentials,
        clock=clock,
        wall=wall,
        jitter=rng.random,
        keep_text=settings.keep_text,
        models=settings.models,
    )
    picker = settings.models.picker() if settings.models.picker is not None else None
    desk = ModelDesk(_catalog(settings), around, admission, picker)
    spending = SpendGate()
    if cap is not None:
        spending.add(Cap(name=DEPLOYMENT, amount=cap[0], currency=cap[1]))
    book = await uncancelled(_open_book(settings))
    levels = LevelKeeper(admission, book, clock=clock, wall=wall, owner=uuid4().hex, keeps=desk.outlives)
    try:
        if settings.store is not None:
            await uncancelled(levels.open())
        dispatcher = Dispatcher(
            settings,
            clock=clock,
            wall=wall,
            rng=rng,
            admission=admission,
            spending=spending,
            desk=desk,
            book=book,
            levels=None if settings.store is None else levels,
            ledger=ledger,
        )
        if ledger is None and isinstance(book, Shared):
            desk.on_first_pool = partial(_look_for_others, dispatcher, book)
        from .journal.starting import keeping_of

        dispatcher.keeping = await keeping_of(dispatcher, credentials.redactor.redact)
    except BaseException:
        await uncancelled(book.close())
        raise
    return dispatcher


def _look_for_others(dispatcher: Dispatcher, book: Shared) -> None:
    from .store.sharing import warn_of_others

    dispatcher.looking = asyncio.get_running_loop().create_task(warn_of_others(book), name="interlock-others")


def _utc_now() -> datetime:
    return datetime.now(UTC)


def _catalog(settings: RuntimeSettings) -> Catalog:
    given = settings.catalog
    if given is None:
        return Catalog.default()
    return given if isinstance(given, Catalog) else Catalog.load(Path(given))


async def _open_book(settings: RuntimeSettings) -> Book:
    if settings.store is None:
        kept: Book = getattr(settings.journal, "book", None) or MemoryBook()
        return kept
    from .store.opening import open_book
    from .store.sharing import warn_of_sharing

    warn_of_sharing(settings.store, settings.databases)
    url, durability = settings.store, settings.store_durability
    return await asyncio.to_thread(open_book, url, durability=durability, ttl_s=settings.lease_s)
