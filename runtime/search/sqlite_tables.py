"""The tables of a collection in SQLite, and the statements on them. Whoever calls has begun the transaction.

interlock_collections    one row a generation: the one that is found, and perhaps its replacement, which is being made
interlock_documents_N    id, text, its digest, fields; by key
interlock_vectors_N      the vectors, by the same key and apart, so that a scan reads nothing else
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from .documents import VectorModel

if TYPE_CHECKING:
    from .documents import Row

#: Bytes of a page of a new file: seven vectors of 1,024 numbers lie in one, instead of none in a page of 4,096.
PAGE = 32_768
#: Seconds until a new file is asked for again.
AGAIN_S = 0.01
_REGISTRY = """
CREATE TABLE IF NOT EXISTS interlock_collections (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT NOT NULL,
    replacement INTEGER NOT NULL,
    model TEXT NOT NULL,
    entry TEXT NOT NULL,
    width INTEGER NOT NULL,
    next_key INTEGER NOT NULL DEFAULT 1,
    removed INTEGER NOT NULL DEFAULT 0,
    UNIQUE (name, replacement)
)
"""
_DOCUMENTS = """
CREATE TABLE {0.documents} (
    key INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    digest BLOB NOT NULL,
    text TEXT NOT NULL,
    fields TEXT NOT NULL
)
"""
_VECTORS = "CREATE TABLE {0.vectors} (key INTEGER PRIMARY KEY, vector BLOB NOT NULL)"


class Generation(NamedTuple):
    """All vectors of a collection by one model. `removed` counts rows that went, `next_key` is the next row's."""

    number: int
    model: VectorModel
    width: int
    next_key: int
    removed: int

    @property
    def documents(self) -> str:
        return f"interlock_documents_{self.number}"

    @property
    def vectors(self) -> str:
        return f"interlock_vectors_{self.number}"


def prepare(connection: sqlite3.Connection, *, busy_s: float) -> None:
    connection.execute(f"PRAGMA page_size={PAGE}")  # of a file that is there already it stays as it is
    _write_ahead(connection, time.monotonic() + busy_s)
    connection.execute("PRAGMA synchronous=NORMAL")
    connection.execute(_REGISTRY)


def read_only(path: str) -> sqlite3.Connection:
    """A connection to a file that cannot be written. sqlite3.Error where it cannot be read either."""
    address = Path(path).absolute().as_uri()
    try:
        return _reading(f"{address}?mode=ro")
    except sqlite3.Error:
        if has_log(path):
            raise
    # To read such a file SQLite writes beside it, unless told that nobody else writes either. What only the log has
    # would be missing then; it is empty, and gone, once the last writer has closed the file.
    return _reading(f"{address}?immutable=1")


def _reading(address: str) -> sqlite3.Connection:
    connection = sqlite3.connect(address, uri=True, isolation_level=None)
    try:
        connection.execute("SELECT 1 FROM interlock_collections LIMIT 1").fetchone()
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def has_log(path: str) -> bool:
    """Whether something is stored that is not in the file itself yet."""
    log = Path(f"{path}-wal")
    return log.is_file() and log.stat().st_size > 0


def _write_ahead(connection: sqlite3.Connection, until: float) -> None:
    """The log that lets others read while one writes. SQLite does not wait for a lock to change to it, so where two
    processes open a new file at once, one of them has to ask again."""
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > until:
                raise
            time.sleep(AGAIN_S)


def load_extension(connection: Any) -> bool:
    """Whether sqlite-vec is there. Many builds of Python cannot load extensions at all."""
    try:
        extension = import_module("sqlite_vec")
        connection.enable_load_extension(True)
    except (ImportError, AttributeError, sqlite3.Error):
        return False
    try:
        extension.load(connection)
    except sqlite3.Error:
        return False
    finally:
        with suppress(sqlite3.Error):
            connection.enable_load_extension(False)
    return True


def generation(connection: sqlite3.Connection, name: str, *, replacement: bool = False) -> Generation | None:
    row = connection.execute(
        "SELECT number, model, entry, width, next_key, removed FROM interlock_collections"
        " WHERE name = ? AND replacement = ?",
        (name, int(replacement)),
    ).fetchone()
    if row is None:
        return None
    number, identity, entry, width, next_key, removed = row
    return Generation(number, VectorModel(identity=identity, entry=entry), width, next_key, removed)


def both(connection: sqlite3.Connection, name: str) -> tuple[Generation, Generation] | None:
    """The generation that is found, and its replacement."""
    now, new = generation(connection, name), generation(connection, name, replacement=True)
    return None if now is None or new is None else (now, new)


def create(
    connection: sqlite3.Connection, name: str, model: VectorModel, width: int, *, replacement: bool = False
) -> Generation:
    connection.execute(
        "INSERT INTO interlock_collections (name, replacement, model, entry, width) VALUES (?, ?, ?, ?, ?)",
        (name, int(replacement), model.identity, model.entry, width),
    )
    made = generation(connection, name, replacement=replacement)
    assert made is not None
    connection.execute(_DOCUMENTS.format(made))
    connection.execute(_VECTORS.format(made))
    return made


def drop(connection: sqlite3.Connection, gone: Generation) -> None:
    connection.execute(f"DROP TABLE {gone.documents}")
    connection.execute(f"DROP TABLE {gone.vectors}")
    connection.execute("DELETE FROM interlock_collections WHERE number = ?", (gone.number,))


def replace(connection: sqlite3.Connection, into: Generation, rows: Sequence[Row]) -> None:
    remove(connection, into, [row.id for row in rows])
    keys = range(into.next_key, into.next_key + len(rows))
    connection.executemany(
        f"INSERT INTO {into.documents} (key, id, digest, text, fields) VALUES (?, ?, ?, ?, ?)",
        ((key, row.id, row.digest, row.text, row.fields) for key, row in zip(keys, rows, strict=True)),
    )
    connection.executemany(
        f"INSERT INTO {into.vectors} (key, vector) VALUES (?, ?)",
        ((key, row.vector.tobytes()) for key, row in zip(keys, rows, strict=True)),
    )
    connection.execute(
        "UPDATE interlock_collections SET next_key = next_key + ? WHERE number = ?", (len(rows), into.number)
    )


def remove(connection: sqlite3.Connection, where: Generation, ids: Sequence[str]) -> int:
    wanted = f"SELECT key FROM {where.documents} WHERE id IN (SELECT value FROM json_each(?))"
    keys = connection.execute(wanted, (_list(ids),)).fetchall()
    if keys:
        connection.executemany(f"DELETE FROM {where.vectors} WHERE key = ?", keys)
        connection.executemany(f"DELETE FROM {where.documents} WHERE key = ?", keys)
        connection.execute(
            "UPDATE interlock_collections SET removed = removed + ? WHERE number = ?", (len(keys), where.number)
        )
    return len(keys)


def _list(ids: Sequence[str]) -> str:
    return json.dumps(ids, ensure_ascii=False)


def digests(connection: sqlite3.Connection, where: Generation, ids: Sequence[str]) -> dict[str, tuple[bytes, str]]:
    """Digest and fields of the stored ones of these."""
    wanted = f"SELECT id, digest, fields FROM {where.documents} WHERE id IN (SELECT value FROM json_each(?))"
    return {row[0]: (row[1], row[2]) for row in connection.execute(wanted, (_list(ids),))}


_LACKING = """
FROM {old.documents} o LEFT JOIN {new.documents} n ON n.id = o.id
WHERE o.id > ? AND (n.id IS NULL OR n.digest <> o.digest)
"""


def lacking(
    connection: sqlite3.Connection, old: Generation, new: Generation, after: str, limit: int
) -> list[tuple[str, str, str]]:
    """(id, text, fields) of what the old generation has and the new one has not, or with another text."""
    wanted = f"SELECT o.id, o.text, o.fields {_LACKING.format(old=old, new=new)} ORDER BY o.id LIMIT ?"
    return connection.execute(wanted, (after, limit)).fetchall()


def switch(connection: sqlite3.Connection, old: Generation, new: Generation) -> int:
    """The new generation takes the old one's place where it lacks nothing; otherwise how many it lacks."""
    count: int = connection.execute(f"SELECT count(*) {_LACKING.format(old=old, new=new)}", ("",)).fetchone()[0]
    if count:
        return count
    gone = f"SELECT key FROM {new.documents} WHERE id NOT IN (SELECT id FROM {old.documents})"
    connection.execute(f"DELETE FROM {new.vectors} WHERE key IN ({gone})")
    connection.execute(f"DELETE FROM {new.documents} WHERE id NOT IN (SELECT id FROM {old.documents})")
    connection.execute(
        f"UPDATE {new.documents} AS n SET fields = (SELECT fields FROM {old.documents} o WHERE o.id = n.id)"
    )
    drop(connection, old)
    connection.execute("UPDATE interlock_collections SET replacement = 0 WHERE number = ?", (new.number,))
    return 0
