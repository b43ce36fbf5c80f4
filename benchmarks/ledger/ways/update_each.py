"""The plainest way that is correct: a row with a level, and for each reservation an UPDATE that takes from it.

What was not used comes back with a second one. On PostgreSQL a connection a caller; on SQLite a transaction each, in
the process's one thread.
"""

from __future__ import annotations

import asyncio
import sqlite3
import sys
from concurrent.futures import ThreadPoolExecutor

import asyncpg
from loop import RESERVED, USED, Once, callers

CAPACITY, RATE = 6e10, 1e9
TABLE = "create table if not exists bucket (id integer primary key, level float8 not null, at float8 not null)"
LEVEL = f"min({CAPACITY}, level + ({{now}} - at) * {RATE})"


async def on_postgres(url: str, count: int) -> list[Once]:
    now = "extract(epoch from clock_timestamp())::float8"
    level = LEVEL.format(now=now).replace("min(", "least(")
    take = f"update bucket set level = {level} - $1, at = {now} where id = 1 and {level} >= $1 returning level"
    first = await asyncpg.connect(url)
    async with first.transaction():
        await first.execute("select pg_advisory_xact_lock(1)")
        await first.execute(TABLE)
        await first.execute(f"insert into bucket values (1, {CAPACITY}, 0) on conflict do nothing")
    await first.close()
    pool = await asyncpg.create_pool(url, min_size=count, max_size=count)

    async def once() -> None:
        async with pool.acquire() as connection:
            assert await connection.fetchval(take, float(RESERVED)) is not None, "the level is never short here"
            await connection.execute("update bucket set level = level + $1 where id = 1", float(RESERVED - USED))

    return [once]


async def on_sqlite(path: str) -> list[Once]:
    level = LEVEL.format(now="(julianday('now') * 86400.0)")
    take = f"update bucket set level = {level} - ?, at = julianday('now') * 86400.0 where id = 1 and {level} >= ?"
    thread = ThreadPoolExecutor(1)

    def opened() -> sqlite3.Connection:
        connection = sqlite3.connect(path, timeout=30, isolation_level=None)
        connection.execute("pragma journal_mode = wal")
        connection.execute("pragma synchronous = normal")
        connection.execute(TABLE)
        connection.execute(f"insert or ignore into bucket values (1, {CAPACITY}, 0)")
        return connection

    loop = asyncio.get_running_loop()
    connection = await loop.run_in_executor(thread, opened)

    async def once() -> None:
        await loop.run_in_executor(thread, connection.execute, take, (RESERVED, RESERVED))
        back = "update bucket set level = level + ? where id = 1"
        await loop.run_in_executor(thread, connection.execute, back, (RESERVED - USED,))

    return [once]


async def main(url: str, count: int, seconds: float) -> None:
    (once,) = await (on_postgres(url, count) if url.startswith("postgresql") else on_sqlite(url))
    await callers(once, count, seconds)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[3]), float(sys.argv[4])))
