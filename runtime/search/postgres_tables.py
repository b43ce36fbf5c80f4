"""The tables of a collection in Postgres, and the statements on them. Whoever calls has begun the transaction.

interlock_collections    one row a generation: the one that is found, and perhaps its replacement, which is being made
interlock_documents_N    id, text, its digest, fields, and the vector in a column of that width
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from .documents import VectorModel

if TYPE_CHECKING:
    from .documents import Row

#: pgvector's HNSW takes a `vector` of so many numbers; wider ones are indexed in half precision and scored in full.
WIDEST_INDEXED = 2_000
#: Rows of one statement.
ROWS_AT_ONCE = 128
#: The one lock that who makes or drops tables takes alone and everybody else takes shared: "interloc" in ASCII.
LOCK = 0x696E7465726C6F63
_REGISTRY = """
CREATE TABLE IF NOT EXISTS interlock_collections (
    number BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name TEXT NOT NULL,
    replacement BOOLEAN NOT NULL,
    model TEXT NOT NULL,
    entry TEXT NOT NULL,
    width INTEGER NOT NULL,
    UNIQUE (name, replacement)
)
"""


class Generation(NamedTuple):
    """All vectors of a collection by one model."""

    number: int
    model: VectorModel
    width: int

    @property
    def documents(self) -> str:
        return f"interlock_documents_{self.number}"

    @property
    def index_name(self) -> str:
        return f"{self.documents}_hnsw"

    @property
    def indexed(self) -> str:
        """The expression that the index is on, and that a search must be ordered by to use it."""
        return "embedding" if self.width <= WIDEST_INDEXED else f"(embedding::halfvec({self.width}))"

    @property
    def question(self) -> str:
        return "$1" if self.width <= WIDEST_INDEXED else f"$1::vector::halfvec({self.width})"

    @property
    def operators(self) -> str:
        return "vector_ip_ops" if self.width <= WIDEST_INDEXED else "halfvec_ip_ops"


async def is_there(connection: Any) -> bool:
    ready = "SELECT to_regtype('vector') IS NOT NULL AND to_regclass('interlock_collections') IS NOT NULL"
    return bool(await connection.fetchval(ready))


async def prepare(connection: Any) -> None:
    """The extension and the registry, where they are not there yet."""
    if await is_there(connection):
        return
    async with connection.transaction():
        await connection.execute("SELECT pg_advisory_xact_lock($1)", LOCK)
        await connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
        await connection.execute(_REGISTRY)


async def generation(connection: Any, name: str, *, replacement: bool = False) -> Generation | None:
    row = await connection.fetchrow(
        "SELECT number, model, entry, width FROM interlock_collections WHERE name = $1 AND replacement = $2",
        name,
        replacement,
    )
    if row is None:
        return None
    return Generation(row["number"], VectorModel(identity=row["model"], entry=row["entry"]), row["width"])


async def both(connection: Any, name: str) -> tuple[Generation, Generation] | None:
    """The generation that is found, and its replacement."""
    now, new = await generation(connection, name), await generation(connection, name, replacement=True)
    return None if now is None or new is None else (now, new)


async def create(
    connection: Any, name: str, model: VectorModel, width: int, *, replacement: bool = False
) -> Generation:
    """Whoever calls holds LOCK."""
    await connection.execute(
        "INSERT INTO interlock_collections (name, replacement, model, entry, width) VALUES ($1, $2, $3, $4, $5)",
        name,
        replacement,
        model.identity,
        model.entry,
        width,
    )
    made = await generation(connection, name, replacement=replacement)
    assert made is not None
    await connection.execute(
        f'CREATE TABLE {made.documents} (id TEXT COLLATE "C" PRIMARY KEY, digest BYTEA NOT NULL, text TEXT NOT NULL,'
        f" fields JSON NOT NULL, embedding vector({width}) NOT NULL)"
    )
    return made


async def drop(connection: Any, gone: Generation) -> None:
    await connection.execute(f"DROP TABLE {gone.documents}")
    await connection.execute("DELETE FROM interlock_collections WHERE number = $1", gone.number)


async def replace(connection: Any, into: Generation, rows: Sequence[Row]) -> None:
    """Arrays in one statement: asyncpg's executemany waits forever where the connection is lost under it."""
    from pgvector import Vector

    ordered = sorted(rows, key=lambda row: row.id)  # two processes lock the same rows in the same order
    for at in range(0, len(ordered), ROWS_AT_ONCE):
        some = ordered[at : at + ROWS_AT_ONCE]
        await connection.execute(
            f"INSERT INTO {into.documents} (id, digest, text, fields, embedding)"
            " SELECT * FROM unnest($1::text[], $2::bytea[], $3::text[], $4::json[], $5::vector[])"
            " ON CONFLICT (id) DO UPDATE SET digest = excluded.digest, text = excluded.text, fields = excluded.fields,"
            " embedding = excluded.embedding",
            *([getattr(row, column) for row in some] for column in ("id", "digest", "text", "fields")),
            [Vector(row.vector) for row in some],  # an array in an array would be an array of two dimensions
        )


async def take_over_fields(connection: Any, of: Generation, changed: Sequence[tuple[str, str]]) -> None:
    """(id, fields as JSON text) of documents that are there."""
    ids = [id for id, _ in changed]
    await connection.execute(f"SELECT FROM {of.documents} WHERE id = ANY($1) ORDER BY id FOR UPDATE", ids)
    await connection.execute(
        f"UPDATE {of.documents} d SET fields = n.fields"
        " FROM unnest($1::text[], $2::json[]) AS n (id, fields) WHERE d.id = n.id",
        ids,
        [fields for _, fields in changed],
    )


_LACKING = """
FROM {old.documents} o LEFT JOIN {new.documents} n ON n.id = o.id
WHERE o.id > $1 AND (n.id IS NULL OR n.digest <> o.digest)
"""


async def lacking(connection: Any, old: Generation, new: Generation, after: str, limit: int) -> list[Any]:
    """(id, text, fields) of what the old generation has and the new one has not, or with another text."""
    wanted = f"SELECT o.id, o.text, o.fields {_LACKING.format(old=old, new=new)} ORDER BY o.id LIMIT $2"
    found: list[Any] = await connection.fetch(wanted, after, limit)
    return found


async def switch(connection: Any, old: Generation, new: Generation) -> int:
    """The new generation takes the old one's place where it lacks nothing; otherwise how many it lacks."""
    count: int = await connection.fetchval(f"SELECT count(*) {_LACKING.format(old=old, new=new)}", "")
    if count:
        return count
    await connection.execute(
        f"DELETE FROM {new.documents} n WHERE NOT EXISTS (SELECT FROM {old.documents} o WHERE o.id = n.id)"
    )
    await connection.execute(
        f"UPDATE {new.documents} n SET fields = o.fields FROM {old.documents} o"
        " WHERE o.id = n.id AND o.fields::text <> n.fields::text"
    )
    await drop(connection, old)
    await connection.execute("UPDATE interlock_collections SET replacement = FALSE WHERE number = $1", new.number)
    return 0


async def build_index(connection: Any, of: Generation, *, memory_mb: int) -> None:
    """The HNSW index, unless a whole one is there. One that was cut off while it was built is built again."""
    valid = await connection.fetchval(
        "SELECT i.indisvalid FROM pg_index i WHERE i.indexrelid = to_regclass($1)", of.index_name
    )
    if valid:
        return
    if valid is False:
        await connection.execute(f"DROP INDEX CONCURRENTLY IF EXISTS {of.index_name}")
    await connection.execute(f"SET maintenance_work_mem = '{memory_mb}MB'")
    await connection.execute(
        f"CREATE INDEX CONCURRENTLY {of.index_name} ON {of.documents} USING hnsw ({of.indexed} {of.operators})"
    )
