"""The server that other tests stand on is the real one."""

from __future__ import annotations

import asyncpg
from postgres_server import PostgresTestServer


async def test_the_postgres_of_the_tests_is_one_with_pgvector(postgres: PostgresTestServer) -> None:
    connection = await asyncpg.connect(postgres.fresh(vector=True).replace("+asyncpg", ""))
    try:
        assert (await connection.fetchval("show server_version")).startswith("18.")
        assert await connection.fetchval("select '[1,2]'::vector <-> '[1,5]'::vector") == 3
    finally:
        await connection.close()


async def test_the_postgres_of_the_tests_comes_back_after_a_restart(postgres: PostgresTestServer) -> None:
    dsn = postgres.fresh().replace("+asyncpg", "")
    postgres.restart()
    connection = await asyncpg.connect(dsn)
    try:
        assert await connection.fetchval("select 1") == 1
    finally:
        await connection.close()
