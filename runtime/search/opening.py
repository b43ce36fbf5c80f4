"""From a URL to a collection."""

from __future__ import annotations

from interlock.errors import ConfigurationError, StoreError

from .collection import Collection
from .documents import DOCUMENTS


async def open_collection(url: str, name: str = DOCUMENTS, *, create: bool = True, hold_mb: int = 1_024) -> Collection:
    """Open a collection: `async with await open_collection("sqlite:///docs.db") as documents`.

    `url`: `sqlite:///docs.db`, or `postgresql://user@host/database` (extra `postgres`, with pgvector on the server).
    One store holds many collections by `name`. Without `create` a store that is not there is StoreError. `hold_mb`: an
    SQLite store keeps up to that many MB of vectors in memory once it is searched; 0 reads the file at each search.
    Raises ConfigurationError or StoreError, without a password in its words.
    """
    from sqlalchemy.engine import make_url

    if not name or not isinstance(name, str):
        raise ConfigurationError(f"a collection has a name, which cannot be {name!r}")
    try:
        parsed = make_url(url)
    except Exception:
        raise StoreError("the store's URL cannot be read; write it as sqlite:///docs.db") from None
    place = parsed.render_as_string(hide_password=True)
    backend = parsed.get_backend_name()
    if backend == "sqlite":
        from .sqlite import SqliteCollection

        collection: Collection = SqliteCollection(
            place, name, parsed.database or ":memory:", create=create, hold_mb=hold_mb
        )
    elif backend == "postgresql":
        from .postgres import PostgresCollection

        dsn = parsed.set(drivername="postgresql").render_as_string(hide_password=False)
        collection = PostgresCollection(place, name, dsn, create=create)
    else:
        raise StoreError(f"the store {place} is of another kind: write sqlite:///docs.db or postgresql://host/database")
    try:
        await collection.open()
    except BaseException:
        await collection.close()
        raise
    return collection
