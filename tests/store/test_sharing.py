"""A database of the user's that is the store's own is warned of."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy.engine import make_url
from sqlalchemy.ext.asyncio import create_async_engine

from interlock import LLMCall
from interlock.clients.simulator import SimulatedProvider
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


async def test_processes_that_do_not_share_their_limits_are_told_so_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with SimulatedProvider().in_thread() as provider:
        catalog = tmp_path / "catalog.yaml"
        catalog.write_text(
            f'providers:\n  simulated: {{base_url: "{provider.base_url}"}}\nmodels:\n'
            "  - {id: small, grade: SMALL, provider: simulated, wire_model_id: small, context_window: 1000,"
            " max_output_tokens: 100, limits: {rpm: 6000}}\npins: {SMALL: [small]}\n"
        )
        settings = RuntimeSettings(catalog=catalog, store=f"sqlite:///{tmp_path}/s.db")
        shared = replace(settings, ledger="store")

        async def said(one: RuntimeSettings, calls: int = 1) -> int:
            caplog.clear()
            async with Runtime(one) as runtime:
                for _ in range(calls):
                    await runtime.run(LLMCall("Say hello.", max_output_tokens=10))
            return sum('ledger="store"' in record.message for record in caplog.records)

        assert await said(settings) == 0  # alone
        async with Runtime(settings):
            assert await said(settings, calls=3) == 1
            assert await said(settings, calls=0) == 0  # it only puts something there, or looks
            assert await said(shared) == 0
        assert await said(settings) == 0  # the other has ended
