"""A database of the user's that is the store's own is warned of."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy.engine import make_url
from sqlalchemy.ext.asyncio import create_async_engine

from interlock.runtime import DatabaseProvider, Runtime, RuntimeSettings
from interlock.runtime.store.sharing import sharing


def one(url: str) -> Any:
    return SimpleNamespace(name="theirs", engine=SimpleNamespace(url=make_url(url)))


@pytest.mark.parametrize(
    ("store", "theirs", "same"),
    [
        ("sqlite:///interlock.db", "sqlite+aiosqlite:///./interlock.db", True),
        ("sqlite:///interlock.db", "sqlite+aiosqlite:///tickets.db", False),
        ("sqlite:///:memory:", "sqlite+aiosqlite:///:memory:", False),
        ("sqlite:///interlock.db", "postgresql+asyncpg://localhost/interlock", False),
        ("postgresql://a@localhost/db", "postgresql+asyncpg://b:pw@127.0.0.1:5432/db", True),
        ("postgresql://a@db.example/db", "postgresql+psycopg://a@DB.example/db?sslmode=require", True),
        ("postgresql://a@localhost/db", "postgresql+asyncpg://a@localhost/other", False),
        ("postgresql://a@localhost/db", "postgresql+asyncpg://a@localhost:5433/db", False),
        ("postgresql://a@one/db", "postgresql+asyncpg://a@two/db", False),
        ("postgresql://a@/db?host=/run/pg", "postgresql+asyncpg://a@/db?host=/run/pg", True),
        ("postgresql://a@/db?host=/run/pg", "postgresql+asyncpg://a@/db?host=/run/other", False),
    ],
)
def test_two_urls_of_one_database_are_told_from_two_databases(store: str, theirs: str, same: bool) -> None:
    assert sharing(store, [one(theirs)]) == (["theirs"] if same else [])


async def test_a_runtime_warns_of_it_by_name_and_without_a_password(
    tmp_path: Any, caplog: pytest.LogCaptureFixture
) -> None:
    engine = create_async_engine(f"sqlite+aiosqlite:///{tmp_path}/one.db")
    with caplog.at_level(logging.WARNING, "interlock.runtime"):
        for name, warned in (("one", 1), ("two", 0)):
            caplog.clear()
            settings = RuntimeSettings(
                store=f"sqlite:///{tmp_path}/{name}.db", databases=(DatabaseProvider("tickets", engine),)
            )
            async with Runtime(settings):
                pass
            said = [record.getMessage() for record in caplog.records if "database of its own" in record.getMessage()]
            assert len(said) == warned
            assert all(text.startswith("the database 'tickets' is the one that the store is in") for text in said)
    await engine.dispose()
