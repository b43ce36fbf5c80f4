"""Whether the user's data shares the store's database. It should not: what the store does, it does often and shortly,
and one long transaction of the user's in the same database makes that slow (on a server) or wait (in a file).
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from .place import Place

if TYPE_CHECKING:
    from sqlalchemy import URL

    from ..database import DatabaseProvider

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
