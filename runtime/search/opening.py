"""From a URL to a collection."""

from __future__ import annotations

from interlock.errors import ConfigurationError, StoreError

from ..store.place import Place
from ..store.text import storable
from .collection import Collection
from .documents import DOCUMENTS

#: Characters of a collection's name.
MOST_NAME = 200


async def open_collection(url: str, name: str = DOCUMENTS, *, create: bool = True, hold_mb: int = 1_024) -> Collection:
    """Open a collection: `async with await open_collection("sqlite:///docs.db") as documents`.

    `url`: `sqlite:///docs.db`, or `postgresql://user@host/database` (extra `postgres`, with pgvector on the server).
    One store holds many collections by `name`. Without `create` a store that is not there is StoreError, and a file
    that may not be written is read as it is, provided that nobody else writes it meanwhile. `hold_mb`: an SQLite store
    keeps up to that many MB of vectors in memory once it is searched; 0 reads the file at each search.
    Raises ConfigurationError or StoreError, without a password in its words.
    """
    _check_name(name)
    place = Place.of(url)
    if place.kind == "sqlite":
        from .sqlite import SqliteCollection

        if place.url.query:
            raise StoreError(f"the store {place.name} has options, and a file takes none: write sqlite:///docs.db")
        collection: Collection = SqliteCollection(
            place.name, name, place.url.database or ":memory:", create=create, hold_mb=hold_mb
        )
    else:
        from .postgres import PostgresCollection

        collection = PostgresCollection(place.name, name, place.dsn, create=create)
    try:
        await collection.open()
    except BaseException:
        await collection.close()
        raise
    return collection


def _check_name(name: str) -> None:
    if not isinstance(name, str) or not name or len(name) > MOST_NAME or storable(name) != name:
        shown = repr(name[:40] if isinstance(name, str) else name)
        raise ConfigurationError(
            f"a collection has a name of 1 to {MOST_NAME} characters that every database takes, which cannot be {shown}"
        )
