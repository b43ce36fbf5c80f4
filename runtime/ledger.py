"""From the settings to a shared ledger: where several processes draw on the same pools."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from interlock.errors import ConfigurationError, LeaseLostError, LedgerUnavailableError, StoreError

if TYPE_CHECKING:
    from interlock.admission.ledger import Ledger

    from .settings import RuntimeSettings

T = TypeVar("T")

log = logging.getLogger("interlock.runtime")

#: `ledger=STORE`: beside the store, or in it.
STORE = "store"


async def open_ledger(settings: RuntimeSettings, on_lost: Callable[[LeaseLostError], None]) -> Ledger | None:
    """The ledger of the settings, opened; None where this process has its limits for itself.

    Raises ConfigurationError for a setting that names none, LedgerUnavailableError where it cannot be reached.
    `on_lost` may be called from another thread.
    """
    ledger = _ledger(settings, on_lost)
    if ledger is not None:
        try:
            await ledger.open()
        except BaseException:
            await ledger.close()
            raise
    return ledger


def _ledger(settings: RuntimeSettings, on_lost: Callable[[LeaseLostError], None]) -> Ledger | None:
    url = settings.ledger
    if url is None:
        return None
    if url == STORE:
        if settings.store is None:
            raise ConfigurationError('ledger="store" needs a store: give store= a URL, or ledger= one of its own')
        url = settings.store
    from .store.place import Place

    try:
        place = Place.of(url)
    except StoreError as error:
        said = str(error) if settings.ledger == STORE else f"ledger= names no database: {error}"
        raise ConfigurationError(said) from None
    if place.kind == "postgresql":
        from interlock.admission.ledger.postgres import PostgresLedger

        return PostgresLedger(place.dsn, prepared=place.prepares, on_lost=on_lost, ttl_s=settings.lease_s)
    if place.path is None:
        raise ConfigurationError("a ledger in memory is this process's own: leave ledger= out, or give it a file")
    from interlock.admission.ledger.sqlite import SQLiteLedger

    return SQLiteLedger(beside(place.path), on_lost=on_lost, ttl_s=settings.lease_s)


def in_this_loop(hear: Callable[[T], None]) -> Callable[[T], None]:
    """The same, to be called from any thread."""
    loop = asyncio.get_running_loop()

    def heard(what: T) -> None:
        with suppress(RuntimeError):  # the loop is closed: nothing runs any more
            loop.call_soon_threadsafe(hear, what)

    return heard


async def leave(ledger: Ledger) -> None:
    """Give back what this process holds, and disconnect. A ledger that is away is left to see the lease pass."""
    try:
        await ledger.leave()
    except (LedgerUnavailableError, LeaseLostError, ConfigurationError) as error:
        log.warning("the ledger was not told of this process's end: %s", error)
    finally:
        await ledger.close()


def beside(store: Path) -> Path:
    """The ledger's file of a store in SQLite. A file of its own: whoever writes one keeps all others from it, and the
    ledger is written hundreds of times a second. (On a server it is tables beside the store's.)"""
    return store.with_name(f"{store.name}-ledger")
