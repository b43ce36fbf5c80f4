"""The ledgers that the suite runs against, and a database for those that need one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from ledger.houses import House, by_hand, postgres_house

from interlock.admission.ledger import Ledger, MemoryHub, MemoryLedger


@pytest.fixture(scope="session")
def ledger_database(postgres: Any) -> str:
    """A database with the ledger's tables and a clock that is set by hand: emptied before each house."""
    import asyncpg

    from interlock.admission.ledger.postgres_schema import STATEMENTS

    url = postgres.fresh()

    async def make() -> None:
        connection = await asyncpg.connect(url.replace("+asyncpg", ""))
        for statement in (*STATEMENTS, "create table hand (now float8)"):
            await connection.execute(statement)
        await connection.execute(
            "create or replace function interlock_ledger_now() returns float8 language sql volatile "
            "as 'select now from hand'"
        )
        await connection.close()

    with ThreadPoolExecutor(1) as thread:  # a loop may be running here
        thread.submit(asyncio.run, make()).result()
    return str(url)


@pytest.fixture(params=["memory", "sqlite", "postgres"])
async def house(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[House]:
    connection = None
    if request.param == "memory":
        hubs: list[MemoryHub] = []

        def in_memory(now: Callable[[], float], **settings: Any) -> Ledger:
            hubs.append(hubs[0] if hubs else MemoryHub(now))
            return MemoryLedger(hubs[0], **settings)

        made = by_hand("memory", in_memory)
    elif request.param == "sqlite":
        from interlock.admission.ledger.sqlite import SQLiteLedger

        made = by_hand("sqlite", lambda now, **settings: SQLiteLedger(tmp_path / "ledger.db", clock=now, **settings))
    else:
        made, connection = await postgres_house(request.getfixturevalue("ledger_database"))
    try:
        yield made
    finally:
        await made.close()
        if connection is not None:
            await connection.close()
