"""Who shares the store's database. The user's data should not: what the store does, it does often and shortly, and one
long transaction of the user's in the same database makes that slow (on a server) or wait (in a file). Other processes
may, and mostly mean to share their limits too.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from interlock.errors import StoreError

from .place import Place

if TYPE_CHECKING:
    from sqlalchemy import URL

    from ..database import DatabaseProvider
    from .book import Shared

log = logging.getLogger("interlock.runtime")

_HERE = {"", "localhost", "127.0.0.1", "::1"}
_PORT = 5432


def sharing(store: str, databases: Iterable[DatabaseProvider]) -> list[str]:
    """The names of the databases that are the store's own."""
    place = identity(Place.of(store).url)
    return [given.name for given in databases if place is not None and identity(given.engine.url) == place]


def identity(url: URL) -> tuple[str, ...] | None:
    """What two URLs of one database have in common; None for one that nobody else can reach."""
    backend, database = url.get_backend_name(), url.database or ""
    if backend == "sqlite":
        memory = not database or database == ":memory:" or database.startswith("file:")
        return None if memory else (backend, os.path.realpath(Path(database)))
    host = url.host or url.query.get("host", "")
    name = host if isinstance(host, str) else host[0]
    port = url.port or url.query.get("port", _PORT)
    return (backend, "localhost" if name in _HERE else name.lower(), str(port), database or url.username or "")


def warn_of_sharing(store: str, databases: Iterable[DatabaseProvider]) -> None:
    """Say so, once a Runtime. Raises StoreError for a store's URL that cannot be read."""
    names = sharing(store, databases)
    if names:
        log.warning(
            "the database %s is the one that the store is in: a long transaction there holds up every record and every"
            " reservation. Give the store a database of its own",
            " and ".join(map(repr, names)),
        )


async def warn_of_others(book: Shared) -> None:
    """Called where this process has its limits for itself."""
    with suppress(StoreError):  # it is closed by now
        others = await book.others()
        if others:
            log.warning(
                "%d other process%s this store open, and the limits of models are not shared with %s: together they may"
                ' send more than a provider allows. RuntimeSettings(ledger="store") in each of them shares the limits',
                others,
                " has" if others == 1 else "es have",
                "it" if others == 1 else "them",
            )
